"""Which of torch's decompositions apply: all of core ATen's, but for ops that are imported whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._ops import OpOverload

from graphwright.compiler.ir.op import Registry
from graphwright.frontends.torch.composed import COMPOSE
from graphwright.frontends.torch.fast_paths import FAST_PATHS
from graphwright.frontends.torch.node import op_name

# Whole in our tables, but torch's own way down keeps more of what they mean.
TORCH_KNOWS_BETTER: frozenset[str] = frozenset()


def is_whole(op: Any, registry: Registry) -> bool:
    """Whether an overload is imported as it is."""
    name = op_name(op)
    return name not in TORCH_KNOWS_BETTER and (name in COMPOSE or name in registry.imported("aten"))


def export_table(registry: Registry) -> Any:
    """For `ExportedProgram.run_decompositions`: composites included."""
    known = {*COMPOSE, *registry.imported("aten")} - TORCH_KNOWS_BETTER
    table = torch.export.default_decompositions()
    for op in list(table.keys()):
        if op_name(op) in known:
            table.pop(op)
    table.update(FAST_PATHS)
    return table


def core_table(registry: Registry) -> Mapping[OpOverload, Callable[..., Any]]:
    """For AOTAutograd, which takes composites apart by itself."""
    known = {*COMPOSE, *registry.imported("aten")} - TORCH_KNOWS_BETTER
    found = torch._decomp.core_aten_decompositions()
    return {op: way for op, way in found.items() if op_name(op) not in known} | FAST_PATHS
