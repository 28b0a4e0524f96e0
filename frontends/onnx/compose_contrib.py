"""What else public files hold of com.microsoft: crops, position biases, gates and norms that ONNX
Runtime's optimizer makes of several ops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F16, F32, I64
from graphwright.frontends.onnx.compose_data import unique_of
from graphwright.frontends.onnx.compose_microsoft import activate, fused_matmul
from graphwright.frontends.onnx.compose_movement import pad
from graphwright.frontends.onnx.compose_nn import conv_transpose_of
from graphwright.frontends.onnx.compose_source import range_
from graphwright.frontends.onnx.compose_transforms import complex_mul, inverse, irfft, rfft
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def crop_and_resize(node: Node) -> Value:
    """Boxes of images, the corners of the result on theirs; outside of an image a constant."""
    x, boxes, images = node.ranked(0, 4), node.ranked(1, 2), node.cast(node.ranked(2, 1), I64)
    size = node.ints(3, "crop_size")
    mode = node.attr("mode", "bilinear")
    if len(size) != 2 or min(size) < 1 or mode not in ("bilinear", "nearest"):
        raise Refusal(f"its crop_size is {list(size)} and its mode {mode!r}")
    count, dtype = boxes.type.shape[0], x.type.dtype

    def axis(i: int) -> tuple[Value, Value]:
        """Places along axis 2 + i [count, size], and whether they are inside."""
        start, end = (node.slice_axis(boxes, 1, j, 1) for j in (i, i + 2))
        last = node.size(x.type.shape[2 + i] - 1, dtype)
        if size[i] > 1:
            step = node.emit("mul", node.emit("sub", end, start), last)
            step = node.emit("div", step, node.scalar(size[i] - 1, dtype))
            index = node.unsqueeze(node.iota(size[i], dtype), (0,))
            at = node.emit("add", node.emit("mul", start, last), node.emit("mul", index, step))
        else:
            middle = node.emit("mul", node.emit("add", start, end), node.scalar(0.5, dtype))
            at = node.emit("mul", middle, last)
        above = node.emit("greater_or_equal", at, node.scalar(0, dtype))
        return at, node.emit("logical_and", above, node.emit("less_or_equal", at, last))

    (rows, row_inside), (columns, column_inside) = axis(0), axis(1)
    shape = (count, size[0], size[1])
    which = node.broadcast_to(node.unsqueeze(images, (1, 2)), shape)
    turned = node.transpose(x, (0, 2, 3, 1))

    def read(row: Value, column: Value) -> Value:
        """[count, height, width, channels] at whole places."""
        parts = [which]
        for i, v in enumerate((row, column)):
            last = node.size(x.type.shape[2 + i] - 1)
            v = node.emit("clip", node.cast(v, I64), node.scalar(0, I64), last)
            parts.append(node.broadcast_to(node.unsqueeze(v, (2 - i,)), shape))
        index = node.emit("concat", *(node.unsqueeze(p, (3,)) for p in parts), axis=3)
        return node.emit("gather_nd", turned, index, batch_dims=0)

    def near(v: Value) -> Value:  # halves away from zero
        return node.emit("floor", node.emit("add", v, node.scalar(0.5, dtype)))

    if mode == "nearest":
        out = read(near(rows), near(columns))
    else:
        low = [node.emit("floor", v) for v in (rows, columns)]
        high = [node.emit("ceil", v) for v in (rows, columns)]
        share = [node.emit("sub", v, f) for v, f in zip((rows, columns), low, strict=True)]
        down = node.unsqueeze(share[0], (2, 3))
        across = node.unsqueeze(share[1], (1, 3))

        def mix(a: Value, b: Value, part: Value) -> Value:
            return node.emit("add", a, node.emit("mul", node.emit("sub", b, a), part))

        top = mix(read(low[0], low[1]), read(low[0], high[1]), across)
        bottom = mix(read(high[0], low[1]), read(high[0], high[1]), across)
        out = mix(top, bottom, down)
    inside = node.emit(
        "logical_and", node.unsqueeze(row_inside, (2,)), node.unsqueeze(column_inside, (1,))
    )
    outside = node.scalar(node.attr("extrapolation_value", 0.0), dtype)
    return node.transpose(node.where(node.unsqueeze(inside, (3,)), out, outside), (0, 3, 1, 2))


def relative_position_bias(node: Node) -> Value:
    """T5's biases [1, heads, queries, keys]: logarithmic buckets of the distance; the table has the
    buckets of a head one after the other.
    """
    table = node.ranked(0, 2)
    (queries,), (keys,) = node.dims(1, "query_length"), node.dims(2, "key_length")
    buckets, heads = table.type.shape
    if not isinstance(buckets, int):
        raise Refusal(f"its table is {table.type}, want a known number of buckets")
    farthest, both = node.attr("max_distance"), bool(node.attr("is_bidirectional", 0))
    half = buckets // 2 if both else buckets
    exact = half // 2
    distance = np.arange(farthest + 1, dtype=np.float32)
    with np.errstate(divide="ignore"):
        ratio = np.log(distance / exact) / np.log(np.float32(farthest) / exact)
    large = np.minimum(exact + np.where(distance < exact, 0, ratio) * (half - exact), half - 1)
    bucket = node.array(np.where(distance < exact, distance, large).astype(np.int64))
    query = node.unsqueeze(node.iota(queries), (1,))
    gap = node.emit("sub", node.unsqueeze(node.iota(keys), (0,)), query)
    nothing = node.scalar(0, I64)
    far = node.emit("abs", gap) if both else node.emit("maximum", node.emit("neg", gap), nothing)
    index = node.gather(bucket, node.emit("minimum", far, node.scalar(farthest, I64)), 0)
    if both:
        later = node.emit("greater", gap, nothing)
        index = node.emit("add", index, node.where(later, node.scalar(half, I64), nothing))
    return node.unsqueeze(node.gather(node.reshape(table, (heads, buckets)), index, 1), (0,))


def gated_relative_position_bias(node: Node) -> Value:
    """A relative position bias times gates that the queries give (WavLM)."""
    if node.has_input(6):
        raise Refusal("packed batches are not supported for it", "unpack the batch")
    heads, query = node.attr("num_heads"), node.ranked(0, 3)
    batch, steps, hidden = query.type.shape
    query = node.emit("add", query, node.x(1))
    query = node.reshape(query, (batch, steps, heads, dims.floordiv(hidden, heads)))
    query = node.transpose(query, (0, 2, 1, 3))
    gates = node.emit("add", node.emit("matmul", query, node.ranked(3, 2)), node.x(4))
    width = gates.type.shape[3]
    gates = node.reshape(gates, (batch, heads, steps, 2, dims.floordiv(width, 2)))
    gates = node.emit("sigmoid", node.emit("reduce_sum", gates, axes=(4,), keepdims=False))
    update, reset = (node.slice_axis(gates, 3, i, 1) for i in range(2))
    one, two = (node.scalar(n, query.type.dtype) for n in (1.0, 2.0))
    inner = node.emit("sub", node.emit("mul", reset, node.x(5)), one)
    return node.emit("mul", node.emit("add", node.emit("mul", update, inner), two), node.x(2))


def word_conv_embedding(node: Node) -> Value:
    """Words of characters [words, length], 0 behind their end: tanh of a convolution over the
    characters' embeddings, the largest of each filter.  A word shorter than the window counts as long.
    """
    words, weights, bias, table = (
        node.ranked(0, 2),
        node.ranked(1, 4),
        node.ranked(2, 1),
        node.ranked(3, 2),
    )
    node.ignore("embedding_size", "conv_window_size", "char_embedding_size")
    window = weights.type.shape[2]
    if not isinstance(window, int):
        raise Refusal(f"its weight is {weights.type}, want a known window")
    length = words.type.shape[1]
    embedded = node.unsqueeze(node.gather(table, node.cast(words, I64), 0), (1,))
    places = node.emit(
        "conv",
        embedded,
        weights,
        bias,
        strides=(1, 1),
        low=(0, 0),
        high=(0, 0),
        dilations=(1, 1),
        groups=1,
    )
    places = node.emit("tanh", node.squeeze(places, (3,)))  # [words, filters, places]
    known = node.emit("greater", words, node.scalar(0, words.type.dtype))
    count = node.emit("reduce_sum", node.cast(known, I64), axes=(1,), keepdims=True)
    used = node.emit(
        "maximum", node.emit("sub", count, node.scalar(window - 1, I64)), node.scalar(1, I64)
    )
    index = node.reshape(node.iota(length - (window - 1)), (1, 1, length - (window - 1)))
    inside = node.emit("less", index, node.unsqueeze(used, (2,)))
    places = node.where(inside, places, node.scalar(-math.inf, places.type.dtype))
    return node.emit("reduce_max", places, axes=(2,), keepdims=False)


def unfold_tensor(node: Node) -> Value:
    """All windows of `size` elements along an axis, `step` apart; their elements become the last axis."""
    x = node.ranked(0, 1, or_more=True)
    rank = x.type.rank
    axis, size, step = (
        node.axis(node.attr("dim", -1), rank),
        node.attr("size"),
        node.attr("step", 1),
    )
    if size < 1 or step < 1:
        raise Refusal(f"its size is {size} and its step {step}, want positive numbers")
    node.require(x.type.shape[axis], ">=", size, f"{node.type} {node.origin}: size")
    count = dims.floordiv(x.type.shape[axis] - size, step) + 1
    first = node.emit("mul", node.unsqueeze(node.iota(count), (1,)), node.scalar(step, I64))
    index = node.emit("add", first, node.unsqueeze(node.iota(size), (0,)))
    out = node.gather(x, index, axis)
    return node.transpose(out, [a for a in range(rank + 1) if a != axis + 1] + [axis + 1])


def bias_dropout(node: Node) -> Sequence[Value]:
    """data + bias + residual: at inference nothing is dropped."""
    node.ignore("seed")
    if node.has_input(4) and node.number_at(4, "training_mode", (0, 1)):
        raise Refusal("it is in training mode", "export the model for inference")
    out = node.emit("add", node.x(0), node.x(1))
    if node.has_input(2):
        out = node.emit("add", out, node.x(2))
    return (out, node.full(True, BOOL, out.type.shape))[: max(node.outputs, 1)]


def bitmask_dropout(node: Node) -> Value:
    node.ignore("seed")
    if (node.has_input(2) and node.number_at(2, "training_mode", (0, 1))) or node.wants(1):
        raise Refusal("its mask is for training", "export the model for inference")
    return node.x(0)


def fused_matmul_activation(node: Node) -> Value:
    node.ignore("activation_axis")
    values = [node.attr(f"activation_{n}") for n in ("alpha", "beta", "gamma")]
    name = node.attr("activation")
    parameters = (values[0], values[2]) if name == "Selu" else values[:2]
    return activate(node, fused_matmul(node), name, parameters)


def gemm_float8(node: Node) -> Value:
    """A product of float8 matrices with a scale each, calculated in float32."""

    def scale(x: Value, i: int) -> Value:
        return node.emit("mul", x, node.cast(node.x(i), F32)) if node.has_input(i) else x

    a, b = (node.cast(node.ranked(i, 2), F32) for i in range(2))
    a = node.transpose(a, (1, 0)) if node.attr("transA", 0) else a
    b = node.transpose(b, (1, 0)) if node.attr("transB", 0) else b
    out = scale(scale(node.emit("matmul", a, b), 3), 4)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 0.0)
    if alpha != 1:
        out = node.emit("mul", out, node.scalar(alpha, F32))
    if node.has_input(2) and beta:
        out = node.emit(
            "add", out, node.emit("mul", node.cast(node.x(2), F32), node.scalar(beta, F32))
        )
    activation = node.attr("activation", "NONE")
    if activation not in ("NONE", "RELU", "GELU"):
        raise Refusal(f"its activation is {activation!r}, want NONE, RELU or GELU")
    if activation != "NONE":
        more = {"approximate": "tanh"} if activation == "GELU" else {}
        out = node.emit(activation.lower(), out, **more)
    return node.cast(scale(out, 5), node.dtype(node.attr("dtype", 1)))


def gemm_fast_gelu(node: Node) -> Value:
    out, bias = node.emit("matmul", node.x(0), node.x(1)), node.maybe(2)
    out = out if bias is None else node.emit("add", out, bias)
    return node.emit("gelu", out, approximate="tanh")


def scaled_silu(node: Node) -> Value:
    x = node.x(0)
    wide = node.cast(x, F32)
    if node.has_input(1):
        node.ignore("alpha")
        factor = node.reshape(node.cast(node.x(1), F32), ())
    else:
        factor = node.scalar(node.attr("alpha", 1.0), F32)
    return node.cast(node.emit("silu", node.emit("mul", wide, factor)), x.type.dtype)


def swiglu_of(
    node: Node, gate: Value, up: Value, *, alpha: float, beta: float, limit: float | None
) -> Value:
    """gate * sigmoid(alpha * gate) * (up + beta), both clamped by `limit`."""
    dtype = gate.type.dtype
    if limit is not None:
        most, least = node.scalar(limit, dtype), node.scalar(-limit, dtype)
        gate, up = node.emit("minimum", gate, most), node.emit("clip", up, least, most)
    scaled = gate if alpha == 1 else node.emit("mul", gate, node.scalar(alpha, dtype))
    out = node.emit("mul", gate, node.emit("sigmoid", scaled))
    return node.emit("mul", out, node.emit("add", up, node.scalar(beta, dtype)) if beta else up)


def swiglu(node: Node) -> Value:
    gate, up = node.x(0), node.maybe(1)
    node.ignore("round_activation")
    if up is None:
        axis = gate.type.rank - 1
        half = dims.floordiv(gate.type.shape[axis], 2)
        gate, up = (node.slice_axis(gate, axis, start, half) for start in (0, half))
    limit = node.attr("limit", 0.0)
    wide = [node.cast(x, F32) for x in (gate, up)]
    out = swiglu_of(
        node, *wide, alpha=node.attr("activation_alpha", 1.0), beta=node.attr("activation_beta", 0.0),
        limit=limit if limit > 0 else None,
    )  # fmt: skip
    return node.cast(out, gate.type.dtype)


def _grouped_norm(node: Node, x: Value, width: Dim, scale: Value | None, epsilon: float) -> Value:
    """The RMS norm in float32 of each `width` elements of the last axis, x's shape kept."""
    *lead, last = x.type.shape
    groups = dims.floordiv(last, width)
    wide = node.reshape(node.cast(x, F32), (*lead, groups, width))
    axis = wide.type.rank - 1
    out = node.emit("rms_norm", wide, axis=axis, epsilon=epsilon)
    if scale is not None:
        out = node.emit("mul", out, node.cast(scale, F32))
    return node.reshape(out, x.type.shape)


def gated_rms_norm(node: Node) -> Value:
    x, scale, gate = node.x(0), node.ranked(1, 1), node.x(2)
    activation = node.attr("activation", "silu")
    if activation not in ("silu", "swish", "sigmoid"):
        raise Refusal(f"its activation is {activation!r}, want silu, swish or sigmoid")
    out = _grouped_norm(node, x, scale.type.shape[0], scale, node.attr("epsilon", 1e-6))
    gates = node.emit("sigmoid" if activation == "sigmoid" else "silu", node.cast(gate, F32))
    return node.cast(node.emit("mul", out, gates), x.type.dtype)


def branchwise_rms_norm(node: Node) -> Value:
    x, scale = node.ranked(0, 1, or_more=True), node.maybe(1)
    branches, last = node.attr("num_branches", 0), x.type.shape[-1]
    width = dims.floordiv(last, branches) if branches else last
    if scale is not None and branches:
        scale = node.reshape(scale, (branches, width) if scale.type.elements == last else (width,))
    elif scale is not None and scale.type.rank == 1 and scale.type.shape != (last,):
        scale = node.reshape(scale, x.type.shape[-2:])
    if scale is not None and not branches and scale.type.rank == 2:
        out = node.emit(
            "rms_norm", node.cast(x, F32), axis=x.type.rank - 1, epsilon=node.attr("epsilon", 1e-6)
        )
        return node.cast(node.emit("mul", out, node.cast(scale, F32)), x.type.dtype)
    return node.cast(_grouped_norm(node, x, width, scale, node.attr("epsilon", 1e-6)), x.type.dtype)


def gated_add(node: Node) -> Value:
    if node.has_input(3):
        raise Refusal("a projected gate is not supported", "project it by ops of its own")
    return node.emit("add", node.x(0), node.emit("mul", node.x(1), node.x(2)))


def gemma_rotary_embedding(node: Node) -> Sequence[Value]:
    """q * cos(e) + q_rot * sin(e), and the same of k."""
    angles, dtype = node.ranked(0, 3), node.x(1).type.dtype
    if dtype is not F16:
        raise Refusal(f"its q is {dtype}, want f16")
    sin, cos = (
        node.unsqueeze(node.cast(node.emit(f, angles), dtype), (1,)) for f in ("sin", "cos")
    )
    return [
        node.emit("add", node.emit("mul", node.x(i), cos), node.emit("mul", node.x(i + 1), sin))
        for i in (1, 3)
    ]


def restore_padding(node: Node) -> Value:
    """Tokens at their places of a padded batch, zeros elsewhere."""
    x, offsets = node.ranked(0, 2), node.ranked(1, 2)
    tokens, hidden = x.type.shape
    batch, steps = offsets.type.shape
    flat = node.reshape(node.cast(offsets, I64), (batch * steps,))
    node.require(tokens, "<=", batch * steps, f"{node.type} {node.origin}: tokens")
    index = node.unsqueeze(node.slice_axis(flat, 0, 0, tokens), (1,))
    empty = node.full(0, x.type.dtype, (batch * steps, hidden))
    return node.reshape(node.emit("scatter_nd", empty, index, x), (batch, steps, hidden))


def is_all_finite(node: Node) -> Value:
    only_nan, only_inf = node.attr("isnan_only", 0), node.attr("isinf_only", 0)
    if only_nan and only_inf:
        raise Refusal("it has isnan_only and isinf_only, want one at most")
    out: Value | None = None
    for x in node.inputs:
        bad = [] if only_inf else [node.emit("is_nan", x)]
        bad += [] if only_nan else [node.emit("is_inf", x)]
        some = bad[0] if len(bad) == 1 else node.emit("logical_or", *bad)
        good = node.emit(
            "reduce_and",
            node.emit("logical_not", some),
            axes=tuple(range(x.type.rank)),
            keepdims=False,
        )
        out = good if out is None else node.emit("logical_and", out, good)
    if out is None:
        raise Refusal("it has no inputs")
    return out


def unique(node: Node) -> Sequence[Value | None]:
    """Elements in the order of their first places; where each lies in them; how often they occur."""
    values, _, inverse_, counts = unique_of(node, node.ranked(0, 1), 0, in_order=True)
    return (values, inverse_, counts)


def conv_transpose_with_dynamic_pads(node: Node) -> Value:
    pads = node.ints(2, "pads") if node.has_input(2) else None
    return conv_transpose_of(node, node.x(0), node.x(1), node.maybe(3), pads)


_OPS: dict[str, Callable[[Node], Any]] = {
    "BiasDropout": bias_dropout,
    "BitmaskDropout": bitmask_dropout,
    "BranchwiseRMSNorm": branchwise_rms_norm,
    "ComplexMul": complex_mul,
    "ComplexMulConj": complex_mul,
    "ConvTransposeWithDynamicPads": conv_transpose_with_dynamic_pads,
    "CropAndResize": crop_and_resize,
    "FusedMatMulActivation": fused_matmul_activation,
    "GatedAdd": gated_add,
    "GatedRMSNorm": gated_rms_norm,
    "GatedRelativePositionBias": gated_relative_position_bias,
    "GatherND": lambda node: node.emit("gather_nd", node.x(0), node.x(1), batch_dims=0),
    "GemmFastGelu": gemm_fast_gelu,
    "GemmFloat8": gemm_float8,
    "GemmaRotaryEmbedding": gemma_rotary_embedding,
    "Inverse": inverse,
    "Irfft": irfft,
    "IsAllFinite": is_all_finite,
    "Pad": pad,
    "Range": range_,
    "RelativePositionBias": relative_position_bias,
    "RestorePadding": restore_padding,
    "Rfft": rfft,
    "ScaledSiLU": scaled_silu,
    "SwiGLU": swiglu,
    "TorchEmbedding": lambda node: node.gather(node.x(0), node.x(1), 0),
    "UnfoldTensor": unfold_tensor,
    "Unique": unique,
    "WordConvEmbedding": word_conv_embedding,
}
COMPOSE = {f"com.microsoft:{name}": compose for name, compose in _OPS.items()}
