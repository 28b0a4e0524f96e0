"""From a fused region to Triton kernels: pointwise, row reductions, matmul with an epilogue.

Each emitter returns one launch.  A kernel is a module of its own: imports, one jitted function whose
parameters are the operands' and results' pointers and then the symbols as 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.codegen.lower import as_region, offset_of, problem
from graphwright.compiler.codegen.scalar import Node
from graphwright.compiler.codegen.triton.build import TritonKernel
from graphwright.compiler.codegen.triton.printing import POINTERS, Printer
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import storage_elements
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.passes.storage import owner_of

# Every module imports libdevice, whether its spellings call it or not: hence the noqa in the text.
# EARLY is set when the kernel is compiled for a device that starts a kernel before the one in front
# of it has ended.
HEADER = '''"""{summary}

{body}
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice  # noqa: F401


EARLY: tl.constexpr = tl.constexpr(False)


@triton.jit
def _wait():
    """Until the kernel before this one has ended; the one after it may start, and wait in turn."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def _prefetch(pointers):
    """Brings the lines of weights nearer while the kernel before this one still runs."""
    if EARLY:
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [pointers.to(tl.int64)],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


{helpers}@triton.jit
def KERNEL_NAME({parameters}):
'''

# Functions that generated kernels call, printed into the modules that need them.
HELPERS = {
    name: f"""@triton.jit
def {name}(a, b):
    return tl.{name.strip("_")}(a, b, propagate_nan=tl.PropagateNan.ALL)


"""
    for name in ("_maximum", "_minimum")
} | {
    "_gelu": """@triton.jit
def _gelu(x):
    # max(x, 0) - |x| Q(|x|), the normal tail Q as a power of two with a fitted exponent: within 5e-7 of
    # the exact value, and within 0.4 % of the small ones below -3: for results of 16 bits.
    a = tl.abs(x)
    p = tl.fma(a, -0.00047330940936, 0.0070845581024)
    p = tl.fma(a, p, -0.0518273855165)
    p = tl.fma(a, p, -0.459992435723)
    p = tl.fma(a, p, -1.15078785362)
    p = tl.fma(a, p, -1.00003762219)
    return tl.fma(tl.minimum(a, 16.0), -tl.exp2(p), (x + a) * 0.5)


""",
    "_times": """@triton.jit
def _times(a, b):
    return a * b


""",
}


@dataclass(frozen=True, slots=True)
class Extra:
    """A parameter that is no operand or result: scratch memory, zeros, a tensor descriptor.

    `role` as in TritonKernel; `scalars`: extents and strides of a descriptor.
    """

    name: str
    type: str
    role: str
    argument: Workspace | None = None
    scalars: tuple[Dim, ...] = ()


class Region:
    """A fused op being emitted: its body, pointer names, and how it becomes a launch.

    `only`: the numbers of the results that this launch writes; None: all.
    """

    def __init__(self, op: Op, *, only: Sequence[int] | None = None) -> None:
        self.op = op
        self.body, self.operands = as_region(op)
        self.inputs = list(self.body.inputs)
        kept = range(len(op.results)) if only is None else only
        self.outputs = [self.body.outputs[i] for i in kept]
        self.results = [op.results[i] for i in kept]
        self.pointers: dict[Value, str] = {v: f"p_in{i}" for i, v in enumerate(self.inputs)}
        # A body input may be an output too; stores use the output's own name.
        self.out_pointers = [f"p_out{i}" for i in range(len(self.outputs))]
        self.domain = Domain()

    @cached_property
    def is_wide(self) -> bool:
        """Whether offsets into the operands or results need 64 bits."""
        values = (*self.inputs, *self.outputs)
        largest = (dims.bounds(storage_elements(v.type.shape, v.type.layout))[1] for v in values)
        return max(largest, default=0) >= 1 << 31

    @property
    def index(self) -> str:
        """What makes a program's number or an `arange` an index: a cast, where 64 bits are needed."""
        return ".to(tl.int64)" if self.is_wide else ""

    def is_aligned(self, source: Value) -> bool:
        """Whether an operand or result, by its value in the body, certainly lies at a multiple of 16
        bytes.
        """
        if source not in self.inputs:
            return _lies_aligned(self.results[self.outputs.index(source)])
        return _lies_aligned(self.operands[self.inputs.index(source)])

    def is_weight(self, value: Value) -> bool:
        """Whether an operand is known before any kernel runs."""
        place = self.inputs.index(value)
        owner = owner_of(self.operands[place])[0]
        return owner.op is not None and owner.op.name == "constant"

    def printer(self) -> Printer:
        printer = Printer(self.domain, self.pointers)
        printer.rounds = all(v.type.dtype.is_float and v.type.dtype.bits <= 16
                             for v in self.outputs)  # fmt: skip
        return printer

    def launch(
        self,
        stem: str,
        summary: str,
        printer: Printer,
        grid: tuple[Dim, ...],
        *,
        num_warps: int = 4,
        num_stages: int = 3,
        extra: Sequence[Extra] = (),
    ) -> EmittedLaunch:
        """Wraps the printed body into a module and a launch.

        `extra`: parameters after the pointers.  The body calls `_wait` before it touches anything that
        another kernel writes or reads.
        """
        dtypes = [v.type.dtype for v in (*self.inputs, *self.outputs)]
        for dtype in dtypes:
            if dtype.name not in POINTERS:
                raise problem(self.op, f"Triton has no element type {dtype}", "cast it first")
        names = [*(self.pointers[v] for v in self.inputs), *self.out_pointers]
        names += [e.name for e in extra]
        scalars = list(printer.scalars.items())
        narrow = "i64" if self.is_wide else "i32"
        body = "\n".join(printer.lines or ["    pass"]) + "\n"
        source = (
            HEADER.format(
                helpers="".join(
                    text
                    for name, text in HELPERS.items()
                    if f"{name})" in body or f"{name}(" in body
                ),
                summary=summary,
                body=_indented(print_graph(self.body)),
                parameters=", ".join([*names, *(text for _, text in scalars)]),
            )
            + body
        )
        plain = TritonKernel.named(stem, source, summary)
        kernel = TritonKernel(
            plain.name,
            plain.source,
            summary,
            signature=(
                *(POINTERS[d.name] for d in dtypes),
                *(e.type for e in extra),
                *(narrow if s.max < 1 << 31 else "i64" for s, _ in scalars),
            ),
            roles=(
                *("pointer" for _ in dtypes),
                *(e.role for e in extra),
                *("scalar" for _ in scalars),
            ),
            waits="    _wait()\n" in body,
            aligned=tuple(
                i for i, v in enumerate((*self.operands, *self.results)) if _lies_aligned(v)
            )
            + tuple(len(dtypes) + i for i, e in enumerate(extra) if e.type.startswith("*")),
            num_warps=num_warps,
            num_stages=num_stages,
        )
        n = len(self.inputs)
        return EmittedLaunch(
            kernel,
            (*self.operands, *self.results, *(e.argument for e in extra if e.argument)),
            writes=tuple(range(n, n + len(self.outputs))),
            scalars=(
                *(d for e in extra for d in e.scalars),
                *(dims.of(symbol) for symbol, _ in scalars),
            ),
            ops=(self.op.id,),
            origins=self.op.origins,
            grid=grid,
        )


def _lies_aligned(value: Value) -> bool:
    return dims.is_multiple(owner_of(value)[1], 16)


def _indented(text: str) -> str:
    return "\n".join("    " + line for line in text.rstrip().split("\n"))


def next_power_of_two(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def shape_in_order(value: Value) -> tuple[tuple[int, ...], Shape]:
    """The axes of a value outermost first in memory, and their extents."""
    layout = value.type.layout
    order = tuple(range(value.type.rank)) if layout is None else layout.order
    return order, tuple(value.type.shape[a] for a in order)


def axes_coordinates(
    linear: Dim, shape: Sequence[Dim], axes: Sequence[int], domain: Domain
) -> dict[int, Dim]:
    """Coordinates of `axes` (outermost first) from a linear index over them; 0 along extents of 1."""
    out: dict[int, Dim] = {axis: 0 for axis in axes if shape[axis] == 1}
    axes = [axis for axis in axes if shape[axis] != 1]
    rest = linear
    for axis in reversed(axes[1:]):
        out[axis] = domain.remainder(rest, shape[axis])
        rest = domain.quotient(rest, shape[axis])
    if axes:
        out[axes[0]] = rest
    return out


def open_lanes(region: Region, printer: Printer, count: Dim, block: int) -> Dim:
    """Opens a kernel whose programs have `block` lanes each, `count` in all, and waits.

    Returns the lane's number, `i` in the text; `in_range` is true where it is below `count`.
    """
    lane = region.domain.loop("i", count)
    printer.line(f"i = tl.program_id(0){region.index} * {block} + tl.arange(0, {block})")
    printer.line(f"in_range = i < {printer.dim(count)}")
    printer.bind(lane, "i", "in_range")
    printer.line("_wait()")
    return lane


class FlatLoop:
    """The loop of a kernel over the elements of `value` in memory order, one a lane.

    `at` has the element's coordinates, by axis; `coordinates` are the same in order.
    """

    def __init__(self, region: Region, printer: Printer, value: Value, block: int) -> None:
        order, extents = shape_in_order(value)
        self.region, self.printer = region, printer
        self.total = dims.product(extents)
        self.lane = open_lanes(region, printer, self.total, block)
        self.at = axes_coordinates(self.lane, value.type.shape, order, region.domain)
        self.coordinates = tuple(self.at[a] for a in range(value.type.rank))
        self.grid: tuple[Dim, ...] = (dims.ceildiv(self.total, block),)

    def store(self, pointer: str, value: Value, node: Node, at: tuple[Dim, ...]) -> None:
        """Stores each lane's element of `value` at `at`, which differs from lane to lane."""
        offset = offset_of(value.type, at, self.region.domain)
        symbols = dims.symbols_of(self.lane)
        self.printer.store(pointer, value.type.dtype, offset, node, symbols)
