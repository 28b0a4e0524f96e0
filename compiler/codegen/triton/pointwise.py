"""Pointwise and movement regions: one flat loop over the output's elements in memory order."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, offset_of, problem
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates, shape_in_order
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op

BLOCK = 1024


def emit_pointwise(op: Op, *, only: Sequence[int] | None = None) -> EmittedLaunch:
    """One program per BLOCK elements; outputs share one shape.  `only` as in Region."""
    region = Region(op, only=only)
    domain, printer = region.domain, region.printer()
    first = region.outputs[0]
    if any(v.type.shape != first.type.shape for v in region.outputs):
        raise problem(op, "its outputs have several shapes")
    order, extents = shape_in_order(first)
    total = dims.product(extents)
    i = domain.loop("i", total)
    printer.line(f"i = tl.program_id(0){region.index} * {BLOCK} + tl.arange(0, {BLOCK})")
    printer.bind(i, "i", "in_range")
    printer.line(f"in_range = i < {printer.dim(total)}")
    printer.line("_wait()")
    found = axes_coordinates(i, first.type.shape, order, domain)
    coordinates = tuple(found[a] for a in range(first.type.rank))
    lowering = Lowering(domain)
    for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
        node = lowering.at(value, coordinates)
        offset = offset_of(value.type, coordinates, domain)
        printer.store(pointer, value.type.dtype, offset, node, _symbols(i))
    stem = "_".join(o.name for o in region.body.ops) or "copy"
    return region.launch(
        stem, f"pointwise over {total} elements", printer, (dims.ceildiv(total, BLOCK),)
    )


def _symbols(i: dims.Expr) -> tuple[dims.Symbol, ...]:
    return dims.symbols_of(i)
