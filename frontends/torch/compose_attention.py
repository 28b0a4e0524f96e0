"""Scaled dot-product attention in torch's several spellings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def attention(
    node: Node,
    q: Value,
    k: Value,
    v: Value,
    mask: Value | None,
    *,
    causal: bool,
    scale: float,
) -> Value:
    """softmax(q k' * scale + mask) v over the last two axes.

    A bool mask says who is seen; a row that sees nobody is NaN, as in the formula.  `causal`: query i
    sees keys up to i.
    """
    dtype = q.type.dtype
    if k.type.rank == q.type.rank and k.type.shape[:-2] != q.type.shape[:-2]:
        lead = node.broadcast(q.type.shape[:-2], k.type.shape[:-2])
        k = node.broadcast_to(k, [*lead, *k.type.shape[-2:]])
        v = node.broadcast_to(v, [*lead, *v.type.shape[-2:]])
    rank = k.type.rank
    scores = node.emit("matmul", q, node.swap(k, rank - 2, rank - 1))
    if scale != 1:
        scores = node.emit("mul", scores, node.scalar(scale, dtype))
    low = node.scalar(-math.inf, dtype)
    if causal:
        rows, columns = scores.type.shape[-2:]
        rank = scores.type.rank
        seen = node.emit(
            "less_or_equal",
            node.iota_along(columns, rank - 1, rank, I64),
            node.iota_along(rows, rank - 2, rank, I64),
        )
        scores = node.where(seen, scores, low)
    if mask is not None:
        if mask.type.dtype is BOOL:
            scores = node.where(mask, scores, low)
        else:
            scores = node.emit("add", scores, node.cast(mask, dtype))
    weights = node.emit("softmax", scores, axis=scores.type.rank - 1)
    return node.emit("matmul", weights, v)


def without_nan(node: Node, out: Value, mask: Value) -> Value:
    """Rows whose bool mask hides every key are 0, as torch has them."""
    sees = node.emit("reduce_or", mask, axes=(mask.type.rank - 1,), keepdims=True)
    return node.where(sees, out, node.scalar(0, out.type.dtype))


def grouped(node: Node, q: Value, x: Value) -> Value:
    """Keys or values repeated for the query heads that share them (axis -3)."""
    heads, own = q.type.shape[-3], x.type.shape[-3]
    if heads == own:
        return x
    if not (isinstance(heads, int) and isinstance(own, int)):
        raise Refusal("the numbers of its heads are not known")
    lead, rest = x.type.shape[:-2], x.type.shape[-2:]
    wide = node.broadcast_to(node.reshape(x, [*lead, 1, *rest]), [*lead, heads // own, *rest])
    return node.reshape(wide, [*lead[:-1], heads, *rest])


def scaled_dot_product(node: Node) -> Value:
    q, k, v = node.x("query"), node.x("key"), node.x("value")
    if node.arg("dropout_p"):
        raise Refusal("its dropout_p is not 0", "call .eval() on the module")
    if node.arg("enable_gqa"):
        k, v = grouped(node, q, k), grouped(node, q, v)
    mask, causal = node.maybe("attn_mask"), bool(node.arg("is_causal"))
    return _attended(node, q, k, v, mask, causal=causal)


def _attended(
    node: Node, q: Value, k: Value, v: Value, mask: Value | None, *, causal: bool
) -> Value:
    given = node.arg("scale")
    width = q.type.shape[-1]
    if given is None:
        if not isinstance(width, int):
            raise Refusal("the width of its heads is not known", "pass scale")
        given = 1 / math.sqrt(width) if width else 1.0
    out = attention(node, q, k, v, mask, causal=causal, scale=float(given))
    if mask is not None and mask.type.dtype is BOOL:
        out = without_nan(node, out, mask)
    return out


def flash(node: Node) -> Sequence[Value | None]:
    """The kernels that torch chooses: the result, and what its backward pass would need."""
    node.ignore("return_debug_mask", "compute_log_sumexp")
    q, k, v = node.x("query"), node.x("key"), node.x("value")
    if node.arg("dropout_p"):
        raise Refusal("its dropout_p is not 0", "call .eval() on the module")
    k, v = grouped(node, q, k), grouped(node, q, v)
    name = "attn_mask" if "attn_mask" in node._given else "attn_bias"
    mask = node.maybe(name)
    if mask is not None and mask.type.dtype is not BOOL:
        mask = node.cast(mask, q.type.dtype)
    out = _attended(node, q, k, v, mask, causal=bool(node.arg("is_causal")))
    return [out, *[None] * (len(node.out) - 1)]


COMPOSE: dict[str, Compose] = {
    "scaled_dot_product_attention.default": scaled_dot_product,
    "_scaled_dot_product_flash_attention_for_cpu.default": flash,
    "_scaled_dot_product_flash_attention.default": flash,
    "_scaled_dot_product_efficient_attention.default": flash,
    "_scaled_dot_product_cudnn_attention.default": flash,
    "_scaled_dot_product_fused_attention_overrideable.default": flash,
}
