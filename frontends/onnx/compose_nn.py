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
    x, attributes = read_convolution(node, x, w, None)
    return node.emit("conv", x, w, *bias, **attributes)


def read_convolution(
    node: Node, x: Value, w: Value, fill: Value | None
) -> tuple[Value, dict[str, Any]]:
    """x and the attributes of a convolution; x is padded with `fill` where pads are symbolic."""
    if w.type.rank != x.type.rank or x.type.rank < 3:
        raise Refusal(f"its input is {x.type} and its weight {w.type}; want one rank, 3 or more")
    window = read_window(node, x.type.shape[2:], static_kernel(node, w))
    if not window.has_static_pads:
        x, window = pad_explicitly(node, x, window, fill)
    return x, {
        "strides": window.strides,
        "low": window.low,
        "high": window.high,
        "dilations": window.dilations,
        "groups": node.attr("group", 1),
    }


def conv_transpose(node: Node) -> Value:
    return conv_transpose_of(node, node.x(0), node.x(1), node.maybe(2), None)


def conv_transpose_of(
    node: Node, x: Value, w: Value, bias: Value | None, given: Sequence[int] | None
) -> Value:
    """Pads shrink the output; output_shape chooses them so that the output has that shape.

    `given` are pads in place of the attribute.
    """
    rank = x.type.rank - 2
    kernel = static_kernel(node, w)
    strides = node.attr("strides", (1,) * rank)
    dilations = node.attr("dilations", (1,) * rank)
    extra = node.attr("output_padding", (0,) * rank)
    for name, values in (("strides", strides), ("dilations", dilations), ("output_padding", extra)):
        if len(values) != rank:
            raise Refusal(f"its attribute {name} has {len(values)} entries, want {rank}")
    mode = node.attr("auto_pad", "NOTSET")
    pads = node.attr("pads", (0,) * (2 * rank)) if given is None else tuple(given)
    if len(pads) != 2 * rank:
        raise Refusal(f"it has {len(pads)} pads, want {2 * rank}")
    low: Sequence[Dim] = pads[:rank]
    high: Sequence[Dim] = pads[rank:]
    wanted: Sequence[Dim] | None = None
    if node.has("output_shape"):
        wanted = node.attr("output_shape")[-rank:]
        if len(wanted) != rank:
            raise Refusal(f"its output_shape has {len(wanted)} entries, want {rank}")
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


def _pool_window(node: Node, x: Value) -> tuple[Window, dict[str, Any]]:
    if not node.has("kernel_shape"):
        raise Refusal("its attribute kernel_shape is missing")
    window = read_window(node, x.type.shape[2:], node.attr("kernel_shape"))
    return window, {"ceil_mode": bool(node.attr("ceil_mode", 0))}


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
    return max_pool_of(node, node.x())


def max_pool_of(node: Node, given: Value) -> Sequence[Value]:
    """The largest element of each of the node's windows over `given`, and where it is if wanted."""
    x = given
    window, more = _pool_window(node, x)
    if not window.has_static_pads:
        x, window = pad_explicitly(node, x, window, lowest(node, x))
    column_major = bool(node.attr("storage_order", 0))
    value = _pool(node, "max_pool", x, window, **more)
    if not node.wants(1):
        return (value,)
    if x is not given:
        raise Refusal("indices with automatic pads that depend on a symbolic dim are not supported")
    indices = _pool(node, "arg_max_pool", x, window, column_major=column_major, **more)
    return (value, indices)


def average_pool(node: Node) -> Value:
    return average_pool_of(node, node.x())


def average_pool_of(node: Node, x: Value) -> Value:
    """The mean of each of the node's windows over x."""
    window, more = _pool_window(node, x)
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
    x = node.x()
    window, more = _pool_window(node, x)
    p, dtype = node.attr("p", 2), x.type.dtype
    if p < 1:
        raise Refusal(f"its p is {p}, want 1 or more")
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


COMPOSE = {
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "Gemm": gemm,
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MaxPool": max_pool,
}
