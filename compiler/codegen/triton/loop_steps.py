"""The Triton kernels of a loop's steps (codegen/loops.py): they move bits and know no numbers."""

from __future__ import annotations

from graphwright.compiler.codegen.control import EmitBody
from graphwright.compiler.codegen.kernel import EmittedLaunch, Step
from graphwright.compiler.codegen.loops import loop_steps
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.codegen.triton.build import TritonKernel
from graphwright.compiler.codegen.triton.kernels import HEADER
from graphwright.compiler.codegen.triton.printing import POINTERS
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import storage_elements

BLOCK = 1024
ENTER = """    _wait()
    tl.store(p_counter, 0)
    tl.store(p_condition, tl.load(p_initial))
"""
COPY = f"""    i = tl.program_id(0).to(tl.int64) * {BLOCK} + tl.arange(0, {BLOCK})
    in_range = i < total
    _wait()
    tl.store(p_target + i, tl.load(p_source + i, mask=in_range), mask=in_range)
"""
STORE_ROW = f"""    i = tl.program_id(0).to(tl.int64) * {BLOCK} + tl.arange(0, {BLOCK})
    in_range = i < total
    _wait()
    start = tl.load(p_counter) * total
    tl.store(p_stack + start + i, tl.load(p_row + i, mask=in_range), mask=in_range)
"""


def _kernel(
    stem: str, summary: str, parameters: tuple[str, ...], body: str, signature: tuple[str, ...]
) -> TritonKernel:
    source = HEADER.format(
        helpers="", summary=summary, body=f"    {stem}", parameters=", ".join(parameters)
    )
    plain = TritonKernel.named(stem, source + body, summary)
    return TritonKernel(
        plain.name,
        plain.source,
        summary,
        signature=signature,
        roles=tuple("pointer" if t.startswith("*") else "scalar" for t in signature),
        waits=True,
        num_warps=4,
    )


def _bits(value: Value) -> str:
    """The integer type that holds an element."""
    return f"*i{max(value.type.dtype.bits, 8)}"


def _elements(value: Value) -> dims.Dim:
    return storage_elements(value.type.shape, value.type.layout)


class _Kernels:
    """Of this target."""

    def check(self, op: Op, value: Value) -> None:
        if value.type.dtype.name not in POINTERS:
            raise problem(op, f"Triton has no element type {value.type.dtype}", "cast it first")

    def enter(self, op: Op, counter: Value, condition: Value, initial: Value) -> EmittedLaunch:
        kernel = _kernel(
            "enter_loop", "starts a loop", ("p_counter", "p_condition", "p_initial"), ENTER,
            ("*i64", "*i8", "*i8"),
        )  # fmt: skip
        return EmittedLaunch(
            kernel, (counter, condition, initial), (0, 1), ops=(op.id,), origins=op.origins,
            grid=(1,),
        )  # fmt: skip

    def copy(self, op: Op, source: Value, target: Value) -> EmittedLaunch:
        kind, total = _bits(source), _elements(source)
        kernel = _kernel(
            "copy", "copies elements", ("p_source", "p_target", "total"), COPY, (kind, kind, "i64")
        )
        return EmittedLaunch(
            kernel, (source, target), (1,), (total,), ops=(op.id,), origins=op.origins,
            grid=(dims.ceildiv(total, BLOCK),), is_copy=True,
        )  # fmt: skip

    def store_row(self, op: Op, row: Value, counter: Value, stack: Value) -> EmittedLaunch:
        kind, total = _bits(row), _elements(row)
        kernel = _kernel(
            "store_row", "stores a row of a stacked value",
            ("p_row", "p_counter", "p_stack", "total"), STORE_ROW, (kind, "*i64", kind, "i64"),
        )  # fmt: skip
        return EmittedLaunch(
            kernel, (row, counter, stack), (2,), (total,), ops=(op.id,), origins=op.origins,
            grid=(dims.ceildiv(total, BLOCK),),
        )  # fmt: skip


def emit_loop(op: Op, emit_body: EmitBody) -> list[Step]:
    """The steps of a loop op."""
    return loop_steps(op, emit_body, _Kernels())
