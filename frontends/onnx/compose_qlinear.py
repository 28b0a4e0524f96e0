"""Quantized ops of com.microsoft, what ONNX Runtime's quantizer writes.

Pointwise ones, pools and means go through float32, as their text says: dequantize, the op, quantize.
Products have 32-bit integer sums, as MatMulInteger has.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I32, U8
from graphwright.frontends.onnx.compose_nn import average_pool_of, max_pool_of
from graphwright.frontends.onnx.compose_quantize import (
    convolve_integers,
    dequantize_linear,
    dynamic_quantize_linear,
    factor_of,
    multiply_integers,
    quantize_linear,
    requantize,
    scale_of,
)
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _scalar(node: Node, i: int, what: str) -> Value:
    """Input `i`, one number for a whole tensor, at rank 0."""
    x = node.x(i)
    if x.type.rank > 1 or x.type.elements != 1:
        raise Refusal(f"its {what} (input {i}) is {x.type}, want one element")
    return node.reshape(x, ())


def _zero(node: Node, i: int, of: Value) -> Value:
    return _scalar(node, i, "zero point") if node.has_input(i) else node.scalar(0, of.type.dtype)


def _real(node: Node, i: int) -> Value:
    """The tensor at input `i` as float32, by the scale and zero point that follow it."""
    x = node.x(i)
    if x.type.dtype.is_float:
        raise Refusal(f"its input {i} is {x.type}, want 8-bit integers")
    return node.emit(
        "dequantize", x, _scalar(node, i + 1, "scale"), _zero(node, i + 2, x), dtype=F32
    )


def _quantized(node: Node, real: Value, i: int, like: Value) -> Value:
    """float32 quantized by the scale at input `i` and the zero point behind it, to the type of `like`."""
    zero = _zero(node, i + 1, like)
    return node.emit("quantize", real, _scalar(node, i, "scale"), zero, dtype=zero.type.dtype)


def binary(op: str) -> Callable[[Node], Value]:
    def compose(node: Node) -> Value:
        return _quantized(node, node.emit(op, _real(node, 0), _real(node, 3)), 6, node.x(0))

    return compose


def unary(op: str, **defaults: float) -> Callable[[Node], Value]:
    def compose(node: Node) -> Value:
        given = {name: node.attr(name, default) for name, default in defaults.items()}
        return _quantized(node, node.emit(op, _real(node, 0), **given), 3, node.x(0))

    return compose


def softmax(node: Node) -> Value:
    """Over one axis, or before opset 13 over all axes from it on."""
    x = _real(node, 0)
    rank, newer = x.type.rank, node.attr("opset", 13) >= 13
    axis = node.axis(node.attr("axis", -1 if newer else 1), rank)
    if newer or axis == rank - 1:
        out = node.emit("softmax", x, axis=axis)
    else:
        out = node.reshape(node.emit("softmax", node.matrix(x, axis), axis=1), x.type.shape)
    return _quantized(node, out, 3, node.x(0))


def concat(node: Node) -> Value:
    """Inputs (scale, zero point), then (tensor, scale, zero point) for each part."""
    count = len(node.proto.input) - 2
    if count < 3 or count % 3:
        raise Refusal(f"it has {count} inputs after the first two, want three for each part")
    first = node.x(2)
    axis = node.axis(node.attr("axis"), first.type.rank)
    # Each part is brought to the result's scale before it is copied.
    parts = [_quantized(node, _real(node, i), 0, first) for i in range(2, count + 2, 3)]
    return node.emit("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]


def where(node: Node) -> Value:
    return _quantized(node, node.where(node.x(0), _real(node, 1), _real(node, 4)), 7, node.x(1))


def _channels_first(node: Node, x: Value) -> Value:
    rank = x.type.rank
    return node.transpose(x, (0, rank - 1, *range(1, rank - 1)))


def _channels_last(node: Node, x: Value) -> Value:
    return node.transpose(x, (0, *range(2, x.type.rank), 1))


def average_pool(node: Node) -> Value:
    x, last = _real(node, 0), bool(node.attr("channels_last", 0))
    out = average_pool_of(node, _channels_first(node, x) if last else x)
    return _quantized(node, _channels_last(node, out) if last else out, 3, node.x(0))


def global_average_pool(node: Node) -> Value:
    x = _real(node, 0)
    first = 1 if node.attr("channels_last", 0) else 2
    axes = tuple(range(first, first + x.type.rank - 2))
    return _quantized(node, node.emit("reduce_mean", x, axes=axes, keepdims=True), 3, node.x(0))


def reduce_mean(node: Node) -> Value:
    x = _real(node, 0)
    axes = node.axes(node.attr("axes", tuple(range(x.type.rank))), x.type.rank)
    keep = bool(node.attr("keepdims", 1))
    return _quantized(node, node.emit("reduce_mean", x, axes=axes, keepdims=keep), 3, node.x(0))


def nhwc_max_pool(node: Node) -> Value:
    """MaxPool with channels last."""
    x = _channels_first(node, node.ranked(0, 3, or_more=True))
    return _channels_last(node, max_pool_of(node, x)[0])


def qlinear_conv(node: Node) -> Value:
    """ONNX's QLinearConv, with channels last in x and the result where `channels_last` says so."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (node.x(i) for i in range(8))
    last = bool(node.attr("channels_last", 0))
    total = convolve_integers(node, _channels_first(node, x) if last else x, w, x_zero, w_zero)
    rank, bias = total.type.rank, node.maybe(8)
    if bias is not None:
        total = node.emit("add", total, scale_of(node, bias, rank, 1))
    factor = factor_of(node, *(scale_of(node, s, rank, 1) for s in (x_scale, w_scale, y_scale)))
    out = requantize(node, total, factor, y_zero)
    return _channels_last(node, out) if last else out


def scaled_sums(
    node: Node, total: Value, a_scale: Value, b_scale: Value, bias: Value | None
) -> Value:
    """32-bit sums as float32: times the scales of both operands, plus a bias."""
    rank = total.type.rank
    scales = [scale_of(node, s, rank, rank - 1) for s in (a_scale, b_scale)]
    out = node.emit("mul", node.cast(total, F32), node.emit("mul", *scales))
    return out if bias is None else node.emit("add", out, bias)


def mat_mul_integer_to_float(node: Node) -> Value:
    a, b, a_scale, b_scale = (node.x(i) for i in range(4))
    for i, what in ((2, "scale"), (4, "zero point")):
        if node.has_input(i) and node.x(i).type.elements != 1:
            raise Refusal(
                f"the {what} of A is {node.x(i).type}; one for each column cannot be applied to sums",
                "quantize A with one scale and zero point",
            )
    total = multiply_integers(node, a, b, node.maybe(4), node.maybe(5))
    return scaled_sums(node, total, a_scale, b_scale, node.maybe(6))


def dynamic_quantize_mat_mul(node: Node) -> Value:
    """a is quantized by the range of its numbers, then multiplied with the integer matrix b."""
    b, b_scale = node.x(1), node.x(2)
    a, a_scale, a_zero = dynamic_quantize_linear(node)
    total = multiply_integers(node, a, b, a_zero, node.maybe(3))
    return scaled_sums(node, total, a_scale, b_scale, node.maybe(4))


def qgemm(node: Node) -> Value:
    """alpha * a_scale * b_scale * (A' B' + C) of integers, quantized where the result has a scale."""
    a, b, c = node.ranked(0, 2), node.ranked(3, 2), node.maybe(6)
    a_scale, b_scale = node.x(1), node.x(4)
    a = node.transpose(a, (1, 0)) if node.attr("transA", 0) else a
    b = node.transpose(b, (1, 0)) if node.attr("transB", 0) else b
    total = multiply_integers(node, a, b, node.maybe(2), node.maybe(5))
    total = total if c is None else node.emit("add", total, c)
    alpha = node.attr("alpha", 1.0)
    if alpha != 1:
        a_scale = node.emit("mul", a_scale, node.scalar(alpha, F32))
    if not node.has_input(7):
        return scaled_sums(node, total, a_scale, b_scale, None)
    if not node.has_input(8):
        raise Refusal("its y_scale has no y_zero_point", "give both or none")
    factor = factor_of(node, *(scale_of(node, s, 2, 1) for s in (a_scale, b_scale, node.x(7))))
    return requantize(node, total, factor, node.x(8))


def mat_mul_integer_16(node: Node) -> Value:
    """Products of 16-bit integers, 32-bit sums."""
    return node.emit("matmul", node.cast(node.x(0), I32), node.cast(node.x(1), I32))


def mul_integer(node: Node) -> Value:
    """(a - its zero point) * (b - its zero point) in 32 bits."""
    parts: list[Value] = []
    for i in (0, 2):
        x = node.x(i)
        wide = node.cast(x, I32)
        if node.has_input(i + 1):
            wide = node.emit("sub", wide, node.cast(_zero(node, i + 1, x), I32))
        parts.append(wide)
    return node.emit("mul", *parts)


def reduce_sum_integer(node: Node) -> Value:
    x = node.x(0)
    axes = node.axes(node.attr("axes", tuple(range(x.type.rank))), x.type.rank)
    keep = bool(node.attr("keepdims", 1))
    return node.emit("reduce_sum", node.cast(x, I32), axes=axes, keepdims=keep)


def embed_layer_norm(node: Node) -> Sequence[Value]:
    """EmbedLayerNormalization with quantized tables: each is dequantized with one scale."""

    def real(table: int, scale: int, zero: int) -> Value:
        x = node.x(table)
        return node.emit(
            "dequantize", x, _scalar(node, scale, "scale"), _zero(node, zero, x), dtype=F32
        )

    ids = node.ranked(0, 2)
    batch, steps = ids.type.shape
    total = node.gather(real(2, 8, 13), ids, 0)
    places = node.gather(real(3, 9, 14), node.iota(steps), 0)
    total = node.emit("add", total, node.unsqueeze(places, (0,)))
    if node.has_input(1):
        total = node.emit("add", total, node.gather(real(4, 10, 15), node.x(1), 0))
    out = node.emit(
        "layer_norm", total, real(5, 11, 16), real(6, 12, 17), axis=2,
        epsilon=node.attr("epsilon", 1e-12),
    )  # fmt: skip
    if node.has_input(7):
        mask = node.cast(node.x(7), I32)
        lengths = node.emit("reduce_sum", mask, axes=(1,), keepdims=False)
    else:
        lengths = node.full(0, I32, (batch,))
    return (out, lengths)


def _plain(compose: Callable[[Node], Value]) -> Callable[[Node], Value]:
    """QuantizeLinear or DequantizeLinear; without a zero point the type is u8, as in ONNX."""

    def checked(node: Node) -> Value:
        zero = node.maybe(2)
        if compose is quantize_linear and zero is None:
            node.ignore("axis")
            return node.emit("quantize", node.x(0), node.x(1), node.scalar(0, U8), dtype=U8)
        return compose(node)

    return checked


_OPS: dict[str, Any] = {
    "DequantizeLinear": _plain(dequantize_linear),
    "DynamicQuantizeMatMul": dynamic_quantize_mat_mul,
    "MatMulInteger16": mat_mul_integer_16,
    "MatMulIntegerToFloat": mat_mul_integer_to_float,
    "MulInteger": mul_integer,
    "NhwcMaxPool": nhwc_max_pool,
    "QEmbedLayerNormalization": embed_layer_norm,
    "QGemm": qgemm,
    "QLinearAdd": binary("add"),
    "QLinearAveragePool": average_pool,
    "QLinearConcat": concat,
    "QLinearConv": qlinear_conv,
    "QLinearGlobalAveragePool": global_average_pool,
    "QLinearLeakyRelu": unary("leaky_relu", alpha=0.01),
    "QLinearMul": binary("mul"),
    "QLinearReduceMean": reduce_mean,
    "QLinearSigmoid": unary("sigmoid"),
    "QLinearSoftmax": softmax,
    "QLinearWhere": where,
    "QuantizeLinear": _plain(quantize_linear),
    "ReduceSumInteger": reduce_sum_integer,
}
COMPOSE = {f"com.microsoft:{name}": compose for name, compose in _OPS.items()}
