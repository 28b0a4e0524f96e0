"""Ops that walk one axis in order, a row a program: cumsum, cumprod and top_k."""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, offset_of, problem
from graphwright.compiler.codegen.scalar import compute_dtype
from graphwright.compiler.codegen.triton.kernels import (
    Region,
    axes_coordinates,
    next_power_of_two,
)
from graphwright.compiler.codegen.triton.printing import Printer, triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import DType

LONGEST = 16384  # elements of a row, which one program holds


class Line:
    """One row of an op along an axis, as a block `column` of a program."""

    def __init__(self, op: Op, axis: int) -> None:
        self.region = Region(op)
        x = self.region.inputs[0]
        shape = x.type.shape
        longest = dims.bounds(shape[axis])[1]
        if longest > LONGEST:
            raise problem(op, f"rows of up to {longest} have no Triton kernel yet, want {LONGEST}")
        others = [a for a in range(len(shape)) if a != axis]
        domain, p = self.region.domain, self.region.printer()
        self.printer = p
        self.rows = dims.product(shape[a] for a in others)
        row = domain.loop("row", self.rows)
        self.column = domain.loop("column", shape[axis])
        self.at: dict[int, Dim] = axes_coordinates(row, shape, others, domain)
        self.at[axis] = self.column
        self.axis, self.rank, self.extent = axis, len(shape), shape[axis]
        self.block = next_power_of_two(max(longest, 2))
        index = self.region.index
        p.line(f"row = tl.program_id(0){index}")
        p.line(f"column = tl.arange(0, {self.block}){index}")
        p.line(f"in_row = column < {p.dim(self.extent)}")
        p.line("_wait()")
        p.bind(row, "row")
        p.bind(self.column, "column", "in_row")

    def element(self) -> str:
        """The row's elements, in their compute type."""
        at = tuple(self.at[a] for a in range(self.rank))
        return self.printer.node(Lowering(self.region.domain).at(self.region.inputs[0], at))

    def offset(self, output: int, along: Dim) -> Dim:
        at = tuple(along if a == self.axis else self.at[a] for a in range(self.rank))
        return offset_of(self.region.outputs[output].type, at, self.region.domain)

    def launch(self, stem: str, summary: str) -> EmittedLaunch:
        warps = 4 if self.block <= 2048 else 8
        return self.region.launch(stem, summary, self.printer, (self.rows,), num_warps=warps)


def order_key(p: Printer, x: str, dtype: DType) -> str:
    """The name of integers that are ordered as floats are, with NaN above all and -0.0 as 0.0."""
    bits, most = (64, 2**63 - 1) if dtype.bits == 64 else (32, 2**31 - 1)
    p.line(f"bits = ({x} + 0.0).to(tl.int{bits}, bitcast=True)")
    p.line(f"key = tl.where(bits < 0, bits ^ {most}, bits)")
    p.line(f"key = tl.where({x} != {x}, {most}, key)")
    return "key"


def emit_cumulative(op: Op) -> EmittedLaunch:
    """Running sums or products along an axis; integers wrap in their own type."""
    line = Line(op, op.attribute("axis"))
    p, dtype = line.printer, op.result.type.dtype
    neutral = "0" if op.name == "cumsum" else "1"
    x = line.element()
    kind = triton_type(compute_dtype(dtype))
    p.line(f"whole = tl.where(in_row, {x}, {neutral}).to({kind})")
    reverse = bool(op.attribute("reverse"))
    scan = "tl.cumsum" if op.name == "cumsum" else "tl.cumprod"
    p.line(f"total = {scan}(whole, 0, reverse={reverse})")
    at: Dim = line.column
    mask = "in_row"
    if op.attribute("exclusive"):
        # What comes before an element is the total of its neighbour; the first one gets nothing.
        at = line.column - 1 if reverse else line.column + 1
        mask = "(column > 0) & in_row" if reverse else f"column < {p.dim(line.extent)} - 1"
        first = line.extent - 1 if reverse else 0
        p.line(f"tl.store(p_out0 + {p.address(line.offset(0, first))}, "
               f"tl.cast({neutral}, {triton_type(dtype)}))")  # fmt: skip
    value = f"tl.cast(total, {triton_type(dtype)})"
    p.line(f"tl.store(p_out0 + {p.address(line.offset(0, at))}, {value}, mask={mask})")
    return line.launch(op.name, f"{op.name} along rows of {line.extent}, {line.rows} rows")


def emit_top_k(op: Op) -> EmittedLaunch:
    """The k largest (or least) of each row in order; of equal ones the first comes first."""
    k: Dim = op.attribute("k")
    line = Line(op, op.attribute("axis"))
    p, dtype = line.printer, op.operands[0].type.dtype
    if not dtype.is_float and not dtype.is_integer:
        raise problem(op, f"top_k of {dtype} has no Triton kernel yet")
    x = line.element()
    compute = compute_dtype(dtype)
    if dtype.is_float:
        key = order_key(p, x, compute)
    elif dtype.kind == "uint" and dtype.bits == 64:
        key = f"({x} ^ {1 << 63}).to(tl.int64, bitcast=True)"
    else:
        key = f"{x}.to(tl.int64)"
    least = -(1 << (63 if compute.bits == 64 or dtype.is_integer else 31))
    p.line(f"left = {key}" if op.attribute("largest") else f"left = -1 - {key}")
    p.line("taken = column < 0")
    p.line(f"for step in range(0, {p.dim(k)}):")
    saved = p.enter()
    p.line(f"best = tl.max(tl.where(taken | (in_row == 0), {least}, left), axis=0)")
    p.line("free = (left == best) & (taken == 0) & in_row")
    p.line(f"first = tl.min(tl.where(free, column, {line.block}), axis=0)")
    p.line("taken = taken | (column == first)")
    p.line(f"whole = tl.sum(tl.where(column == first, {x}, 0), axis=0)")
    step = line.region.domain.loop("step", k)
    p.bind(step, "step")
    values, places = (p.address(line.offset(i, step)) for i in range(2))
    p.line(f"tl.store(p_out0 + {values}, tl.cast(whole, {triton_type(dtype)}))")
    kind = triton_type(op.results[1].type.dtype)
    p.line(f"tl.store(p_out1 + {places}, tl.cast(first, {kind}))")
    p.leave(saved)
    return line.launch("top_k", f"the first {k} of rows of {line.extent}, {line.rows} rows")
