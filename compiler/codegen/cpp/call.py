"""Ops whose kernel is one call of a function of a header, on row-major tensors and sizes."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.types import storage_type
from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import DType


def element(dtype: DType) -> str:
    """The type of gw/element.h that says how elements are stored and calculated."""
    if (dtype.is_float and dtype.bits < 32) or dtype.name == "bool":
        return f"gw::element::{dtype.name}"
    return f"gw::element::plain<{storage_type(dtype)}>"


class Call:
    """One kernel under construction: `operand` and `result` declare pointers, `size` scalars."""

    def __init__(self, op: Op, header: str) -> None:
        self.op = op
        self.builder = KernelBuilder(op, op.name)
        self.builder.includes.append(header)

    def _pointer(self, name: str, value: Value, *, written: bool) -> str:
        if value.type.layout is not None:
            raise problem(self.op, f"its {name} is {value.type}, want a row-major tensor")
        if value.type.dtype.bits < 8:
            raise problem(self.op, f"its {name} is {value.type}, want whole bytes", "cast it")
        return self.builder.tensor(name, value, written=written)

    def operand(self, i: int) -> str:
        """The pointer to operand `i`, or nullptr where the op has none."""
        if i >= len(self.op.operands):
            return "nullptr"
        return self._pointer(f"in{i}", self.op.operands[i], written=False)

    def result(self, i: int = 0) -> str:
        return self._pointer(f"out{i}", self.op.results[i], written=True)

    def size(self, name: str, value: Dim) -> str:
        """A size by a name of the kernel's own, so that calls of other sizes share the kernel."""
        return str(value) if value in (0, 1) else self.builder.scalar(name, value)

    def workspace(self, name: str, type: str, count: Dim, bytes: int) -> str:
        space = Workspace(dims.multiply(count, bytes))
        return self.builder.pointer(name, type, space, written=True)

    def launch(self, lines: Sequence[str]) -> list[EmittedLaunch]:
        self.builder.body += lines
        return [self.builder.launch(None, self.op.operands)]


def emit_bitcast(op: Op) -> list[EmittedLaunch]:
    """The same bytes."""
    builder = KernelBuilder(op, op.name)
    for name, value in (("in0", op.operands[0]), ("out0", op.result)):
        if value.type.layout is not None:
            raise problem(op, f"its {name} is {value.type}, want a row-major tensor")
        builder.tensor(name, value, written=name == "out0")
    builder.in_place.append(("out0", "in0"))
    builder.unrestrict(["in0", "out0"])
    bytes = builder.scalar("bytes", op.result.type.storage_bytes)
    builder.body.append(
        f"if (in0 != static_cast<const void*>(out0)) __builtin_memcpy(out0, in0, static_cast<size_t>({bytes}));"
    )
    return [builder.launch(None, op.operands)]
