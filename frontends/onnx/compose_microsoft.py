"""Ops of the domain com.microsoft that ONNX Runtime's optimizer writes into files: products,
convolutions, norms and activations fused with their neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I32
from graphwright.frontends.onnx.compose_nn import convolve
from graphwright.frontends.onnx.compose_pointwise import scaled_silu
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

# The `activation` of FusedConv and FusedGemm: our op and the names of its parameters, in order.
_ACTIVATIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "Clip": ("clip", ("low", "high")),
    "Elu": ("elu", ("alpha",)),
    "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")),
    "HardSwish": ("hard_swish", ()),
    "LeakyRelu": ("leaky_relu", ("alpha",)),
    "Relu": ("relu", ()),
    "Selu": ("selu", ("alpha", "gamma")),
    "Sigmoid": ("sigmoid", ()),
    "Softplus": ("softplus", ()),
    "Softsign": ("softsign", ()),
    "Tanh": ("tanh", ()),
    "ThresholdedRelu": ("thresholded_relu", ("alpha",)),
}


def activate(node: Node, x: Value, name: str, parameters: Sequence[float | None]) -> Value:
    """An activation by ONNX's name; parameters that are not given take the op's defaults."""
    if not name:
        return x
    if name not in _ACTIVATIONS:
        raise Refusal(f"its activation {name!r} is unknown; known: {', '.join(_ACTIVATIONS)}")
    ours, names = _ACTIVATIONS[name]
    given = {n: v for n, v in zip(names, parameters, strict=False) if v is not None}
    if ours == "clip":
        low, high = (node.scalar(given.get(n, 0.0), x.type.dtype) for n in names)
        return node.emit("clip", x, low, high)
    return node.emit(ours, x, **given)


def gelu(approximate: str) -> Callable[[Node], Value]:
    """GELU of the input, plus a bias along its last axis where there is one."""

    def compose(node: Node) -> Value:
        x, bias = node.x(0), node.maybe(1)
        x = x if bias is None else node.emit("add", x, bias)
        return node.emit("gelu", x, approximate=approximate)

    return compose


def quick_gelu(node: Node) -> Value:
    return scaled_silu(node, node.x(), node.attr("alpha", 1.702))


def bias_split_gelu(node: Node) -> Value:
    """The left half of x + bias times the GELU of the right half."""
    x = node.emit("add", node.x(0), node.x(1))
    axis = x.type.rank - 1
    half = x.type.shape[axis] // 2
    left, right = (node.slice_axis(x, axis, start, half) for start in (0, half))
    return node.emit("mul", left, node.emit("gelu", right, approximate="none"))


def fused_matmul(node: Node) -> Value:
    """alpha * A' @ B': `transBatch` turns the first axis behind the batch axes, `trans` the last two."""
    operands: list[Value] = []
    for i, name in enumerate("AB"):
        x = node.x(i)
        rank = x.type.rank
        if node.attr(f"transBatch{name}", 0) and rank > 2:
            x = node.transpose(x, (*range(1, rank - 1), 0, rank - 1))
        if node.attr(f"trans{name}", 0) and rank > 1:
            x = node.transpose(x, (*range(rank - 2), rank - 1, rank - 2))
        operands.append(x)
    out = node.emit("matmul", *operands)
    alpha = node.attr("alpha", 1.0)
    return out if alpha == 1 else node.emit("mul", out, node.scalar(alpha, out.type.dtype))


def fused_gemm(node: Node) -> Value:
    a, b, c = node.x(0), node.x(1), node.maybe(2)
    a = node.transpose(a, (1, 0)) if node.attr("transA", 0) else a
    b = node.transpose(b, (1, 0)) if node.attr("transB", 0) else b
    out, dtype = node.emit("matmul", a, b), a.type.dtype
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if alpha != 1:
        out = node.emit("mul", out, node.scalar(alpha, dtype))
    if c is not None and beta:
        out = node.emit(
            "add", out, c if beta == 1 else node.emit("mul", c, node.scalar(beta, dtype))
        )
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    alpha, second, gamma = (node.attr(n) for n in names)
    name = node.attr("activation", "")
    return activate(node, out, name, (alpha, gamma if name == "Selu" else second))


def fused_conv(node: Node) -> Value:
    """activation(conv(x, w) + bias + z)."""
    operands = [v for v in (node.x(0), node.x(1), node.maybe(2)) if v is not None]
    out, z = convolve(node, operands), node.maybe(3)
    out = out if z is None else node.emit("add", out, z)
    return activate(node, out, node.attr("activation", ""), node.attr("activation_params", ()))


def nhwc_conv(node: Node) -> Value:
    """FusedConv with channels last in x, z and the result; the weight is as Conv's."""
    x, z = node.ranked(0, 3, or_more=True), node.maybe(3)
    rank = x.type.rank
    first = (0, rank - 1, *range(1, rank - 1))
    operands = [v for v in (node.transpose(x, first), node.x(1), node.maybe(2)) if v is not None]
    out = node.transpose(convolve(node, operands), (0, *range(2, rank), 1))
    out = out if z is None else node.emit("add", out, z)
    return activate(node, out, node.attr("activation", ""), node.attr("activation_params", ()))


def bias_add(node: Node) -> Value:
    """x + bias + skip."""
    return node.emit("add", node.emit("add", node.x(0), node.x(1)), node.x(2))


def bias_softmax(node: Node) -> Value:
    """Softmax of data + bias over the axes from `axis` on, as one row.

    The bias lacks, or has one element of, the axes that it broadcasts along: those just before
    `axis` when `is_inner_broadcast`, else the first ones.
    """
    x, bias = node.x(0), node.x(1)
    rank, axis = x.type.rank, node.axis(node.attr("axis", 1), x.type.rank)
    inner = bool(node.attr("is_inner_broadcast"))
    missing = rank - bias.type.rank
    if missing and inner:
        lead = axis - missing
        bias = node.unsqueeze(bias, list(range(lead, axis)))
    total = node.emit("add", x, bias)
    if axis == rank - 1:
        return node.emit("softmax", total, axis=axis)
    flat = node.emit("softmax", node.matrix(total, axis), axis=1)
    return node.reshape(flat, total.type.shape)


def skip_norm(op: str) -> Callable[[Node], Sequence[Value | None]]:
    """The norm of input + skip + bias, and (fourth output) that sum."""

    def compose(node: Node) -> Sequence[Value | None]:
        epsilon = node.attr("epsilon", 1e-12)
        total = node.emit("add", node.x(0), node.x(1))
        parameters = [node.x(2)]
        bias_at = 3
        if op == "layer_norm":
            beta, bias_at = node.maybe(3), 4
            parameters += [] if beta is None else [beta]
        bias = node.maybe(bias_at)
        total = total if bias is None else node.emit("add", total, bias)
        if any(node.wants(i) for i in (1, 2)):
            raise Refusal("its outputs for training (mean, inv_std_var) are not supported")
        out = node.emit(op, total, *parameters, axis=total.type.rank - 1, epsilon=epsilon)
        return (out, None, None, total) if node.wants(3) else (out,)

    return compose


def embed_layer_norm(node: Node) -> Sequence[Value]:
    """The norm of word, position and segment embeddings; the length of each sequence; the sum."""
    ids, words, places = node.ranked(0, 2), node.x(2), node.x(3)
    steps = ids.type.shape[1]
    total = node.gather(words, ids, 0)
    if node.has_input(8):
        position = node.gather(places, node.x(8), 0)
    else:
        position = node.unsqueeze(node.gather(places, node.iota(steps), 0), (0,))
    total = node.emit("add", total, position)
    if node.has_input(1) and node.has_input(4):
        total = node.emit("add", total, node.gather(node.x(4), node.x(1), 0))
    node.ignore("mask_index_type")
    epsilon = node.attr("epsilon", 1e-12)
    out = node.emit("layer_norm", total, node.x(5), node.x(6), axis=2, epsilon=epsilon)
    if node.has_input(7):
        mask = node.cast(node.x(7), I32)
        lengths = node.emit("reduce_sum", mask, axes=(1,), keepdims=False)
    else:
        lengths = node.full(0, I32, (ids.type.shape[0],))
    return (out, lengths, total)[: max(node.outputs, 1)]


def simplified_layer_norm(node: Node) -> Sequence[Value]:
    """RMS norm; the second output is the inverse deviation."""
    x, scale = node.x(0), node.x(1)
    axis, epsilon = node.axis(node.attr("axis", -1), x.type.rank), node.attr("epsilon", 1e-5)
    stash = node.dtype(node.attr("stash_type", 1))
    scale = node.cast(node.broadcast_to(scale, x.type.shape[axis:]), x.type.dtype)
    out = node.emit("rms_norm", x, scale, axis=axis, epsilon=epsilon)
    if node.outputs < 2:
        return (out,)
    wide = node.cast(x, stash)
    axes = tuple(range(axis, x.type.rank))
    mean = node.emit("reduce_mean", node.emit("mul", wide, wide), axes=axes, keepdims=True)
    return (out, node.emit("rsqrt", node.emit("add", mean, node.scalar(epsilon, stash))))


def group_norm(node: Node) -> Sequence[Value]:
    """GroupNorm and SkipGroupNorm, channels last by default, perhaps SiLU; statistics in float32."""
    x, gamma, beta = node.ranked(0, 3, or_more=True), node.x(1), node.x(2)
    rank, last = x.type.rank, bool(node.attr("channels_last", 1))
    total = x
    if node.type == "SkipGroupNorm":
        skip, bias = node.x(3), node.maybe(4)
        channel_axis = rank - 1 if last else 1
        if skip.type.rank == 2:
            skip = node.unsqueeze(skip, [a for a in range(rank) if a not in (0, channel_axis)])
        total = node.emit("add", total, skip)
        if bias is not None:
            others = [a for a in range(rank) if a != channel_axis]
            total = node.emit("add", total, node.unsqueeze(bias, others))
    wide = node.cast(total, F32)
    wide = node.transpose(wide, (0, rank - 1, *range(1, rank - 1))) if last else wide
    out = node.emit(
        "group_norm", wide, node.cast(gamma, F32), node.cast(beta, F32),
        groups=node.attr("groups"), epsilon=node.attr("epsilon", 1e-5),
    )  # fmt: skip
    out = node.transpose(out, (0, *range(2, rank), 1)) if last else out
    activation = node.attr("activation")
    if activation not in (0, 1):
        raise Refusal(f"its activation is {activation}, want 0 (none) or 1 (SiLU)")
    out = node.emit("silu", out) if activation else out
    return (node.cast(out, x.type.dtype), total)[: max(node.outputs, 1)]


def expand_dims(node: Node) -> Value:
    return node.unsqueeze(node.x(0), (int(node.one(1, "the axis")),))


def distances(node: Node) -> Value:
    """CDist: Euclidean distances, or their squares, between the rows of two matrices."""
    metric = node.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise Refusal(f"its metric {metric!r} is not supported", "use euclidean or sqeuclidean")
    a, b = node.unsqueeze(node.ranked(0, 2), (1,)), node.unsqueeze(node.ranked(1, 2), (0,))
    spread = node.emit("sub", a, b)
    total = node.emit("reduce_sum", node.emit("mul", spread, spread), axes=(2,), keepdims=False)
    return total if metric == "sqeuclidean" else node.emit("sqrt", total)


def _refused(reason: str, fix: str) -> Callable[[Node], Sequence[Value]]:
    def refuse(node: Node) -> Sequence[Value]:
        node.ignore(*node.attribute_protos)
        raise Refusal(reason, fix)

    return refuse


# Ops that no compiled graph will have, by reason.
_REFUSED: dict[tuple[str, str], tuple[str, ...]] = {
    (
        "a search over sequences is a program around models, not a graph of tensors",
        "run the search outside, and compile its decoder",
    ): ("BeamSearch", "GreedySearch", "NGramRepeatBlock", "Sampling", "WhisperBeamSearch"),
    (
        "the pages of its cache belong to a server, not to a graph of tensors",
        "export GroupQueryAttention",
    ): ("PagedAttention", "SparsePagedAttention"),
    (
        "attention to chosen blocks of keys is not supported",
        "export GroupQueryAttention or MultiHeadAttention, perhaps with a mask",
    ): (
        "DynamicSparseAttention", "LongformerAttention", "PackedSparseAttentionIndexer",
        "SparseAttention", "SparseAttentionIndexer",
    ),
    (
        "its layouts are those of one GPU library's instructions",
        "quantize with QDQ nodes, or keep floats",
    ): (
        "DequantizeBFP", "DequantizeWithOrder", "QOrderedAttention", "QOrderedGelu",
        "QOrderedLayerNormalization", "QOrderedLongformerAttention", "QOrderedMatMul",
        "QuantizeBFP", "QuantizeWithOrder",
    ),
    ("it works on strings", "tokenize and hash outside of the model"): (
        "MurmurHash3", "StringNormalizer", "Tokenizer",
    ),
    ("it is for training", "export the model for inference"): (
        "BiasGeluGrad_dX", "BitmaskBiasDropout", "FastGeluGrad", "GeluGrad", "LayerNormalizationGrad",
        "SoftmaxCrossEntropy", "SoftmaxCrossEntropyGrad", "SoftmaxCrossEntropyLossGrad",
        "SoftmaxCrossEntropyLossInternal", "SoftmaxCrossEntropyLossInternalGrad",
        "SparseSoftmaxCrossEntropy", "SparseSoftmaxCrossEntropyGrad", "YieldOp",
    ),
    (
        "it holds a graph that was compiled for other hardware",
        "compile the model that it was made from",
    ): ("EPContext", "Snpe"),
    (
        "how many tokens it keeps decides the shapes of all that follows",
        "export with padded batches, or feed packed ones",
    ): ("RemovePadding",),
}  # fmt: skip

_OPS: dict[str, Any] = {
    **{name: _refused(*why) for why, names in _REFUSED.items() for name in names},
    "BiasAdd": bias_add,
    "BiasGelu": gelu("none"),
    "BiasSoftmax": bias_softmax,
    "BiasSplitGelu": bias_split_gelu,
    "CDist": distances,
    "EmbedLayerNormalization": embed_layer_norm,
    "ExpandDims": expand_dims,
    "FastGelu": gelu("tanh"),
    "FusedConv": fused_conv,
    "FusedGemm": fused_gemm,
    "FusedMatMul": fused_matmul,
    "Gelu": gelu("none"),
    "GroupNorm": group_norm,
    "NhwcConv": nhwc_conv,
    "NhwcFusedConv": nhwc_conv,
    "QuickGelu": quick_gelu,
    "SkipGroupNorm": group_norm,
    "SkipLayerNormalization": skip_norm("layer_norm"),
    "SkipSimplifiedLayerNormalization": skip_norm("rms_norm"),
    "TransposeMatMul": fused_matmul,
}  # fmt: skip

COMPOSE = {
    # ONNX Runtime declares this one in the default domain.
    "SimplifiedLayerNormalization": simplified_layer_norm,
    **{f"com.microsoft:{name}": compose for name, compose in _OPS.items()},
}
