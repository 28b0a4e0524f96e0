"""All op declarations, one file a family; `REGISTRY` is the frozen table of them."""

from __future__ import annotations

from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.ops import (
    functions,
    indexing,
    movement,
    pointwise,
    source,
    structural,
)

_FAMILIES = (pointwise, functions, movement, indexing, source, structural)
REGISTRY = Registry([op for family in _FAMILIES for op in family.OPS])
