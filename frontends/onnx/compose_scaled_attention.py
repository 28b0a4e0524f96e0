"""ONNX's own Attention (opset 23 and later) as one op; written out where its scores are an output."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.attention_parts import AttentionParts
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, DType
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _by_heads(node: Node, i: int, count: str) -> Value:
    """Input `i` as [batch, heads, positions, size]; with rank 3 the attribute `count` splits it."""
    x, heads = node.x(i), node.attr(count)
    if x.type.rank == 4:
        return x
    batch, steps, hidden = node.ranked(i, 3).type.shape
    if not heads or heads < 0:
        raise Refusal(f"its input {i} is {x.type}, so that it needs the attribute {count}")
    size = dims.floordiv(hidden, heads)
    node.require(dims.multiply(size, heads), "==", hidden, f"Attention {node.origin}: {count}")
    return node.transpose(node.reshape(x, (batch, steps, heads, size)), (0, 2, 1, 3))


def _mask(node: Node, length: Dim, dtype: DType) -> Value | None:
    """The mask over all keys, as bools or numbers of `dtype`; keys that it lacks are hidden."""
    mask = node.maybe(3)
    if mask is None:
        return None
    if mask.type.dtype != BOOL:
        mask = node.cast(mask, dtype)
    if mask.type.rank == 0 or mask.type.rank > 4:
        raise Refusal(f"its mask is {mask.type}, want rank 1 to 4")
    last = mask.type.rank - 1
    given = mask.type.shape[last]
    if given == length:
        return mask
    lacking = length - given
    hidden = False if mask.type.dtype == BOOL else -math.inf
    zeros = (0,) * last
    return node.emit(
        "pad", mask, node.scalar(hidden, mask.type.dtype), low=(*zeros, 0), high=(*zeros, lacking)
    )


def attention(node: Node) -> Sequence[Value | None]:
    is_flat = node.x(0).type.rank == 3
    q = _by_heads(node, 0, "q_num_heads")
    k, v = (_by_heads(node, i, "kv_num_heads") for i in (1, 2))
    past: Dim = 0
    if node.has_input(4) != node.has_input(5):
        raise Refusal("it has one of past_key and past_value without the other")
    lengths = node.maybe(6)
    if node.has_input(4):
        if lengths is not None:
            raise Refusal("it has past keys together with nonpad_kv_seqlen")
        past = node.ranked(4, 4).type.shape[2]
        k = node.emit("concat", node.x(4), k, axis=2)
        v = node.emit("concat", node.x(5), v, axis=2)
    size, dtype = q.type.shape[3], q.type.dtype
    scale = node.attr("scale")
    if scale is None:
        if not isinstance(size, int):
            raise Refusal(f"its head has {size} elements, want a known size or the attribute scale")
        scale = 1 / math.sqrt(size) if size else 1.0
    operands = [q, k, node.cast(v, dtype)]
    mask = _mask(node, k.type.shape[2], dtype)
    if mask is None and lengths is not None:
        mask = node.scalar(True, BOOL)
    operands += [x for x in (mask, lengths) if x is not None]
    attributes: dict[str, object] = {
        "scale": float(scale),
        "causal": bool(node.attr("is_causal", 0)),
        "offset": past,
        "align": "start" if lengths is None else "end",
        "window": (node.attr("left_window_size", -1), node.attr("right_window_size", -1)),
        "softcap": float(node.attr("softcap", 0.0)),
    }
    precision = node.attr("softmax_precision")
    wide = node.dtype(precision) if precision else dtype  # f32 at least, whatever is asked for
    if wide.bits > max(dtype.bits, 32):
        operands = [node.cast(x, wide) if x.type.dtype == dtype else x for x in operands]
    scores: Value | None = None
    if node.wants(3):
        out, scores = _written_out(node, operands, attributes)
        scores = node.cast(scores, dtype)
    else:
        node.ignore("qk_matmul_output_mode")
        out = node.emit("attention", *operands, **attributes)
    out = node.cast(out, dtype)
    if is_flat:
        batch, heads, steps, width = out.type.shape
        turned = node.transpose(out, (0, 2, 1, 3))
        out = node.reshape(turned, (batch, steps, dims.multiply(heads, width)))
    present = [k, v] if node.wants(1) or node.wants(2) else [None, None]
    return (out, *present, scores)[: max(node.outputs, 1)]


def _written_out(
    node: Node, operands: Sequence[Value], attributes: dict[str, object]
) -> tuple[Value, Value]:
    """The result, and the scores that qk_matmul_output_mode names."""
    dtype = operands[0].type.dtype
    wide = dtype if dtype.bits >= 32 else F32
    given = [node.cast(x, wide) if x.type.dtype == dtype else x for x in operands]
    definition = node.graph.registry["attention"]
    parts = AttentionParts(node.emit, node.scalar, given, definition.complete(attributes))
    steps = [parts.scores()]
    for step in (parts.capped, parts.masked, parts.weights):
        steps.append(step(steps[-1]))
    mode = node.attr("qk_matmul_output_mode", 0)
    if not 0 <= mode < len(steps):
        raise Refusal(f"its qk_matmul_output_mode is {mode}, want 0 to 3")
    return node.cast(parts.values(steps[3]), dtype), steps[mode]


COMPOSE = {"Attention": attention}
