"""Ops that make tensors: constants, ranges, filled tensors, random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Expr
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.types import F32, F64, I64, DType
from graphwright.frontends.onnx.late_shapes import late_range
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

_PLAIN_CONSTANTS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}


def constant(node: Node) -> Value:
    if node.has("value"):
        literal: Literal = node.attr("value")
        return node.weight(literal)
    for name, dtype in _PLAIN_CONSTANTS.items():
        if node.has(name):
            return node.weight(Literal.dense(np.array(node.attr(name), dtype)))
    raise Refusal("its value is a string or sparse, which is not supported")


def constant_of_shape(node: Node) -> Value:
    shape = node.dims(0, "the shape")
    value: Literal = node.attr("value", Literal.splat(0.0, F32, (1,)))
    if value.elements != 1:
        raise Refusal(f"its value has {value.elements} elements, want 1")
    if all(isinstance(d, int) and d >= 0 for d in shape):
        fixed = tuple(d for d in shape if isinstance(d, int))
        return node.weight(Literal.splat(value.item(), value.dtype, fixed))
    return node.full(value.item(), value.dtype, shape)


def range_(node: Node) -> Value:
    start, limit = node.x(0), node.x(1)
    dtype = start.type.dtype
    # com.microsoft's Range may leave the delta out.
    delta = node.x(2) if node.has_input(2) or not node.proto.domain else node.scalar(1, dtype)
    if not (dtype.is_integer or dtype.is_float):
        raise Refusal(f"its start is {dtype}, want a number")
    known = [node.known(v) for v in (start, limit, delta)]
    if all(k is not None and k.dtype != object for k in known):
        a, b = node.one(0, "start"), node.one(1, "limit")
        c = node.one(2, "delta") if node.has_input(2) else 1
        if c == 0:
            raise Refusal("its delta is 0")
        count = max(int(np.ceil((b - a) / c)), 0)
        if dtype.is_integer:
            return node.emit("iota", size=count, dtype=dtype, start=a, step=c)
        # start + i * delta in the op's own type, as the specification's loop computes it
        steps = np.arange(count, dtype=dtype.numpy)
        return node.array((steps * dtype.numpy.type(c) + dtype.numpy.type(a)).astype(dtype.numpy))
    if not dtype.is_integer or any(not _is_sizes(k) for k in known):
        return late_range(node, start, limit, delta)
    first, last = node.dims(0, "start")[0], node.dims(1, "limit")[0]
    step = int(node.one(2, "delta")) if node.has_input(2) else 1
    if step == 0:
        raise Refusal("its delta is 0")
    span = last - first if step > 0 else first - last
    count = dims.maximum(dims.ceildiv(span, abs(step)), 0)
    if isinstance(first, Expr):
        base = node.emit("iota", size=count, dtype=dtype, start=0, step=step)
        return node.emit("add", base, node.size(first, dtype))
    return node.emit("iota", size=count, dtype=dtype, start=first, step=step)


def _is_sizes(known: np.ndarray | None) -> bool:
    return known is not None and all(isinstance(e, int | Expr | np.integer) for e in known.flat)


def eye_like(node: Node) -> Value:
    x = node.x()
    if x.type.rank != 2:
        raise Refusal(f"its input is {x.type}, want rank 2")
    rows, columns = x.type.shape
    row = node.emit("add", node.iota(rows), node.scalar(node.attr("k", 0), I64))
    on = node.emit("equal", node.unsqueeze(row, (1,)), node.unsqueeze(node.iota(columns), (0,)))
    return node.cast(on, node.dtype(node.attr("dtype")) if node.has("dtype") else x.type.dtype)


def one_hot(node: Node) -> Value:
    indices, values = node.x(0), node.x(2)
    rank = indices.type.rank + 1
    axis = node.axis(node.attr("axis", -1), rank)
    (depth,) = _depth(node)
    return node.emit("one_hot", node.cast(indices, I64), values, axis=axis, depth=depth)


def _depth(node: Node) -> tuple[Any, ...]:
    if node.x(1).type.dtype.is_integer:
        return node.dims(1, "the depth")
    if node.known(node.x(1)) is not None:
        return (int(node.one(1, "the depth")),)
    return node.dims_of(node.cast(node.x(1), I64), "the depth")


def random_uniform(node: Node) -> Value:
    """RandomUniform and RandomUniformLike."""
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return _random(node, "random_uniform", low=low, high=high)


def random_normal(node: Node) -> Value:
    """RandomNormal and RandomNormalLike."""
    mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
    return _random(node, "random_normal", mean=mean, scale=scale)


def multinomial(node: Node) -> Value:
    """Classes drawn with the probabilities whose logarithms, but for a constant, the input gives."""
    x = node.ranked(0, 2)
    dtype = node.dtype(node.attr("dtype", TensorProto.INT32))
    count, seed = node.attr("sample_size", 1), node.attr("seed")
    batch, classes = x.type.shape
    wide = x.type.dtype if x.type.dtype in (F32, F64) else F32
    share = node.emit("softmax", node.cast(x, wide), axis=1)
    upto = node.emit("cumsum", share, axis=1, exclusive=False, reverse=False)
    drawn = node.emit(
        "random_uniform", shape=(batch, count), dtype=wide, low=0.0, high=1.0, seed=seed
    )
    below = node.emit("less_or_equal", node.unsqueeze(upto, (1,)), node.unsqueeze(drawn, (2,)))
    chosen = node.emit("reduce_sum", node.cast(below, I64), axes=(2,), keepdims=False)
    # Rounding may leave the sum of all shares a little below a draw.
    last = node.size(classes - 1)
    return node.cast(node.emit("minimum", chosen, last), dtype)


def _random(node: Node, op: str, **parameters: Any) -> Value:
    like = node.x() if node.type.endswith("Like") else None
    shape = like.type.shape if like is not None else node.attr("shape")
    return node.emit(
        op, shape=tuple(shape), dtype=_random_type(node, like), seed=node.attr("seed"), **parameters
    )


def _random_type(node: Node, like: Value | None) -> DType:
    if node.has("dtype"):
        return node.dtype(node.attr("dtype"))
    return like.type.dtype if like is not None else node.dtype(TensorProto.FLOAT)


COMPOSE = {
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "Multinomial": multinomial,
    "OneHot": one_hot,
    "RandomNormal": random_normal,
    "RandomNormalLike": random_normal,
    "RandomUniform": random_uniform,
    "RandomUniformLike": random_uniform,
    "Range": range_,
}
