"""Resize in C++: a table per resized axis, then one nest over the result.

An axis that grows by a whole number with nearest elements needs no table: its index is a quotient.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.codegen.cpp.function import KernelBuilder, type_order
from graphwright.compiler.codegen.cpp.loops import emit_nest
from graphwright.compiler.codegen.cpp.nest import Store, build_parts
from graphwright.compiler.codegen.cpp.scalar_text import Names
from graphwright.compiler.codegen.cpp.types import read, scalar_type, storage_type, stored
from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.codegen.lower import Coordinates, Lowering, as_region, offset_of, problem
from graphwright.compiler.codegen.lower_sampling import is_kept, whole_factor
from graphwright.compiler.codegen.scalar import Apply, Node, Number, compute_dtype
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import origin_of, strides_of
from graphwright.compiler.ir.ops.resize import antialias_reach
from graphwright.compiler.ir.types import BOOL, I64, DType, TensorType

TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@dataclass(frozen=True, slots=True)
class Table:
    """The tables of one axis as values that kernels load from: [size * taps] and [size]."""

    axis: int
    index: Value
    weights: Value | None
    outside: Value | None
    taps: int


def emit_resize(op: Op) -> list[EmittedLaunch]:
    """Resize of one tensor as one launch."""
    if _is_any(op):
        return _emit_any(op)
    body, operands = as_region(op)
    (x,) = body.inputs
    result = op.results[0]
    builder = KernelBuilder(op, f"resize_{op.attribute('mode')}")
    builder.includes.append("gw/resize.h")
    pointers = {x: builder.tensor("in0", operands[0])}
    out = builder.tensor("out0", result, written=True)
    tables = {
        axis: _table(builder, body, op, axis, pointers)
        for axis in range(x.type.rank)
        if not is_kept(op, axis) and whole_factor(op, axis) is None
    }

    def stores(low: Lowering, at: Coordinates) -> list[Store]:
        node = _element(op, low, x, at, tables)
        for table in tables.values():
            if table.outside is not None:
                is_outside = low.load(table.outside, (at[table.axis],))
                value = low.node(Number(op.attribute("extrapolation"), node.dtype))
                node = _call(low, op, "where", node.dtype, is_outside, value, node)
        return [Store(0, offset_of(result.type, at, low.domain), node)]

    parts = build_parts(result.type.shape, type_order(result.type), stores)
    emit_nest(builder, parts, pointers, [(out, result.type.dtype)], Names(body.symbols))
    return [builder.launch(None, operands)]


def _is_any(op: Op) -> bool:
    """Whether scales, or the reach of a stretched kernel, are only known at run time."""
    x, *geometry = op.operands
    if geometry:
        return True
    if not op.attribute("antialias") or op.attribute("scales"):
        return False
    pairs = enumerate(zip(x.type.shape, op.attribute("sizes"), strict=True))
    return any(
        not (isinstance(extent, int) and isinstance(size, int))
        for axis, (extent, size) in pairs
        if not is_kept(op, axis)
    )


def _emit_any(op: Op) -> list[EmittedLaunch]:
    """The general loop of gw/resize.h, which makes its tables as it runs."""
    x, result = op.operands[0], op.result
    if x.type.dtype.bits < 8:
        raise problem(op, f"its operand is {x.type}, want whole bytes", "cast it")
    builder = KernelBuilder(op, "resize_any")
    builder.includes.append("gw/resize.h")
    source, out = builder.tensor("in0", x), builder.tensor("out0", result, written=True)
    geometry = builder.tensor("in1", op.operands[1]) if len(op.operands) > 1 else ""
    rank, dtype = x.type.rank, x.type.dtype
    lines = [f"gw::ResizeAxis axes[{max(rank, 1)}];"]
    for name, type in (("from", x.type), ("to", result.type)):
        steps = strides_of(type.shape, type.layout)
        texts = [builder.scalar(f"{name}_{i}", s) for i, s in enumerate(steps)]
        lines.append(f"const int64_t {name}[{max(rank, 1)}] = {{{', '.join(texts)}}};")
    begins = [
        builder.scalar(f"begin_{n}", origin_of(v.type.shape, v.type.layout))
        for n, v in (("in", x), ("out", result))
    ]
    for axis in range(rank):
        extent, size = x.type.shape[axis], op.attribute("sizes")[axis]
        a = f"axes[{axis}]"
        lines.append(f"{a}.extent = {builder.scalar(f'extent_{axis}', extent)};")
        lines.append(f"{a}.size = {builder.scalar(f'size_{axis}', size)};")
        if geometry:
            lines.append(f"{a}.scale = {geometry}[{axis}];")
            lines.append(f"{a}.roi_start = {geometry}[{rank + axis}];")
            lines.append(f"{a}.roi_end = {geometry}[{2 * rank + axis}];")
    number = "double" if dtype.is_float else scalar_type(dtype)
    value = f"static_cast<{scalar_type(dtype)}>(v)"
    lines += [
        "gw::ResizeRules rules;",
        f"rules.coordinates = gw::Coordinates::{op.attribute('coordinates')};",
        f"rules.nearest = gw::Nearest::{op.attribute('nearest')};",
        f"rules.cubic_a = {float(op.attribute('cubic_a'))!r};",
        f"rules.exclude_outside = {str(op.attribute('exclude_outside')).lower()};",
        f"rules.antialias = {str(op.attribute('antialias')).lower()};",
        f"rules.extrapolation = {float(op.attribute('extrapolation'))!r};",
        f"const auto at = [=](int64_t i) -> {number} {{ return {read(dtype, source, f'i + {begins[0]}')}; }};",
        f"const auto store = [=](int64_t i, {number} v) {{ {out}[i + {begins[1]}] = {stored(dtype, value)}; }};",
        f"gw::resize_any<{number}>(axes, {rank}, gw::Resampling::{op.attribute('mode')}, rules, from, to, pool, at, store);",
    ]
    builder.body = lines
    return [builder.launch(None, op.operands)]


def _reach(op: Op, axis: int) -> int:
    """Elements to each side of a kernel that antialiasing stretches; 0 without."""
    mode: str = op.attribute("mode")
    if not op.attribute("antialias") or mode == "nearest":
        return 0
    extent, size = op.operands[0].type.shape[axis], op.attribute("sizes")[axis]
    if op.attribute("scales"):
        scale = op.attribute("scales")[axis]
    else:
        assert isinstance(extent, int) and isinstance(size, int)  # `_is_any` has the others
        scale = size / extent if extent else 1.0
    return antialias_reach(mode, scale) if scale < 1 else 0


def _table(
    builder: KernelBuilder, body: Graph, op: Op, axis: int, pointers: dict[Value, str]
) -> Table:
    """Declares the workspaces of an axis's tables and the statements that fill them."""
    mode: str = op.attribute("mode")
    extent, size = op.operands[0].type.shape[axis], op.attribute("sizes")[axis]
    reach = _reach(op, axis)
    taps = 2 * reach if reach else TAPS[mode]
    count = dims.multiply(size, taps)

    def workspace(stem: str, dtype: DType, elements: Dim) -> Value:
        name = f"{stem}{axis}"
        bytes = dims.multiply(elements, dtype.bytes)
        builder.pointer(name, storage_type(dtype), Workspace(bytes), written=True)
        value = Value(TensorType(dtype, (elements,)), body, None, 1000 + len(pointers), name)
        pointers[value] = name
        return value

    index = workspace("index", I64, count)
    dtype = compute_dtype(op.results[0].type.dtype)
    weights = workspace("weight", dtype, count) if mode != "nearest" else None
    is_crop = op.attribute("coordinates") == "tf_crop_and_resize"
    outside = workspace("outside", BOOL, size) if is_crop else None
    a = f"axis{axis}"
    lines = [
        f"gw::ResizeAxis {a};",
        f"{a}.extent = {builder.size(extent)};",
        f"{a}.size = {builder.size(size)};",
        f"{a}.coordinates = gw::Coordinates::{op.attribute('coordinates')};",
        f"{a}.nearest = gw::Nearest::{op.attribute('nearest')};",
    ]
    if op.attribute("scales"):
        lines.append(f"{a}.scale = {op.attribute('scales')[axis]!r};")
    if reach:
        lines.append(f"{a}.reach = {reach};")
    if mode == "cubic":
        lines.append(f"{a}.cubic_a = {op.attribute('cubic_a')!r};")
    if op.attribute("exclude_outside"):
        lines.append(f"{a}.exclude_outside = true;")
    if is_crop:
        roi = op.attribute("roi")
        lines.append(f"{a}.roi_start = {float(roi[axis])!r};")
        lines.append(f"{a}.roi_end = {float(roi[len(roi) // 2 + axis])!r};")
    type = scalar_type(dtype) if weights is not None else "float"
    lines.append(
        f"gw::resize_table<{type}>({a}, gw::Resampling::{mode}, index{axis}, "
        f"{f'weight{axis}' if weights else 'nullptr'}, {f'outside{axis}' if outside else 'nullptr'});"
    )
    builder.body += lines
    return Table(axis, index, weights, outside, taps)


def _element(op: Op, low: Lowering, x: Value, at: Coordinates, tables: dict[int, Table]) -> Node:
    """The weighted sum over the taps of all resized axes."""
    place: list[Dim] = list(at)
    for axis in range(len(at)):
        factor = whole_factor(op, axis)
        if axis not in tables and factor is not None and factor != 1:
            place[axis] = low.domain.quotient(at[axis], factor)
    return _over_axes(op, low, x, tuple(place), list(tables.values()))


def _over_axes(op: Op, low: Lowering, x: Value, at: Coordinates, tables: Sequence[Table]) -> Node:
    if not tables:
        return low.at(x, at)
    *rest, table = tables
    axis = table.axis
    total: Node | None = None
    for t in range(table.taps):
        entry = (dims.multiply(at[axis], table.taps) + t,)
        index = low.wrapped(low.load(table.index, entry), x.type.shape[axis], "tap")
        node = _over_axes(op, low, x, (*at[:axis], index, *at[axis + 1 :]), rest)
        if table.weights is not None:
            node = _call(low, op, "mul", node.dtype, node, low.load(table.weights, entry))
        total = node if total is None else _call(low, op, "add", node.dtype, total, node)
    assert total is not None
    return total


def _call(low: Lowering, op: Op, name: str, dtype: DType, *arguments: Node) -> Node:
    return low.node(Apply(op.graph.registry[name], (), None, arguments, dtype))
