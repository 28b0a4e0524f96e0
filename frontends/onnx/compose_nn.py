"""Convolution, pooling and matrix products."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.padding import Window, pad_explicitly, read_window, split_same
from graphwright.frontends.onnx.refusal import Refusal


def static_kernel(node: Node, w: Value) -> tuple[int, ...]:
    """The spatial extents of a weight, which the attribute kernel_shape may only repeat."""
    extents = w.type.shape[2:]
    if not all(isinstance(d, int) for d in extents):
        raise Refusal(f"its kernel has the shape {w.type}, want known spatial extents")
    kernel = tuple(int(d) for d in extents)  # type: ignore[arg-type]
    declared = node.attr("kernel_shape", kernel)
    if tuple(declared) != kernel:
        raise Refusal(f"kernel_shape is {list(declared)}, its weight has {list(kernel)}")
    return kernel


def conv(node: Node) -> Value:
    operands = [v for v in (node.x(0), node.x(1), node.maybe(2)) if v is not None]
    return convolve(node, operands)


def convolve(node: Node, operands: Sequence[Value]) -> Value:
    """conv of x, w and perhaps a bias, with the node's window and groups."""
    x, w, *bias = operands
    if w.type.rank != x.type.rank or x.type.rank < 3:
        raise Refusal(f"its input is {x.type} and its weight {w.type}; want one rank, 3 or more")
    window = read_window(node, x.type.shape[2:], static_kernel(node, w))
    if not window.has_static_pads:
        x, window = pad_explicitly(node, x, window, None)
    return node.emit(
        "conv",
        x,
        w,
        *bias,
        strides=window.strides,
        low=window.low,
        high=window.high,
        dilations=window.dilations,
        groups=node.attr("group", 1),
    )


def conv_transpose(node: Node) -> Value:
    """Pads shrink the output; output_shape chooses them so that the output has that shape."""
    x, w = node.x(0), node.x(1)
    bias = node.maybe(2)
    rank = x.type.rank - 2
    kernel = static_kernel(node, w)
    strides = node.attr("strides", (1,) * rank)
    dilations = node.attr("dilations", (1,) * rank)
    extra = node.attr("output_padding", (0,) * rank)
    mode = node.attr("auto_pad", "NOTSET")
    pads = node.attr("pads", (0,) * (2 * rank))
    low: Sequence[Dim] = pads[:rank]
    high: Sequence[Dim] = pads[rank:]
    wanted: Sequence[Dim] | None = None
    if node.has("output_shape"):
        wanted = node.attr("output_shape")[-rank:]
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [d * s for d, s in zip(x.type.shape[2:], strides, strict=True)]
    elif mode == "VALID":
        low = high = (0,) * rank
    if wanted is not None:
        totals: list[Dim] = []
        for i, want in enumerate(wanted):
            full = (x.type.shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1
            totals.append(full + extra[i] - want)
        if not all(isinstance(t, int) for t in totals):
            raise Refusal("its pads would depend on a symbolic dim", "fix the dims with --shape")
        # A negative total grows the output: at its end only.
        extra = tuple(e + max(0, -t) for e, t in zip(extra, totals, strict=True))  # type: ignore[operator, type-var]
        totals = [max(t, 0) for t in totals]  # type: ignore[type-var]
        low, high = split_same(totals, upper=mode == "SAME_UPPER")
    return node.emit(
        "conv_transpose",
        *(v for v in (x, w, bias) if v is not None),
        strides=tuple(strides),
        low=tuple(low),
        high=tuple(high),
        dilations=tuple(dilations),
        groups=node.attr("group", 1),
        output_padding=tuple(extra),
    )


def _pool_window(node: Node) -> tuple[Value, Window, dict[str, Any]]:
    x = node.x()
    window = read_window(node, x.type.shape[2:], node.attr("kernel_shape"))
    return x, window, {"ceil_mode": bool(node.attr("ceil_mode", 0))}


def _pool(node: Node, op: str, x: Value, window: Window, **more: Any) -> Value:
    return node.emit(
        op,
        x,
        kernel=window.kernel,
        strides=window.strides,
        low=window.low,
        high=window.high,
        dilations=window.dilations,
        **more,
    )


def lowest(node: Node, x: Value) -> Value:
    """The least value of x's type as a rank-0 constant."""
    dtype = x.type.dtype
    if dtype.is_float:
        return node.scalar(-math.inf, dtype)
    return node.scalar(0 if dtype.kind == "uint" else -(2 ** (dtype.bits - 1)), dtype)


def max_pool(node: Node) -> Sequence[Value]:
    x, window, more = _pool_window(node)
    if not window.has_static_pads:
        x, window = pad_explicitly(node, x, window, lowest(node, x))
    if node.wants(1):
        return _max_pool_with_indices(node, x, window, more)
    node.ignore("storage_order")
    return (_pool(node, "max_pool", x, window, **more),)


def _max_pool_with_indices(
    node: Node, x: Value, window: Window, more: dict[str, Any]
) -> Sequence[Value]:
    raise Refusal("its second output (indices) is not supported", "drop the output Indices")


def average_pool(node: Node) -> Value:
    x, window, more = _pool_window(node)
    include = bool(node.attr("count_include_pad", 0))
    if not window.has_static_pads:
        if not include:
            raise Refusal(
                "its automatic pads depend on a symbolic dim", "fix the dims with --shape"
            )
        x, window = pad_explicitly(node, x, window, None)
    return _pool(node, "average_pool", x, window, count_include_pad=include, **more)


def lp_pool(node: Node) -> Value:
    """(sum |x|^p)^(1/p) over windows: an average of all positions, padding included, times their count."""
    x, window, more = _pool_window(node)
    p, dtype = node.attr("p", 2), x.type.dtype
    if more["ceil_mode"]:
        raise Refusal("ceil_mode is not supported for LpPool")
    powered = node.emit("pow", node.emit("abs", x), node.scalar(p, dtype))
    if not window.has_static_pads:
        powered, window = pad_explicitly(node, powered, window, None)
    mean = _pool(node, "average_pool", powered, window, count_include_pad=True, **more)
    total = node.emit("mul", mean, node.scalar(math.prod(window.kernel), dtype))
    return node.emit("pow", total, node.scalar(1 / p, dtype))


def matmul(node: Node) -> Value:
    return node.emit("matmul", node.x(0), node.x(1))


def gemm(node: Node) -> Value:
    """alpha * A' @ B' + beta * C."""
    a, b, c = node.x(0), node.x(1), node.maybe(2)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if node.attr("transA", 0):
        a = node.transpose(a, (1, 0))
    if node.attr("transB", 0):
        b = node.transpose(b, (1, 0))
    node.ignore("broadcast")
    out = node.emit("matmul", a, b)
    dtype = out.type.dtype
    if alpha != 1:
        out = node.emit("mul", out, _factor(node, alpha, dtype))
    if c is None or beta == 0:
        return out
    if beta != 1:
        c = node.emit("mul", c, _factor(node, beta, dtype))
    return node.emit("add", out, c)


def _factor(node: Node, factor: float, dtype: Any) -> Value:
    if dtype.is_integer and factor != int(factor):
        raise Refusal(f"it scales integers by {factor}")
    return node.scalar(factor, dtype)


def einsum(node: Node) -> Value:
    """Each pair of operands: diagonals are refused; sums out what neither the rest nor the output names."""
    equation = node.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    values = node.inputs
    if len(terms) != len(values):
        raise Refusal(f"the equation {equation!r} has {len(terms)} terms for {len(values)} inputs")
    labelled = [_labels(t, v.type.rank, equation) for t, v in zip(terms, values, strict=True)]
    output = _output_labels(right if arrow else None, labelled, left)
    value, labels = values[0], labelled[0]
    for i in range(1, len(values)):
        needed = set(output).union(*labelled[i + 1 :])
        value, labels = _contract(node, value, labels, values[i], labelled[i], needed)
    return _finish(node, value, labels, output)


def _labels(term: str, rank: int, equation: str) -> list[str]:
    """One letter an axis; an ellipsis becomes digits counted from the right."""
    before, dots, after = term.partition("...")
    extra = rank - len(before) - len(after)
    if extra < 0 or (extra and not dots):
        raise Refusal(f"the term {term!r} of {equation!r} does not fit rank {rank}")
    labels = [*before, *(f"...{extra - i}" for i in range(extra)), *after]
    if len(set(labels)) != len(labels):
        raise Refusal(f"the term {term!r} of {equation!r} takes a diagonal, which is not supported")
    return labels


def _output_labels(right: str | None, labelled: list[list[str]], left: str) -> list[str]:
    dots = sorted(
        {x for ls in labelled for x in ls if x.startswith("...")}, key=lambda d: -int(d[3:])
    )
    if right is not None:
        before, found, after = right.partition("...")
        return [*before, *(dots if found else []), *after]
    once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
    return [*dots, *once]


def _sum_out(
    node: Node, value: Value, labels: list[str], keep: set[str]
) -> tuple[Value, list[str]]:
    axes = tuple(i for i, x in enumerate(labels) if x not in keep)
    if axes:
        value = node.emit("reduce_sum", value, axes=axes, keepdims=False)
    return value, [x for x in labels if x in keep]


def _contract(
    node: Node, a: Value, la: list[str], b: Value, lb: list[str], needed: set[str]
) -> tuple[Value, list[str]]:
    """One matmul: batch labels both have and are needed, summed labels both have and are not."""
    a, la = _sum_out(node, a, la, needed | set(lb))
    b, lb = _sum_out(node, b, lb, needed | set(la))
    batch = [x for x in la if x in lb and x in needed]
    summed = [x for x in la if x in lb and x not in needed]
    rows, columns = [x for x in la if x not in lb], [x for x in lb if x not in la]
    size = {**dict(zip(la, a.type.shape, strict=True))}
    for x, d in zip(lb, b.type.shape, strict=True):
        size[x] = node.broadcast((size.get(x, 1),), (d,))[0] if x in batch else size.get(x, d)

    def arranged(v: Value, labels: list[str], order: list[list[str]]) -> Value:
        flat = [x for group in order for x in group]
        v = node.transpose(v, [labels.index(x) for x in flat])
        shape = dict(zip(flat, v.type.shape, strict=True))
        lead: list[Dim] = [shape[x] for x in order[0]]
        return node.reshape(v, [*lead, *(_product(shape[x] for x in g) for g in order[1:])])

    left = arranged(a, la, [batch, rows, summed])
    right = arranged(b, lb, [batch, summed, columns])
    out = node.emit("matmul", left, right)
    names = [*batch, *rows, *columns]
    return node.reshape(out, [size[x] for x in names]), names


def _product(values: Any) -> Dim:
    total: Dim = 1
    for v in values:
        total = total * v
    return total


def _finish(node: Node, value: Value, labels: list[str], output: list[str]) -> Value:
    value, labels = _sum_out(node, value, labels, set(output))
    if sorted(labels) != sorted(output):
        raise Refusal(f"the output labels {output} are not all in the inputs")
    return node.transpose(value, [labels.index(x) for x in output])


COMPOSE = {
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Einsum": einsum,
    "Gemm": gemm,
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MaxPool": max_pool,
}
