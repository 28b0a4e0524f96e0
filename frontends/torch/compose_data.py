"""Results whose size the data decide."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F64, I64
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
        return node.full(0, I64, [size, 0])
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
    node.ignore("sorted", "return_inverse")
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
    if len(held) > 2 and node.arg("return_counts"):
        out[2] = node.slice_axis(counts, 0, 0, size)
    return out


def histogram(node: Node) -> Value:
    """histc with known limits: how many elements each of the equal bins holds."""
    x = node.x()
    bins, low, high = (node.static(n) for n in ("bins", "min", "max"))
    if low == high:
        raise Refusal("its limits are those of the data", "give min and max")
    flat = node.cast(node.reshape(x, [x.type.elements, 1]), F64)
    scale = node.scalar(bins / (high - low), F64)
    place = node.emit(
        "floor", node.emit("mul", node.emit("sub", flat, node.scalar(low, F64)), scale)
    )
    place = node.emit("minimum", place, node.scalar(bins - 1, F64))
    inside = node.emit(
        "logical_and",
        node.emit("greater_or_equal", flat, node.scalar(low, F64)),
        node.emit("less_or_equal", flat, node.scalar(high, F64)),
    )
    line = node.cast(node.reshape(node.iota(int(bins)), [1, int(bins)]), F64)
    here = node.emit("logical_and", node.emit("equal", place, line), inside)
    count = node.emit("reduce_sum", node.cast(here, I64), axes=(0,), keepdims=False)
    return node.cast(count, x.type.dtype)


def grouped_product(node: Node) -> Value:
    """_grouped_mm: row t times the matrix of its group, where group e ends before row offs[e].

    Every row meets every matrix, and the product that counts is taken.
    """
    names = ("self", "mat2") if "self" in node._given else ("input", "weight")
    a, b, ends = node.x(names[0]), node.x(names[1]), node.x("offs")
    node.ignore("out_dtype")
    if a.type.rank != 2 or b.type.rank != 3 or node.has("bias"):
        raise Refusal("it groups something other than rows of one matrix by several matrices")
    rows = a.type.shape[0]
    place = node.reshape(node.iota(rows), [rows, 1])
    ended = node.emit("less_or_equal", node.cast(node.unsqueeze(ends, (0,)), I64), place)
    group = node.emit("reduce_sum", node.cast(ended, I64), axes=(1,), keepdims=True)
    last = node.size(b.type.shape[0] - 1)
    tuples = node.concat([node.emit("minimum", group, last), place], 1)
    return node.emit("gather_nd", node.emit("matmul", node.unsqueeze(a, (0,)), b), tuples)


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
    "histc.default": histogram,
    "_grouped_mm.default": grouped_product,
    "transformers.grouped_mm_fallback.default": grouped_product,  # what transformers has for CPUs
    "repeat_interleave.self_int": repeat_interleave,
    "repeat_interleave.self_Tensor": repeat_interleave,
}
