"""Quantized ops: explicit scales and zero points, integer products with 32-bit sums."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I32, U8, DType
from graphwright.frontends.onnx.compose_nn import convolve
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _shaped(node: Node, v: Value, x: Value, axis: int, block: int) -> Value:
    """A scale or zero point so that it broadcasts against x: per tensor, per axis or per block."""
    if v.type.rank == 0:
        return v
    if block:
        return _blocks(node, v, x, axis, block)
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


def _blocks(node: Node, v: Value, x: Value, axis: int, block: int) -> Value:
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


def _widened(node: Node, x: Value, zero: Value | None, axis_from_end: int = 0) -> Value:
    """x - zero point as 32-bit integers; a vector zero point belongs to the given axis of x."""
    wide = node.cast(x, I32)
    if zero is None:
        return wide
    zero = node.cast(zero, I32)
    if zero.type.rank == 1 and zero.type.shape == (1,):
        zero = node.reshape(zero, ())
    if zero.type.rank == 1 and axis_from_end > 1:
        zero = node.reshape(zero, (*zero.type.shape, *[1] * (axis_from_end - 1)))
    return node.emit("sub", wide, zero)


def mat_mul_integer(node: Node) -> Value:
    a = _widened(node, node.x(0), node.maybe(2), 2)
    b = _widened(node, node.x(1), node.maybe(3), 1)
    return node.emit("matmul", a, b)


def conv_integer(node: Node) -> Value:
    x = _widened(node, node.x(0), node.maybe(2))
    w = node.x(1)
    return convolve(node, (x, _widened(node, w, node.maybe(3), w.type.rank)))


def _requantize(
    node: Node, total: Value, scales: Sequence[Value], y_scale: Value, y_zero: Value, axis: int
) -> Value:
    """The 32-bit sums times the scales of both operands, quantized for the result."""
    wide: DType = F32
    product: Value | None = None
    for s in scales:
        s = _shaped(node, node.cast(s, wide), total, axis, 0)
        product = s if product is None else node.emit("mul", product, s)
    assert product is not None
    real = node.emit("mul", node.cast(total, wide), product)
    y_scale = _shaped(node, node.cast(y_scale, wide), total, axis, 0)
    y_zero_shaped = _shaped(node, y_zero, total, axis, 0)
    return node.emit("quantize", real, y_scale, y_zero_shaped, dtype=y_zero.type.dtype)


def qlinear_mat_mul(node: Node) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node.x(i) for i in range(8))
    total = node.emit("matmul", _widened(node, a, a_zero, 2), _widened(node, b, b_zero, 1))
    if a_scale.type.rank == 1 and a_scale.type.shape != (1,):
        a_scale = node.unsqueeze(a_scale, (1,))
        if total.type.rank == 2:
            real = node.emit("mul", node.cast(total, F32), node.emit("mul", a_scale, b_scale))
            return node.emit("quantize", real, y_scale, y_zero, dtype=y_zero.type.dtype)
        raise Refusal("a scale for each row of a batched product is not supported")
    return _requantize(node, total, (a_scale, b_scale), y_scale, y_zero, total.type.rank - 1)


def qlinear_conv(node: Node) -> Value:
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.x(i) for i in range(8))
    bias = node.maybe(8)
    wide = [_widened(node, x, x_zero), _widened(node, w, w_zero, w.type.rank)]
    total = convolve(node, [*wide, *([bias] if bias is not None else [])])
    return _requantize(node, total, (x_scale, w_scale), y_scale, y_zero, 1)


COMPOSE = {
    "ConvInteger": conv_integer,
    "DequantizeLinear": dequantize_linear,
    "MatMulInteger": mat_mul_integer,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_mat_mul,
    "QuantizeLinear": quantize_linear,
}
