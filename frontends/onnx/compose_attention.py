"""Attention of com.microsoft (Attention, MultiHeadAttention without caches) and its rotary embedding,
as one attention op."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def rotary_embedding(node: Node) -> Value:
    """Pairs of each head's elements turned by the angles of their positions."""
    x = node.x(0)
    if node.attr("is_packed_batching", 0) or node.attr("scale", 1.0) != 1:
        raise Refusal("packed batches and a scale are not supported for RotaryEmbedding")
    interleaved, heads = bool(node.attr("interleaved", 0)), node.attr("num_heads", 0)
    width = node.attr("rotary_embedding_dim", 0)
    cos, sin = node.ranked(2, 2), node.ranked(3, 2)
    half = cos.type.shape[1]
    if x.type.rank == 4:
        turned = node.transpose(x, (0, 2, 1, 3))
    else:
        batch, steps, hidden = node.ranked(0, 3).type.shape
        size: Dim = dims.floordiv(hidden, heads) if heads else 2 * half
        turned = node.reshape(x, (batch, steps, dims.floordiv(hidden, size), size))
    batch, steps, _, size = turned.type.shape
    if not isinstance(size, int) or not isinstance(half, int):
        raise Refusal(f"its head has {size} elements, want a known size")
    width = width or size
    node.require(half, "==", width // 2, f"RotaryEmbedding {node.origin}: width of the cache")
    positions = node.cast(node.x(1), I64)
    if positions.type.rank == 1:  # where the sequence starts
        positions = node.unsqueeze(node.emit("add", node.iota(steps), positions), (0,))
    tables = [node.unsqueeze(node.gather(t, positions, 0), (2,)) for t in (cos, sin)]
    rotated = node.slice_axis(turned, 3, 0, width)
    if interleaved:
        pairs = node.reshape(rotated, (*turned.type.shape[:3], half, 2))
        parts = [
            node.reshape(node.slice_axis(pairs, 4, i, 1), (*turned.type.shape[:3], half))
            for i in range(2)
        ]
    else:
        parts = [node.slice_axis(rotated, 3, i * half, half) for i in range(2)]
    (a, b), (c, s) = parts, tables
    first = node.emit("sub", node.emit("mul", a, c), node.emit("mul", b, s))
    second = node.emit("add", node.emit("mul", a, s), node.emit("mul", b, c))
    if interleaved:
        out = node.emit("concat", *(node.unsqueeze(v, (4,)) for v in (first, second)), axis=4)
        out = node.reshape(out, rotated.type.shape)
    else:
        out = node.emit("concat", first, second, axis=3)
    if width != size:
        out = node.emit("concat", out, node.slice_axis(turned, 3, width, size - width), axis=3)
    if x.type.rank == 4:
        return node.transpose(out, (0, 2, 1, 3))
    return node.reshape(out, x.type.shape)


def _heads(node: Node, x: Value, heads: int) -> Value:
    """[B, S, N * D] as [B, N, S, D]."""
    batch, steps, hidden = x.type.shape
    split = node.reshape(x, (batch, steps, heads, dims.floordiv(hidden, heads)))
    return node.transpose(split, (0, 2, 1, 3))


def _attend(
    node: Node, q: Value, k: Value, v: Value, padding: Value | None, bias: Value | None,
    *, causal: bool, scale: float, masked: float,
) -> Value:  # fmt: skip
    """softmax(scale * q k' + bias + mask) v of [B, N, S, D] operands, as [B, S, N * D]."""
    batch, heads, steps, size = q.type.shape
    if not isinstance(size, int):
        raise Refusal(f"its head has {size} elements, want a known size")
    dtype = q.type.dtype
    if padding is not None:
        zero, low = node.scalar(0, dtype), node.scalar(masked, dtype)
        seen = node.where(_visible(node, padding, k.type.shape[2]), zero, low)
        bias = seen if bias is None else node.emit("add", bias, seen)
    out = node.emit(
        "attention", q, k, v, *([bias] if bias is not None else []),
        scale=float(scale or 1 / math.sqrt(size)), causal=causal,
    )  # fmt: skip
    return node.reshape(node.transpose(out, (0, 2, 1, 3)), (batch, steps, heads * v.type.shape[3]))


def _visible(node: Node, padding: Value, length: Dim) -> Value:
    """Which keys count, as bool [B, 1, 1 or S, T]: from lengths [B], or numbers that are not 0."""
    if padding.type.rank == 1:
        place = node.unsqueeze(node.iota(length), (0,))
        keys = node.emit("less", place, node.unsqueeze(node.cast(padding, I64), (1,)))
    else:
        keys = node.cast(padding, BOOL)
    if keys.type.rank == 2:
        return node.unsqueeze(keys, (1, 2))
    return node.unsqueeze(keys, (1,)) if keys.type.rank == 3 else keys


def _refuse_caches(node: Node, inputs: Sequence[int]) -> None:
    if any(node.has_input(i) for i in inputs) or any(node.wants(i) for i in range(1, 4)):
        raise Refusal(
            f"{node.type} with past or present keys and values is not supported",
            "export the model without a cache",
        )


def multi_head_attention(node: Node) -> Value:
    _refuse_caches(node, range(6, 10))
    heads, query = node.attr("num_heads"), node.ranked(0, 3)
    if not node.has_input(1) or not node.has_input(2):
        raise Refusal("packed queries, keys and values are not supported", "give three inputs")
    key, value, bias = node.x(1), node.x(2), node.maybe(3)
    operands = [query, key, value]
    if bias is not None:
        start: Dim = 0
        for i, x in enumerate(operands):
            if x.type.rank != 3:
                raise Refusal(f"a bias with an input of the type {x.type} is not supported")
            width = x.type.shape[2]
            operands[i] = node.emit("add", x, node.slice_axis(bias, 0, start, width))
            start = start + width
    parts = [_heads(node, x, heads) if x.type.rank == 3 else x for x in operands]
    return _attend(
        node, *parts, node.maybe(4), node.maybe(5), causal=bool(node.attr("unidirectional", 0)),
        scale=node.attr("scale", 0.0), masked=node.attr("mask_filter_value", -10000.0),
    )  # fmt: skip


def attention(node: Node) -> Value:
    """Queries, keys and values from one product with the weights [I, 3 * H]."""
    _refuse_caches(node, (4, 6))
    if node.attr("do_rotary", 0):
        raise Refusal("do_rotary is not supported for Attention")
    node.ignore("rotary_embedding_dim", "past_present_share_buffer")
    heads, x, weights, bias = node.attr("num_heads"), node.ranked(0, 3), node.x(1), node.maybe(2)
    packed = node.emit("matmul", x, weights)
    packed = packed if bias is None else node.emit("add", packed, bias)
    third = dims.floordiv(weights.type.shape[1], 3)
    sizes: Sequence[Dim] = node.attr("qkv_hidden_sizes", (third, third, third))
    parts: list[Value] = []
    start: Dim = 0
    for size in sizes:
        parts.append(_heads(node, node.slice_axis(packed, 2, start, size), heads))
        start = start + size
    return _attend(
        node, *parts, node.maybe(3), node.maybe(5), causal=bool(node.attr("unidirectional", 0)),
        scale=node.attr("scale", 0.0), masked=node.attr("mask_filter_value", -10000.0),
    )  # fmt: skip


COMPOSE = {
    "com.microsoft:Attention": attention,
    "com.microsoft:MultiHeadAttention": multi_head_attention,
    "com.microsoft:RotaryEmbedding": rotary_embedding,
}
