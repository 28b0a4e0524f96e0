"""Attention of com.microsoft (Attention, QAttention, MultiHeadAttention and their kin) with masks and
caches of every form that ONNX Runtime has on a CPU, as one attention op; rotary embedding.

Heads are [B, N, S, D].  GroupQueryAttention has a file of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.onnx.compose_qlinear import scaled_sums
from graphwright.frontends.onnx.compose_quantize import multiply_integers
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def rotate(
    node: Node, x: Value, positions: Value, cos: Value, sin: Value, *, interleaved: bool
) -> Value:
    """x [B, S, N, D]: pairs of each head's first elements turned by the angles of their positions.

    cos and sin [positions, width / 2] say by their width how many of the D elements are turned.
    """
    size = x.type.shape[3]
    half = cos.type.shape[1]
    if not isinstance(size, int) or not isinstance(half, int) or 2 * half > size:
        raise Refusal(
            f"its head has {size} elements, its tables {cos.type}; want known, fitting sizes"
        )
    width = 2 * half
    tables = [node.unsqueeze(node.gather(t, positions, 0), (2,)) for t in (cos, sin)]
    rotated = node.slice_axis(x, 3, 0, width)
    if interleaved:
        pairs = node.reshape(rotated, (*x.type.shape[:3], half, 2))
        parts = [
            node.reshape(node.slice_axis(pairs, 4, i, 1), (*x.type.shape[:3], half))
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
    if width == size:
        return out
    return node.emit("concat", out, node.slice_axis(x, 3, width, size - width), axis=3)


def rotary_embedding(node: Node) -> Value:
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
    where = f"RotaryEmbedding {node.origin}: width of the cache"
    node.require(2 * half, "==", width or turned.type.shape[3], where)
    positions = node.cast(node.x(1), I64)
    if positions.type.rank == 1:  # where the sequence starts
        start = node.emit("add", node.iota(turned.type.shape[1]), positions)
        positions = node.unsqueeze(start, (0,))
    out = rotate(node, turned, positions, cos, sin, interleaved=interleaved)
    return (
        node.transpose(out, (0, 2, 1, 3)) if x.type.rank == 4 else node.reshape(out, x.type.shape)
    )


def heads_of(node: Node, x: Value, heads: int) -> Value:
    """[B, S, N * D] as [B, N, S, D]."""
    batch, steps, hidden = x.type.shape
    split = node.reshape(x, (batch, steps, heads, dims.floordiv(hidden, heads)))
    return node.transpose(split, (0, 2, 1, 3))


def joined(node: Node, x: Value) -> Value:
    """[B, N, S, D] as [B, S, N * D]."""
    batch, heads, steps, size = x.type.shape
    return node.reshape(node.transpose(x, (0, 2, 1, 3)), (batch, steps, heads * size))


def attend(
    node: Node, q: Value, k: Value, v: Value, bias: Value | None, *, lengths: Value | None = None,
    **attributes: Any,
) -> Value:  # fmt: skip
    """softmax(scale * q k' + bias) v of [B, N, S, D] operands, as [B, S, N * D]; `lengths` of keys."""
    size = q.type.shape[3]
    if not isinstance(size, int):
        raise Refusal(f"its head has {size} elements, want a known size")
    attributes["scale"] = float(node.attr("scale", 0.0) or 1 / math.sqrt(size))
    operands = [q, k, v]
    if lengths is not None and bias is None:
        bias = node.scalar(True, BOOL)
    operands += [x for x in (bias, lengths) if x is not None]
    return joined(node, node.emit("attention", *operands, **attributes))


def _bias(
    node: Node, mask: Value | None, bias: Value | None, q: Value, keys: Dim, past: Dim
) -> Value | None:
    """What is added to scores [B, N, S, T]: a bias, and mask_filter_value where a mask hides a key.

    Masks: [B] lengths; [2 * B] ends, then starts; [B, T], [B, S, T] and [B, 1, M, M] of numbers that
    are not 0 where a key counts (of the last, the rows from `past` on are used).
    """
    filler = node.attr("mask_filter_value", -10000.0)
    if mask is None:
        return bias
    batch, _, steps, _ = q.type.shape
    if mask.type.rank == 1:
        extent = mask.type.shape[0]
        place = node.unsqueeze(node.iota(keys), (0,))

        def below(start: Dim) -> Value:
            part = node.cast(node.slice_axis(mask, 0, start, batch), I64)
            return node.emit("less", place, node.unsqueeze(part, (1,)))

        if dims.equal(extent, 2 * batch):
            seen = node.emit("logical_and", below(0), node.emit("logical_not", below(batch)))
        else:
            node.require(extent, "==", batch, f"{node.type} {node.origin}: lengths of its mask")
            seen = below(0)
    else:
        seen = node.cast(mask, BOOL)
    if seen.type.rank == 4:
        seen = node.slice_axis(node.slice_axis(seen, 2, past, steps), 3, 0, keys)
    elif seen.type.rank == 3:
        seen = node.unsqueeze(seen, (1,))
    else:
        seen = node.unsqueeze(seen, (1, 2))
    dtype = q.type.dtype
    added = node.where(seen, node.scalar(0, dtype), node.scalar(filler, dtype))
    return added if bias is None else node.emit("add", bias, added)


class _Buffer:
    """Caches [B, N, M, D] that hold more than the past: what is new replaces rows from `start` on."""

    def __init__(self, node: Node, start: Value, steps: Dim, batch: Dim) -> None:
        self.node, self.steps = node, steps
        self.start = node.cast(node.reshape(start, ()), I64)
        end = node.emit("add", self.start, node.size(steps))
        self.lengths = node.broadcast_to(end, (batch,))

    def extended(self, past: Value, new: Value) -> Value:
        node, size = self.node, past.type.shape[2]
        place = node.iota(size)
        shifted = node.emit("sub", place, self.start)
        inside = node.emit(
            "logical_and",
            node.emit("greater_or_equal", shifted, node.scalar(0, I64)),
            node.emit("less", shifted, node.size(self.steps)),
        )
        index = node.where(inside, node.emit("add", shifted, node.size(size)), place)
        return node.gather(node.emit("concat", past, new, axis=2), index, 2)

    def widened(self, bias: Value | None, size: Dim) -> Value | None:
        """A bias over the keys that count, so that it has all of the buffer's."""
        if bias is None or dims.equal(bias.type.shape[3], size):
            return bias
        more = size - bias.type.shape[3]
        reason = f"{self.node.type} {self.node.origin}: keys of its bias and of its buffer"
        self.node.require(more, ">=", 0, reason)
        return self.node.emit("pad", bias, low=(0,) * 4, high=(0, 0, 0, more), mode="constant")


def _with_cache(
    node: Node, parts: Sequence[Value], *, mask: int, bias: int, past: int, start: int
) -> Sequence[Value]:
    """The results of attention to a past and new keys and values; inputs by index."""
    q, *new = parts
    pasts = [node.maybe(past), node.maybe(past + 1)]
    if (pasts[0] is None) != (pasts[1] is None):
        raise Refusal("it has one of past_key and past_value, want both or none")
    causal = bool(node.attr("unidirectional", 0))
    if node.has_input(start) and pasts[0] is not None:
        buffer = _Buffer(node, node.x(start), new[0].type.shape[2], q.type.shape[0])
        k, v = (buffer.extended(p, n) for p, n in zip(pasts, new, strict=True) if p is not None)
        given = [node.maybe(i) for i in (mask, bias)]
        keys = next((x.type.shape[-1] for x in given if x is not None), k.type.shape[2])
        added = buffer.widened(_bias(node, *given, q, keys, 0), k.type.shape[2])
        out = attend(node, q, k, v, added, lengths=buffer.lengths, causal=causal, align="end")
    else:
        k, v = (_extended(node, p, n) for p, n in zip(pasts, new, strict=True))
        offset: Dim = 0 if pasts[0] is None else pasts[0].type.shape[2]
        added = _bias(node, node.maybe(mask), node.maybe(bias), q, k.type.shape[2], offset)
        out = attend(node, q, k, v, added, causal=causal, offset=offset)
    return (out, k, v)[: max(node.outputs, 1)]


def _extended(node: Node, past: Value | None, new: Value) -> Value:
    """New keys or values [B, N, S, D] behind those of the past [B, N, P, D]."""
    return new if past is None else node.emit("concat", past, new, axis=2)


def _packed(node: Node, x: Value, count: int) -> list[Value]:
    """[B, S, N, count, D] as `count` tensors [B, N, S, D]."""
    batch, steps, heads, _, size = x.type.shape
    node.require(x.type.shape[3], "==", count, f"{node.type} {node.origin}: packed tensors")
    return [
        node.transpose(
            node.reshape(node.slice_axis(x, 3, i, 1), (batch, steps, heads, size)), (0, 2, 1, 3)
        )
        for i in range(count)
    ]


def _with_bias(node: Node, parts: Sequence[Value], bias: Value | None) -> list[Value]:
    """Queries, keys and values [B, N, S, D] plus their parts of a bias [sum of N * D]."""
    if bias is None:
        return list(parts)
    out: list[Value] = []
    start: Dim = 0
    for x in parts:
        _, heads, _, size = x.type.shape
        own = node.slice_axis(bias, 0, start, heads * size)
        out.append(node.emit("add", x, node.reshape(own, (heads, 1, size))))
        start = start + heads * size
    return out


def _refuse(node: Node, **inputs: int) -> None:
    """Inputs and the output of scores that no CPU graph needs: beams and buffers."""
    for name, i in inputs.items():
        if node.has_input(i):
            raise Refusal(
                f"its input {name.replace('_', ' ')} is not supported",
                "export the model with caches that grow, and search outside of it",
            )
    if node.wants(3):
        raise Refusal("its output of scores is not supported", "remove it from the graph")


def _query_key_value(node: Node) -> tuple[list[Value], bool]:
    """Inputs 0 to 2 as heads [B, N, S, D], and whether keys and values came as heads."""
    heads, query = node.attr("num_heads"), node.x(0)
    if query.type.rank == 5:
        return _packed(node, query, 3), False
    query = heads_of(node, node.ranked(0, 3), heads)
    if not node.has_input(1):
        raise Refusal("its key is missing and its query is not packed [B, S, N, 3, D]")
    key = node.x(1)
    if key.type.rank == 5:
        return [query, *_packed(node, key, 2)], False
    if not node.has_input(2):
        raise Refusal("its value is missing and its key is not packed [B, S, N, 2, D]")
    rest = [node.x(i) for i in (1, 2)]
    for x in rest:
        if x.type.rank not in (3, 4):
            raise Refusal(f"its key or value is {x.type}, want rank 3 or 4")
    ready = key.type.rank == 4
    return [query, *(x if x.type.rank == 4 else heads_of(node, x, heads) for x in rest)], ready


def multi_head_attention(node: Node) -> Sequence[Value]:
    _refuse(node, cache_indirection=9)
    parts, ready = _query_key_value(node)
    bias = node.maybe(3)
    if ready and bias is not None:  # only of the query: keys and values are those of a cache
        q, *rest = parts
        parts = [
            *_with_bias(node, [q], node.slice_axis(bias, 0, 0, q.type.shape[1] * q.type.shape[3])),
            *rest,
        ]
    else:
        parts = _with_bias(node, parts, bias)
    return _with_cache(node, parts, mask=4, bias=5, past=6, start=8)


def decoder_masked_attention(node: Node) -> Sequence[Value]:
    """MultiHeadAttention of one new token: other places for the same inputs."""
    _refuse(node, beam_width=8, cache_indirection=9)
    node.ignore("output_qk", "past_present_share_buffer")
    heads, query, bias = node.attr("num_heads"), node.ranked(0, 3), node.maybe(10)
    node.require(query.type.shape[1], "==", 1, f"{node.type} {node.origin}: queries")
    if node.has_input(1):
        parts, ready = _query_key_value(node)
    else:
        if bias is not None:
            query, bias = node.emit("add", query, bias), None
        third, ready = dims.floordiv(query.type.shape[2], 3), False
        parts = [
            heads_of(node, node.slice_axis(query, 2, third * i, third), heads) for i in range(3)
        ]
    if ready and bias is not None:
        raise Refusal("a bias with keys and values of a cache is not supported")
    return _with_cache(node, _with_bias(node, parts, bias), mask=3, bias=4, past=5, start=7)


def _projected(
    node: Node, packed: Value, sizes: Sequence[Dim], *, mask: int, past: int, bias: int | None
) -> Sequence[Value]:
    """Attention from queries, keys and values side by side [B, S, sum of sizes]; inputs by index."""
    if node.attr("do_rotary", 0):
        raise Refusal(
            f"do_rotary is not supported for {node.type}",
            "use GroupQueryAttention or RotaryEmbedding",
        )
    node.ignore("rotary_embedding_dim")
    heads, parts = node.attr("num_heads"), []
    start: Dim = 0
    for size in sizes:
        parts.append(heads_of(node, node.slice_axis(packed, 2, start, size), heads))
        start = start + size
    q, k, v = parts
    earlier: Dim = 0
    if node.has_input(past):
        cache = node.ranked(past, 5)
        earlier = cache.type.shape[3]
        k, v = (
            _extended(node, node.reshape(node.slice_axis(cache, 0, i, 1), cache.type.shape[1:]), x)
            for i, x in enumerate((k, v))
        )
    given = None if bias is None else node.maybe(bias)
    added = _bias(node, node.maybe(mask), given, q, k.type.shape[2], earlier)
    causal = bool(node.attr("unidirectional", 0))
    out = attend(node, q, k, v, added, causal=causal, offset=earlier)
    if not node.wants(1):
        return (out,)
    return (out, node.emit("concat", node.unsqueeze(k, (0,)), node.unsqueeze(v, (0,)), axis=0))


def attention(node: Node) -> Sequence[Value]:
    """Queries, keys and values from one product with the weights [I, 3 * H]."""
    _refuse(node, past_sequence_length=6)
    node.ignore("past_present_share_buffer")
    x, weights, bias = node.ranked(0, 3), node.ranked(1, 2), node.maybe(2)
    packed = node.emit("matmul", x, weights)
    packed = packed if bias is None else node.emit("add", packed, bias)
    third = dims.floordiv(weights.type.shape[1], 3)
    sizes: Sequence[Dim] = node.attr("qkv_hidden_sizes", (third, third, third))
    if len(sizes) != 3:
        raise Refusal(f"its qkv_hidden_sizes is {list(sizes)}, want three sizes")
    return _projected(node, packed, sizes, mask=3, past=4, bias=5)


def qattention(node: Node) -> Sequence[Value]:
    """Attention whose first product is of 8-bit integers."""
    if node.attr("past_present_share_buffer", 0):
        raise Refusal("past and present in one buffer are not supported", "export caches that grow")
    _refuse(node)
    x, weights = node.ranked(0, 3), node.ranked(1, 2)
    total = multiply_integers(node, x, weights, node.maybe(6), node.maybe(7))
    packed = scaled_sums(node, total, node.x(3), node.x(4), node.x(2))
    third = dims.floordiv(weights.type.shape[1], 3)
    return _projected(node, packed, (third,) * 3, mask=5, past=8, bias=None)


def _same_sequence(node: Node, ends: Value, tokens: Dim) -> Value:
    """Bools [tokens, tokens]: whether both lie in one of the sequences that end at `ends`[1:]."""
    place = node.unsqueeze(node.iota(tokens), (1,))
    ends = node.unsqueeze(node.cast(ends, I64), (0,))
    past = node.emit("greater_or_equal", place, ends)
    which = node.emit("reduce_sum", node.cast(past, I64), axes=(1,), keepdims=True)
    return node.emit("equal", which, node.transpose(which, (1, 0)))


def packed_attention(node: Node) -> Value:
    """Sequences one after the other without padding: all tokens meet, pairs of two sequences do not
    count.  So the time is that of one sequence of all tokens.
    """
    multi = node.type == "PackedMultiHeadAttention"
    heads = node.attr("num_heads")
    if node.has_input(6 if multi else 5):
        raise Refusal("an attention bias is not supported for packed batches", "unpack the batch")
    if multi:
        query = node.x(0)
        if query.type.rank == 4:
            parts = _packed(node, node.unsqueeze(query, (0,)), 3)
        else:
            parts = [
                heads_of(node, node.unsqueeze(node.ranked(i, 2), (0,)), heads) for i in range(3)
            ]
        parts = _with_bias(node, parts, node.maybe(3))
    else:
        weights = node.ranked(1, 2)
        packed = node.emit("add", node.emit("matmul", node.ranked(0, 2), weights), node.x(2))
        packed = node.unsqueeze(packed, (0,))
        third = dims.floordiv(weights.type.shape[1], 3)
        start: Dim = 0
        parts = []
        for size in node.attr("qkv_hidden_sizes", (third, third, third)):
            parts.append(heads_of(node, node.slice_axis(packed, 2, start, size), heads))
            start = start + size
    node.ignore("mask_filter_value")
    q, k, v = parts
    seen = _same_sequence(node, node.ranked(5 if multi else 4, 1), q.type.shape[2])
    return node.squeeze(attend(node, q, k, v, seen), (0,))


COMPOSE = {
    "com.microsoft:Attention": attention,
    "com.microsoft:DecoderMaskedMultiHeadAttention": decoder_masked_attention,
    "com.microsoft:MultiHeadAttention": multi_head_attention,
    "com.microsoft:PackedAttention": packed_attention,
    "com.microsoft:PackedMultiHeadAttention": packed_attention,
    "com.microsoft:QAttention": qattention,
    "com.microsoft:RotaryEmbedding": rotary_embedding,
}
