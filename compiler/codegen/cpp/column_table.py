"""Stores whose place depends on the column through divisions, as behind a channel shuffle.

Written as it stands, such a store costs a division and a scattered write a value, and keeps the whole
loop from being vectorised.  What depends on the column alone becomes a table, made once a tile; the
values of a row go to a buffer and from there to their places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphwright.compiler.codegen.cpp.nest import Part, Store
from graphwright.compiler.codegen.cpp.scalar_text import ScalarWriter
from graphwright.compiler.codegen.expressions import Domain, dims_from, dims_terms
from graphwright.compiler.codegen.scalar import Number
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.types import F32

INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """Of output number `output`: what of its store's offset depends on the column alone."""

    output: int
    offset: Dim

    def table_lines(
        self, part: Part, column: Symbol, write: Callable[[Part], ScalarWriter]
    ) -> list[str]:
        """The statements that make the table, before the loop over rows."""
        only = replace(part, loops=[column], stores=(Store(0, self.offset, Number(0.0, F32)),))
        writer = write(only)
        return [
            f"int32_t at{self.output}[gw::kMostColumns];",
            "for (int64_t c = 0; c < cols; ++c) {",
            # 32 bits: dividing by a constant is then vectorised.
            "  const uint32_t col = static_cast<uint32_t>(col0 + c);",
            *(f"  {x}".replace("const int64_t", "const uint32_t") for x in writer.statements(0)),
            f"  at{self.output}[c] = static_cast<int32_t>({writer.index(self.offset)});",
            "}",
        ]


def with_tables(part: Part, column: Symbol) -> tuple[Part, dict[int, ColumnTable]]:
    """The part with what its stores' offsets keep, and the tables by output."""
    tables: dict[int, ColumnTable] = {}
    stores: list[Store] = []
    for store in part.stores:
        halves = _halves(part.domain, part.resolve(store.offset), column)
        if halves is None:
            stores.append(store)
            continue
        of_column, rest = halves
        tables[store.output] = ColumnTable(store.output, of_column)
        stores.append(replace(store, offset=rest))
    return (replace(part, stores=tuple(stores)), tables) if tables else (part, {})


def _halves(domain: Domain, offset: Dim, column: Symbol) -> tuple[Dim, Dim] | None:
    """(what depends on the column alone, the rest); None where a table would not serve."""
    of_column: Dim = 0
    rest: Dim = 0
    divided = False
    for monomial, scale in dims_terms(offset):
        term = dims_from({monomial: scale})
        variables = domain.variables_of(term)
        loops = {loop for v in variables for loop in _loops_under(domain, v)}
        if column not in loops:
            rest = rest + term
        elif (
            loops == {column}
            and isinstance(term, dims.Expr)
            and not _scaled_by_symbol(domain, term)
        ):
            of_column = of_column + term
            divided |= any(v in domain.definitions for v in variables)
        else:
            return None
    if not divided or not _fits(domain, of_column) or not _fits(domain, dims.of(column)):
        return None
    return of_column, rest


def _loops_under(domain: Domain, variable: Symbol) -> set[Symbol | None]:
    """The loops that a variable follows from; None stands for data."""
    definition = domain.definitions.get(variable)
    if definition is None:
        return {variable} if variable in domain.extents else {None}
    if definition.operator == "data" or not isinstance(definition.divisor, int):
        return {None}
    return {u for v in domain.variables_of(definition.dividend) for u in _loops_under(domain, v)}


def _scaled_by_symbol(domain: Domain, term: dims.Expr) -> bool:
    """Whether the term holds anything but the domain's variables and numbers."""
    return any(s not in domain.extents for s in dims.symbols_of(term))


def _fits(domain: Domain, dim: Dim) -> bool:
    """Whether the dim is within [0, 2**31) everywhere."""
    return domain.at_least(dim, 0) and dims.bounds(domain.highest(dim))[1] <= INT32_MAX
