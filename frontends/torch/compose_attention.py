"""Scaled dot-product attention in torch's several spellings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def attention(
    node: Node, q: Value, k: Value, v: Value, mask: Value | None, *, causal: bool, scale: float,
) -> Value:  # fmt: skip
    """Attention over the last two axes; a row that sees nobody is 0.

    A bool mask says who is seen, a float mask is added.  `causal`: query i sees keys up to i.  All
    axes but the last three are one batch axis for the op; k and v may have fewer heads than q.
    """
    lead = q.type.shape[:-2]
    if k.type.rank == q.type.rank and k.type.shape[:-3] != q.type.shape[:-3]:
        wide = node.broadcast(q.type.shape[:-3], k.type.shape[:-3])
        q, k, v = (node.broadcast_to(x, [*wide, *x.type.shape[-3:]]) for x in (q, k, v))
        lead = q.type.shape[:-2]
    bias = mask
    if len(lead) != 2:
        if bias is not None and bias.type.rank > 2:
            full = [*lead, q.type.shape[-2], k.type.shape[-2]]
            bias = _merged(node, node.broadcast_to(bias, full))
        q, k, v = (_merged(node, x) for x in (q, k, v))
    operands = [q, k, v]
    if bias is not None:
        operands.append(bias if bias.type.dtype is BOOL else node.cast(bias, q.type.dtype))
    out = node.emit("attention", *operands, scale=scale, causal=causal)
    return node.reshape(out, [*lead, *out.type.shape[-2:]])


def _merged(node: Node, x: Value) -> Value:
    """x with four axes: batches, heads, and the last two."""
    *lead, rows, columns = x.type.shape
    heads = lead[-1] if lead else 1
    return node.reshape(x, [dims.product(lead[:-1]), heads, rows, columns])


def scaled_dot_product(node: Node) -> Value:
    q, k, v = node.x("query"), node.x("key"), node.x("value")
    if node.arg("dropout_p"):
        raise Refusal("its dropout_p is not 0", "call .eval() on the module")
    node.ignore("enable_gqa")
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
    return attention(node, q, k, v, mask, causal=causal, scale=float(given))


def flash(node: Node) -> Sequence[Value | None]:
    """The kernels that torch chooses: the result, and what its backward pass would need."""
    node.ignore("return_debug_mask", "compute_log_sumexp")
    q, k, v = node.x("query"), node.x("key"), node.x("value")
    if node.arg("dropout_p"):
        raise Refusal("its dropout_p is not 0", "call .eval() on the module")
    name = "attn_mask" if "attn_mask" in node._given else "attn_bias"
    mask = node.maybe(name)
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
