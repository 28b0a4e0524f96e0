"""Reductions of a whole tensor to one value: the only row is cut in chunks for the threads.

The chunks follow from the sizes alone and their results are combined in a tree, so that the bits do
not depend on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphwright.compiler.codegen.cpp.loops import element_cost, item_loop, serial_function
from graphwright.compiler.codegen.cpp.row import Row
from graphwright.compiler.codegen.cpp.row_text import RowWriter, indent
from graphwright.compiler.codegen.cpp.scalar_text import spell
from graphwright.compiler.codegen.cpp.types import scalar_type
from graphwright.compiler.ir import dims

if TYPE_CHECKING:
    from graphwright.compiler.codegen.cpp.reduction import RowParts


def is_whole(row: Row, parts: RowParts) -> bool:
    """Whether there is one row, and one pass over it does everything that elements need."""
    if row.kept or parts.elements is not None or len(row.passes) != 1:
        return False
    return row.passes[0].keep is None and not row.passes[0].extreme


class WholeWriter(RowWriter):
    """Writes the functions of such a reduction: one for chunks, one for what follows them."""

    def emit(self) -> None:
        """Adds the functions and their calls to the kernel."""
        p, part, finish = self.row.passes[0], self.parts.passes[0], self.parts.finishes[0]
        assert p.combine is not None
        builder, type = self.builder, scalar_type(p.dtype)
        writer = self._writer(part, [])
        *outer, last = part.loops
        combine = spell(p.combine, p.dtype, "a", "b")
        combine = f"[]({type} a, {type} b) {{ return static_cast<{type}>({combine}); }}"

        levels = [writer.statements(level) for level in range(-1, len(outer))]
        inside = [*writer.statements(len(outer)), *self._step(p, part, writer)]
        step = f"[&](int64_t {'i' if not outer else last.name}, int64_t l) GW_INLINE_LAMBDA {{"
        if outer:
            extent = self.size(self.extent(last))
            over = [f"gw::lanes<{self.lanes}>({extent}, {step}", *indent(inside), "});"]
            before = [x for level in levels[1:] for x in level]
            over = item_loop(builder, [(v.name, self.extent(v)) for v in outer], [*before, *over])
            items, cost = dims.product(self.extent(v) for v in outer), self.extent(last)
        else:
            inside = [f"const int64_t {last.name} = begin + i;", *inside]
            over = [f"gw::lanes<{self.lanes}>(end - begin, {step}", *indent(inside), "});"]
            items, cost = self.extent(last), 1
        count, each = self.size(items), self.size(dims.multiply(cost, element_cost(part)))
        chunk = [
            *levels[0],
            "for (int64_t chunk = first; chunk < last; ++chunk) {",
            f"  const int64_t begin = gw::chunk_start({count}, chunks, chunk);",
            f"  const int64_t end = gw::chunk_start({count}, chunks, chunk + 1);",
            *indent(self._accumulators(p, writer)),
            *indent(over),
            f"  partial[chunk] = gw::combine_lanes<{self.lanes}>({p.name}_lanes, {combine});",
            "}",
        ]
        total = f"{p.name}_total"
        ends = self._writer(finish, [], total)
        rest = [
            f"const {type} {total} = gw::combine_lanes<gw::kMostChunks>(partial, {combine});",
            *(x for level in range(-1, len(finish.loops)) for x in ends.statements(level)),
            f"const {type} {p.name} = {ends.text(finish.stores[0].node)};",
        ]
        if self.parts.kept is not None:
            rest += self._stores(self.parts.kept, [p.name])

        # Last, for all of this may have added scalars to the kernel.
        parameters, arguments = builder.parameter_list, builder.argument_list
        chunk_parameters = f"{type}* partial, int64_t chunks, int64_t first, int64_t last"
        builder.functions += [
            serial_function("KERNEL_NAME_chunk", f"{parameters}, {chunk_parameters}", chunk),
            serial_function("KERNEL_NAME_end", f"{parameters}, {type}* partial", rest),
        ]
        builder.body += [
            f"{type} partial[gw::kMostChunks];",
            f"for ({type}& value : partial) value = {writer.text(p.identity)};",
            f"{type}* const all = partial;",
            f"const int64_t chunks = gw::chunk_count({count}, {each});",
            "gw::parallel_for(pool, chunks, 2, [=](int64_t first, int64_t last, int) {",
            f"  KERNEL_NAME_chunk({arguments}, all, chunks, first, last);",
            "});",
            f"KERNEL_NAME_end({arguments}, all);",
        ]
