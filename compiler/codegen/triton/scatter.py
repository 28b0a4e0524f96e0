"""scatter_elements and scatter_nd: a copy of the tensor, then the updates in their order.

A program's lanes are places that no update of another lane touches, and walk the updates one after
the other: repeated indices give the last update, and sums are added in one order, bit for bit.
"""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of
from graphwright.compiler.codegen.scalar import Apply, Given, Node, compute_dtype
from graphwright.compiler.codegen.triton.kernels import (
    FlatLoop,
    Region,
    axes_coordinates,
    next_power_of_two,
    open_lanes,
)
from graphwright.compiler.codegen.triton.printing import triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.passes.profit import typical_size

COPY_BLOCK = 1024
MOST_LANES = 256
COMBINE = {"add": "add", "mul": "mul", "max": "maximum", "min": "minimum"}


def emit_scatter_elements(op: Op) -> list[EmittedLaunch]:
    """A lane for each place of the indices but along the axis, which it walks."""
    walk = _Walk(op)
    _, indices, _ = walk.region.inputs
    axis, shape = op.attribute("axis"), indices.type.shape
    others = [a for a in range(len(shape)) if a != axis]
    walk.open(dims.product(shape[a] for a in others), shape[axis])
    at = axes_coordinates(walk.lane, shape, others, walk.region.domain)
    at[axis] = walk.step
    source = tuple(at[a] for a in range(len(shape)))
    place = walk.index(source, walk.extents[axis])
    target = tuple(place if a == axis else at[a] for a in range(len(shape)))
    return [_emit_copy(op), walk.close(source, target)]


def emit_scatter_nd(op: Op) -> list[EmittedLaunch]:
    """A lane for each element of a slice; it walks the slices that the indices name."""
    walk = _Walk(op)
    _, indices, _ = walk.region.inputs
    shape, count = indices.type.shape, dims.evaluate(indices.type.shape[-1], {})
    inner: Shape = walk.extents[count:]
    walk.open(dims.product(inner), dims.product(shape[:-1]))
    domain = walk.region.domain
    row = axes_coordinates(walk.step, shape[:-1], range(len(shape) - 1), domain)
    within = axes_coordinates(walk.lane, inner, range(len(inner)), domain)
    leading = tuple(row[a] for a in range(len(shape) - 1))
    rest = tuple(within[a] for a in range(len(inner)))
    place = tuple(walk.index((*leading, i), walk.extents[i]) for i in range(count))
    return [_emit_copy(op), walk.close((*leading, *rest), (*place, *rest))]


def _emit_copy(op: Op) -> EmittedLaunch:
    region = Region(op)
    p, result = region.printer(), region.outputs[0]
    loop = FlatLoop(region, p, result, COPY_BLOCK)
    node = Lowering(region.domain).load(region.inputs[0], loop.coordinates)
    loop.store("p_out0", result, node, loop.coordinates)
    summary = f"a copy of {loop.total} elements"
    return region.launch(f"{op.name}_copy", summary, p, loop.grid)


class _Walk:
    """The loop over updates of one kernel: `lane` and `step` of its domain."""

    def __init__(self, op: Op) -> None:
        self.op, self.region = op, Region(op)
        self.extents = self.region.inputs[0].type.shape
        self.lowering = Lowering(self.region.domain)
        self.printer = self.region.printer()

    def open(self, lanes: Dim, steps: Dim) -> None:
        domain, p = self.region.domain, self.printer
        self.lanes, self.steps = lanes, steps
        self.block = min(next_power_of_two(max(typical_size(lanes), 1)), MOST_LANES)
        self.lane = open_lanes(self.region, p, lanes, self.block)
        self.step = domain.loop("step", steps)
        p.line(f"for step in range(0, {p.dim(steps)}):")
        self.saved = p.enter()
        p.bind(self.step, "step")

    def index(self, at: Coordinates, extent: Dim) -> Dim:
        """An element of the indices as a coordinate of the tensor."""
        return self.lowering.wrapped(self.lowering.at(self.region.inputs[1], at), extent, "place")

    def close(self, source: Coordinates, target: Coordinates) -> EmittedLaunch:
        """Stores the update `source` at `target` of the result, and ends the kernel."""
        op, p, result = self.op, self.printer, self.region.outputs[0]
        dtype = result.type.dtype
        update = self.lowering.at(self.region.inputs[2], source)
        offset = offset_of(result.type, target, self.region.domain)
        reduction: str = op.attribute("reduction")
        if reduction != "none":
            compute = compute_dtype(dtype)
            p.line(f"place = {p.address(offset)} + (i * 0)")
            p.line(f"other = tl.load(p_out0 + place, mask=in_range).to({triton_type(compute)})")
            update = self._combined(Given("other", compute), update, reduction)
        p.store("p_out0", dtype, offset, update, dims.symbols_of(self.lane))
        # The next step may read or overwrite what this one has written.
        p.line("tl.debug_barrier()")
        p.leave(self.saved)
        grid = (dims.ceildiv(self.lanes, self.block),)
        summary = f"{self.steps} updates in order, {self.lanes} lanes"
        return self.region.launch(op.name, summary, p, grid)

    def _combined(self, old: Node, update: Node, reduction: str) -> Node:
        name = COMBINE[reduction]
        if old.dtype.kind == "bool":
            name = {"add": "logical_or", "mul": "logical_and", "max": "logical_or",
                    "min": "logical_and"}[reduction]  # fmt: skip
        definition = self.op.graph.registry[name]
        return self.lowering.node(Apply(definition, (), None, (old, update), old.dtype))
