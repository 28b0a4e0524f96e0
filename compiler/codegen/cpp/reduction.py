"""Reduction regions in C++: rows in parallel, the passes of a row over data in cache.

Where a row is contiguous it is combined in lanes (gw::lanes); where neighbours in memory belong to
different rows, a tile of rows goes side by side through the reduced loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphwright.compiler.codegen.cpp.epilogue import (
    after,
    before_moves,
    calculated_value,
    coordinates_behind,
)
from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.loops import emit_parallel
from graphwright.compiler.codegen.cpp.nest import Part, Store, collapse_together, needed_definitions
from graphwright.compiler.codegen.cpp.pointwise import emit_pointwise, stem_of
from graphwright.compiler.codegen.cpp.reduction_programs import Program, program_of
from graphwright.compiler.codegen.cpp.row import Row
from graphwright.compiler.codegen.cpp.row_text import RowWriter
from graphwright.compiler.codegen.cpp.whole_row import WholeWriter, is_whole
from graphwright.compiler.codegen.expressions import exact_quotient
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, as_region, offset_of, problem
from graphwright.compiler.codegen.lower_opaque import unrolled_length
from graphwright.compiler.codegen.scalar import Given, Load, Node
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind


def emit_reduction(op: Op) -> list[EmittedLaunch]:
    """A region with one reduction op, or a lone one, as one launch."""
    body, operands = as_region(op)
    roots = [o for o in body.ops if o.kind is Kind.REDUCTION]
    if len(roots) == 1 and roots[0].name.startswith("reduce_") and unrolled_length(roots[0]):
        return emit_pointwise(op)  # rows side by side, their few elements written out
    return [reduction_launch(op, body, operands)]


def reduction_launch(op: Op, body: Graph, operands: Sequence[Value]) -> EmittedLaunch:
    """The launch of a body with one reduction; its outputs are the results of `op`."""
    roots = [o for o in body.ops if o.kind is Kind.REDUCTION]
    if len(roots) != 1:
        raise problem(op, f"a reduction region has one reduction, this has {len(roots)}")
    root = roots[0]
    program = program_of(root.name)
    if program is None:
        raise problem(root, "there is no C++ program for this reduction")
    splits: dict[str, Dim] = {}
    while True:
        row, parts = _lower(op, body, root, program, splits)
        found = _split(row, parts, splits)
        if not found:
            break
        splits |= found
    _collapse(row, parts)
    _store_in_pass(row, parts)
    builder = KernelBuilder(op, stem_of(body))
    loads = {n.source for p in parts.all for n in p.nodes if isinstance(n, Load)}
    pointers: dict[Value, str] = {}
    for i, value in enumerate(body.inputs):
        if value in loads:
            pointers[value] = builder.tensor(f"in{i}", operands[i])
    outputs = []
    for i, value in enumerate(op.results):
        outputs.append((builder.tensor(f"out{i}", value, written=True), value.type.dtype))
    if is_whole(row, parts):
        WholeWriter(builder, row, parts, pointers, outputs).emit()
        return builder.launch(body, operands)
    writer = RowWriter(builder, row, parts, pointers, outputs)
    lines = writer.lines()
    emit_parallel(builder, "row", writer.items, writer.item_extents, lines, writer.cost)
    return builder.launch(body, operands)


def _lower(
    op: Op, body: Graph, root: Op, program: Program, splits: Mapping[str, Dim]
) -> tuple[Row, RowParts]:
    result: list[Node] = []

    def given(value: Value, at: Coordinates) -> Node | None:
        return result[0] if value is root.results[0] else None

    row = Row(op, body, root, given, splits)
    finish = program(row)
    result.append(finish())
    return row, _parts(row, root)


def _split(row: Row, parts: RowParts, splits: Mapping[str, Dim]) -> dict[str, Dim]:
    """A loop variable whose quotient the code asks for, with the divisor, if it divides evenly."""
    for part in parts.all:
        for definition in needed_definitions(part).values():
            for v in row.domain.loops:
                if definition.dividend != dims.of(v) or v.name in splits:
                    continue
                outer = exact_quotient(row.domain.extents[v], definition.divisor)
                if outer is not None and outer != 1:
                    return {v.name: definition.divisor}
    return {}


class RowParts:
    """The scalar code of a row: a part for each pass, for its finish, for elements, for the row."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self.passes: list[Part] = []
        self.finishes: list[Part] = []
        self.elements: Part | None = None
        self.kept: Part | None = None

    @property
    def all(self) -> list[Part]:
        more = [p for p in (self.elements, self.kept) if p is not None]
        return [*self.passes, *self.finishes, *more]


def _parts(row: Row, root: Op) -> RowParts:
    both = [*row.kept, *row.reduced]
    parts = RowParts(row)
    for p in row.passes:
        roots = [p.element, *([p.keep] if p.keep is not None else [])]
        stores: list[Store] = [Store(k, 0, node) for k, node in enumerate(roots)]
        if p.extreme:
            stores[0] = Store(0, p.position, p.element)
        parts.passes.append(Part(row.domain, list(both), tuple(stores)))
        total = row.lowering.node(Given(f"{p.name}_total", p.dtype))
        end = Store(0, 0, total if p.extreme else p.finish(total))
        parts.finishes.append(Part(row.domain, list(row.kept), (end,)))
    elements, kept = _output_stores(row, root)
    if elements:
        parts.elements = Part(row.domain, list(both), tuple(elements))
    if kept:
        parts.kept = Part(row.domain, list(row.kept), tuple(kept))
    return parts


def _output_stores(row: Row, root: Op) -> tuple[list[Store], list[Store]]:
    """Stores per element, and per row."""
    source, target = root.operands[0].type.shape, root.results[0].type.shape
    per_row = _row_coordinates(row, root)
    downstream = after(root)
    elements: list[Store] = []
    kept: list[Store] = []
    for i, value in enumerate(row.body.outputs):
        moved = calculated_value(value, downstream)
        shape = moved.type.shape
        if shape == source and (per_row is None or source != target or moved not in downstream):
            at, into = row.coordinates, elements
        elif per_row is not None and shape == target:
            at, into = per_row, kept
        else:
            own = per_row or row.coordinates
            to = coordinates_behind(value, root.results[0], own, row.domain, downstream)
            if to is None:
                raise problem(root, f"an output of shape {shape} is not made of its elements")
            node = row.lowering.at(value, to)
            offset = offset_of(value.type, to, row.domain)
            (elements if per_row is None else kept).append(Store(i, offset, node))
            continue
        calculated, to = before_moves(value, at, row.domain, downstream)
        offset = offset_of(value.type, to, row.domain)
        into.append(Store(i, offset, row.lowering.at(calculated, at)))
    return elements, kept


def _row_coordinates(row: Row, root: Op) -> Coordinates | None:
    """The result's coordinates of a row; None for ops whose result has the operand's shape."""
    if "keepdims" not in root.attributes:
        return None
    axes: Sequence[int] = (
        root.attribute("axes") if "axes" in root.attributes else (root.attribute("axis"),)
    )
    at: list[Dim] = []
    for axis, coordinate in enumerate(row.coordinates):
        if axis not in axes:
            at.append(coordinate)
        elif root.attribute("keepdims"):
            at.append(0)
    return tuple(at)


def _store_in_pass(row: Row, parts: RowParts) -> None:
    """Elements that do not wait for the result are written in the pass that reads them."""
    if parts.elements is None or len(row.passes) != 1 or row.passes[0].keep is not None:
        return
    waits = any(isinstance(n, Given) for n in parts.elements.nodes)
    if waits or parts.elements.loops != parts.passes[0].loops or row.passes[0].extreme:
        return
    only = parts.passes[0]
    parts.passes[0] = replace(only, stores=(*only.stores, *parts.elements.stores))
    parts.elements = None


def _collapse(row: Row, parts: RowParts) -> None:
    """Collapses kept loops with kept ones and reduced with reduced ones, the same in all parts."""
    kept = collapse_together(parts.all, 0, len(row.kept))
    wide = [*parts.passes, *([parts.elements] if parts.elements else [])]
    if wide:
        collapse_together(wide, kept, len(wide[0].loops))
        row.kept, row.reduced = wide[0].loops[:kept], wide[0].loops[kept:]
    else:
        row.kept = parts.all[0].loops[:kept]
