"""The table of compose functions, from the files of all families.

Keys are ops of the default domain, or `domain:op` (`com.microsoft:FusedMatMul`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphwright.frontends.onnx import (
    compose_attention,
    compose_cache,
    compose_contrib,
    compose_control,
    compose_data,
    compose_einsum,
    compose_experts,
    compose_group_attention,
    compose_image,
    compose_indexing,
    compose_loop,
    compose_microsoft,
    compose_movement,
    compose_nn,
    compose_norm,
    compose_packed,
    compose_pointwise,
    compose_qlinear,
    compose_quantize,
    compose_recurrent,
    compose_reduce,
    compose_resize,
    compose_sampling,
    compose_scaled_attention,
    compose_scan,
    compose_sequence,
    compose_signal,
    compose_source,
    compose_text,
)
from graphwright.frontends.onnx.containers import Entry
from graphwright.frontends.onnx.node import Node

Compose = Callable[[Node], "Entry | Sequence[Entry | None]"]

COMPOSE: dict[str, Compose] = {
    **compose_attention.COMPOSE,
    **compose_cache.COMPOSE,
    **compose_contrib.COMPOSE,
    **compose_control.COMPOSE,
    **compose_data.COMPOSE,
    **compose_einsum.COMPOSE,
    **compose_experts.COMPOSE,
    **compose_group_attention.COMPOSE,
    **compose_image.COMPOSE,
    **compose_indexing.COMPOSE,
    **compose_loop.COMPOSE,
    **compose_microsoft.COMPOSE,
    **compose_movement.COMPOSE,
    **compose_nn.COMPOSE,
    **compose_norm.COMPOSE,
    **compose_packed.COMPOSE,
    **compose_pointwise.COMPOSE,
    **compose_qlinear.COMPOSE,
    **compose_quantize.COMPOSE,
    **compose_recurrent.COMPOSE,
    **compose_reduce.COMPOSE,
    **compose_resize.COMPOSE,
    **compose_sampling.COMPOSE,
    **compose_scaled_attention.COMPOSE,
    **compose_scan.COMPOSE,
    **compose_sequence.COMPOSE,
    **compose_signal.COMPOSE,
    **compose_source.COMPOSE,
    **compose_text.COMPOSE,
}
# Ops of another domain that mean what ONNX's op of that name does.
COMPOSE |= {
    f"com.microsoft:{name}": COMPOSE[name]
    for name in ("CausalConvWithState", "GridSample", "Trilu")
}
