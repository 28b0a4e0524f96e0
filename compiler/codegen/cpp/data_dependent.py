"""Ops whose results have as many elements as the data say: non_zero, unique, non_max_suppression.

Operands and results are row-major.  The algorithms are in gw/select_data.h; a kernel says how an
element is read.
"""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.types import read, scalar_type
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.ir.dims import minimum
from graphwright.compiler.ir.graph import Op


def _builder(op: Op) -> KernelBuilder:
    builder = KernelBuilder(op, op.name)
    builder.includes.append("gw/select_data.h")
    for i, value in enumerate(op.operands):
        builder.tensor(f"in{i}", value)
    for i, value in enumerate(op.results):
        builder.tensor(f"out{i}", value, written=True)
    return builder


def _reader(op: Op, operand: int, parameters: str, index: str) -> str:
    dtype = op.operands[operand].type.dtype
    element = read(dtype, f"in{operand}", index)
    return f"[=]({parameters}) -> {scalar_type(dtype)} {{ return {element}; }}"


def emit_non_zero(op: Op) -> list[EmittedLaunch]:
    """Positions of what is not zero."""
    builder = _builder(op)
    n = builder.size(op.operands[0].type.elements)
    at = _reader(op, 0, "int64_t i", "i")
    builder.body = [f"const auto at = {at};", f"gw::non_zero(pool, {n}, at, out0, out1);"]
    return [builder.launch(None, op.operands)]


def emit_unique(op: Op) -> list[EmittedLaunch]:
    """The different rows of a matrix."""
    builder = _builder(op)
    n, m = map(builder.size, op.operands[0].type.shape)
    at = _reader(op, 0, "int64_t i, int64_t c", "i * m + c")
    chosen = "true" if op.attribute("sorted") else "false"
    builder.body = [
        f"const int64_t n = {n}, m = {m};",
        f"const auto at = {at};",
        f"gw::unique<{chosen}>(n, m, at, out0, out1, out2, out3);",
    ]
    return [builder.launch(None, op.operands)]


def emit_non_max_suppression(op: Op) -> list[EmittedLaunch]:
    """Boxes chosen by score and overlap."""
    builder = _builder(op)
    batches, classes, n = op.operands[1].type.shape
    chosen = "true" if op.attribute("centered") else "false"
    sizes = ", ".join(
        builder.size(d) for d in (batches, classes, n, minimum(op.attribute("limit"), n))
    )
    builder.body = [
        f"const auto box = {_reader(op, 0, 'int64_t i, int64_t k', 'i * 4 + k')};",
        f"const auto score = {_reader(op, 1, 'int64_t i', 'i')};",
        f"gw::non_max_suppression<{chosen}>(pool, {sizes}, box, score,",
        f"    {_read_one(op, 2)}, {_read_one(op, 3)}, {_read_one(op, 4)}, out0, out1);",
    ]
    return [builder.launch(None, op.operands)]


def _read_one(op: Op, operand: int) -> str:
    return read(op.operands[operand].type.dtype, f"in{operand}", "0")
