"""scatter_elements and scatter_nd: a copy of the tensor, then the updates in order.

Updates run on one thread, in row-major order, so that of repeated indices the last one wins and
sums have one order.
"""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.function import KernelBuilder, type_order
from graphwright.compiler.codegen.cpp.loops import Nest, emit_nest, serial_function
from graphwright.compiler.codegen.cpp.nest import Store, build_parts
from graphwright.compiler.codegen.cpp.scalar_text import Names
from graphwright.compiler.codegen.cpp.types import read, scalar_type, stored
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, as_region, offset_of, problem
from graphwright.compiler.codegen.scalar import Node, compute_dtype
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value

COMBINE = {
    "add": "{0} + {1}",
    "mul": "{0} * {1}",
    "max": "gw::maximum({0}, {1})",
    "min": "gw::minimum({0}, {1})",
}


def emit_scatter(op: Op) -> list[EmittedLaunch]:
    """Either scatter op as one launch."""
    body, operands = as_region(op)
    x, indices, updates = body.inputs
    result = op.results[0]
    builder = KernelBuilder(op, op.name)
    pointers: dict[Value, str] = {
        v: builder.tensor(f"in{i}", operands[i]) for i, v in enumerate(body.inputs)
    }
    out = builder.tensor("out0", result, written=True)
    builder.in_place.append((out, pointers[x]))
    builder.unrestrict([out, pointers[x]])

    def copied(low: Lowering, at: Coordinates) -> list[Store]:
        return [Store(0, offset_of(result.type, at, low.domain), low.at(x, at))]

    copy = build_parts(x.type.shape, type_order(result.type), copied)
    emit_nest(
        builder, copy, pointers, [(out, result.type.dtype)], Names(body.symbols), suffix="_copy"
    )
    copying = builder.body
    builder.body = [f"if (static_cast<const void*>({out}) != {pointers[x]}) {{"]
    builder.body += [*(f"  {line}" for line in copying), "}"]

    def scattered(low: Lowering, at: Coordinates) -> list[Store]:
        where = _target(op, low, indices, at)
        node: Node = low.at(updates, at)
        return [Store(0, offset_of(result.type, where, low.domain), node)]

    parts = build_parts(updates.type.shape, range(updates.type.rank), scattered)
    nest = _Updates(builder, parts, pointers, [(out, result.type.dtype)], Names(body.symbols))
    nest.reduction = op.attribute("reduction")
    lines = nest.lines()
    builder.functions.append(serial_function("KERNEL_NAME_update", builder.parameter_list, lines))
    builder.body.append(f"KERNEL_NAME_update({builder.argument_list});")
    return [builder.launch(None, operands)]


def _target(op: Op, low: Lowering, indices: Value, at: Coordinates) -> Coordinates:
    """Where the update at these coordinates goes."""
    shape = op.operands[0].type.shape
    if op.name == "scatter_elements":
        axis: int = op.attribute("axis")
        row = low.wrapped(low.at(indices, at), shape[axis], "row")
        return (*at[:axis], row, *at[axis + 1 :])
    depth = indices.type.shape[-1]
    if not isinstance(depth, int):
        raise problem(op, f"the last extent of its indices is {depth}, want a known number")
    lead = indices.type.rank - 1
    rows: list[Dim] = [
        low.wrapped(low.at(indices, (*at[:lead], k)), shape[k], f"row{k}") for k in range(depth)
    ]
    return (*rows, *at[lead:])


class _Updates(Nest):
    """Loops in order that write, or combine, at loaded places."""

    is_parallel = False
    reduction = "none"

    def stores(self, member: int) -> list[str]:
        writer = self.writers[member]
        (store,) = self.parts[member].stores
        name, dtype = self.outputs[0]
        place = f"{name}[{writer.index(store.offset)}]"
        value = writer.text(store.node)
        if self.reduction == "none":
            return [f"{place} = {stored(dtype, value)};"]
        old = read(dtype, name, writer.index(store.offset))
        type = scalar_type(compute_dtype(dtype))
        combined = COMBINE[self.reduction].format(f"static_cast<{type}>({old})", value)
        return [f"{place} = {stored(dtype, f'static_cast<{type}>({combined})')};"]
