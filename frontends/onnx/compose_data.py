"""Ops whose results have as many elements as the data say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I64
from graphwright.frontends.onnx.late import bind
from graphwright.frontends.onnx.late_shapes import positions
from graphwright.frontends.onnx.node import Node


def non_zero(node: Node) -> Value:
    """A row of coordinates for each axis, from the flat positions."""
    x = node.x()
    found = positions(node, x)
    if x.type.rank < 2:
        return node.unsqueeze(found, (0,))
    rows: list[Value] = []
    for axis, extent in enumerate(x.type.shape):
        inner = node.size(dims.product(x.type.shape[axis + 1 :]))
        row = node.emit("div", found, inner)
        if axis:
            row = node.emit("mod", row, node.size(extent), fmod=False)
        rows.append(node.unsqueeze(row, (0,)))
    return node.emit("concat", *rows, axis=0)


def unique(node: Node) -> Sequence[Value | None]:
    """Rows of a matrix: whole slices along the axis, or single elements."""
    x = node.x()
    flat = not node.has("axis")
    axis = 0 if flat else node.axis(node.attr("axis"), x.type.rank)
    source = node.reshape(x, [x.type.elements]) if flat else x
    return unique_of(node, source, axis, in_order=not node.attr("sorted", 1))


def unique_of(node: Node, source: Value, axis: int, *, in_order: bool) -> Sequence[Value]:
    """Distinct slices along the axis, sorted or `in_order` of their first places; these places; of
    each slice, its number among the distinct ones; how often each occurs.
    """
    rank = source.type.rank
    order = (axis, *(a for a in range(rank) if a != axis))
    n = source.type.shape[axis]
    width = dims.product(d for a, d in enumerate(source.type.shape) if a != axis)
    rows = node.reshape(node.transpose(source, order), [n, width])
    first, inverse, counts, count = node.emit_all("unique", rows, sorted=not in_order)
    (size,) = bind(node, [count], at_most=[n], hint=f"{node.origin}.count")
    first, counts = (node.slice_axis(v, 0, 0, size) for v in (first, counts))
    return node.gather(source, first, axis), first, inverse, counts


def non_max_suppression(node: Node) -> Value:
    boxes, scores = node.ranked(0, 3), node.ranked(1, 3)
    n = boxes.type.shape[1]
    most = node.maybe(2) or node.scalar(0, I64)
    limit = n
    known = node.known(most)
    if known is not None and known.dtype != object and known.size == 1:
        limit = node.smaller(n, max(int(known.reshape(()).item()), 0))
    iou = node.maybe(3) or node.scalar(0, F32)
    least = node.maybe(4) or node.scalar(-np.inf, F32)
    one = [node.reshape(v, ()) for v in (most, iou, least)]
    selected, count = node.emit_all(
        "non_max_suppression",
        boxes,
        scores,
        *one,
        limit=limit,
        centered=bool(node.attr("center_point_box", 0)),
    )
    rows = selected.type.shape[0]
    (size,) = bind(node, [count], at_most=[rows], hint=f"{node.origin}.count")
    return node.slice_axis(selected, 0, 0, size)


COMPOSE = {
    "NonMaxSuppression": non_max_suppression,
    "NonZero": non_zero,
    "Unique": unique,
}
