"""Reductions, their variants with pro- and epilogues, scans and sorts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL
from graphwright.frontends.onnx.compose_movement import axes_of
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _axes(node: Node, x: Value) -> tuple[int, ...] | None:
    """The axes to reduce; None: reduce nothing at all."""
    axes, keep_all = axes_of(node, 1), node.attr("noop_with_empty_axes", 0)
    if not axes:
        return None if keep_all else tuple(range(x.type.rank))
    return tuple(sorted(node.axes(axes, x.type.rank)))


def reduction(
    op: str,
    *,
    before: Callable[[Node, Value], Value] | None = None,
    after: Callable[[Node, Value], Value] | None = None,
) -> Callable[[Node], Value]:
    """`after(op(before(x)))`.  Nothing to reduce leaves the pro- and epilogue, as the spec says."""

    def compose(node: Node) -> Value:
        x = node.x()
        axes = _axes(node, x)
        keep = bool(node.attr("keepdims", 1))
        if before is not None:
            x = before(node, x)
        if axes is not None:
            x = node.emit(op, x, axes=axes, keepdims=keep) if axes else x
        return x if after is None else after(node, x)

    return compose


def _extreme(op: str, of_bools: str) -> Callable[[Node], Value]:
    def compose(node: Node) -> Value:
        return reduction(of_bools if node.x().type.dtype is BOOL else op)(node)

    return compose


def _square(node: Node, x: Value) -> Value:
    return node.emit("mul", x, x)


def _unary(op: str) -> Callable[[Node, Value], Value]:
    return lambda node, x: node.emit(op, x)


def log_sum_exp(node: Node) -> Value:
    """The maximum is taken out first; where it is infinite there is nothing to take out."""
    x = node.x()
    axes = _axes(node, x)
    keep = bool(node.attr("keepdims", 1))
    if not axes:
        return x  # log(exp(x))
    top = node.emit("reduce_max", x, axes=axes, keepdims=True)
    zero = node.scalar(0, x.type.dtype)
    infinite = node.emit("is_inf", top)
    top = node.where(infinite, zero, top)
    shifted = node.emit("exp", node.emit("sub", x, top))
    total = node.emit("reduce_sum", shifted, axes=axes, keepdims=True)
    out = node.emit("add", node.emit("log", total), top)
    if keep:
        return out
    return node.reshape(out, [d for i, d in enumerate(x.type.shape) if i not in axes])


def arg_extreme(op: str) -> Callable[[Node], Value]:
    def compose(node: Node) -> Value:
        x = node.x()
        return node.emit(
            op,
            x,
            axis=node.axis(node.attr("axis", 0), x.type.rank),
            keepdims=bool(node.attr("keepdims", 1)),
            select_last=bool(node.attr("select_last_index", 0)),
        )

    return compose


def cumulative(node: Node) -> Value:
    """CumSum and CumProd."""
    x = node.x()
    rank = x.type.rank
    axis = node.axis(node.number_at(1, "the axis", range(-rank, rank)), rank)
    return node.emit(
        node.type.lower(),
        x,
        axis=axis,
        exclusive=bool(node.attr("exclusive", 0)),
        reverse=bool(node.attr("reverse", 0)),
    )


def top_k(node: Node) -> Sequence[Value]:
    x = node.x()
    k = node.attr("k") if node.has("k") else node.dims(1, "k")[0]
    return node.emit_all(
        "top_k",
        x,
        k=k,
        axis=node.axis(node.attr("axis", -1), x.type.rank),
        largest=bool(node.attr("largest", 1)),
        sorted=bool(node.attr("sorted", 1)),
    )


def softmax(op: str) -> Callable[[Node], Value]:
    """Opset 13 normalises one axis; before, everything from the axis on, as one flat row."""

    def compose(node: Node) -> Value:
        x = node.x()
        rank = x.type.rank
        if node.opset >= 13:
            return node.emit(op, x, axis=node.axis(node.attr("axis", -1), rank))
        axis = node.axis(node.attr("axis", 1), rank) if rank > 1 else 0
        if all(d == 1 for d in x.type.shape[axis + 1 :]) or axis == rank - 1:
            return node.emit(op, x, axis=axis)
        flat = node.matrix(x, axis)
        return node.reshape(node.emit(op, flat, axis=1), x.type.shape)

    return compose


def hardmax(node: Node) -> Value:
    """One at the first largest element of the axis (of the flattened rest before opset 13)."""
    x = node.x()
    if node.opset >= 13:
        return _hardmax(node, x, node.axis(node.attr("axis", -1), x.type.rank))
    axis = node.axis(node.attr("axis", 1), x.type.rank)
    return node.reshape(_hardmax(node, node.matrix(x, axis), 1), x.type.shape)


def _hardmax(node: Node, x: Value, axis: int) -> Value:
    best = node.emit("arg_max", x, axis=axis, keepdims=True, select_last=False)
    places = node.unsqueeze(
        node.iota(x.type.shape[axis]), [a for a in range(x.type.rank) if a != axis]
    )
    return node.cast(node.emit("equal", places, best), x.type.dtype)


def global_pool(op: str) -> Callable[[Node], Value]:
    def compose(node: Node) -> Value:
        x = node.x()
        return node.emit(op, x, axes=tuple(range(2, x.type.rank)), keepdims=True)

    return compose


def global_lp_pool(node: Node) -> Value:
    x = node.x()
    p = node.attr("p", 2)
    if p < 1:
        raise Refusal(f"its p is {p}, want 1 or more")
    return lp_norm(node, x, float(p), tuple(range(2, x.type.rank)))


def lp_norm(node: Node, x: Value, p: float, axes: tuple[int, ...]) -> Value:
    """(sum |x|^p)^(1/p) over axes, which stay with extent 1."""
    dtype = x.type.dtype
    powered = (
        node.emit("abs", x)
        if p == 1
        else node.emit("mul", x, x)
        if p == 2
        else node.emit("pow", node.emit("abs", x), node.scalar(p, dtype))
    )
    total = node.emit("reduce_sum", powered, axes=axes, keepdims=True)
    if p == 1:
        return total
    return (
        node.emit("sqrt", total) if p == 2 else node.emit("pow", total, node.scalar(1 / p, dtype))
    )


def elements(shape: Sequence[dims.Dim], axes: Sequence[int]) -> dims.Dim:
    return dims.product(shape[a] for a in axes)


COMPOSE = {
    "ArgMax": arg_extreme("arg_max"),
    "ArgMin": arg_extreme("arg_min"),
    "CumProd": cumulative,
    "CumSum": cumulative,
    "GlobalAveragePool": global_pool("reduce_mean"),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_pool("reduce_max"),
    "Hardmax": hardmax,
    "LogSoftmax": softmax("log_softmax"),
    "ReduceL1": reduction("reduce_sum", before=_unary("abs")),
    "ReduceL2": reduction("reduce_sum", before=_square, after=_unary("sqrt")),
    "ReduceLogSum": reduction("reduce_sum", after=_unary("log")),
    "ReduceLogSumExp": log_sum_exp,
    "ReduceMax": _extreme("reduce_max", "reduce_or"),
    "ReduceMean": reduction("reduce_mean"),
    "ReduceMin": _extreme("reduce_min", "reduce_and"),
    "ReduceProd": reduction("reduce_prod"),
    "ReduceSum": reduction("reduce_sum"),
    "ReduceSumSquare": reduction("reduce_sum", before=_square),
    "Softmax": softmax("softmax"),
    "TopK": top_k,
}
