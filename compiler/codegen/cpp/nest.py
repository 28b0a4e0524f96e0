"""Loop nests of elementwise kernels: which loops, in which order, split and collapsed how.

A nest covers the coordinates of an output.  It is first lowered as one box; then loop variables are
split where that makes the scalar code simpler: at the edges of concatenated or padded parts, so that
no element asks where it is, and by the divisor of a quotient, so that a reshape needs no division.
Last, neighbouring loops that walk memory as one are collapsed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from graphwright.compiler.codegen.expressions import (
    Definition,
    Domain,
    Variable,
    exact_quotient,
    split_linear,
)
from graphwright.compiler.codegen.lower import Coordinates, Lowering
from graphwright.compiler.codegen.scalar import Choose, Load, Node, data_nodes, index_dims, walk
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape, Symbol

MAX_PARTS = 24


@dataclass(frozen=True, slots=True)
class Axis:
    """One output axis: coordinate = start + the mixed-radix number of its loops' variables."""

    start: Dim
    factors: tuple[Dim, ...]

    @property
    def extent(self) -> Dim:
        return dims.product(self.factors)


@dataclass(frozen=True, slots=True)
class Store:
    """`node` is written to element `offset` of output number `output`."""

    output: int
    offset: Dim
    node: Node


@dataclass(slots=True)
class Part:
    """One box of the output: loops outermost first, and what is stored for each point.

    `replaced` maps variables that collapsing removed or renamed; printing applies it.
    """

    domain: Domain
    loops: list[Symbol]
    stores: tuple[Store, ...]
    replaced: dict[Symbol, Dim] = field(default_factory=dict[Symbol, Dim])

    def resolve(self, dim: Dim) -> Dim:
        return dims.substitute(dim, self.replaced) if self.replaced else dim

    def extent(self, loop: Symbol) -> Dim:
        return self.domain.extents[loop]

    @property
    def nodes(self) -> list[Node]:
        roots = [s.node for s in self.stores]
        for store in self.stores:
            roots += data_nodes(store.offset, self.domain)
        return list(walk(tuple(roots), self.domain))


Body = Callable[[Lowering, Coordinates], Sequence[Store]]


def build_parts(shape: Shape, order: Sequence[int], body: Body) -> list[Part]:
    """The boxes of a nest over `shape`, loops in physical `order`, simplified as the module says."""
    pending = [tuple(Axis(0, (extent,)) for extent in shape)]
    finished: list[Part] = []
    while pending:
        axes = pending.pop(0)
        if any(a.extent == 0 for a in axes):
            continue
        part, owners = _lower(axes, order, body)
        split = _split(part, axes, owners, len(pending) + len(finished) + 1)
        if split is None:
            finished.append(part)
        else:
            pending = [*split, *pending]
    _collapse_all(finished)
    return finished


def _lower(
    axes: Sequence[Axis], order: Sequence[int], body: Body
) -> tuple[Part, dict[Symbol, tuple[int, int]]]:
    domain = Domain()
    coordinates: list[Dim] = [a.start for a in axes]
    owners: dict[Symbol, tuple[int, int]] = {}
    for axis in order:
        value: Dim = 0
        for k, extent in enumerate(axes[axis].factors):
            name = f"i{axis}" if len(axes[axis].factors) == 1 else f"i{axis}{chr(ord('a') + k)}"
            variable: Dim = 0
            if extent != 1:
                variable = domain.loop(name, extent)
                owners[domain.loops[-1]] = (axis, k)
            value = dims.multiply(value, extent) + variable
        coordinates[axis] = coordinates[axis] + value
    stores = tuple(body(Lowering(domain), tuple(coordinates)))
    return Part(domain, list(domain.loops), stores), owners


def _split(
    part: Part, axes: tuple[Axis, ...], owners: dict[Symbol, tuple[int, int]], parts: int
) -> list[tuple[Axis, ...]] | None:
    """The boxes that this one is better split into, or None."""
    for definition in needed_definitions(part).values():
        for variable in part.loops:
            if definition.dividend != dims.of(variable):
                continue
            axis, k = owners[variable]
            factors = axes[axis].factors
            outer = exact_quotient(factors[k], definition.divisor)
            if outer is not None and outer != 1:
                split = (*factors[:k], outer, definition.divisor, *factors[k + 1 :])
                return [_with(axes, axis, replace(axes[axis], factors=split))]
    if parts >= MAX_PARTS:
        return None
    # Innermost variables first: a choice in an outer loop costs little.
    for variable in reversed(part.loops):
        for node in part.nodes:
            if not isinstance(node, Choose):
                continue
            for left, right in node.conditions:
                cut = _cut(part, left, right, variable)
                axis, _ = owners[variable]
                if cut is None or len(axes[axis].factors) != 1:
                    continue
                start, extent = axes[axis].start, axes[axis].extent
                return [
                    _with(axes, axis, Axis(start, (cut,))),
                    _with(axes, axis, Axis(start + cut, (extent - cut,))),
                ]
    return None


def _with(axes: tuple[Axis, ...], axis: int, new: Axis) -> tuple[Axis, ...]:
    return (*axes[:axis], new, *axes[axis + 1 :])


def _cut(part: Part, left: Dim, right: Dim, variable: Symbol) -> Dim | None:
    """Where left < right changes along this variable alone, inside its extent; else None."""
    scale, rest = split_linear(right - left, variable)
    if scale not in (1, -1) or part.domain.variables_of(rest):
        return None
    # scale -1: true for v < rest.  scale 1: true for v > -rest, that is from 1 - rest on.
    cut = rest if scale == -1 else 1 - rest
    extent = part.extent(variable)
    if dims.prove(cut, ">", 0) and dims.prove(cut, "<", extent):
        return cut
    if not (dims.prove(cut, ">=", 0) and dims.prove(extent - cut, ">=", 0)):
        return None
    return cut


# -- collapsing


def _collapse_all(parts: list[Part]) -> None:
    """Collapses loops, first those that all parts share as their outermost ones, together."""
    shared = collapse_together(parts, 0, shared_loops(parts))
    for p in parts:
        at = shared if len(parts) > 1 else 0
        while at + 1 < len(p.loops):
            if _can_collapse(p, at):
                _collapse(p, at)
            else:
                at += 1


def collapse_together(parts: Sequence[Part], start: int, stop: int) -> int:
    """Collapses loops start..stop-1, which all the parts share, where all can; the new stop."""
    at = start
    while at + 1 < stop:
        if all(_can_collapse(p, at) for p in parts):
            for p in parts:
                _collapse(p, at)
            stop -= 1
        else:
            at += 1
    return stop


def shared_loops(parts: Sequence[Part]) -> int:
    """How many outermost loops all the parts have in common."""
    if not parts:
        return 0
    count = 0
    for loops in zip(*(p.loops for p in parts), strict=False):
        extents = [p.extent(v) for p, v in zip(parts, loops, strict=True)]
        if any(v != loops[0] for v in loops) or any(e != extents[0] for e in extents):
            break
        count += 1
    return count


def needed_definitions(part: Part) -> dict[Symbol, Definition]:
    """The quotients and remainders that the part's code really uses, operands before users."""
    found: dict[Symbol, Definition] = {}

    def visit(dim: Dim) -> None:
        for variable in part.domain.variables_of(dim):
            definition = part.domain.definitions.get(variable)
            if definition is not None and definition.operator != "data" and variable not in found:
                visit(part.resolve(definition.dividend))
                found[variable] = definition

    for node in part.nodes:
        for dim in index_dims(node):
            visit(part.resolve(dim))
    for store in part.stores:
        visit(part.resolve(store.offset))
    return found


def _accesses(part: Part) -> list[Dim]:
    loads = [n.offset for n in part.nodes if isinstance(n, Load)]
    return [part.resolve(d) for d in (*loads, *(s.offset for s in part.stores))]


def _can_collapse(part: Part, at: int) -> bool:
    outer, inner = part.loops[at], part.loops[at + 1]
    ratio = part.extent(inner)
    for offset in _accesses(part):
        a, rest = split_linear(offset, outer)
        b, rest = split_linear(rest, inner)
        if a is None or b is None or a != dims.multiply(b, ratio):
            return False
    used = set(needed_definitions(part).values())
    blocked = {v for d in used for v in dims.symbols_of(part.resolve(d.dividend))}
    for node in part.nodes:
        if not isinstance(node, Load):
            for dim in index_dims(node):
                blocked.update(dims.symbols_of(part.resolve(dim)))
    return outer not in blocked and inner not in blocked


def _collapse(part: Part, at: int) -> None:
    outer, inner = part.loops[at], part.loops[at + 1]
    extent = dims.multiply(part.extent(outer), part.extent(inner))
    name = outer.name + inner.name.lstrip("ikr")  # i0 and i1 become i01
    merged = Variable(name, 0, max(dims.bounds(extent)[1] - 1, 0))
    part.domain.extents[merged] = extent
    change: dict[Symbol, Dim] = {outer: 0, inner: dims.of(merged)}
    part.replaced = {v: dims.substitute(d, change) for v, d in part.replaced.items()} | change
    part.loops[at : at + 2] = [merged]
