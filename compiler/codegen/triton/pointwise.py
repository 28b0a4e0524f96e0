"""Pointwise and movement regions: one flat loop over the output's elements in memory order."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.triton.kernels import FlatLoop, Region
from graphwright.compiler.ir.graph import Op

BLOCK = 1024


def emit_pointwise(op: Op, *, only: Sequence[int] | None = None) -> EmittedLaunch:
    """One program per BLOCK elements; outputs share one shape.  `only` as in Region."""
    region = Region(op, only=only)
    printer = region.printer()
    first = region.outputs[0]
    if any(v.type.shape != first.type.shape for v in region.outputs):
        raise problem(op, "its outputs have several shapes")
    loop = FlatLoop(region, printer, first, BLOCK)
    lowering = Lowering(region.domain)
    for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
        node = lowering.at(value, loop.coordinates)
        loop.store(pointer, value, node, loop.coordinates)
    stem = "_".join(o.name for o in region.body.ops) or "copy"
    return region.launch(stem, f"pointwise over {loop.total} elements", printer, loop.grid)
