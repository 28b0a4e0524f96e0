"""GroupQueryAttention of com.microsoft: rotary positions, caches and masks that the lengths of the
sequences decide, as one attention op."""

from __future__ import annotations

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I64
from graphwright.frontends.onnx.compose_attention import attend, rotate
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

PAST_KEY, PAST_VALUE, LENGTHS, TOTAL, COS, SIN, POSITIONS, BIAS, SINK = range(3, 12)
KEY_SCALE, VALUE_SCALE, QUERY_NORM, KEY_NORM, QUERY_LENGTHS = range(12, 17)


def group_query_attention(node: Node) -> tuple[Value, ...]:
    """The new tokens of sequence b stand at past_b, past_b + 1, ...; past_b is what `seqlens_k` + 1,
    the length with them, leaves, and never less than 0: a prompt may be padded at its end.
    """
    _check(node)
    heads, groups = node.attr("num_heads"), node.attr("kv_num_heads")
    q, k, v = _inputs(node, heads, groups)
    batch, steps = q.type.shape[0], q.type.shape[1]
    lengths = node.emit("add", node.cast(node.ranked(LENGTHS, 1), I64), node.scalar(1, I64))
    node.require(lengths.type.shape[0], "==", batch, f"{node.type} {node.origin}: seqlens_k")
    count = node.cast(node.x(QUERY_LENGTHS), I64) if node.has_input(QUERY_LENGTHS) else None
    fresh = node.size(steps) if count is None else count
    past = node.emit("maximum", node.emit("sub", lengths, fresh), node.scalar(0, I64))
    positions = node.emit("add", node.unsqueeze(past, (1,)), node.unsqueeze(node.iota(steps), (0,)))
    if node.has_input(QUERY_NORM):
        q, k = (_normed(node, x, i) for x, i in ((q, QUERY_NORM), (k, KEY_NORM)))
    if node.attr("do_rotary", 0):
        given = (
            node.cast(node.ranked(POSITIONS, 2), I64) if node.has_input(POSITIONS) else positions
        )
        interleaved = bool(node.attr("rotary_interleaved", 0))
        cos, sin = node.ranked(COS, 2), node.ranked(SIN, 2)
        # Of the padding behind a prompt the positions may lie outside the tables.
        last = node.size(cos.type.shape[0] - 1)
        given = node.emit("minimum", given, last)
        q, k = (rotate(node, x, given, cos, sin, interleaved=interleaved) for x in (q, k))
    else:
        node.ignore("rotary_interleaved")
    q, k, v = (node.transpose(x, (0, 2, 1, 3)) for x in (q, k, v))
    total = node.dims(TOTAL, "total_sequence_length")[0]
    places = _Places(node, past, fresh, total)
    keys, values = places.extended(PAST_KEY, k), places.extended(PAST_VALUE, v)
    out = _attention(node, q, keys, values, positions, lengths)
    return (out, keys, values)[: max(node.outputs, 1)]


def _check(node: Node) -> None:
    """Raises Refusal for what is not supported."""
    quantized = (
        node.attr("k_quant_type", "NONE") != "NONE" or node.attr("v_quant_type", "NONE") != "NONE"
    )
    if quantized or node.has_input(KEY_SCALE) or node.has_input(VALUE_SCALE):
        raise Refusal("quantized caches are not supported", "export caches of floats")
    node.ignore("kv_cache_bit_width")
    if node.attr("sliding_window_cache", 0):
        raise Refusal("a cache of the window's size is not supported", "export the whole cache")
    if node.attr("qk_output", 0) or node.wants(3):
        raise Refusal("its output of scores is not supported", "remove it from the graph")
    if node.has_input(PAST_KEY) != node.has_input(PAST_VALUE):
        raise Refusal("it has one of past_key and past_value, want both or none")
    if node.has_input(QUERY_NORM) != node.has_input(KEY_NORM):
        raise Refusal("it has one of q_norm_weight and k_norm_weight, want both or none")
    if not node.attr("causal", 1) and node.attr("local_window_size", -1) >= 0:
        raise Refusal("local_window_size needs causal=1")


def _inputs(node: Node, heads: int, groups: int) -> list[Value]:
    """Queries, keys and values as [B, S, heads, D]."""
    query = node.ranked(0, 3)
    batch, steps, hidden = query.type.shape
    if groups < 1 or heads % groups:
        raise Refusal(f"its num_heads is {heads}, want a multiple of kv_num_heads, {groups}")
    if node.has_input(1) != node.has_input(2):
        raise Refusal("it has one of key and value, want both or none")
    if node.has_input(1):
        parts = [query, node.ranked(1, 3), node.ranked(2, 3)]
        for x in parts[1:]:
            node.require(x.type.shape[1], "==", steps, f"{node.type} {node.origin}: new keys")
    else:
        size = dims.floordiv(hidden, heads + 2 * groups)
        sizes = (size * heads, size * groups, size * groups)
        starts = (0, sizes[0], sizes[0] + sizes[1])
        parts = [node.slice_axis(query, 2, a, n) for a, n in zip(starts, sizes, strict=True)]
    return [
        node.reshape(x, (batch, steps, n, dims.floordiv(x.type.shape[2], n)))
        for x, n in zip(parts, (heads, groups, groups), strict=True)
    ]


def _normed(node: Node, x: Value, i: int) -> Value:
    """The RMS norm of each head."""
    name = "q_norm_epsilon" if i == QUERY_NORM else "k_norm_epsilon"
    epsilon = node.attr(name, node.attr("qk_norm_epsilon", 1e-6))
    return node.emit("rms_norm", x, node.ranked(i, 1), axis=3, epsilon=epsilon)


class _Places:
    """Where new keys and values stand in the present cache, [B, T] of positions."""

    def __init__(self, node: Node, past: Value, fresh: Value, total: Dim) -> None:
        self.node, self.total = node, total
        self.past, self.fresh = past, fresh

    def extended(self, cache: int, new: Value) -> Value:
        """The present cache [B, G, T, D]: what the past holds below past_b, then the new rows, zeros."""
        node = self.node
        if not node.has_input(cache):
            length: Dim = self.total
            source, before = new, 0
        else:
            old = node.ranked(cache, 4)
            before = old.type.shape[2]
            length = node.larger(self.total, before)
            source = node.emit("concat", old, new, axis=2)
        place = node.unsqueeze(node.iota(length), (0,))
        past = node.unsqueeze(self.past, (1,))
        fresh = self.fresh if self.fresh.type.rank == 0 else node.unsqueeze(self.fresh, (1,))
        shifted = node.emit("sub", place, past)
        is_old = node.emit("less", shifted, node.scalar(0, I64))
        is_new = node.emit("less", shifted, fresh)
        index = node.where(is_old, place, node.emit("add", shifted, node.size(before)))
        # Rows behind the sequence read any row of the source and become 0.
        most = node.size(source.type.shape[2] - 1)
        index = node.emit("clip", index, node.scalar(0, I64), most)
        turned = node.transpose(source, (0, 2, 1, 3))
        taken = node.emit("gather_nd", turned, node.unsqueeze(index, (2,)), batch_dims=1)
        taken = node.where(node.unsqueeze(is_new, (2, 3)), taken, node.scalar(0, new.type.dtype))
        return node.transpose(taken, (0, 2, 1, 3))


def _attention(
    node: Node, q: Value, keys: Value, values: Value, positions: Value, lengths: Value
) -> Value:
    """Attention [B, S, N * D] to the keys below each sequence's length, by position."""
    batch, heads = q.type.shape[:2]
    length, dtype = keys.type.shape[2], q.type.dtype
    place = node.reshape(node.iota(length), (1, 1, 1, length))
    own = node.unsqueeze(positions, (1, 3))
    seen = node.emit("less", place, node.reshape(lengths, (batch, 1, 1, 1)))
    if node.attr("causal", 1):
        seen = node.emit("logical_and", seen, node.emit("less_or_equal", place, own))
    window = node.attr("local_window_size", -1)
    if window >= 0:
        before = node.emit("sub", own, node.scalar(window, I64))
        seen = node.emit("logical_and", seen, node.emit("greater", place, before))
    softcap = float(node.attr("softcap", 0.0))
    bias = node.maybe(BIAS)
    sink = node.maybe(SINK)
    smooth = node.attr("smooth_softmax", 0) > 0 or sink is not None
    if bias is not None:
        # The bias ends with the longest sequence, the cache may go on.
        width = bias.type.shape[3]
        if not dims.equal(width, length):
            high = (0, 0, 0, length - node.smaller(width, length))
            bias = node.slice_axis(bias, 3, 0, node.smaller(width, length))
            bias = node.emit("pad", bias, low=(0,) * 4, high=high, mode="constant")
    if bias is None and not smooth:
        return attend(node, q, keys, values, seen, softcap=softcap)
    least = node.scalar(float("-inf"), dtype)
    added = node.where(seen, bias if bias is not None else node.scalar(0, dtype), least)
    if smooth:
        # One more key, of zeros, with a value of zeros: its score is the sink, or 0.
        shape = (*added.type.shape[:3], 1)
        if sink is None:
            more = node.full(0, dtype, shape)
        else:
            shape = (shape[0], heads, *shape[2:])
            added = node.broadcast_to(added, (shape[0], heads, *added.type.shape[2:]))
            more = node.broadcast_to(node.reshape(sink, (1, heads, 1, 1)), shape)
        added = node.emit("concat", added, more, axis=3)
        keys, values = (
            node.emit(
                "concat", x, node.full(0, dtype, (*x.type.shape[:2], 1, x.type.shape[3])), axis=2
            )
            for x in (keys, values)
        )
    return attend(node, q, keys, values, added, softcap=softcap)


COMPOSE = {"com.microsoft:GroupQueryAttention": group_query_attention}
