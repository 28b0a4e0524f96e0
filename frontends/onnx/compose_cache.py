"""Ops with a state that a call hands to the next: caches of keys and values, causal convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I64
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def tensor_scatter(node: Node) -> Value:
    """The cache with the update written along `axis` from each sample's write index on."""
    cache, update = node.ranked(0, 2, or_more=True), node.x(1)
    rank = cache.type.rank
    axis = node.axis(node.attr("axis", -2), rank)
    mode = node.attr("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise Refusal(
            f"its axis is {axis} and its mode {mode!r}; want 1 or more, and linear or circular"
        )
    if update.type.rank != rank:
        raise Refusal(f"its update is {update.type}, its cache {cache.type}")
    others = [a for a in range(rank) if a != axis]
    place = node.unsqueeze(node.iota(update.type.shape[axis]), others)
    if node.has_input(2):
        first = node.unsqueeze(node.cast(node.ranked(2, 1), I64), list(range(1, rank)))
        place = node.emit("add", place, first)
    if mode == "circular":
        place = node.emit("mod", place, node.size(cache.type.shape[axis]), fmod=False)
    indices = node.broadcast_to(place, update.type.shape)
    return node.emit("scatter_elements", cache, indices, update, axis=axis)


def causal_conv(node: Node) -> Sequence[Value]:
    """A depthwise convolution over the past (k - 1) positions and the input, and the new past."""
    x, w = node.ranked(0, 3), node.ranked(1, 3)
    bias, past = node.maybe(2), node.maybe(3)
    activation = node.attr("activation", "none")
    if activation not in ("none", "silu", "swish"):
        raise Refusal(f"its activation is {activation!r}, want none, silu or swish")
    batch, channels, _ = x.type.shape
    size = w.type.shape[2]
    if not isinstance(size, int) or not isinstance(channels, int) or size < 1:
        raise Refusal(f"its weight is {w.type}, want known sizes")
    if past is None:
        past = node.full(0, x.type.dtype, (batch, channels, size - 1))
    padded = node.emit("concat", past, x, axis=2) if size > 1 else x
    out = node.emit(
        "conv", padded, w, *([bias] if bias is not None else []),
        strides=(1,), low=(0,), high=(0,), dilations=(1,), groups=channels,
    )  # fmt: skip
    if activation != "none":
        out = node.emit("silu", out)
    kept = node.slice_axis(padded, 2, padded.type.shape[2] - (size - 1), size - 1)
    return (out, kept)


COMPOSE = {"CausalConvWithState": causal_conv, "TensorScatter": tensor_scatter}
