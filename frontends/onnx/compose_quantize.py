"""Quantized ops: explicit scales and zero points, integer products with 32-bit sums."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, U8
from graphwright.frontends.onnx.compose_nn import read_convolution
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _shaped(node: Node, v: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point so that it broadcasts against x: per tensor, per axis or per block."""
    if v.type.rank == 0:
        return v
    if block:
        return by_blocks(node, v, x, axis, block)
    if v.type.rank != 1:
        raise Refusal(
            f"its scale or zero point is {v.type}, want one element or one an element of an axis"
        )
    if v.type.shape == (1,):
        return node.reshape(v, ())
    axis = node.axis(axis, x.type.rank)
    node.require(
        v.type.shape[0], "==", x.type.shape[axis], f"{node.type} {node.origin}: axis {axis}"
    )
    return node.reshape(v, [x.type.shape[axis] if i == axis else 1 for i in range(x.type.rank)])


def by_blocks(node: Node, v: Value, x: Value, axis: int, block: int) -> Value:
    """Each element of v along `axis` serves `block` elements of x; the last block may be short."""
    axis = node.axis(axis, x.type.rank)
    shape = v.type.shape
    wide = node.broadcast_to(
        node.unsqueeze(v, (axis + 1,)), (*shape[: axis + 1], block, *shape[axis + 1 :])
    )
    merged = node.reshape(wide, (*shape[:axis], shape[axis] * block, *shape[axis + 1 :]))
    return node.slice_axis(merged, axis, 0, x.type.shape[axis])


def quantize_linear(node: Node) -> Value:
    """round(x / scale) + zero point, saturated; float8 by rounding in the cast."""
    x, scale, zero = node.x(0), node.x(1), node.maybe(2)
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    declared = node.attr("output_dtype", 0)
    dtype = node.dtype(declared) if declared else zero.type.dtype if zero is not None else U8
    if zero is not None and zero.type.dtype is not dtype:
        raise Refusal(f"output_dtype is {dtype}, its zero point {zero.type.dtype}")
    if not node.attr("saturate", 1) and dtype.is_float:
        raise Refusal("saturate=0 is not supported for QuantizeLinear")
    precision = node.attr("precision", 0)
    wide = (
        node.dtype(precision)
        if precision
        else scale.type.dtype
        if scale.type.dtype.is_float
        else F32
    )
    if x.type.dtype.is_float and not precision:
        wide = x.type.dtype if x.type.dtype.bits >= wide.bits else wide
    scale = _shaped(node, node.cast(scale, wide), x, axis, block)
    zero = node.scalar(0, dtype) if zero is None else _shaped(node, zero, x, axis, block)
    return node.emit("quantize", node.cast(x, wide), scale, zero, dtype=dtype)


def dequantize_linear(node: Node) -> Value:
    """(x - zero point) * scale."""
    x, scale, zero = node.x(0), node.x(1), node.maybe(2)
    axis, block = node.attr("axis", 1), node.attr("block_size", 0)
    declared = node.attr("output_dtype", 0)
    dtype = node.dtype(declared) if declared else scale.type.dtype
    scale = _shaped(node, scale, x, axis, block)
    zero = node.scalar(0, x.type.dtype) if zero is None else _shaped(node, zero, x, axis, block)
    return node.emit("dequantize", x, scale, zero, dtype=dtype)


def zero_of(node: Node, x: Value, zero: Value | None, axis_from_end: int) -> Value:
    """The zero point of a matrix operand: a scalar, or [.., 1, ..] along the axis it belongs to.

    A vector holds one for each row of a left operand (`axis_from_end` 2) or column of a right one (1).
    """
    if zero is None:
        return node.scalar(0, x.type.dtype)
    if zero.type.rank == 1 and zero.type.shape == (1,):
        return node.reshape(zero, ())
    if zero.type.rank == 1:
        shape = (1,) * (x.type.rank - axis_from_end) + zero.type.shape
        return node.reshape(zero, shape + (1,) * (axis_from_end - 1))
    return zero


def multiply_integers(
    node: Node, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    """The 32-bit sums of a matrix product of quantized tensors."""
    return node.emit(
        "matmul_integer", a, b, zero_of(node, a, a_zero, 2), zero_of(node, b, b_zero, 1)
    )


def convolve_integers(
    node: Node, x: Value, w: Value, x_zero: Value | None, w_zero: Value | None
) -> Value:
    """The 32-bit sums of a convolution of quantized tensors, with the node's window and groups."""
    zero = node.scalar(0, x.type.dtype) if x_zero is None else node.reshape(x_zero, ())
    x, attributes = read_convolution(node, x, w, zero)
    zeros = node.scalar(0, w.type.dtype) if w_zero is None else w_zero
    if zeros.type.shape == (1,):
        zeros = node.reshape(zeros, ())
    return node.emit("conv_integer", x, w, zero, zeros, **attributes)


def mat_mul_integer(node: Node) -> Value:
    return multiply_integers(node, node.x(0), node.x(1), node.maybe(2), node.maybe(3))


def conv_integer(node: Node) -> Value:
    return convolve_integers(node, node.x(0), node.x(1), node.maybe(2), node.maybe(3))


def requantize(node: Node, total: Value, factor: Value, y_zero: Value) -> Value:
    """round_even(total * factor) + y_zero, saturated: how 32-bit sums become small integers.

    `factor` is the product of the operands' scales over the result's, rounded in float32.
    """
    real = node.emit("mul", node.cast(total, F32), factor)
    zero = node.reshape(y_zero, ()) if y_zero.type.shape == (1,) else y_zero
    return node.emit("quantize", real, node.scalar(1.0, F32), zero, dtype=y_zero.type.dtype)


def factor_of(node: Node, a_scale: Value, b_scale: Value, y_scale: Value) -> Value:
    """a_scale * b_scale / y_scale; scales already broadcast against the sums."""
    a_scale, b_scale, y_scale = (node.cast(s, F32) for s in (a_scale, b_scale, y_scale))
    return node.emit("div", node.emit("mul", a_scale, b_scale), y_scale)


def scale_of(node: Node, scale: Value, rank: int, axis: int) -> Value:
    """A scale of the sums' rank; a vector lies along `axis`."""
    if scale.type.rank == 0 or scale.type.rank > 1:
        return scale
    if scale.type.shape == (1,):
        return node.reshape(scale, ())
    return node.reshape(scale, (1,) * axis + scale.type.shape + (1,) * (rank - 1 - axis))


def qlinear_mat_mul(node: Node) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.x(i) for i in range(8))
    total = multiply_integers(node, a, b, a_zero, b_zero)
    rank = total.type.rank
    row, column = max(rank - 2, 0), max(rank - 1, 0)
    factor = factor_of(
        node,
        scale_of(node, a_scale, rank, row),
        scale_of(node, b_scale, rank, column),
        scale_of(node, y_scale, rank, row),
    )
    return requantize(node, total, factor, scale_of(node, y_zero, rank, row))


def qlinear_conv(node: Node) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.x(i) for i in range(8))
    total = convolve_integers(node, x, w, x_zero, w_zero)
    rank = total.type.rank
    bias = node.maybe(8)
    if bias is not None:
        total = node.emit("add", total, scale_of(node, bias, rank, 1))
    factor = factor_of(node, *(scale_of(node, s, rank, 1) for s in (x_scale, w_scale, y_scale)))
    return requantize(node, total, factor, y_zero)


def dynamic_quantize_linear(node: Node) -> Sequence[Value]:
    """u8 with the range of x and 0; a tensor of zeros has the scale 1, as ONNX Runtime gives it."""
    x = node.x()
    dtype, axes = x.type.dtype, tuple(range(x.type.rank))
    nothing = node.scalar(0.0, dtype)
    low, high = (
        node.emit(of, node.emit(f"reduce_{name}", x, axes=axes, keepdims=False), nothing)
        for name, of in (("min", "minimum"), ("max", "maximum"))
    )
    spread = node.emit("sub", high, low)
    scale = node.emit("div", spread, node.scalar(255.0, dtype))
    one = node.scalar(1.0, dtype)
    scale = node.emit("where", node.emit("equal", high, low), one, scale)
    start = node.emit("sub", nothing, node.emit("div", low, scale))
    zero = node.emit("quantize", start, one, node.scalar(0, U8), dtype=U8)
    return (node.emit("quantize", x, scale, zero, dtype=U8), scale, zero)


COMPOSE = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize_linear,
    "DynamicQuantizeLinear": dynamic_quantize_linear,
    "MatMulInteger": mat_mul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_mat_mul,
    "QuantizeLinear": quantize_linear,
}
