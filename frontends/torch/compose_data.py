"""Results whose size the data decide."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I64
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def non_zero(node: Node) -> Value:
    """[count, rank]: the coordinates of what is not zero, in row-major order."""
    x = node.x()
    shape = x.type.shape
    positions, count = node.emit_all("non_zero", x)
    size = node.bound_size(count, x.type.elements)
    flat = node.slice_axis(positions, 0, 0, size)
    if not shape:
        return node.reshape(flat, [size, 0])
    columns: list[Value] = []
    for axis in range(len(shape)):
        stride = dims.product(shape[axis + 1 :])
        at = flat if stride == 1 else node.emit("div", flat, node.size(stride))
        if axis:
            at = node.emit("mod", at, node.size(shape[axis]), fmod=False)
        columns.append(node.reshape(at, [size, 1]))
    return node.concat(columns, 1)


def non_zero_static(node: Node) -> Value:
    x, size = node.x(), node.arg("size")
    shape = x.type.shape
    positions, count = node.emit_all("non_zero", x)
    if not isinstance(size, int) or not isinstance(x.type.elements, int):
        raise Refusal("its size is not known")
    padded = node.emit("pad", positions, low=(0,), high=(max(size - x.type.elements, 0),))
    flat = node.slice_axis(padded, 0, 0, size)
    valid = node.emit("less", node.iota(size), count)
    fill = node.scalar(node.static("fill_value"), I64)
    columns: list[Value] = []
    for axis in range(len(shape)):
        at = node.emit("div", flat, node.size(dims.product(shape[axis + 1 :])))
        at = node.emit("mod", at, node.size(shape[axis]), fmod=False)
        columns.append(node.reshape(node.where(valid, at, fill), [size, 1]))
    return node.concat(columns, 1)


def unique(node: Node) -> Sequence[Value | None]:
    """_unique2: the different elements, sorted."""
    node.ignore("sorted", "return_inverse", "return_counts")
    x = node.x()
    rows = node.reshape(x, [x.type.elements, 1])
    first, inverse, counts, count = node.emit_all("unique", rows, sorted=True)
    size = node.bound_size(count, x.type.elements)
    kept = node.slice_axis(first, 0, 0, size)
    values = node.emit("gather", node.reshape(rows, [x.type.elements]), kept, axis=0)
    held = node.out
    out: list[Value | None] = [values, None, None]
    if held[1].shape == node.fake("self").shape:
        out[1] = node.reshape(inverse, x.type.shape)
    if len(held) > 2 and held[2].ndim == 1:
        out[2] = node.slice_axis(counts, 0, 0, size)
    return out


def repeat_interleave(node: Node) -> Value:
    """Each element several times; the counts are one number."""
    x, counts = node.x(), node.arg("repeats")
    if isinstance(counts, Value):
        raise Refusal("its counts are a tensor", "give one number")
    axis = node.arg("dim")
    node.ignore("output_size")
    if axis is None:
        x, axis = node.reshape(x, [x.type.elements]), 0
    axis = node.axis(axis, x.type.rank)
    shape = x.type.shape
    apart = node.unsqueeze(x, (axis + 1,))
    wide = node.broadcast_to(apart, [*shape[: axis + 1], counts, *shape[axis + 1 :]])
    return node.reshape(wide, node.out_shape)


COMPOSE: dict[str, Compose] = {
    "nonzero.default": non_zero,
    "nonzero_static.default": non_zero_static,
    "_unique2.default": unique,
    "repeat_interleave.self_int": repeat_interleave,
    "repeat_interleave.self_Tensor": repeat_interleave,
}
