"""From a fused region to Triton kernels: pointwise, row reductions, matmul with an epilogue.

Each emitter returns one launch.  A kernel is a module of its own: imports, one jitted function whose
parameters are the operands' and results' pointers and then the symbols as 64-bit integers.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import as_region, problem
from graphwright.compiler.codegen.triton.build import TritonKernel
from graphwright.compiler.codegen.triton.printing import POINTERS, Printer
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.printer import print_graph

# Every module imports libdevice, whether its spellings call it or not: hence the noqa in the text.
HEADER = '''"""{summary}

{body}
Origins: {origins}
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice  # noqa: F401


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
}


class Region:
    """A fused op being emitted: its body, pointer names, and how it becomes a launch."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.body, self.operands = as_region(op)
        self.inputs = list(self.body.inputs)
        self.outputs = list(self.body.outputs)
        self.pointers: dict[Value, str] = {v: f"p_in{i}" for i, v in enumerate(self.inputs)}
        # A body input may be an output too; stores use the output's own name.
        self.out_pointers = [f"p_out{i}" for i in range(len(self.outputs))]
        self.domain = Domain()

    def printer(self) -> Printer:
        return Printer(self.domain, self.pointers)

    def launch(
        self,
        stem: str,
        summary: str,
        printer: Printer,
        grid: tuple[Dim, ...],
        *,
        num_warps: int = 4,
        num_stages: int = 3,
    ) -> EmittedLaunch:
        """Wraps the printed body into a module and a launch."""
        dtypes = [v.type.dtype for v in (*self.inputs, *self.outputs)]
        for dtype in dtypes:
            if dtype.name not in POINTERS:
                raise problem(self.op, f"Triton has no element type {dtype}", "cast it first")
        names = [*(self.pointers[v] for v in self.inputs), *self.out_pointers]
        scalars = list(printer.scalars.items())
        body = "\n".join(printer.lines or ["    pass"]) + "\n"
        source = (
            HEADER.format(
                helpers="".join(text for name, text in HELPERS.items() if f"{name})" in body),
                summary=summary,
                body=_indented(print_graph(self.body)),
                origins=", ".join(self.op.origins) or "none",
                parameters=", ".join([*names, *(text for _, text in scalars)]),
            )
            + body
        )
        plain = TritonKernel.named(stem, source, summary)
        kernel = TritonKernel(
            plain.name,
            plain.source,
            summary,
            signature=(*(POINTERS[d.name] for d in dtypes), *("i64" for _ in scalars)),
            aligned=tuple(range(len(dtypes))),
            num_warps=num_warps,
            num_stages=num_stages,
        )
        n = len(self.inputs)
        return EmittedLaunch(
            kernel,
            (*self.operands, *self.op.results),
            writes=tuple(range(n, n + len(self.outputs))),
            scalars=tuple(dims.of(symbol) for symbol, _ in scalars),
            ops=(self.op.id,),
            origins=self.op.origins,
            grid=grid,
        )


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
    """Coordinates of `axes` (outermost first) from a linear index over them."""
    out: dict[int, Dim] = {}
    rest = linear
    for axis in reversed(axes[1:]):
        out[axis] = domain.remainder(rest, shape[axis])
        rest = domain.quotient(rest, shape[axis])
    if axes:
        out[axes[0]] = rest
    return out
