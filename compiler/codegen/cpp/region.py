"""A contraction region on its way to a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.epilogue import Tiling, build_epilogue
from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.indices import index_text
from graphwright.compiler.codegen.cpp.operand import Operands, Strided
from graphwright.compiler.codegen.cpp.pointwise import stem_of
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Op, Value


class ContractionRegion:
    """The region's op, body, operands and root, with the kernel that is being built."""

    def __init__(self, op: Op, body: Graph, operands: Sequence[Value], root: Op) -> None:
        self.op, self.body, self.root = op, body, root
        self.values = tuple(operands)
        self.builder = KernelBuilder(op, stem_of(body))
        self.operands = Operands(self.builder, body, operands)

    def packed(self, value: Value, packing: str, **parameters: int) -> str | None:
        """Declares a constant operand, packed; None when it is not a constant."""
        found = self.operands.literal(value)
        if found is None:
            return None
        literal, name = found
        given = tuple(sorted(parameters.items()))
        argument = Packed(literal, packing, given, weight=name)
        return self.builder.pointer("weights", "float", argument)

    def require_packed(self, value: Value, packing: str, **parameters: int) -> str:
        """The same; raises UnsupportedError when the operand is not a constant."""
        name = self.packed(value, packing, **parameters)
        if name is None:
            raise problem(self.root, "its weights are not constant", "make them an initializer")
        return name

    def epilogue(self, tiling: Tiling, *, bias: Value | None = None, bias_axis: int = 1) -> str:
        """Adds the epilogue; the C++ expression that makes its functor."""
        return build_epilogue(
            self.builder,
            self.operands,
            self.body,
            self.root,
            tiling,
            bias=bias,
            bias_axis=bias_axis,
            results=self.op.results,
        )

    def scalar(self, name: str, value: Dim) -> str:
        """A scalar of the kernel, or the literal when it is 0 or 1."""
        return str(value) if value in (0, 1) else self.builder.scalar(name, value)

    def address(self, at: Strided) -> str:
        """The C++ expression of the first element."""
        if at.base == 0:
            return at.pointer
        return f"{at.pointer} + {index_text(at.base) if isinstance(at.base, int) else self.builder.scalar(f'{at.pointer}_base', at.base)}"

    def launch(self, *headers: str) -> EmittedLaunch:
        """The finished launch."""
        for header in headers:
            if header not in self.builder.includes:
                self.builder.includes.append(header)
        return self.builder.launch(self.body, self.values)
