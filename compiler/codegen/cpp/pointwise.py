"""Pointwise regions, and whatever is only a movement of elements: one kernel, loops in output order."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.function import (
    KernelBuilder,
    check_dtype,
    type_order,
)
from graphwright.compiler.codegen.cpp.loops import emit_nest
from graphwright.compiler.codegen.cpp.nest import Part, Store, build_parts
from graphwright.compiler.codegen.cpp.scalar_text import Names
from graphwright.compiler.codegen.cpp.types import packed, storage_type
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, as_region, offset_of, problem
from graphwright.compiler.codegen.scalar import Apply, Load, Node, Number, compute_dtype
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Shape
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.ops.pointwise import Pointwise
from graphwright.compiler.ir.types import U8, TensorType


def emit_pointwise(op: Op) -> list[EmittedLaunch]:
    """A region of pointwise and movement ops (or one such op) as one launch."""
    body, operands = as_region(op)
    for value in (*operands, *op.results):
        check_dtype(op, value.type.dtype)
    groups: dict[tuple[Shape, int], list[int]] = {}
    for i, value in enumerate(body.outputs):
        if value.type.dtype.bits < 8 and value.type.layout is not None:
            raise problem(op, "a packed result in another layout than row-major has no kernel")
        groups.setdefault((value.type.shape, value.type.dtype.per_byte), []).append(i)
    nests = [output_parts(body, indices) for indices in groups.values()]
    everything = [part for parts in nests for part in parts]

    builder = KernelBuilder(op, stem_of(body))
    used = used_inputs(everything, body)
    pairs = [] if len(groups) > 1 else in_place_pairs(everything, body)
    pointers: dict[Value, str] = {}
    for i in used:
        pointers[body.inputs[i]] = builder.tensor(f"in{i}", operands[i])
    for i, result in enumerate(op.results):
        builder.tensor(f"out{i}", result, written=True)
    builder.unrestrict(name for pair in pairs for name in pair)
    builder.in_place = pairs
    outputs = [
        (f"out{i}", U8 if r.type.dtype.bits < 8 else r.type.dtype) for i, r in enumerate(op.results)
    ]
    names = Names(body.symbols)
    for k, parts in enumerate(nests):
        emit_nest(builder, parts, pointers, outputs, names, suffix=f"{k}" if k else "")
    return [builder.launch(body, operands)]


def output_parts(body: Graph, indices: Sequence[int]) -> list[Part]:
    """The nest that writes these outputs, which have one shape."""
    first = body.outputs[indices[0]].type
    if first.dtype.bits < 8:
        return packed_parts(body, indices)

    def stores(low: Lowering, at: Coordinates) -> list[Store]:
        return [
            Store(i, offset_of(body.outputs[i].type, at, low.domain), low.at(body.outputs[i], at))
            for i in indices
        ]

    return build_parts(first.shape, type_order(first), stores)


def packed_parts(body: Graph, indices: Sequence[int]) -> list[Part]:
    """The nest over the bytes of outputs with several elements a byte, along their last axis."""
    type = body.outputs[indices[0]].type
    each = type.dtype.per_byte
    extent = type.shape[-1] if type.shape else 1
    bytes = TensorType(U8, (*type.shape[:-1], dims.ceildiv(extent, each)) if type.shape else ())

    def element(low: Lowering, value: Value, at: Coordinates, k: int) -> Node:
        if not at:
            return (
                low.at(value, ())
                if k == 0
                else low.node(Number(0, compute_dtype(value.type.dtype)))
            )
        column = dims.multiply(at[-1], each) + k
        zero = Number(0, compute_dtype(value.type.dtype))
        return low.choose(
            [(column, extent)], lambda: low.at(value, (*at[:-1], column)), lambda: low.node(zero)
        )

    def stores(low: Lowering, at: Coordinates) -> list[Store]:
        out: list[Store] = []
        for i in indices:
            value = body.outputs[i]
            codes = tuple(element(low, value, at, k) for k in range(each))
            pack = Pointwise(
                "pack", cpp=packed(value.type.dtype, [f"{{{k}}}" for k in range(each)])
            )
            node = low.node(Apply(pack, (), None, codes, U8))
            out.append(Store(i, offset_of(bytes, at, low.domain), node))
        return out

    return build_parts(bytes.shape, range(len(bytes.shape)), stores)


def used_inputs(parts: Sequence[Part], body: Graph) -> list[int]:
    """Indices of the body inputs that the parts read."""
    read = {n.source for p in parts for n in p.nodes if isinstance(n, Load)}
    return [i for i, v in enumerate(body.inputs) if v in read]


def in_place_pairs(parts: Sequence[Part], body: Graph) -> list[tuple[str, str]]:
    """(output, input) names that may share storage: read and written at the same offsets only."""
    pairs: list[tuple[str, str]] = []
    for o, result in enumerate(body.outputs):
        for i, value in enumerate(body.inputs):
            if (
                result.type.dtype.bits < 8
                or value.type.shape != result.type.shape
                or (
                    value.type.layout != result.type.layout
                    or storage_type(value.type.dtype) != storage_type(result.type.dtype)
                )
            ):
                continue
            same = all(
                load.offset == store.offset
                for part in parts
                for store in part.stores
                if store.output == o
                for load in part.nodes
                if isinstance(load, Load) and load.source is value
            )
            if same:
                pairs.append((f"out{o}", f"in{i}"))
    return pairs


def stem_of(body: Graph) -> str:
    """A kernel name that says what it computes."""
    names = [op.name for op in body.ops if op.name not in ("constant", "reshape")]
    return "_".join(dict.fromkeys(names)) or "copy"
