"""Ops that walk one axis in order, rows in parallel: cumsum, cumprod and top_k."""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.indices import operand_text
from graphwright.compiler.codegen.cpp.loops import emit_parallel
from graphwright.compiler.codegen.cpp.types import literal, read, scalar_type, storage_type, stored
from graphwright.compiler.codegen.expressions import Domain, split_linear
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import offset_of, problem
from graphwright.compiler.codegen.scalar import compute_dtype
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value


class Lines:
    """The rows of an op along an axis: loops over the other axes, and offsets of a row's start."""

    def __init__(self, op: Op, axis: int) -> None:
        self.op, self.axis = op, axis
        type = op.operands[0].type
        self.domain = Domain()
        self.domain.reserve(["begin", "end"])
        self.coordinates: list[Dim] = []
        for i, extent in enumerate(type.shape):
            if i == axis or extent == 1:
                self.coordinates.append(0)
            else:
                self.coordinates.append(self.domain.loop(f"i{i}", extent))
        self.extent = type.shape[axis]

    @property
    def loops(self) -> list[tuple[str, Dim]]:
        return [(v.name, self.domain.extents[v]) for v in self.domain.loops]

    @property
    def count(self) -> Dim:
        return dims.product(e for _, e in self.loops)

    def start_and_stride(self, value: Value) -> tuple[Dim, Dim]:
        """Offset of a row's first element, and the distance between its elements."""
        walk = Domain()
        step = walk.loop("along", value.type.shape[self.axis])
        at = list(self.coordinates)
        at[self.axis] = step
        merged = Domain()
        merged.extents = {**self.domain.extents, **walk.extents}
        offset = offset_of(value.type, at, merged)
        (along,) = walk.loops
        stride, start = split_linear(offset, along)
        if stride is None:
            raise problem(self.op, "a blocked layout along its axis has no kernel")
        return start, stride


def emit_cumulative(op: Op) -> list[EmittedLaunch]:
    """Running sums or products, one row at a time."""
    x, result = op.operands[0], op.results[0]
    lines = Lines(op, op.attribute("axis"))
    builder = KernelBuilder(op, op.name)
    sign, start_value = ("+", 0) if op.name == "cumsum" else ("*", 1)
    builder.tensor("in0", x)
    builder.tensor("out0", result, written=True)
    start, stride = lines.start_and_stride(x)
    out_start, out_stride = lines.start_and_stride(result)
    dtype = compute_dtype(x.type.dtype)
    type = scalar_type(dtype)
    text = builder.size
    position = "i" if not op.attribute("reverse") else f"{text(lines.extent)} - 1 - i"
    element = read(x.type.dtype, "row", f"at * {builder.size(stride)}")
    store = f"to[at * {builder.size(out_stride)}] = {stored(x.type.dtype, 'total')};"
    add = f"total = static_cast<{type}>(total {sign} value);"
    steps = [store, add] if op.attribute("exclusive") else [add, store]
    body = [
        f"const {storage_type(x.type.dtype)}* row = in0 + {operand_text(start, builder.size)};",
        f"{storage_type(x.type.dtype)}* to = out0 + {operand_text(out_start, builder.size)};",
        f"{type} total = {literal(start_value, dtype)};",
        f"for (int64_t i = 0; i < {text(lines.extent)}; ++i) {{",
        f"  const int64_t at = {position};",
        f"  const {type} value = {element};",
        *(f"  {s}" for s in steps),
        "}",
    ]
    cost = dims.multiply(lines.extent, 8)
    emit_parallel(builder, "rows", lines.count, lines.loops, body, cost)
    return [builder.launch(None, op.operands)]


def emit_top_k(op: Op) -> list[EmittedLaunch]:
    """The k best elements of each row."""
    x = op.operands[0]
    if x.type.dtype.name in ("f16", "bf16"):
        raise problem(op, f"top_k of {x.type.dtype.long_name} has no kernel", "cast to float32")
    lines = Lines(op, op.attribute("axis"))
    builder = KernelBuilder(op, "top_k")
    builder.includes.append("gw/select.h")
    builder.tensor("in0", x)
    for i, value in enumerate(op.results):
        builder.tensor(f"out{i}", value, written=True)
    start, stride = lines.start_and_stride(x)
    value_start, out_stride = lines.start_and_stride(op.results[0])
    index_start, index_stride = lines.start_and_stride(op.results[1])
    if out_stride != index_stride:
        raise problem(op, "its results have different layouts")
    n = builder.size(lines.extent)
    largest = "true" if op.attribute("largest") else "false"
    body = [
        f"auto* const order = reinterpret_cast<int64_t*>(gw::scratch(2 * ({n})));",
        f"gw::top_k<{largest}>(in0 + {operand_text(start, builder.size)}, {builder.size(stride)}, {n},",
        f"    {builder.size(op.attribute('k'))}, out0 + {operand_text(value_start, builder.size)},",
        f"    out1 + {operand_text(index_start, builder.size)}, {builder.size(out_stride)}, order);",
    ]
    cost = dims.multiply(lines.extent, 64)
    emit_parallel(builder, "rows", lines.count, lines.loops, body, cost)
    return [builder.launch(None, op.operands)]
