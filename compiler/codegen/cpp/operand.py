"""How a contraction reads an operand: in place with strides, staged in a workspace, or packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.loops import emit_nest
from graphwright.compiler.codegen.cpp.nest import Store, build_parts
from graphwright.compiler.codegen.cpp.scalar_text import Names
from graphwright.compiler.codegen.cpp.types import scalar_type
from graphwright.compiler.codegen.expressions import Domain, split_linear
from graphwright.compiler.codegen.kernel import Move, Source, Workspace
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of
from graphwright.compiler.codegen.scalar import Load, compute_dtype
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.layout import Layout, canonical, strides_of
from graphwright.compiler.ir.types import F32, DType


@dataclass(frozen=True, slots=True)
class Strided:
    """Element (i, j, ...) of a value lies at pointer[base + i * strides[0] + ...]."""

    pointer: str
    base: Dim
    strides: tuple[Dim, ...]


class Operands:
    """The operands of one region's kernel: declares each pointer once."""

    def __init__(self, builder: KernelBuilder, body: Graph, values: Sequence[Value]) -> None:
        self.builder, self.body, self.values = builder, body, values
        self.pointers: dict[Value, str] = {}
        self._staged = 0

    def pointer(self, value: Value) -> str:
        """The name of a body input's pointer."""
        if value not in self.pointers:
            name = f"in{value.index}"
            self.builder.tensor(name, self.values[value.index])
            self.pointers[value] = name
        return self.pointers[value]

    def constant(self, value: Value) -> Source | None:
        """A body value as a constant, when it is moved from a constant operand.

        What emitters make of it may depend on its type alone, or on its content if that is integers
        (repetition.py).
        """
        moves: list[Move] = []
        while value.op is not None and value.op.name != "constant":
            if len(value.op.operands) != 1 or not value.type.is_static:
                return None
            op = value.op
            moves.append(Move(op.definition, tuple(op.attributes.items()), value.type))
            value = op.operands[0]
        source = value if value.op is not None else self.values[value.index]
        if source.op is None or source.op.name != "constant":
            return None
        return Source(source, tuple(reversed(moves)))

    def strided(self, value: Value, *, dtype: DType = F32) -> Strided | None:
        """A value as an affine view of a body input of this type, or None when it is not one.

        Another type than a template reads is converted on the way to a copy.
        """
        domain = Domain()
        at = tuple(domain.loop(f"i{i}", d) for i, d in enumerate(value.type.shape))
        node = Lowering(domain).at(value, at)
        if not isinstance(node, Load) or node.source.type.dtype is not dtype:
            return None
        offset = node.offset
        strides: list[Dim] = []
        for variable in domain.loops:
            stride, offset = split_linear(offset, variable)
            if stride is None:
                return None
            strides.append(stride)
        if domain.variables_of(offset):
            return None
        return Strided(self.pointer(node.source), offset, tuple(strides))

    def staged(self, value: Value, order: Sequence[int]) -> Strided:
        """A value copied (or calculated) into a workspace, row-major in this order of its axes."""
        shape = value.type.shape
        dtype = compute_dtype(value.type.dtype)
        layout = canonical(Layout(tuple(order)))
        kept = value.type.with_dtype(dtype).with_layout(layout)

        def store(low: Lowering, at: Coordinates) -> list[Store]:
            return [Store(0, offset_of(kept, at, low.domain), low.at(value, at))]

        parts = build_parts(shape, order, store)
        for part in parts:
            for node in part.nodes:
                if isinstance(node, Load):
                    self.pointer(node.source)
        name = f"stage{self._staged}"
        bytes = dims.multiply(dims.product(shape), dtype.bytes)
        self.builder.pointer(name, scalar_type(dtype), Workspace(bytes), written=True)
        emit_nest(
            self.builder,
            parts,
            self.pointers,
            [(name, dtype)],
            Names(self.body.symbols),
            suffix=f"_{name}",
        )
        self._staged += 1
        return Strided(name, 0, strides_of(shape, layout))
