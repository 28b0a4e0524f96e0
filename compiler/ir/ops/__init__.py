"""All op declarations, one file a family; `REGISTRY` is the frozen table of them."""

from __future__ import annotations

from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.ops import (
    attention,
    contraction,
    control,
    data_dependent,
    deform,
    functions,
    indexing,
    integer,
    movement,
    norm,
    packed,
    pointwise,
    pool,
    random,
    recurrent,
    recurrent_integer,
    reduction,
    resize,
    sampling,
    source,
    structural,
)

_FAMILIES = (
    pointwise, functions, movement, indexing, reduction, norm, contraction, integer, packed, pool, resize, sampling,
    deform,
    recurrent, recurrent_integer, attention, source, random, data_dependent, control, structural,
)  # fmt: skip
REGISTRY = Registry([op for family in _FAMILIES for op in family.OPS])
