"""All op declarations, one file a family; `REGISTRY` is the frozen table of them."""

from __future__ import annotations

from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.ops import functions, pointwise, structural

REGISTRY = Registry([*pointwise.OPS, *functions.OPS, *structural.OPS])
