"""Reductions, softmax, scans, sorts and selections."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, I64, DType
from graphwright.frontends.torch.dtypes import element_type
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal

MOST_STEPS = 2**20  # of a running maximum along an axis: 20 doublings


def reduced_axes(node: Node, x: Value, name: str = "dim") -> tuple[int, ...]:
    """The axes to reduce; None and an empty list are all."""
    given = node.arg(name)
    if given is None or given == []:
        return tuple(range(x.type.rank))
    listed = given if isinstance(given, list) else [given]
    return tuple(sorted(node.axes(listed, x.type.rank))) if x.type.rank else ()


def keeps(node: Node) -> bool:
    return bool(node.arg("keepdim"))


def reduce(node: Node, op: str, x: Value, axes: Sequence[int], keepdims: bool) -> Value:
    return node.emit(op, x, axes=tuple(axes), keepdims=keepdims) if axes else x


def typed_operand(node: Node) -> Value:
    """The operand in the type of the result: `dtype`, or what torch widens integers to."""
    node.ignore("dtype")
    return node.cast(node.x(), node.out_dtype)


def total(op: str) -> Compose:
    def compose(node: Node) -> Value:
        x = typed_operand(node)
        if x.type.dtype is BOOL:
            op_name = "reduce_or" if op == "reduce_sum" else "reduce_and"
            return reduce(node, op_name, x, reduced_axes(node, x), keeps(node))
        return reduce(node, op, x, reduced_axes(node, x), keeps(node))

    return compose


def extreme(op: str, of_bools: str) -> Compose:
    def compose(node: Node) -> Value:
        x = node.x()
        axes = reduced_axes(node, x)
        for axis in axes:
            node.require(x.type.shape[axis], ">", 0, f"{node.type}: extent of axis {axis}")
        name = of_bools if x.type.dtype is BOOL else op
        return reduce(node, name, x, axes, keeps(node))

    return compose


def logical(op: str) -> Compose:
    def compose(node: Node) -> Value:
        x = node.cast(node.x(), BOOL)
        found = reduce(node, op, x, reduced_axes(node, x), keeps(node))
        return node.cast(found, node.out_dtype)

    return compose


def arg_extreme(op: str) -> Compose:
    def compose(node: Node) -> Value:
        x = node.x()
        axis = node.arg("dim")
        keep = keeps(node)
        if axis is None:
            flat = node.reshape(x, [x.type.elements])
            found = node.emit(op, flat, axis=0, keepdims=False)
            return node.reshape(found, [1] * x.type.rank) if keep else found
        return _arg(node, op, x, node.axis(axis, x.type.rank), keep)

    return compose


def _arg(node: Node, op: str, x: Value, axis: int, keep: bool) -> Value:
    if x.type.rank == 0:
        return node.scalar(0, I64)
    wide = node.cast(x, element_type(torch.uint8)) if x.type.dtype is BOOL else x
    return node.emit(op, wide, axis=axis, keepdims=keep)


def extreme_along(op: str, of_bools: str, arg: str) -> Compose:
    """max.dim and min.dim: values and their indices."""

    def compose(node: Node) -> Sequence[Value]:
        x = node.x()
        axis, keep = node.axis(node.arg("dim"), x.type.rank), keeps(node)
        name = of_bools if x.type.dtype is BOOL else op
        values = reduce(node, name, x, (axis,) if x.type.rank else (), keep)
        return [values, _arg(node, arg, x, axis, keep)]

    return compose


def moments(node: Node, x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """(squares of the distances from the mean, the mean with axes of 1)."""
    mean = reduce(node, "reduce_mean", x, axes, True)
    centred = node.emit("sub", x, mean)
    return node.emit("mul", centred, centred), mean


def variance_of(node: Node) -> tuple[Value, Value, tuple[int, ...]]:
    """The variance (in float32 at least), the mean with axes of extent 1, and the axes."""
    x = node.x()
    wide = node.cast(x, F32) if x.type.dtype.bits < 32 else x
    axes = reduced_axes(node, wide)
    correction = node.arg("correction") if "correction" in node._given else None
    if "unbiased" in node._given:
        correction = int(bool(node.arg("unbiased")))
    correction = 1 if correction is None else correction
    squares, mean = moments(node, wide, axes)
    sum_of = reduce(node, "reduce_sum", squares, axes, keeps(node))
    count = node.elements(wide, axes)
    if isinstance(count, int):
        divisor = node.scalar(max(count - correction, 0), wide.type.dtype)
    else:
        less = node.emit(
            "sub", node.size(count, wide.type.dtype), node.scalar(correction, wide.type.dtype)
        )
        divisor = node.emit("maximum", less, node.scalar(0, wide.type.dtype))
    return node.emit("div", sum_of, divisor), mean, axes


def variance(*, root: bool = False, with_mean: bool = False) -> Compose:
    def compose(node: Node) -> Value | Sequence[Value]:
        found, mean, axes = variance_of(node)
        if root:
            found = node.emit("sqrt", found)
        dtype = node.x().type.dtype
        found = node.cast(found, dtype)
        if not with_mean:
            return found
        mean = node.cast(mean, dtype)
        return [found, mean if keeps(node) else node.squeeze(mean, axes)]

    return compose


def log_sum_exp(node: Node) -> Value:
    """The maximum is taken out first; where it is infinite there is nothing to take out."""
    x = node.cast(node.x(), node.out_dtype)
    axes, keep = reduced_axes(node, x), keeps(node)
    if not axes:
        return x
    top = reduce(node, "reduce_max", x, axes, True)
    top = node.where(node.emit("is_inf", top), node.scalar(0, x.type.dtype), top)
    sums = reduce(node, "reduce_sum", node.emit("exp", node.emit("sub", x, top)), axes, True)
    out = node.emit("add", node.emit("log", sums), top)
    return out if keep else node.squeeze(out, axes)


def softmax(op: str) -> Compose:
    def compose(node: Node) -> Value:
        node.ignore("half_to_float", "dtype")
        x = node.x()
        if not x.type.dtype.is_float or node.out_dtype.bits > x.type.dtype.bits:
            x = node.cast(x, node.out_dtype)
        axis = node.axis(node.arg("dim"), x.type.rank)
        if x.type.rank == 0:
            x = node.reshape(x, [1])
            return node.reshape(node.cast(node.emit(op, x, axis=0), node.out_dtype), [])
        return node.cast(node.emit(op, x, axis=axis), node.out_dtype)

    return compose


def cumulative(op: str) -> Compose:
    def compose(node: Node) -> Value:
        x = typed_operand(node)
        axis = node.axis(node.arg("dim"), x.type.rank)
        return x if x.type.rank == 0 else node.emit(op, x, axis=axis)

    return compose


def norm(node: Node) -> Value:
    """linalg_vector_norm: (sum |x|^p)^(1/p), with the limits at 0 and infinity."""
    node.ignore("dtype")
    p = float(node.static("ord" if "ord" in node._given else "p"))
    x = node.cast(node.x(), node.out_dtype)
    dtype = x.type.dtype
    wide = node.cast(x, F32) if dtype.bits < 32 else x
    axes, keep = reduced_axes(node, wide), keeps(node)
    size = node.emit("abs", wide)
    if p == float("inf"):
        found = reduce(node, "reduce_max", size, axes, keep)
    elif p == float("-inf"):
        found = reduce(node, "reduce_min", size, axes, keep)
    elif p == 0:
        some = node.cast(
            node.emit("not_equal", wide, node.scalar(0, wide.type.dtype)), wide.type.dtype
        )
        found = reduce(node, "reduce_sum", some, axes, keep)
    elif p == 1:
        found = reduce(node, "reduce_sum", size, axes, keep)
    elif p == 2:
        squares = reduce(node, "reduce_sum", node.emit("mul", wide, wide), axes, keep)
        found = node.emit("sqrt", squares)
    else:
        powers = node.emit("pow", size, node.scalar(p, wide.type.dtype))
        sums = reduce(node, "reduce_sum", powers, axes, keep)
        found = node.emit("pow", sums, node.scalar(1 / p, wide.type.dtype))
    return node.cast(found, dtype)


def top_k(node: Node) -> Sequence[Value]:
    x = node.x()
    if x.type.rank == 0:
        node.ignore("k", "dim", "largest", "sorted")
        return [x, node.scalar(0, I64)]
    return ordered(
        node,
        x,
        k=node.arg("k"),
        axis=node.axis(node.arg("dim"), x.type.rank),
        largest=bool(node.arg("largest")),
        sorted=bool(node.arg("sorted")),
    )


def sortable(node: Node, x: Value) -> Value:
    """In a type that has an order of kernels: wider, so that nothing changes place."""
    if x.type.dtype is BOOL:
        return node.cast(x, element_type(torch.uint8))
    return node.cast(x, F32) if x.type.dtype.is_float and x.type.dtype.bits < 32 else x


def ordered(
    node: Node, x: Value, *, k: Dim, axis: int, largest: bool = False, sorted: bool = True
) -> Sequence[Value]:
    """Values and their places in order, as `top_k` gives them, in the operand's type."""
    values, places = node.emit_all(
        "top_k", sortable(node, x), k=k, axis=axis, largest=largest, sorted=sorted
    )
    return [node.cast(values, x.type.dtype), places]


def sort(node: Node) -> Sequence[Value]:
    """Stable, as top_k is: of equal elements the one with the lower index comes first."""
    node.ignore("stable")
    x = node.x()
    if x.type.rank == 0:
        node.ignore("dim", "descending")
        return [x, node.scalar(0, I64)]
    axis = node.axis(node.arg("dim"), x.type.rank)
    return ordered(node, x, k=x.type.shape[axis], axis=axis, largest=bool(node.arg("descending")))


def argsort(node: Node) -> Value:
    return sort(node)[1]


def median(node: Node) -> Sequence[Value] | Value:
    """The lower of the middle elements; where there is a NaN, the NaN."""
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank) if "dim" in node._given else 0
    if x.type.rank == 0:
        node.ignore("keepdim")
        return [x, node.scalar(0, I64)] if "dim" in node._given else x
    if "dim" not in node._given:
        x = node.reshape(x, [x.type.elements])
    extent = x.type.shape[axis]
    middle: Dim = dims.floordiv(extent - 1, 2)
    values, indices = ordered(node, x, k=extent, axis=axis)
    parts = [node.slice_axis(v, axis, middle, 1) for v in (values, indices)]
    if x.type.dtype.is_float:
        none = reduce(node, "reduce_or", node.emit("is_nan", x), (axis,), True)
        first = node.emit("arg_max", x, axis=axis, keepdims=True)
        nan = node.scalar(float("nan"), x.type.dtype)
        parts = [node.where(none, nan, parts[0]), node.where(none, first, parts[1])]
    if "dim" not in node._given:
        return node.reshape(parts[0], [])
    return parts if keeps(node) else [node.squeeze(p, (axis,)) for p in parts]


def cumulative_extreme(op: str) -> Compose:
    """cummax and cummin: values and where each was last met, in log2(n) steps of doubled reach."""

    def compose(node: Node) -> Sequence[Value]:
        x = sortable(node, node.x())
        axis = node.axis(node.arg("dim"), x.type.rank)
        if x.type.rank == 0:
            return [node.x(), node.scalar(0, I64)]
        values = _running(node, op, x, axis)
        met = node.emit("equal", x, values)
        if x.type.dtype.is_float:
            met = node.emit("logical_or", met, node.emit("is_nan", x))
        place = node.iota_along(x.type.shape[axis], axis, x.type.rank)
        found = node.where(met, place, node.scalar(0, I64))
        places = _running(node, "maximum", found, axis)
        return [node.cast(values, node.x().type.dtype), places]

    return compose


def _running(node: Node, op: str, x: Value, axis: int) -> Value:
    extent = x.type.shape[axis]
    most = dims.bounds(extent)[1]
    if most > MOST_STEPS:
        raise Refusal(
            f"it runs along an axis of {extent}, which has no limit", "fix the axis, or its range"
        )
    step = 1
    while step < most:
        if isinstance(extent, int):
            head = node.slice_axis(x, axis, 0, step)
            rest = node.emit(
                op, node.slice_axis(x, axis, step, extent - step),
                node.slice_axis(x, axis, 0, extent - step),
            )  # fmt: skip
            x = node.concat([head, rest], axis)
        else:  # what lies before the first element is the first element, which changes nothing
            place = node.emit("sub", node.iota(extent), node.scalar(step, I64))
            place = node.emit("maximum", place, node.scalar(0, I64))
            x = node.emit(op, x, node.emit("gather", x, place, axis=axis))
        step *= 2
    return x


def kth_value(node: Node) -> Sequence[Value]:
    x, k = node.x(), node.arg("k")
    axis, keep = node.axis(node.arg("dim"), x.type.rank), keeps(node)
    if x.type.rank == 0:
        return [x, node.scalar(0, I64)]
    extent = x.type.shape[axis]
    values, indices = ordered(node, x, k=extent, axis=axis)
    parts = [node.slice_axis(v, axis, k - 1, 1) for v in (values, indices)]
    return parts if keep else [node.squeeze(p, (axis,)) for p in parts]


def distance(node: Node) -> Value:
    """dist: the p-norm of the difference."""
    a, b = node.promoted("self", "other")
    out_dtype = a.type.dtype
    if out_dtype.bits < 32:
        a, b = node.cast(a, F32), node.cast(b, F32)
    gap = node.emit("abs", node.emit("sub", a, b))
    return node.cast(_norm_of_gap(node, gap), out_dtype)


def _norm_of_gap(node: Node, gap: Value) -> Value:
    p, dtype, axes = float(node.static("p")), gap.type.dtype, range(gap.type.rank)
    if p in (float("inf"), float("-inf")):
        return reduce(node, "reduce_max" if p > 0 else "reduce_min", gap, axes, False)
    if p == 0:
        gap = node.cast(node.emit("not_equal", gap, node.scalar(0, dtype)), dtype)
        return reduce(node, "reduce_sum", gap, axes, False)
    powers = node.emit("pow", gap, node.scalar(p, dtype))
    sums = reduce(node, "reduce_sum", powers, axes, False)
    return node.emit("pow", sums, node.scalar(1 / p, dtype))


def triangle(upper: bool) -> Compose:
    def compose(node: Node) -> Value:
        x, k = node.x(), node.static("diagonal")
        if x.type.dtype is BOOL:
            small: DType = element_type(torch.uint8)
            return node.cast(node.emit("trilu", node.cast(x, small), upper=upper, k=k), BOOL)
        return node.emit("trilu", x, upper=upper, k=k)

    return compose


COMPOSE: dict[str, Compose] = {
    **{f"sum.{o}": total("reduce_sum") for o in ("default", "dim_IntList")},
    **{f"mean.{o}": total("reduce_mean") for o in ("default", "dim")},
    **{f"prod.{o}": total("reduce_prod") for o in ("default", "dim_int")},
    **{f"any.{o}": logical("reduce_or") for o in ("default", "dim", "dims")},
    **{f"all.{o}": logical("reduce_and") for o in ("default", "dim", "dims")},
    "amax.default": extreme("reduce_max", "reduce_or"),
    "amin.default": extreme("reduce_min", "reduce_and"),
    "max.default": extreme("reduce_max", "reduce_or"),
    "min.default": extreme("reduce_min", "reduce_and"),
    "max.dim": extreme_along("reduce_max", "reduce_or", "arg_max"),
    "min.dim": extreme_along("reduce_min", "reduce_and", "arg_min"),
    "argmax.default": arg_extreme("arg_max"),
    "argmin.default": arg_extreme("arg_min"),
    **{f"var.{o}": variance() for o in ("default", "dim", "correction")},
    **{f"std.{o}": variance(root=True) for o in ("default", "dim", "correction")},
    **{f"var_mean.{o}": variance(with_mean=True) for o in ("default", "dim", "correction")},
    **{
        f"std_mean.{o}": variance(root=True, with_mean=True)
        for o in ("default", "dim", "correction")
    },
    "logsumexp.default": log_sum_exp,
    "_softmax.default": softmax("softmax"),
    "softmax.int": softmax("softmax"),
    "_log_softmax.default": softmax("log_softmax"),
    "log_softmax.int": softmax("log_softmax"),
    "cumsum.default": cumulative("cumsum"),
    "cumprod.default": cumulative("cumprod"),
    "linalg_vector_norm.default": norm,
    "topk.default": top_k,
    "sort.default": sort,
    "sort.stable": sort,
    "argsort.default": argsort,
    "argsort.stable": argsort,
    "median.default": median,
    "kthvalue.default": kth_value,
    "cummax.default": cumulative_extreme("maximum"),
    "cummin.default": cumulative_extreme("minimum"),
    "dist.default": distance,
    "median.dim": median,
    "triu.default": triangle(upper=True),
    "tril.default": triangle(upper=False),
}
