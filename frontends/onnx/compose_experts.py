"""Mixtures of experts of com.microsoft: MoE, and QMoE with weights of few bits.

Every expert sees every token, and the router's weights, zero for all but k experts, mix the results:
right for every routing, at the cost of all experts.
"""

from __future__ import annotations

import math

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, U8
from graphwright.frontends.onnx.compose_contrib import swiglu_of
from graphwright.frontends.onnx.compose_packed import unpacked
from graphwright.frontends.onnx.compose_quantize import by_blocks
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

_ACTIVATIONS = ("relu", "gelu", "silu", "swiglu", "identity")


def _weights(node: Node, logits: Value, selected: Value | None) -> Value:
    """[T, E]: what each expert counts for each token; `selected` replaces the probabilities."""
    tokens, experts = logits.type.shape
    k = node.attr("k", 1)
    if node.attr("use_sparse_mixer", 0):
        raise Refusal("use_sparse_mixer is not supported", "use the ordinary routing")
    node.require(experts, ">=", k, f"{node.type} {node.origin}: k")
    normalize = bool(node.attr("normalize_routing_weights", 0))
    best, index = node.emit_all("top_k", logits, k=k, axis=1, largest=True, sorted=True)
    if selected is not None:
        shares = node.emit("gather_elements", selected, index, axis=1)
        if normalize:
            total = node.emit("reduce_sum", shares, axes=(1,), keepdims=True)
            shares = node.emit("div", shares, total)
    elif normalize:
        shares = node.emit("softmax", best, axis=1)
    else:
        shares = node.emit("gather_elements", node.emit("softmax", logits, axis=1), index, axis=1)
    nothing = node.full(0, logits.type.dtype, (tokens, experts))
    return node.emit("scatter_elements", nothing, index, shares, axis=1)


def _product(node: Node, x: Value, w: Value, bias: Value | None) -> Value:
    """[E or 1, T, K] times the transposes of w [E, N, K], plus a bias [E, N]."""
    out = node.emit("matmul", x, node.transpose(w, (0, 2, 1)))
    return out if bias is None else node.emit("add", out, node.unsqueeze(bias, (1,)))


def _activated(node: Node, name: str, x: Value, other: Value | None) -> Value:
    """The activation of fc1's results; of swiglu both halves come from fc1, or from fc1 and fc3."""
    if name == "swiglu":
        fusion = node.attr("swiglu_fusion", 0)
        if fusion not in (0, 1, 2) or (fusion == 0) == (other is None):
            raise Refusal(f"its swiglu_fusion is {fusion} and it has {'' if other else 'no '}fc3")
        if node.attr("swiglu_limit_after_activation", 0):
            raise Refusal("swiglu_limit_after_activation is not supported")
        if other is None:
            experts, tokens, width = x.type.shape
            half = dims.floordiv(width, 2)
            if fusion == 1:
                pairs = node.reshape(x, (experts, tokens, half, 2))
                x, other = (
                    node.reshape(node.slice_axis(pairs, 3, i, 1), (experts, tokens, half))
                    for i in range(2)
                )
            else:
                x, other = (node.slice_axis(x, 2, start, half) for start in (0, half))
        limit = node.attr("swiglu_limit", math.inf)
        return swiglu_of(
            node, x, other, alpha=node.attr("activation_alpha", 1.0),
            beta=node.attr("activation_beta", 0.0), limit=None if math.isinf(limit) else limit,
        )  # fmt: skip
    node.ignore(
        "swiglu_fusion", "swiglu_limit", "activation_alpha", "activation_beta",
        "swiglu_limit_after_activation",
    )  # fmt: skip
    if name == "gelu":
        x = node.emit("gelu", x, approximate="tanh")
    elif name != "identity":
        x = node.emit(name, x)
    return x if other is None else node.emit("mul", x, other)


def _mixture(
    node: Node, fc: list[tuple[Value, Value | None] | None], selected: Value | None
) -> Value:
    """The mixture of act(x fc1) [* x fc3] fc2 over experts, of the shape and type of input 0."""
    x, logits = node.x(0), node.cast(node.ranked(1, 2), F32)
    first, second, third = fc
    assert first is not None
    assert second is not None
    activation = node.attr("activation_type", "relu")
    if activation not in _ACTIVATIONS:
        raise Refusal(f"its activation_type is {activation!r}, want {', '.join(_ACTIVATIONS)}")
    hidden = x.type.shape[-1]
    tokens = dims.product(x.type.shape[:-1])
    node.require(logits.type.shape[0], "==", tokens, f"{node.type} {node.origin}: tokens routed")
    flat = node.reshape(node.cast(x, F32), (1, tokens, hidden))
    inner = _product(node, flat, *first)
    other = None if third is None else _product(node, flat, *third)
    out = _product(node, _activated(node, activation, inner, other), *second)
    shares = node.transpose(_weights(node, logits, selected), (1, 0))
    out = node.emit("mul", out, node.unsqueeze(shares, (2,)))
    out = node.emit("reduce_sum", out, axes=(0,), keepdims=False)
    return node.cast(node.reshape(out, x.type.shape), x.type.dtype)


def _real(node: Node, i: int) -> Value | None:
    return node.cast(node.x(i), F32) if node.has_input(i) else None


def moe(node: Node) -> Value:
    fc: list[tuple[Value, Value | None] | None] = []
    for i in (2, 4, 6):
        weights = node.cast(node.ranked(i, 3), F32) if node.has_input(i) else None
        fc.append(None if weights is None else (weights, _real(node, i + 1)))
    return _mixture(node, fc, None)


def _dequantized(node: Node, i: int, scales: int, zeros: int, bits: int) -> Value:
    """Weights [E, N, K] from [E, N, K * bits / 8] bytes with a scale a row, or a block of it."""
    packed, scale = node.ranked(i, 3), node.cast(node.x(scales), F32)
    values = unpacked(node, packed, bits)
    block = node.attr("block_size", 0)
    if scale.type.rank == 3 and not block:
        raise Refusal("its scales are of blocks, but it has no block_size")

    def spread(v: Value) -> Value:
        return by_blocks(node, v, values, 2, block) if block else node.unsqueeze(v, (2,))

    real = node.cast(values, F32)
    if node.has_input(zeros):
        points = unpacked(node, node.x(zeros), bits)
        axis = points.type.rank - 1
        points = node.slice_axis(points, axis, 0, scale.type.shape[axis])
        real = node.emit("sub", real, spread(node.cast(points, F32)))
    else:
        real = node.emit("sub", real, node.scalar(1 << (bits - 1), F32))
    return node.emit("mul", real, spread(scale))


def qmoe(node: Node) -> Value:
    if node.attr("quant_type", "int") != "int" or node.x(2).type.dtype is not U8:
        raise Refusal(f"its quant_type is {node.attr('quant_type')!r}", "quantize with 'int'")
    if node.attr("weights_prepacked", 0) == 1:
        raise Refusal("its weights are packed for one execution provider", "export them raw")
    node.ignore("accuracy_level")
    bits = node.attr("expert_weight_bits", 4)
    fc: list[tuple[Value, Value | None] | None] = []
    for n, i in enumerate((2, 5, 8), 1):
        if not node.has_input(i):
            fc.append(None)
            continue
        own = node.attr(f"fc{n}_expert_weight_bits", bits)
        if own not in (2, 4, 8):
            raise Refusal(f"its weights have {own} bits, want 2, 4 or 8")
        fc.append((_dequantized(node, i, i + 1, 10 + n, own), _real(node, i + 2)))
    node.ignore("fc3_expert_weight_bits", "block_size")
    return _mixture(node, fc, _real(node, 14))


COMPOSE = {"com.microsoft:MoE": moe, "com.microsoft:QMoE": qmoe}
