"""Elementwise ops whose ONNX form differs from ours: bounds as attributes, mixed types, variadics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F8E8M0, F32, I32, DType
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def legacy_broadcast(op: str) -> Callable[[Node], Value]:
    """A binary op.  Opset 6 aligned the second operand at `axis` when `broadcast` was set."""

    def compose(node: Node) -> Value:
        a, b = node.x(0), node.x(1)
        node.ignore("consumed_inputs")
        if node.attr("broadcast", 0) and node.has("axis") and b.type.rank:
            missing = a.type.rank - node.axis(node.attr("axis"), a.type.rank) - b.type.rank
            b = node.reshape(b, (*b.type.shape, *[1] * missing))
        return node.emit(op, a, b)

    return compose


def variadic(op: str) -> Callable[[Node], Value]:
    def compose(node: Node) -> Value:
        node.ignore("consumed_inputs")
        first, *rest = node.x(), *node.inputs[1:]
        for other in rest:
            first = node.emit(op, first, other)
        return first

    return compose


def mean(node: Node) -> Value:
    total = variadic("add")(node)
    count = len(node.proto.input)
    return total if count == 1 else node.emit("div", total, node.scalar(count, total.type.dtype))


def clip(node: Node) -> Value:
    """Bounds from attributes before opset 11, from inputs after; absent ones bound nothing."""
    node.ignore("consumed_inputs")
    x = node.x()
    dtype = x.type.dtype
    bounds: list[Value | None] = []
    for i, name in enumerate(("min", "max")):
        bound = node.scalar(node.attr(name), dtype) if node.has(name) else node.maybe(1 + i)
        bounds.append(node.reshape(bound, ()) if bound is not None else None)
    low, high = bounds
    if low is None and high is None:
        return x
    if high is None:
        assert low is not None
        return node.emit("maximum", x, low)
    if low is None:
        return node.emit("minimum", x, high)
    return node.emit("clip", x, low, high)


def cast(node: Node) -> Value:
    node.ignore("round_mode")
    to = node.attr("to")
    if isinstance(to, str):  # opset 1 wrote the type's name
        try:
            to = TensorProto.DataType.Value(to.upper())
        except ValueError:
            raise Refusal(f"its type is {to!r}, which is none of ONNX's") from None
    return _cast(node, node.x(), node.dtype(to))


def cast_like(node: Node) -> Value:
    return _cast(node, node.x(), node.x(1).type.dtype)


def _cast(node: Node, x: Value, dtype: DType) -> Value:
    saturate = bool(node.attr("saturate", 1))
    rounding = node.attr("round_mode", "up")
    if x.type.dtype is dtype:
        return x
    if dtype is F8E8M0:
        x = _to_power_of_two(node, node.cast(x, F32), rounding)
    if dtype.bits < 8 and dtype.is_integer and x.type.dtype.is_float:
        x = node.cast(x, I32)  # what a packed type cannot hold wraps
    return node.emit("cast", x, dtype=dtype, saturate=saturate)


# What is added to a float32's bits before its mantissa is cut off: how it rounds.
_ROUNDING = {"up": 0x7FFFFF, "down": 0, "nearest": 0x400000}


def _to_power_of_two(node: Node, x: Value, rounding: str) -> Value:
    """Positive float32 rounded to powers of two; what lies below the normal numbers stays."""
    if rounding not in _ROUNDING:
        raise Refusal(f"its round_mode is {rounding!r}, want {', '.join(_ROUNDING)}")
    bits = node.emit("bitcast", x, source=F32, dtype=I32)
    moved = node.emit("add", bits, node.scalar(_ROUNDING[rounding], I32))
    power = node.emit("bitwise_and", moved, node.scalar(0x7F800000, I32))
    rounded = node.emit("bitcast", power, source=I32, dtype=F32)
    least = node.scalar(np.float32(2.0**-126), F32)
    largest = node.scalar(np.float32(2.0**127), F32)
    inside = node.emit("logical_and", node.emit("greater", x, least), node.emit("less", x, largest))
    return node.where(inside, rounded, x)


def bit_cast(node: Node) -> Value:
    x, dtype = node.x(), node.dtype(node.attr("to"))
    if x.type.dtype is dtype:
        return x
    return node.emit("bitcast", x, source=x.type.dtype, dtype=dtype)


def power(node: Node) -> Value:
    """The result has the base's type; a base of integers takes a float exponent as float."""
    x, y = node.x(0), node.x(1)
    node.ignore("consumed_inputs")
    if node.attr("broadcast", 0):
        return legacy_broadcast("pow")(node)
    if x.type.dtype is y.type.dtype:
        return node.emit("pow", x, y)
    if x.type.dtype.is_float or y.type.dtype.is_integer:
        return node.emit("pow", x, node.cast(y, x.type.dtype))
    wide = y.type.dtype
    return node.cast(node.emit("pow", node.cast(x, wide), y), x.type.dtype)


def mod(node: Node) -> Value:
    return node.emit("mod", node.x(0), node.x(1), fmod=bool(node.attr("fmod", 0)))


def bit_shift(node: Node) -> Value:
    direction = node.attr("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise Refusal(f"its direction is {direction!r}, want LEFT or RIGHT")
    return node.emit(f"shift_{direction.lower()}", node.x(0), node.x(1))


def swish(node: Node) -> Value:
    """x * sigmoid(alpha * x); alpha 1 is SiLU."""
    return scaled_silu(node, node.x(), node.attr("alpha", 1.0))


def scaled_silu(node: Node, x: Value, alpha: float) -> Value:
    if alpha == 1:
        return node.emit("silu", x)
    scaled = node.emit("mul", x, node.scalar(alpha, x.type.dtype))
    return node.emit("mul", x, node.emit("sigmoid", scaled))


def swiglu(node: Node) -> Value:
    """swish(a) * b, without broadcasting."""
    a, b = node.x(0), node.x(1)
    return node.emit("mul", scaled_silu(node, a, node.attr("alpha", 1.0)), b)


def prelu(node: Node) -> Value:
    """Before opset 7 a slope of one element a channel meant axis 1."""
    node.ignore("consumed_inputs")
    x, slope = node.x(0), node.x(1)
    if node.opset < 7 and slope.type.rank == 1 and slope.type.shape != (1,):
        slope = node.reshape(slope, (*slope.type.shape, *[1] * (x.type.rank - 2)))
    return node.emit("prelu", x, slope)


def where(node: Node) -> Value:
    return node.where(node.x(0), node.x(1), node.x(2))


def gelu(node: Node) -> Value:
    return node.emit("gelu", node.x(), approximate=node.attr("approximate", "none"))


def bernoulli(node: Node) -> Value:
    """1 with the probability that the input gives."""
    x = node.x()
    dtype = node.dtype(node.attr("dtype")) if node.has("dtype") else x.type.dtype
    draw_type = x.type.dtype if x.type.dtype.is_float else F32
    draws = node.emit(
        "random_uniform",
        shape=x.type.shape,
        dtype=draw_type,
        low=0.0,
        high=1.0,
        seed=node.attr("seed"),
    )
    return node.cast(node.emit("less", draws, x), dtype)


COMPOSE = {
    "Add": legacy_broadcast("add"),
    "Bernoulli": bernoulli,
    "BitCast": bit_cast,
    "BitShift": bit_shift,
    "Cast": cast,
    "CastLike": cast_like,
    "Clip": clip,
    "Div": legacy_broadcast("div"),
    "Gelu": gelu,
    "Max": variadic("maximum"),
    "Mean": mean,
    "Min": variadic("minimum"),
    "Mod": mod,
    "Mul": legacy_broadcast("mul"),
    "PRelu": prelu,
    "Pow": power,
    "Sub": legacy_broadcast("sub"),
    "Sum": variadic("add"),
    "SwiGLU": swiglu,
    "Swish": swish,
    "Where": where,
}
