"""The table of compose functions, from the files of all families, by ATen overload."""

from __future__ import annotations

from graphwright.frontends.torch import (
    compose_activation,
    compose_attention,
    compose_control,
    compose_conv,
    compose_data,
    compose_function,
    compose_index,
    compose_matmul,
    compose_movement,
    compose_norm,
    compose_pointwise,
    compose_random,
    compose_recurrent,
    compose_reduce,
    compose_resize,
    compose_source,
    compose_strided,
)
from graphwright.frontends.torch.node import Compose

COMPOSE: dict[str, Compose] = {
    **compose_activation.COMPOSE,
    **compose_attention.COMPOSE,
    **compose_control.COMPOSE,
    **compose_conv.COMPOSE,
    **compose_data.COMPOSE,
    **compose_function.COMPOSE,
    **compose_index.COMPOSE,
    **compose_matmul.COMPOSE,
    **compose_movement.COMPOSE,
    **compose_norm.COMPOSE,
    **compose_pointwise.COMPOSE,
    **compose_random.COMPOSE,
    **compose_recurrent.COMPOSE,
    **compose_reduce.COMPOSE,
    **compose_resize.COMPOSE,
    **compose_source.COMPOSE,
    **compose_strided.COMPOSE,
}
