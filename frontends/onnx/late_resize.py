"""Resize with scales, sizes or a region that only the data know: sizes are bound, the rest is `geometry`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F64, I64
from graphwright.frontends.onnx.late import bind, element
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def is_late(node: Node, i: int) -> bool:
    """Whether input `i` is there and only the data of a call know its numbers."""
    if not node.has_input(i) or node.importer.default_under(node.x(i)):
        return False
    return node.known(node.x(i)) is None


def _spread(node: Node, given: Value, axes: Sequence[int], rank: int, rest: float) -> Value:
    """f64[rank]: the given numbers at their axes, `rest` at the others."""
    count = len(axes)
    node.require(given.type.elements, "==", count, f"{node.type} {node.origin}: a number an axis")
    flat = node.reshape(node.cast(given, F64), (count,))
    if tuple(axes) == tuple(range(rank)):
        return flat
    table = node.emit("concat", flat, node.array(np.array([rest])), axis=0)
    places = [axes.index(a) if a in axes else count for a in range(rank)]
    return node.gather(table, node.array(np.array(places, np.int64)), 0)


def late_sizes_of(
    node: Node, x: Value, axes: Sequence[int], scales: Value
) -> tuple[list[Dim], Value]:
    """The extents of the result, floor(extent * scale) in the scales' own type, and all scales as f64."""
    if not scales.type.dtype.is_float:
        raise Refusal(f"its scales are {scales.type}, want floats")
    count = len(axes)
    node.require(scales.type.elements, "==", count, f"{node.type} {node.origin}: a scale an axis")
    flat = node.reshape(scales, (count,))
    extents = node.cast(node.sizes([x.type.shape[a] for a in axes]), scales.type.dtype)
    wanted = node.cast(node.emit("floor", node.emit("mul", extents, flat)), I64)
    sizes = list(x.type.shape)
    bound = bind(
        node, [element(node, wanted, i) for i in range(count)], hint=f"{node.origin}.sizes"
    )
    for axis, size in zip(axes, bound, strict=True):
        sizes[axis] = size
    return sizes, _spread(node, flat, axes, x.type.rank, 1.0)


def ratios_of(
    node: Node, sizes: Sequence[Dim], extents: Sequence[Dim], axes: Sequence[int]
) -> Value:
    """sizes / extents of some axes: f64."""
    above = node.cast(node.sizes([sizes[a] for a in axes]), F64)
    return node.emit("div", above, node.cast(node.sizes([extents[a] for a in axes]), F64))


def late_aspect(
    node: Node, x: Value, axes: Sequence[int], wanted: Sequence[Dim], policy: str
) -> tuple[list[Dim], Value]:
    """One scale for all axes: the least (not_larger) or largest one of those that are asked for."""
    if len(wanted) != len(axes):
        raise Refusal(f"{len(wanted)} sizes for {len(axes)} axes")
    shape, sizes = x.type.shape, list(x.type.shape)
    asked = list(shape)
    for axis, want in zip(axes, wanted, strict=True):
        asked[axis] = want
    reduce = "reduce_min" if policy == "not_larger" else "reduce_max"
    ratio = node.emit(reduce, ratios_of(node, asked, shape, axes), axes=(0,), keepdims=True)
    extents = node.cast(node.sizes([shape[a] for a in axes]), F64)
    exact = node.emit("add", node.emit("mul", extents, ratio), node.scalar(0.5, F64))
    whole = node.cast(node.emit("floor", exact), I64)
    count = len(axes)
    bound = bind(node, [element(node, whole, i) for i in range(count)], hint=f"{node.origin}.sizes")
    for axis, size in zip(axes, bound, strict=True):
        sizes[axis] = size
    return sizes, _spread(node, node.broadcast_to(ratio, (count,)), axes, x.type.rank, 1.0)


def late_geometry(
    node: Node,
    axes: Sequence[int],
    rank: int,
    scales: Value,
    region: Value | Sequence[float] | None,
) -> Value:
    """The operand of `resize`: scales of all axes, then where the region starts and ends along each."""
    if isinstance(region, Value):
        count = len(axes)
        node.require(
            region.type.elements,
            "==",
            2 * count,
            f"{node.type} {node.origin}: a region of all axes",
        )
        flat = node.reshape(region, (2 * count,))
        starts = _spread(node, node.slice_axis(flat, 0, 0, count), axes, rank, 0.0)
        ends = _spread(node, node.slice_axis(flat, 0, count, count), axes, rank, 1.0)
        return node.emit("concat", scales, starts, ends, axis=0)
    numbers = region if region is not None else [0.0] * rank + [1.0] * rank
    return node.emit("concat", scales, node.array(np.array(numbers, np.float64)), axis=0)
