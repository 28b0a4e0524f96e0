"""torch's fused kernels for transformer layers in inference, written out in usual ops."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

aten = torch.ops.aten


def _seen(mask: Tensor | None, kind: int | None, batch: int, heads: int) -> Tensor | None:
    """What scaled_dot_product_attention takes of a mask whose true elements are hidden.

    `kind` 0: [queries, keys]; 1: [batch, keys]; 2: [batch, heads, queries, keys].
    """
    if mask is None:
        return None
    if kind == 1:
        mask = mask.view(batch, 1, 1, mask.shape[-1])
    elif mask.dim() == 3:
        mask = mask.view(batch, heads, *mask.shape[-2:])
    return mask.logical_not() if mask.dtype is torch.bool else mask


def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, embed_dim: int, num_head: int, qkv_weight: Tensor,
    qkv_bias: Tensor, proj_weight: Tensor, proj_bias: Tensor, mask: Tensor | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, mask_type: int | None = None,
) -> Any:  # fmt: skip
    """aten::_native_multi_head_attention without weights."""
    if need_weights:
        return NotImplemented
    batch, length, _ = query.shape
    split = qkv_weight.split(embed_dim), qkv_bias.split(embed_dim)

    def heads(x: Tensor, i: int) -> Tensor:
        found = linear(x, split[0][i], split[1][i])
        return found.view(batch, x.shape[1], num_head, embed_dim // num_head).transpose(1, 2)

    q, k, v = heads(query, 0), heads(key, 1), heads(value, 2)
    out = scaled_dot_product_attention(q, k, v, _seen(mask, mask_type, batch, num_head))
    merged = out.transpose(1, 2).reshape(batch, length, embed_dim)
    return linear(merged, proj_weight, proj_bias), query.new_empty(0)


def encoder_layer(
    src: Tensor, embed_dim: int, num_heads: int, qkv_weight: Tensor, qkv_bias: Tensor,
    proj_weight: Tensor, proj_bias: Tensor, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: Tensor, norm_bias_1: Tensor, norm_weight_2: Tensor, norm_bias_2: Tensor,
    ffn_weight_1: Tensor, ffn_bias_1: Tensor, ffn_weight_2: Tensor, ffn_bias_2: Tensor,
    mask: Tensor | None = None, mask_type: int | None = None,
) -> Tensor:  # fmt: skip
    """aten::_transformer_encoder_layer_fwd"""
    width = (embed_dim,)

    def attend(x: Tensor) -> Tensor:
        return multi_head_attention(
            x, x, x, embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask,
            False, True, mask_type,
        )[0]  # fmt: skip

    def feed(x: Tensor) -> Tensor:
        inner = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(inner) if use_gelu else inner.relu(), ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attend(layer_norm(src, width, norm_weight_1, norm_bias_1, eps))
        return src + feed(layer_norm(src, width, norm_weight_2, norm_bias_2, eps))
    src = layer_norm(src + attend(src), width, norm_weight_1, norm_bias_1, eps)
    return layer_norm(src + feed(src), width, norm_weight_2, norm_bias_2, eps)


FAST_PATHS = {
    aten._native_multi_head_attention.default: multi_head_attention,
    aten._transformer_encoder_layer_fwd.default: encoder_layer,
}
