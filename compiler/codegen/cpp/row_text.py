"""The C++ text of a reduction's row (or tile of rows)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.indices import index_text, operand_text
from graphwright.compiler.codegen.cpp.loops import element_cost, must_stay_rolled, typical
from graphwright.compiler.codegen.cpp.nest import Part, Store
from graphwright.compiler.codegen.cpp.row import TILES, Pass, Row
from graphwright.compiler.codegen.cpp.scalar_text import Names, ScalarWriter, spell
from graphwright.compiler.codegen.cpp.types import scalar_type, stored
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import DType

Innermost = Callable[[], list[str]]

if TYPE_CHECKING:
    from graphwright.compiler.codegen.cpp.reduction import RowParts


def indent(lines: Sequence[str]) -> list[str]:
    return [f"  {line}" for line in lines]


class RowWriter:
    """Writes the body of the loop over items: rows, or tiles of neighbouring rows.

    `items` is the extent of the parallel loop, `item_extents` its loops with extents, `cost` that
    of one item.
    """

    def __init__(
        self,
        builder: KernelBuilder,
        row: Row,
        parts: RowParts,
        pointers: Mapping[Value, str],
        outputs: Sequence[tuple[str, DType]],
    ) -> None:
        self.builder, self.size = builder, builder.size
        self.row, self.parts, self.pointers, self.outputs = row, parts, pointers, outputs
        self.names = Names(row.body.symbols)
        self.by_column = row.by_column
        self.column = row.kept[-1] if self.by_column else None
        self.tile = self._tile() if self.by_column else 0
        outer = row.kept[:-1] if self.by_column else row.kept
        self.item_extents: list[tuple[str, Dim]] = [(v.name, self.extent(v)) for v in outer]
        if self.column is not None:
            blocks = dims.ceildiv(self.extent(self.column), self.tile)
            self.item_extents.append(("block", blocks))
        self.items = dims.product(e for _, e in self.item_extents)
        per_row = sum(element_cost(p) for p in [*parts.passes, *self._element_parts()])
        self.cost = dims.multiply(self.length, per_row * (self.tile or 1))
        self.lanes = self._lane_count()
        if self.by_column:
            for part in parts.all:
                part.loops = self._column_last(part.loops)

    @property
    def length(self) -> Dim:
        return dims.product(self.extent(v) for v in self.row.reduced)

    def extent(self, v: Symbol) -> Dim:
        return self.row.domain.extents[v]

    def _element_parts(self) -> list[Part]:
        return [self.parts.elements] if self.parts.elements else []

    def _column_last(self, loops: Sequence[Symbol]) -> list[Symbol]:
        assert self.column is not None
        return [*(v for v in loops if v != self.column), self.column]

    def _tile(self) -> int:
        extent = self.extent(self.row.kept[-1])
        most = self.row.tile
        if isinstance(extent, int):
            for tile in TILES:
                if tile <= most and extent % tile == 0:
                    return tile
            if extent < most:
                return extent
        return most

    def _lane_count(self) -> int:
        length = typical(self.extent(self.row.reduced[-1]))
        widest = max((p.dtype.bytes for p in self.row.passes), default=4)
        lanes = 64 if length >= 256 else 32 if length >= 64 else 16 if length >= 16 else 8
        return lanes // 2 if widest == 8 else lanes

    @property
    def width(self) -> str:
        """How many rows of a tile there are."""
        assert self.column is not None
        extent = self.extent(self.column)
        return str(self.tile) if dims.is_multiple(extent, self.tile) else "width"

    # -- text

    def lines(self) -> list[str]:
        """The statements for one item."""
        out: list[str] = []
        if self.column is not None:
            c = self.column.name
            out.append(f"const int64_t {c}_0 = block * {self.tile};")
            if self.width == "width":
                extent = self.size(self.extent(self.column))
                out.append(f"const int64_t width = gw::smaller({self.tile}, {extent} - {c}_0);")
        kept = next((p for p in self.row.passes if p.keep is not None), None)
        if kept is not None:
            size = dims.bounds(self.length)[1] * (self.tile or 1)
            out.append(f"{scalar_type(kept.dtype)} kept[{size}];")
        done: list[str] = []
        for p, part, finish in zip(
            self.row.passes, self.parts.passes, self.parts.finishes, strict=True
        ):
            out += self._pass(p, part, finish, done)
            done.append(p.name)
        if self.parts.elements is not None:
            out += self._stores(self.parts.elements, done)
        if self.parts.kept is not None:
            out += self._stores(self.parts.kept, done)
        return out

    def _writer(self, part: Part, done: Sequence[str], total: str = "") -> ScalarWriter:
        innermost = len(part.loops) - 1
        row_level = innermost if self.by_column else len(self.row.kept) - 1
        suffix = "[l]" if self.by_column else ""
        given = {name: (f"{name}{suffix}", row_level) for name in done}
        given["kept"] = (f"kept[{self._buffer_index()}]", innermost)
        if total:
            given[total] = (total, innermost)
        return ScalarWriter(part, self.pointers, self.names, self.size, given=given)

    def _buffer_index(self) -> str:
        linear: Dim = 0
        for v in self.row.reduced:
            linear = dims.multiply(linear, self.extent(v)) + dims.of(v)
        if not self.by_column:
            return index_text(linear, self.size)
        return f"{operand_text(linear, self.size)} * {self.tile} + l"

    def _nest(
        self, part: Part, writer: ScalarWriter, innermost: Innermost, *, lanes: bool
    ) -> list[str]:
        """The loops of a part inside an item; `innermost` is asked once all operands are written.

        `lanes`: the innermost reduced loop spreads over lanes, for a pass.
        """
        outer = len(self.row.kept) - (1 if self.by_column else 0)
        lines = [x for level in range(-1, outer) for x in writer.statements(level)]
        return [*lines, *self._loops(part, writer, innermost, lanes, outer)]

    def _loops(
        self, part: Part, writer: ScalarWriter, innermost: Innermost, lanes: bool, depth: int
    ) -> list[str]:
        if depth == len(part.loops):
            return innermost()
        loop = part.loops[depth]
        is_last = depth + 1 == len(part.loops)
        inside = writer.statements(depth)
        inside += self._loops(part, writer, innermost, lanes, depth + 1)
        extent = self.size(self.extent(loop))
        if loop == self.column:
            return self._over_tile(inside)
        if is_last and lanes:
            head = f"gw::lanes<{self.lanes}>({extent},"
            head += f" [&](int64_t {loop.name}, int64_t l) GW_INLINE_LAMBDA {{"
            return [head, *indent(inside), "});"]
        head = f"for (int64_t {loop.name} = 0; {loop.name} < {extent}; ++{loop.name}) {{"
        hints = ["GW_IVDEP"] if is_last else []
        hints += ["GW_ROLLED"] if is_last and must_stay_rolled(extent, inside) else []
        return [*hints, head, *indent(inside), "}"]

    def _over_tile(self, inside: Sequence[str]) -> list[str]:
        """A loop over the rows of a tile."""
        assert self.column is not None
        c = self.column.name
        used = any(c in line for line in inside)
        return [
            "GW_IVDEP",
            f"for (int64_t l = 0; l < {self.width}; ++l) {{",
            *([f"  const int64_t {c} = {c}_0 + l;"] if used else []),
            *indent(inside),
            "}",
        ]

    def _pass(self, p: Pass, part: Part, finish: Part, done: Sequence[str]) -> list[str]:
        writer = self._writer(part, done)
        lines = self._accumulators(p, writer)
        lines += self._nest(part, writer, lambda: self._step(p, part, writer), lanes=True)
        return [*lines, *self._finish(p, finish, done)]

    def _accumulators(self, p: Pass, writer: ScalarWriter) -> list[str]:
        """What a pass combines into, a number for each lane, made."""
        count, acc = self.tile or self.lanes, f"{p.name}_lanes"
        start = f"{acc}[l] = {writer.text(p.identity)};"
        lines = [f"{scalar_type(p.dtype)} {acc}[{count}];"]
        if p.extreme:
            lines.append(f"int64_t {p.name}_at[{count}];")
            start = f"{acc}[l] = 0, {p.name}_at[l] = -1;"
        return [*lines, f"for (int l = 0; l < {count}; ++l) {start}"]

    def _step(self, p: Pass, part: Part, writer: ScalarWriter) -> list[str]:
        """What a pass does with an element: in lane l, and with what is written on the way."""
        acc, type = f"{p.name}_lanes", scalar_type(p.dtype)
        element, *more = part.stores
        value = writer.exact_text(element.node)
        if p.extreme:
            lines = [
                f"const {type} value = {value};",
                f"const int64_t position = {writer.index(element.offset)};",
                f"if ({p.name}_at[l] < 0 || gw::beats<{p.extreme}>(value, {acc}[l])) {{",
                f"  {acc}[l] = value;",
                f"  {p.name}_at[l] = position;",
                "}",
            ]
        else:
            assert p.combine is not None
            lines = [f"{acc}[l] = {spell(p.combine, p.dtype, f'{acc}[l]', value)};"]
        if p.keep is not None:
            keep, *more = more
            lines.append(f"kept[{self._buffer_index()}] = {writer.text(keep.node)};")
        return [*lines, *(self._store(s, writer) for s in more)]

    def _finish(self, p: Pass, part: Part, done: Sequence[str]) -> list[str]:
        """From the lanes (or the tile's sums) to the pass's scalar of the row."""
        acc, type = f"{p.name}_lanes", scalar_type(p.dtype)
        if p.extreme:
            if self.by_column:
                return [f"int64_t* const {p.name} = {p.name}_at;"]
            best = f"gw::best_lane<{self.lanes}, {p.extreme}>({acc}, {p.name}_at)"
            return [f"const int64_t {p.name} = {best};"]
        total = f"{p.name}_total"
        writer = self._writer(part, done, total)
        node = part.stores[0].node
        assert p.combine is not None
        if not self.by_column:
            combine = spell(p.combine, p.dtype, "a", "b")
            lines = [
                f"const {type} {total} = gw::combine_lanes<{self.lanes}>(",
                f"    {acc}, []({type} a, {type} b) {{ return static_cast<{type}>({combine}); }});",
            ]
            for level in range(-1, len(part.loops)):
                lines += writer.statements(level)
            return [*lines, f"const {type} {p.name} = {writer.text(node)};"]

        def innermost() -> list[str]:
            return [f"{p.name}[l] = {writer.text(node)};"]

        outer = len(part.loops) - 1
        lines = [f"{type} {p.name}[{self.tile}];"]
        lines += [x for level in range(-1, outer) for x in writer.statements(level)]
        inside = [f"const {type} {total} = {acc}[l];", *writer.statements(outer), *innermost()]
        return [*lines, *self._over_tile(inside)]

    def _stores(self, part: Part, done: Sequence[str]) -> list[str]:
        writer = self._writer(part, done)

        def innermost() -> list[str]:
            return [self._store(s, writer) for s in part.stores]

        return self._nest(part, writer, innermost, lanes=False)

    def _store(self, store: Store, writer: ScalarWriter) -> str:
        name, dtype = self.outputs[store.output]
        return f"{name}[{writer.index(store.offset)}] = {stored(dtype, writer.text(store.node))};"
