"""One row of a reduction: the loops over kept and reduced coordinates, and the passes over a row.

A *row* is one point of the kept coordinates.  `Row.reduce` adds a pass that combines one value per
element of the row; `program` functions (reduction_programs.py) say what passes an op needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphwright.compiler.codegen.expressions import Domain, exact_quotient, split_linear
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of
from graphwright.compiler.codegen.scalar import (
    Apply,
    Given,
    Index,
    Load,
    Node,
    Number,
    compute_dtype,
    data_nodes,
    index_dims,
    walk,
)
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import OpDef
from graphwright.compiler.ir.types import I64, DType

BUFFER_ELEMENTS = 16384  # of a row (or tile of rows) that a thread keeps on its stack
TILES = (64, 32, 16)  # how many rows go side by side in a reduction by columns


@dataclass(frozen=True, slots=True)
class Pass:
    """Combines `element` over a row, from `identity`; `finish` makes the named scalar of it.

    `keep` goes to the row's buffer at the same time.  `extreme`: an arg_max or arg_min pass, as
    the template arguments of gw::beats; `element` is then the value compared.
    """

    name: str
    combine: OpDef | None
    identity: Node
    element: Node
    finish: Callable[[Node], Node]
    dtype: DType
    keep: Node | None = None
    extreme: str = ""
    position: Dim = 0


class Row:
    """The domain of a reduction region, its lowering, and the passes that its root needs."""

    def __init__(
        self,
        op: Op,
        body: Graph,
        root: Op,
        given: Callable[..., Node | None],
        splits: Mapping[str, Dim],
    ) -> None:
        """`splits`: loop variables, by name, that are made of two: a quotient and a remainder."""
        self.op, self.body, self.root, self.splits = op, body, root, splits
        self.source: Value = root.operands[0]
        self.domain = Domain()
        self.domain.reserve(["l", "begin", "end"])
        self.kept: list[Symbol] = []
        self.reduced: list[Symbol] = []
        self.passes: list[Pass] = []
        self.by_column = False
        self.tile = TILES[0]
        self.buffered = False
        self.lowering = Lowering(self.domain, given=given)
        self.coordinates: Coordinates = ()

    # -- coordinates

    def loops(self, reduced_axes: Sequence[int], *, groups: int = 0) -> None:
        """Makes the loop variables in the physical order of the source.

        `groups`: axis 1 is a kept group and a reduced channel inside it.
        """
        type = self.source.type
        order = range(type.rank) if type.layout is None else type.layout.order
        at: list[Dim] = [0] * type.rank
        kept: list[Symbol] = []
        reduced: list[Symbol] = []
        for axis in order:
            extent = type.shape[axis]
            if groups and axis == 1:
                inside = dims.floordiv(extent, groups)
                group = self._loop("group", groups, kept)
                channel = self._loop("channel", inside, reduced)
                at[1] = dims.multiply(group, inside) + channel
                continue
            into = reduced if axis in reduced_axes else kept
            at[axis] = self._loop(f"{'r' if into is reduced else 'k'}{axis}", extent, into)
        if not reduced:
            self.domain.loop("r", 1)
            reduced.append(self.domain.loops[-1])
        self.kept, self.reduced = kept, reduced
        self.coordinates = tuple(at)
        self.by_column = self._is_by_column()

    def _loop(self, name: str, extent: Dim, into: list[Symbol]) -> Dim:
        if extent == 1:
            return 0
        inner = self.splits.get(name, 1)
        if inner != 1:
            outer = exact_quotient(extent, inner)
            assert outer is not None
            quotient = self._loop(f"{name}a", outer, into)
            return dims.multiply(quotient, inner) + self._loop(f"{name}b", inner, into)
        variable = self.domain.loop(name, extent)
        into.append(self.domain.loops[-1])
        return variable

    def _is_by_column(self) -> bool:
        """Whether neighbours in memory belong to different rows, so that rows go side by side.

        The kept variable that they differ in becomes the last one.
        """
        if not self.kept:
            return False
        nodes = walk((self.x(),), self.domain)
        offsets = [n.offset for n in nodes if isinstance(n, Load)]
        for value in self.body.outputs:
            if value.type.shape == self.source.type.shape:
                offsets.append(offset_of(value.type, self.coordinates, self.domain))

        def scattered(v: Symbol) -> int:
            """Accesses whose neighbours along v are neither adjacent nor the same."""
            count = sum(not self._is_smooth(o, v) for o in offsets)
            extent = self.domain.extents[v]
            return count + (isinstance(extent, int) and extent < TILES[-1])

        best = min(reversed(self.kept), key=scattered)
        if scattered(best) >= scattered(self.reduced[-1]):
            return False
        self.kept = [*(v for v in self.kept if v != best), best]
        return True

    def _is_smooth(self, offset: Dim, v: Symbol) -> bool:
        scale, _ = split_linear(offset, v)
        if scale not in (0, 1):
            return False
        known = self.domain.definitions
        derived = [known[u] for u in self.domain.variables_of(offset) if u in known]
        if any(v in dims.symbols_of(d.dividend) for d in derived):
            return False
        below = walk(tuple(data_nodes(offset, self.domain)), self.domain)
        return not any(v in dims.symbols_of(d) for node in below for d in index_dims(node))

    @property
    def length(self) -> Dim:
        """Elements of a row."""
        return dims.product(self.domain.extents[v] for v in self.reduced)

    # -- values and passes

    def x(self) -> Node:
        """The element of the root's operand; a buffered copy once a pass kept it."""
        if self.buffered:
            dtype = compute_dtype(self.source.type.dtype)
            return self.lowering.node(Given("kept", dtype))
        return self.lowering.at(self.source, self.coordinates)

    def first(self) -> Node | None:
        """The row's first element; None where a row may be empty."""
        if not dims.prove(self.length, ">", 0):
            return None
        start: dict[Symbol, Dim] = dict.fromkeys(self.reduced, 0)
        at = tuple(dims.substitute(c, start) for c in self.coordinates)
        return self.lowering.at(self.source, at)

    def can_buffer(self) -> bool:
        """Whether the elements of a row, or of a tile of rows side by side, fit on the stack.

        Makes tiles smaller when that helps.
        """
        length = dims.bounds(self.length)[1]
        if not self.by_column:
            return length <= BUFFER_ELEMENTS
        fitting = [t for t in TILES if t <= self.tile and length * t <= BUFFER_ELEMENTS]
        if fitting:
            self.tile = fitting[0]
        return bool(fitting)

    def reduce(
        self,
        name: str,
        combine: str,
        identity: Any,
        element: Node,
        *,
        finish: Callable[[Node], Node] = lambda total: total,
        keep: Node | None = None,
    ) -> Node:
        """Adds a pass; returns the scalar that the row's elements combine to."""
        definition = self.body.registry[combine]
        start = self.number(identity, element.dtype)
        self.passes.append(Pass(name, definition, start, element, finish, element.dtype, keep=keep))
        return self.lowering.node(Given(name, element.dtype))

    def find(self, name: str, extreme: str, element: Node, position: Dim) -> Node:
        """Adds a pass that finds the position of the extreme element."""
        zero = self.number(0, element.dtype)
        self.passes.append(
            Pass(
                name, None, zero, element, lambda total: total, element.dtype,
                extreme=extreme, position=position,
            )
        )  # fmt: skip
        return self.lowering.node(Given(name, I64))

    # -- nodes

    def number(self, value: Any, dtype: DType) -> Node:
        return self.lowering.node(Number(value, dtype))

    def count(self, dtype: DType) -> Node:
        """The number of a row's elements as a scalar."""
        return self.lowering.node(Index(self.length, dtype))

    def apply(self, name: str, *arguments: Node, dtype: DType | None = None) -> Node:
        """A pointwise op on nodes; `dtype` where it is not that of the first."""
        made = Apply(self.body.registry[name], (), None, arguments, dtype or arguments[0].dtype)
        return self.lowering.node(made)
