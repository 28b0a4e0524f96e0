"""Reduction regions: one program per row of kept coordinates, the reduced axes as one block or loop.

A row that fits a block is read once: prologue, combination and epilogue stay in registers.  Longer
rows are looped over, with block-wide accumulators, and read again for what is written per element.
The order of combination is fixed, so results repeat bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of, problem
from graphwright.compiler.codegen.scalar import Given, Node, compute_dtype
from graphwright.compiler.codegen.triton.along_axis import order_key
from graphwright.compiler.codegen.triton.kernels import (
    Region,
    axes_coordinates,
    next_power_of_two,
)
from graphwright.compiler.codegen.triton.matmul import follows, store_coordinates
from graphwright.compiler.codegen.triton.pointwise import emit_pointwise
from graphwright.compiler.codegen.triton.printing import Printer, triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import order_of
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.types import I64, DType
from graphwright.compiler.passes.profit import typical_size
from graphwright.errors import UnsupportedError

ONE_BLOCK = 16384  # elements of a row that one program keeps in registers
LOOP_BLOCK = 4096
LANES, FEW_LANES = 64, 16  # rows that a program takes where these lie side by side
BUSY_ROWS = 64 * 128  # from how many rows on it takes the larger number
ACROSS = 4096  # elements of all of them at a time
ROWS_BLOCK = 8192  # elements of the rows of a program that are all its lanes' at once
FEWEST_PROGRAMS = 264
NAN = "propagate_nan=tl.PropagateNan.ALL"


@dataclass(frozen=True, slots=True)
class Combine:
    """How a simple reduction combines: neutral element, elementwise step, block result."""

    neutral: str
    step: str
    finish: str


COMBINE: dict[str, Combine] = {
    "reduce_sum": Combine("0", "{a} + {x}", "tl.sum({a}, axis=0)"),
    "reduce_mean": Combine("0", "{a} + {x}", "tl.sum({a}, axis=0)"),
    "reduce_prod": Combine("1", "{a} * {x}", "tl.reduce({a}, 0, _times)"),
    "reduce_and": Combine("True", "{a} & {x}", "(tl.min({a}.to(tl.int32), axis=0) != 0)"),
    "reduce_or": Combine("False", "{a} | {x}", "(tl.max({a}.to(tl.int32), axis=0) != 0)"),
    "reduce_max": Combine(
        "float('-inf')", f"tl.maximum({{a}}, {{x}}, {NAN})", "tl.reduce({a}, 0, _maximum)"
    ),
    "reduce_min": Combine(
        "float('inf')", f"tl.minimum({{a}}, {{x}}, {NAN})", "tl.reduce({a}, 0, _minimum)"
    ),
}
ROWWISE = ("softmax", "log_softmax", "layer_norm", "rms_norm")


class Row:
    """The loops of one reduction kernel: `row` is a scalar, `column` a block over reduced axes."""

    def __init__(
        self, region: Region, root: Op, axes: tuple[int, ...], *, across: bool = False
    ) -> None:
        """`across`: a program takes LANES rows, which lie side by side in memory."""
        source = root.operands[0].type
        self.region, self.root, self.axes = region, root, axes
        self.kept = tuple(a for a in range(source.rank) if a not in axes)
        domain = region.domain
        self.rows = dims.product(source.shape[a] for a in self.kept)
        self.columns = dims.product(source.shape[a] for a in axes)
        self.row = domain.loop("row", self.rows)
        self.column = domain.loop("column", self.columns)
        by_axis = axes_coordinates(self.row, source.shape, self.kept, domain)
        by_axis |= axes_coordinates(self.column, source.shape, axes, domain)
        self.coordinates: Coordinates = tuple(by_axis[a] for a in range(source.rank))
        longest = dims.bounds(self.columns)[1]
        self.across = across
        self.many = 1  # rows of a program, each a row of a block
        self.lanes = LANES if typical_size(self.rows) >= BUSY_ROWS else FEW_LANES
        most = ACROSS // self.lanes if across else ONE_BLOCK
        self.one_block = longest <= most
        self.block = next_power_of_two(longest) if self.one_block else LOOP_BLOCK
        if across and not self.one_block:
            self.block = most
        if root.name in ROWWISE and self.one_block:
            self.many = max(min(ROWS_BLOCK // self.block, 64), 1)
            while self.many > 1 and typical_size(self.rows) < FEWEST_PROGRAMS * self.many:
                self.many //= 2
        # One warp adds without barriers; more where a row has much to read.
        self.warps = 4 if across else min(max(self.many * self.block // 1024, 1), 16)
        self.programs = dims.ceildiv(self.rows, self.lanes if across else self.many)
        self.over = "axis=1, keep_dims=True" if self.many > 1 else "axis=0"
        self.printer = region.printer()
        p = self.printer
        if across:
            lanes = f"{self.lanes} + tl.arange(0, {self.lanes})"
            p.line(f"row = tl.program_id(0){region.index} * {lanes}")
            p.line(f"in_rows = row < {p.dim(self.rows)}")
            p.bind(self.row, "row[None, :]", "in_rows[None, :]")
        elif self.many > 1:
            lines = f"{self.many} + tl.arange(0, {self.many})[:, None]"
            p.line(f"row = tl.program_id(0){region.index} * {lines}")
            p.line(f"in_rows = row < {p.dim(self.rows)}")
            even = dims.is_multiple(self.rows, self.many)
            p.bind(self.row, "row", "" if even else "in_rows")
        else:
            p.line(f"row = tl.program_id(0){region.index}")
            p.bind(self.row, "row")
        p.line("_wait()")
        self.extent = p.dim(self.columns)

    def pass_over(self, loop: bool) -> Printer:
        """Opens one pass over the columns; close it with `close` when it was a loop."""
        p = self.printer
        if loop:
            p.line(f"for start in range(0, {self.extent}, {self.block}):")
            self._saved = p.enter()
            p.line(f"column = start + tl.arange(0, {self.block})")
        else:
            along = "[None, :]" if self.many > 1 else ""
            p.line(f"column = tl.arange(0, {self.block}){along}{self.region.index}")
        p.line(f"in_row = column < {self.extent}")
        if self.across:
            p.bind(self.column, "column[:, None]", "in_row[:, None]")
        else:
            p.bind(self.column, "column", "in_row")
        return p

    def to_rows(self) -> None:
        """After the reduction a row is a lane."""
        if self.across:
            self.printer.forget(self.row)
            self.printer.bind(self.row, "row", "in_rows")

    def close(self) -> None:
        self.printer.leave(self._saved)


def emit_reduction(op: Op) -> list[EmittedLaunch]:
    """Launches for a region with one reduction op.  Raises UnsupportedError naming what is not.

    What is calculated before the reduction, is wanted too and lies in no place of its loops gets a
    launch of its own.
    """
    region = Region(op)
    (root,) = (o for o in region.body.ops if o.kind is Kind.REDUCTION)
    apart = [i for i, value in enumerate(region.outputs) if _lies_apart(region, root, value)]
    if apart:
        others = [i for i in range(len(region.outputs)) if i not in apart]
        return [_emit_rows(op, others), *(emit_pointwise(op, only=[i]) for i in apart)]
    return [_emit_rows(op, None)]


def _lies_apart(region: Region, root: Op, value: Value) -> bool:
    if follows(value, root):
        return False
    for shape in (root.result.type.shape, root.operands[0].type.shape):
        try:
            store_coordinates(value, (0,) * len(shape), root, region, shape=shape)
        except UnsupportedError:
            continue
        return False
    return True


def _emit_rows(op: Op, only: Sequence[int] | None) -> EmittedLaunch:
    region = Region(op, only=only)
    (root,) = (o for o in region.body.ops if o.kind is Kind.REDUCTION)
    axes = _axes(root)
    row = Row(region, root, axes)
    if root.name in COMBINE:
        if _runs_across(region, root, axes):
            row = Row(region, root, axes, across=True)
        _emit_combined(row)
    elif root.name in ("arg_max", "arg_min"):
        _emit_extreme(row)
    elif root.name in ROWWISE:
        _emit_rowwise(row)
    else:
        raise problem(root, "it has no Triton kernel yet")
    warps = row.warps
    stem = "_".join(o.name for o in region.body.ops)
    summary = f"{root.name} over rows of {row.columns}, {row.rows} rows"
    return region.launch(stem, summary, row.printer, (row.programs,), num_warps=warps)


def _runs_across(region: Region, root: Op, axes: tuple[int, ...]) -> bool:
    """Whether rows lie side by side in memory, and nothing is written back over them."""
    source, shape = root.operands[0].type, root.result.type.shape
    order = [a for a in order_of(source.layout, source.rank) if source.shape[a] != 1]
    kept = [a for a in range(source.rank) if a not in axes and source.shape[a] != 1]
    if not order or not kept or order[-1] != kept[-1]:
        return False
    elements = dims.product(shape)
    return all(v.type.shape == shape or dims.product(v.type.shape) == elements
               for v in region.outputs)  # fmt: skip


def _axes(root: Op) -> tuple[int, ...]:
    rank = root.operands[0].type.rank
    if "axes" in root.attributes:
        return tuple(root.attribute("axes"))
    axis: int = root.attribute("axis")
    return tuple(range(axis, rank)) if root.name in ("layer_norm", "rms_norm") else (axis,)


def _accumulator(root: Op) -> DType:
    return compute_dtype(root.operands[0].type.dtype)


def _emit_combined(row: Row) -> None:
    root, p = row.root, row.printer
    dtype = _accumulator(root)
    combine = COMBINE[root.name] if dtype.is_float else _of_integers(root.name, dtype)
    type = triton_type(dtype)
    lowering = Lowering(row.region.domain)
    inside, shape = ("in_row[:, None]", f"{row.block}, {row.lanes}") if row.across else (
        "in_row", f"{row.block}")  # fmt: skip
    if not row.one_block:
        p.line(f"partial = tl.full([{shape}], {combine.neutral}, {type})")
    row.pass_over(not row.one_block)
    element = p.node(lowering.at(root.operands[0], row.coordinates))
    masked = f"tl.where({inside}, {element}, {combine.neutral})"
    if row.one_block:
        p.line(f"partial = {masked}")
    else:
        p.line(f"partial = {combine.step.format(a='partial', x=masked)}")
        row.close()
    finish = combine.finish.format(a="partial")
    row.to_rows()
    if root.name == "reduce_mean":
        # (integers add up in their own type, which wraps, before they are divided)
        finish += f" / {row.extent}" if dtype.is_float else f".to({type}) // {row.extent}"
    p.line(f"total = {finish}")
    _store(row, "total", dtype, per_element=False)


def _of_integers(name: str, dtype: DType) -> Combine:
    if name not in ("reduce_max", "reduce_min") or not dtype.is_integer:
        return COMBINE[name]
    low = 0 if dtype.kind == "uint" else -(1 << (dtype.bits - 1))
    high = (1 << (dtype.bits - (dtype.kind == "int"))) - 1
    which = name.removeprefix("reduce_")
    neutral = f"tl.cast({low if which == 'max' else high}, {triton_type(dtype)})"
    step = f"tl.{which}imum({{a}}, {{x}})"
    return Combine(neutral, step, f"tl.{which}({{a}}, axis=0)")


def _emit_extreme(row: Row) -> None:
    """The place of the largest or least element: the best of each lane, then of the lanes."""
    root, p = row.root, row.printer
    dtype = _accumulator(root)
    if not dtype.is_float and not dtype.is_integer:
        raise problem(root, f"{root.name} of {dtype} has no Triton kernel yet")
    wide = dtype.bits == 64 or dtype.is_integer
    least = -(1 << 63) if wide else -(1 << 31)
    p.line(f"peak = tl.full([{row.block}], {least}, tl.int{64 if wide else 32})")
    p.line(f"place = tl.full([{row.block}], -1, tl.int64)")
    lowering = Lowering(row.region.domain)
    row.pass_over(not row.one_block)
    x = p.node(lowering.at(root.operands[0], row.coordinates))
    key = order_key(p, x, dtype) if dtype.is_float else f"{x}.to(tl.int64)"
    if root.name == "arg_min":
        # NaN is the most extreme here too.
        low = f"tl.where({x} != {x}, {key}, -1 - {key})" if dtype.is_float else f"-1 - {key}"
        p.line(f"low = {low}")
        key = "low"
    last = bool(root.attribute("select_last"))
    p.line(f"better = in_row & (({key} {'>=' if last else '>'} peak) | (place < 0))")
    p.line("place = tl.where(better, column.to(tl.int64), place)")
    p.line(f"peak = tl.where(better, {key}, peak)")
    if not row.one_block:
        row.close()
    p.line(f"best = tl.max(tl.where(place < 0, {least}, peak), axis=0)")
    among, missing = ("max", -1) if last else ("min", (1 << 62))
    p.line("place = tl.where((peak == best) & (place >= 0), place, " + f"{missing})")
    p.line(f"total = tl.{among}(place, axis=0)")
    _store(row, "total", I64, per_element=False)


def _emit_rowwise(row: Row) -> None:
    root, p = row.root, row.printer
    dtype = _accumulator(root)
    if not dtype.is_float:
        raise problem(root, f"operand is {dtype}, want a float type")
    type = triton_type(dtype)
    lowering = Lowering(row.region.domain)
    softmax = root.name in ("softmax", "log_softmax")
    loop = not row.one_block

    def element() -> str:
        return p.node(Lowering(row.region.domain).at(root.operands[0], row.coordinates))

    if not loop:
        row.pass_over(False)
        x = p.node(lowering.at(root.operands[0], row.coordinates))
        if softmax:
            p.line(f"largest = tl.max(tl.where(in_row, {x}, float('-inf')), {row.over})")
            p.line(f"shifted = {x} - largest")
            p.line("powers = tl.where(in_row, libdevice.exp(shifted), 0)")
            p.line(f"total = tl.sum(powers, {row.over})")
        else:
            _moments_in_block(row, x)
        result = _row_result(row, x, lowering)
        _store(row, result, dtype, per_element=True)
        return
    if softmax:
        p.line(f"peak = tl.full([{row.block}], float('-inf'), {type})")
        row.pass_over(True)
        p.line(f"peak = tl.maximum(peak, tl.where(in_row, {element()}, float('-inf')))")
        row.close()
        p.line(f"largest = tl.max(peak, {row.over})")
        p.line(f"sums = tl.zeros([{row.block}], {type})")
        row.pass_over(True)
        p.line(f"sums += tl.where(in_row, libdevice.exp({element()} - largest), 0)")
        row.close()
        p.line(f"total = tl.sum(sums, {row.over})")
    else:
        p.line(f"sums = tl.zeros([{row.block}], {type})")
        if root.name == "layer_norm":
            row.pass_over(True)
            p.line(f"sums += tl.where(in_row, {element()}, 0)")
            row.close()
            p.line(f"mean = tl.sum(sums, {row.over}) / {row.extent}")
        else:
            p.line("mean = 0.0")
        p.line(f"squares = tl.zeros([{row.block}], {type})")
        row.pass_over(True)
        p.line(f"centred = tl.where(in_row, {element()} - mean, 0)")
        p.line("squares += centred * centred")
        row.close()
        _scale_of(row, "squares")
    row.pass_over(True)
    x = element()
    if softmax:
        p.line(f"shifted = {x} - largest")
        p.line("powers = libdevice.exp(shifted)")
    else:
        p.line(f"centred = {x} - mean")
    result = _row_result(row, x, lowering)
    _store(row, result, dtype, per_element=True)
    row.close()


def _moments_in_block(row: Row, x: str) -> None:
    p = row.printer
    if row.root.name == "layer_norm":
        p.line(f"mean = tl.sum(tl.where(in_row, {x}, 0), {row.over}) / {row.extent}")
        p.line(f"centred = tl.where(in_row, {x} - mean, 0)")
    else:
        p.line(f"centred = tl.where(in_row, {x}, 0)")
    p.line("squares = centred * centred")
    _scale_of(row, "squares")


def _scale_of(row: Row, squares: str) -> None:
    epsilon = float(row.root.attribute("epsilon"))
    p = row.printer
    p.line(f"variance = tl.sum({squares}, {row.over}) / {row.extent}")
    p.line(f"scale = 1.0 / tl.sqrt_rn(variance + {epsilon!r})")


def _row_result(row: Row, x: str, lowering: Lowering) -> str:
    """The root's result for the current column."""
    del x
    root, p = row.root, row.printer
    if root.name == "softmax":
        return "powers / total"
    if root.name == "log_softmax":
        return "shifted - tl.log(total)"
    text = "centred * scale"
    for index, sign in ((1, "*"), (2, "+")):
        if index < len(root.operands):
            value = root.operands[index]
            at = lowering.broadcast(row.coordinates, root.operands[0].type.shape, value.type.shape)
            text = f"({text}) {sign} {p.node(lowering.at(value, at))}"
    return text


def _store(row: Row, result: str, dtype: DType, *, per_element: bool) -> None:
    """Epilogue and stores: at the columns for row-wise ops, once a row otherwise.

    What a simple reduction's epilogue broadcasts back over its rows is stored in one more pass.
    """
    root, region, p = row.root, row.region, row.printer
    p.line(f"reduced = {_rounded(result, root.result.type.dtype, dtype)}")
    whole = root.operands[0].type.shape
    if per_element:
        at = row.coordinates
    else:
        kept = [row.coordinates[a] for a in row.kept]
        at = tuple(0 if a in row.axes else row.coordinates[a] for a in range(len(whole)))
        if not root.attribute("keepdims"):
            at = tuple(kept)

    def given(value: Value, coordinates: Coordinates) -> Node | None:
        if value is not root.result:
            return None
        if coordinates != at:
            raise problem(root, "its epilogue reads another row's result")
        return Given("reduced", dtype)

    later: list[tuple[Value, str]] = []
    lowering = Lowering(region.domain, given=given)
    for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
        try:
            inner, where = store_coordinates(value, at, root, region)
        except UnsupportedError:
            if per_element:
                raise
            later.append((value, pointer))
            continue
        node = lowering.at(inner, at)
        over = dims.symbols_of(row.column) if per_element else ()
        offset = offset_of(value.type, where, region.domain)
        p.store(pointer, value.type.dtype, offset, node, over)
    if not later:
        return
    loop = not row.one_block
    row.pass_over(loop)
    for value, pointer in later:
        inner, where = store_coordinates(value, row.coordinates, root, region, shape=whole)
        node = Lowering(region.domain, given=given).at(inner, row.coordinates)
        offset = offset_of(value.type, where, region.domain)
        p.store(pointer, value.type.dtype, offset, node, dims.symbols_of(row.column))
    if loop:
        row.close()


def _rounded(text: str, stored: DType, compute: DType) -> str:
    if stored == compute:
        return text
    return f"({text}).to({triton_type(stored)}).to({triton_type(compute)})"
