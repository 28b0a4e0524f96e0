"""A contraction region on its way to a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.epilogue import Tiling, build_epilogue
from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.operand import Operands, Strided
from graphwright.compiler.codegen.cpp.pointwise import stem_of
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed, Workspace
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import strides_of

WIDEST = 16  # lanes of the widest ISA: workspaces for packing fit every one


class ContractionRegion:
    """The region's op, body, operands and root, with the kernel that is being built."""

    def __init__(self, op: Op, body: Graph, operands: Sequence[Value], root: Op) -> None:
        self.op, self.body, self.root = op, body, root
        self.values = tuple(operands)
        self.builder = KernelBuilder(op, stem_of(body))
        self.operands = Operands(self.builder, body, operands)

    def packed(self, value: Value, packing: str, **parameters: int) -> str | None:
        """Declares a constant operand, packed; None when it is not a constant."""
        source = self.operands.constant(value)
        if source is None:
            return None
        argument = Packed(source, packing, tuple(sorted(parameters.items())))
        return self.builder.pointer("weights", "float", argument)

    def packed_window(self, value: Value, packing: str, *, groups: int) -> str:
        """The packed weights of a convolution: at compile time when constant, else by the kernel."""
        given = {} if packing == "depthwise" else {"groups": groups}
        name = self.packed(value, packing, **given)
        return name if name is not None else self._pack_at_run_time(value, packing, groups)

    def _pack_at_run_time(self, value: Value, packing: str, groups: int) -> str:
        strided = self.operands.strided(value)
        rows = strides_of(value.type.shape, None)
        if strided is None or strided.strides != rows:
            strided = self.operands.staged(value, range(value.type.rank))
        first, second, *kernel = value.type.shape
        positions = dims.product(kernel)
        if packing == "depthwise":
            floats = dims.multiply(positions, dims.ceildiv(first, WIDEST) * WIDEST)
            sizes = [self.scalar("w_channels", first), self.scalar("w_positions", positions)]
        else:
            transposed = packing == "conv_transpose"
            outside = dims.floordiv(first, groups)
            ci, co = (outside, second) if transposed else (second, outside)
            padded = dims.ceildiv(co, WIDEST) * WIDEST
            floats = dims.product((groups, positions, ci, padded))
            names = ("w_groups", "w_out", "w_in", "w_positions")
            sizes = [
                self.scalar(n, d) for n, d in zip(names, (groups, co, ci, positions), strict=True)
            ]
        bytes = dims.multiply(floats, 4)
        name = self.builder.pointer("weights", "float", Workspace(bytes), written=True)
        call = ", ".join([self.address(strided), *sizes, name])
        call += "" if packing == "depthwise" else ", pool"
        self.builder.body.append(f"gw::pack_{packing}({call});")
        self.builder.includes.append("gw/pack.h")
        return name

    def require_packed(self, value: Value, packing: str, **parameters: int) -> str:
        """The packed form of an operand that is known to be constant."""
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
        return f"{at.pointer} + {self.builder.size(at.base)}"

    def launch(self, *headers: str) -> EmittedLaunch:
        """The finished launch."""
        for header in headers:
            if header not in self.builder.includes:
                self.builder.includes.append(header)
        return self.builder.launch(self.body, self.values)
