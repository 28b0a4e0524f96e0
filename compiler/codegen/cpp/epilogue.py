"""Epilogues: what a contraction template does with each finished tile of sums.

The functor's loops run over the tile's rows and columns; the scalar code is lowered over the
coordinates of the contraction's result.  Strides are scalars of the kernel, so that layers that
differ only in sizes share one kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphwright.compiler.codegen.cpp.column_table import with_tables
from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.indices import Size
from graphwright.compiler.codegen.cpp.nest import Part, Store
from graphwright.compiler.codegen.cpp.operand import Operands
from graphwright.compiler.codegen.cpp.scalar_text import NARROW, Names, ScalarWriter, holds_wide
from graphwright.compiler.codegen.cpp.types import scalar_type, storage_type, stored
from graphwright.compiler.codegen.expressions import Domain, Variable, split_linear
from graphwright.compiler.codegen.lower import (
    Coordinates,
    Lowering,
    offset_of,
    problem,
    reshape_coordinates,
)
from graphwright.compiler.codegen.scalar import Given, Load, Node, compute_dtype
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr, Symbol
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.types import F32, DType


@dataclass(frozen=True, slots=True)
class Tiling:
    """The extents of batch, row and column, and the result's coordinates at one of them."""

    batch: Dim
    rows: Dim
    columns: Dim
    coordinates: Callable[[Domain, Dim, Dim, Dim], Coordinates]


class EpilogueLowering(Lowering):
    """Lowers loads with strides as scalars of the kernel."""

    def __init__(
        self,
        domain: Domain,
        operands: Operands,
        given: Callable[[Value, Coordinates], Node | None],
    ) -> None:
        super().__init__(domain, given=given)
        self.operands = operands

    def load(self, value: Value, coordinates: Coordinates) -> Node:
        pointer = self.operands.pointer(value)
        offset = offset_of(value.type, coordinates, self.domain)
        offset = self.with_scalars(offset, pointer)
        return self.node(Load(value, offset, compute_dtype(value.type.dtype)))

    def with_scalars(self, offset: Dim, pointer: str) -> Dim:
        """The offset with its strides along the tile's axes passed as scalars."""
        for variable in self.domain.loops:
            stride, rest = split_linear(offset, variable)
            if stride is None or stride in (0, 1) or self.domain.variables_of(stride):
                continue
            name = self.operands.builder.scalar(f"{pointer}_{variable.name}", stride)
            offset = rest + dims.multiply(dims.of(variable), dims.of(Variable(name)))
        return offset


def build_epilogue(
    builder: KernelBuilder,
    operands: Operands,
    body: Graph,
    root: Op,
    tiling: Tiling,
    *,
    bias: Value | None = None,
    bias_axis: int = 1,
    results: Sequence[Value],
) -> str:
    """Adds the functor to the kernel; returns the C++ expression that makes one.

    `bias` is an operand of the contraction itself, along `bias_axis` of its result.
    """
    busy = set(operands.pointers)
    domain = Domain()
    domain.reserve(["rows", "cols", "tile", "acc"])
    batch: Dim = domain.loop("batch", tiling.batch) if tiling.batch != 1 else 0
    row, column = domain.loop("row", tiling.rows), domain.loop("col", tiling.columns)
    coordinates = tiling.coordinates(domain, batch, row, column)
    target = root.results[0]
    sum_dtype = compute_dtype(target.type.dtype)

    def given(value: Value, at: Coordinates) -> Node | None:
        if value is not target:
            return _constant(value)
        total: Node = low.node(Given("sum", sum_dtype))
        if bias is not None:
            add = body.registry["add"]
            total = low.apply(add, total, low.at(bias, (at[bias_axis],)))
        return total

    constants: dict[str, DType] = {}

    def _constant(value: Value) -> Node | None:
        """A number of the body as a scalar of the kernel, so that layers share it."""
        op, dtype = value.op, value.type.dtype
        if op is None or op.name != "constant" or dtype not in (F32, *NARROW):
            return None
        literal = op.attribute("value")
        if not (literal.is_splat or literal.elements == 1):
            return None
        number = literal.array().reshape(-1)[0]
        if number in (0, 1):
            return None
        bits = int(number.view(np.uint32)) if dtype is F32 else int(number)
        for known, other in constants.items():
            if other is dtype and builder.scalars[f"{known}_bits"] == bits:
                return low.node(Given(known, dtype))
        name = f"number{len(constants)}"
        builder.scalar(f"{name}_bits", bits)
        constants[name] = dtype
        return low.node(Given(name, dtype))

    low = EpilogueLowering(domain, operands, given)
    stores: list[Store] = []
    for i, (value, result) in enumerate(zip(body.outputs, results, strict=True)):
        name = builder.tensor(f"out{i}", result, written=True)
        calculated, at = before_moves(value, coordinates, domain, after(root))
        offset = low.with_scalars(offset_of(value.type, at, domain), name)
        stores.append(Store(i, offset, low.at(calculated, coordinates)))
    part = Part(domain, _loop_order(domain, stores), tuple(stores))
    _mark_in_place(builder, part, operands, results, busy)
    code = _operator(
        part,
        operands,
        results,
        Names((*builder.scalars, "row0", "col0")),
        constants,
        builder.size,
        sum_dtype,
    )
    # The functor's fields: the pointers and scalars that its code mentions.
    mentioned = set(re.findall(r"\b[A-Za-z_]\w*", "\n".join(code)))
    pointers = [p for p in builder.parameters if p.name in mentioned]
    scalars = [s for s in builder.scalars if s in mentioned]
    fields = [f"  {'' if p.written else 'const '}{p.type}* {p.name};" for p in pointers]
    fields += [f"  int64_t {s};" for s in scalars]
    text = "\n".join([*fields, *code])
    builder.functions.append(
        f"namespace {{\nstruct KERNEL_NAME_epilogue {{\n{text}\n}};\n}}  // namespace\n"
    )
    return f"KERNEL_NAME_epilogue{{{', '.join([*(p.name for p in pointers), *scalars])}}}"


def _declaration(name: str, dtype: DType, *, wide: bool) -> str:
    """The C++ statement that makes a number of the scalar with its bits."""
    if dtype is F32:
        return f"const float {name} = gw::bits_float(static_cast<uint32_t>({name}_bits));"
    type = "int32_t" if wide else scalar_type(dtype)
    return f"const {type} {name} = static_cast<{type}>({name}_bits);"


def after(root: Op) -> set[Value]:
    """The values that depend on the root's results, these included."""
    found = set(root.results)
    for op in root.graph.ops:
        if any(v in found for v in op.operands):
            found.update(op.results)
    return found


def calculated_value(value: Value, downstream: set[Value]) -> Value:
    """What the final movement ops behind a root move."""
    while value.op is not None and value.op.name in ("reshape", "transpose", "relayout"):
        if value.op.operands[0] not in downstream:
            break
        value = value.op.operands[0]
    return value


def coordinates_behind(
    value: Value, root: Value, at: Coordinates, domain: Domain, downstream: set[Value]
) -> Coordinates | None:
    """Where the root's element `at` goes in a value behind it, through reshapes, transposes and
    pointwise ops of one shape; None when there is no such way."""
    if value is root:
        return at
    op = value.op
    if op is None or value not in downstream:
        return None
    if op.name == "reshape":
        inner = coordinates_behind(op.operands[0], root, at, domain, downstream)
        shape = op.operands[0].type.shape
        return inner and reshape_coordinates(inner, shape, value.type.shape, domain)
    if op.name == "transpose":
        inner = coordinates_behind(op.operands[0], root, at, domain, downstream)
        return inner and tuple(inner[axis] for axis in op.attribute("permutation"))
    for operand in op.operands:
        if operand in downstream and operand.type.shape == value.type.shape:
            return coordinates_behind(operand, root, at, domain, downstream)
    return None


def before_moves(
    value: Value, coordinates: Coordinates, domain: Domain, downstream: set[Value]
) -> tuple[Value, Coordinates]:
    """The value that the final movement ops move, and where they move `coordinates` to."""
    op = value.op
    if op is None or calculated_value(value, downstream) is value:
        return value, coordinates
    inner, at = before_moves(op.operands[0], coordinates, domain, downstream)
    if op.name == "reshape":
        source, shape = op.operands[0].type.shape, value.type.shape
        return inner, reshape_coordinates(at, source, shape, domain)
    if op.name == "transpose":
        return inner, tuple(at[axis] for axis in op.attribute("permutation"))
    return inner, at


def _loop_order(domain: Domain, stores: Sequence[Store]) -> list[Symbol]:
    """Rows outside, columns inside, unless every store is contiguous along the rows."""
    *outer, row, column = domain.loops
    transposed = all(
        split_linear(s.offset, row)[0] == 1 and split_linear(s.offset, column)[0] not in (0, 1)
        for s in stores
    )
    return [*outer, column, row] if transposed else [*outer, row, column]


def _mark_in_place(
    builder: KernelBuilder,
    part: Part,
    operands: Operands,
    results: Sequence[Value],
    busy: Collection[Value],
) -> None:
    """A side operand read exactly where a result is written may share its storage.

    `busy`: operands that the contraction itself reads.
    """
    for store in part.stores:
        result = results[store.output]
        for node in part.nodes:
            if not isinstance(node, Load):
                continue
            source = node.source
            loads = [n for n in part.nodes if isinstance(n, Load) and n.source is source]
            if source not in busy and len(loads) == 1 and source.type == result.type:
                read = _resolved(builder, node.offset)
                if read == _resolved(builder, store.offset):
                    pair = (f"out{store.output}", operands.pointer(source))
                    builder.in_place.append(pair)
                    builder.unrestrict(pair)


def _resolved(builder: KernelBuilder, offset: Dim) -> Dim:
    """The offset with the kernel's scalars replaced by what is passed."""
    if not isinstance(offset, Expr):
        return offset
    values: dict[Symbol, Dim] = {Variable(name): value for name, value in builder.scalars.items()}
    return dims.substitute(offset, values)


def _operator(
    part: Part,
    operands: Operands,
    results: Sequence[Value],
    names: Names,
    constants: Mapping[str, DType],
    size: Size,
    sum_dtype: DType,
) -> list[str]:
    """The functor's call operator.

    Columns go in pieces of at most a panel.  What memory holds in fewer than 32 bits is widened
    before the loop over a piece and narrowed behind it, so that the loop has one width.
    """
    of_sum = scalar_type(sum_dtype)
    given = {name: (name, -1) for name in constants}
    *outer, first, last = part.loops
    rows_first = first.name == "row"
    narrow = _Narrow(part, last, results, operands) if rows_first and holds_wide(part) else None
    read = narrow.read if narrow is not None else {}
    whole, tables = part, {}
    if rows_first and narrow is None:
        part, tables = with_tables(part, last)
    writer = ScalarWriter(part, operands.pointers, names, size, given=given, read=read)
    levels = [writer.statements(k) for k in range(-1, len(part.loops))]
    batched = levels[1] if outer else []
    middle, inner = levels[-2], levels[-1]
    lines = [
        f"  GW_INLINE void operator()(const {of_sum}* GW_RESTRICT tile, int64_t ld, int64_t batch,",
        "                            int64_t row0, int64_t rows, int64_t col0, int64_t cols) const {",
        *([] if outer else ["    (void)batch;"]),
        *(f"    {_declaration(n, t, wide=writer.wide)}" for n, t in constants.items()),
        *(f"    {x}" for x in [*levels[0], *batched]),
    ]
    for table in tables.values():
        made = table.table_lines(whole, last, lambda p: ScalarWriter(p, {}, names, size))
        lines += [f"    {x}" for x in made]
    stores: list[str] = []
    for s in part.stores:
        value = stored(results[s.output].type.dtype, writer.text(s.node))
        if s.output in tables:
            stores.append(f"kept{s.output}[c] = {value};")
        elif narrow is not None and s.output in narrow.stores:
            stores.append(f"narrow{s.output}[c] = {value};")
        else:
            stores.append(f"out{s.output}[{writer.index(s.offset)}] = {value};")
    row_loop = ["for (int64_t r = 0; r < rows; ++r) {", "  const int64_t row = row0 + r;"]
    if narrow is not None and (narrow.loads or narrow.stores):
        lines += [
            *(f"    {x}" for x in row_loop),
            *(f"      {x}" for x in middle),
            *(f"      {x}" for x in narrow.lines(writer, inner, stores, of_sum)),
            "    }",
            "  }",
        ]
        return lines
    column_loop = ["for (int64_t c = 0; c < cols; ++c) {", "  const int64_t col = col0 + c;"]
    a, b = (row_loop, column_loop) if rows_first else (column_loop, row_loop)
    lines += [
        *(f"    {x}" for x in a),
        *(f"      {x}" for x in middle),
        *(
            f"      {storage_type(results[o].type.dtype)} kept{o}[gw::kMostColumns];"
            for o in tables
        ),
        f"      {'GW_COLUMNS' if rows_first else 'GW_IVDEP'}",
        *(f"      {x}" for x in b),
        f"        const {of_sum} sum = tile[r * ld + c];",
        *(f"        {x}" for x in [*inner, *stores]),
        "      }",
        *(
            f"      gw::scatter(out{s.output} + ({writer.index(s.offset)}), at{s.output}, "
            f"kept{s.output}, cols);"
            for s in part.stores
            if s.output in tables
        ),
        "    }",
        "  }",
    ]
    return lines


class _Narrow:
    """Loads and stores of small integers along the columns, apart from the loop that calculates.

    `read`: what the loop reads for a load, by the load's id; `stores`: outputs that it leaves in a buffer.
    """

    def __init__(
        self, part: Part, column: Symbol, results: Sequence[Value], operands: Operands
    ) -> None:
        def lies_along(offset: Dim) -> bool:
            derived = any(v in part.domain.definitions for v in part.domain.variables_of(offset))
            return not derived and split_linear(part.resolve(offset), column)[0] == 1

        self.loads: dict[str, Load] = {}
        self.pointers = operands.pointers
        for node in part.nodes:
            if isinstance(node, Load) and node.dtype in NARROW and lies_along(node.offset):
                self.loads[f"wide{len(self.loads)}"] = node
        self.read = {id(node): f"{name}[c]" for name, node in self.loads.items()}
        self.stores = {
            s.output: s
            for s in part.stores
            if results[s.output].type.dtype in NARROW and lies_along(s.offset)
        }

    def lines(
        self, writer: ScalarWriter, inner: Sequence[str], stores: Sequence[str], of_sum: str
    ) -> list[str]:
        """The loop over the pieces of a row."""
        out = ["for (int64_t c0 = 0; c0 < cols; c0 += gw::kNR) {"]
        out.append("  const int64_t count = cols - c0 < gw::kNR ? cols - c0 : gw::kNR;")
        out += [f"  int32_t {name}[gw::kNR];" for name in self.loads]
        out += [f"  int32_t narrow{output}[gw::kNR];" for output in self.stores]
        if self.loads:
            out += ["  {", "    const int64_t col = col0 + c0;"]
            for name, node in self.loads.items():
                at = f"{self.pointers[node.source]} + ({writer.index(node.offset)})"
                out.append(f"    gw::widen({name}, {at}, count);")
            out.append("  }")
        out += ["  GW_COLUMNS", "  for (int64_t c = 0; c < count; ++c) {"]
        out.append("    const int64_t col = col0 + c0 + c;")
        out.append(f"    const {of_sum} sum = tile[r * ld + c0 + c];")
        out += [f"    {x}" for x in [*inner, *stores]]
        out.append("  }")
        if self.stores:
            out.append("  const int64_t col = col0 + c0;")
            for output, store in self.stores.items():
                at = f"out{output} + ({writer.index(store.offset)})"
                out.append(f"  gw::narrow({at}, narrow{output}, count);")
        out.append("}")
        return out


def check_float(root: Op) -> None:
    """Raises UnsupportedError unless the contraction is calculated in float32."""
    for value in (*root.operands, *root.results):
        if compute_dtype(value.type.dtype) is not F32:
            raise problem(
                root,
                f"its C++ template is for float32, this is {value.type.dtype.long_name}",
                "cast its operands to float32",
            )
