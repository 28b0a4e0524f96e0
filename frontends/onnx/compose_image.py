"""Ops on images that other ops of ours express: columns back to images, pooling undone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, F64, I64
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def each_of(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    """An attribute with one number for each of `rank` things."""
    values = tuple(node.attr(name, (default,) * rank))
    if len(values) != rank:
        raise Refusal(f"its attribute {name} has {len(values)} entries, want {rank}")
    return values


def col2im(node: Node) -> Value:
    """Blocks added up where they overlap: a transposed depthwise convolution with unit kernels."""
    x = node.ranked(0, 3)
    image, block = node.dims(1, "the image shape"), node.dims(2, "the block shape")
    rank = len(block)
    if len(image) != rank:
        raise Refusal(f"its image has {len(image)} axes, its block {rank}")
    strides, dilations = each_of(node, "strides", rank, 1), each_of(node, "dilations", rank, 1)
    pads = each_of(node, "pads", 2 * rank, 0)
    low, high = pads[:rank], pads[rank:]
    positions = dims.product(block)
    channels = dims.floordiv(x.type.shape[1], dims.maximum(positions, 1))
    known = all(isinstance(d, int) for d in (channels, *image, *block))
    if not known:
        return _scattered(node, x, image, block, (strides, dilations, low, high))
    assert isinstance(channels, int) and isinstance(positions, int)
    if positions < 1:
        raise Refusal(f"its blocks are {block}, want positive extents")
    counts: list[Dim] = []
    extra: list[int] = []
    for i, size in enumerate(image):
        room = size + low[i] + high[i] - (dilations[i] * (block[i] - 1) + 1)
        counts.append(dims.floordiv(room, strides[i]) + 1)
        extra.append(int(dims.modulo(room, strides[i])))  # type: ignore[arg-type]
    node.require(
        x.type.shape[2], "==", dims.product(counts), f"Col2Im {node.origin}: number of blocks"
    )
    extents = [int(d) for d in block if isinstance(d, int)]
    unit = np.zeros((channels, positions, 1, *extents))
    for i, at in enumerate(itertools.product(*(range(d) for d in extents))):
        unit[(slice(None), i, 0, *at)] = 1
    kernel = node.array(unit.reshape(channels * positions, 1, *extents), x.type.dtype)
    return node.emit(
        "conv_transpose", node.reshape(x, (x.type.shape[0], channels * positions, *counts)), kernel,
        strides=strides, low=low, high=high, dilations=dilations, groups=channels,
        output_padding=tuple(extra),
    )  # fmt: skip


def _scattered(
    node: Node, x: Value, image: Sequence[Dim], block: Sequence[Dim],
    attributes: Sequence[tuple[int, ...]],
) -> Value:  # fmt: skip
    """The same with sizes that only a call knows: every element of a block added at its place."""
    strides, dilations, low, high = attributes
    where = f"Col2Im {node.origin}"
    rank, positions = len(block), dims.product(block)
    for extent in block:
        node.require(extent, ">=", 1, f"{where}: blocks are not empty")
    channels = dims.floordiv(x.type.shape[1], dims.maximum(positions, 1))
    node.require(channels * positions, "==", x.type.shape[1], f"{where}: channels of a block")
    padded = [image[i] + low[i] + high[i] for i in range(rank)]
    counts: list[Dim] = []
    for i in range(rank):
        room = padded[i] - (dilations[i] * (block[i] - 1) + 1)
        node.require(room, ">=", 0, f"{where}: a block fits into the image")
        counts.append(dims.floordiv(room, strides[i]) + 1)
    node.require(x.type.shape[2], "==", dims.product(counts), f"{where}: number of blocks")
    # The place, in the padded image, of element k of block l along each axis, then of all.
    place: Value | None = None
    for i in range(rank):
        inside = _spread_axis(node, block, i, dilations[i], 0)
        begin = _spread_axis(node, counts, i, strides[i], rank)
        at = node.emit("add", inside, begin)
        if place is not None:
            at = node.emit("add", node.emit("mul", place, node.size(padded[i])), at)
        place = at
    assert place is not None
    lines = x.type.shape[0] * channels
    each = positions * x.type.shape[2]
    places = node.broadcast_to(place, (*block, *counts))
    index = node.broadcast_to(node.reshape(places, (1, each)), (lines, each))
    zeros = node.full(0, x.type.dtype, (lines, dims.product(padded)))
    flat = node.emit(
        "scatter_elements", zeros, index, node.reshape(x, (lines, each)), axis=1, reduction="add"
    )
    out = node.reshape(flat, (x.type.shape[0], channels, *padded))
    for i in range(rank):
        out = node.slice_axis(out, 2 + i, low[i], image[i])
    return out


def _spread_axis(node: Node, extents: Sequence[Dim], i: int, step: int, before: int) -> Value:
    """step * index along axis i of `extents`, which are the first or the last half of the axes."""
    rank = len(extents)
    shape: list[Dim] = [1] * (2 * rank)
    shape[before + i] = extents[i]
    return node.reshape(node.emit("mul", node.iota(extents[i]), node.scalar(step, I64)), shape)


def max_unpool(node: Node) -> Value:
    """Zeros but at the given flat places; the indices count in the shape that pooling came from."""
    x, indices = node.ranked(0, 3, or_more=True), node.x(1)
    rank = x.type.rank - 2
    kernel = node.attr("kernel_shape")
    strides, pads = each_of(node, "strides", rank, 1), each_of(node, "pads", 2 * rank, 0)
    if len(kernel) != rank:
        raise Refusal(f"its kernel has {len(kernel)} axes, its input {rank} spatial ones")
    shape: list[Dim] = list(x.type.shape[:2])
    for i in range(rank):
        shape.append((x.type.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[rank + i])
    total = dims.product(shape)
    zeros = node.full(0, x.type.dtype, (total,))
    where = node.reshape(node.cast(indices, I64), (indices.type.elements,))
    flat = node.emit("scatter_elements", zeros, where, node.reshape(x, (x.type.elements,)), axis=0)
    out = node.reshape(flat, shape)
    if not node.has_input(2):
        return out
    wanted = node.dims(2, "the output shape")
    if len(wanted) != rank + 2:
        raise Refusal(f"its output shape has {len(wanted)} extents, want {rank + 2}")
    high = tuple(w - d for w, d in zip(wanted, shape, strict=True))
    if all(h == 0 for h in high):
        return out
    return node.emit("pad", out, low=(0,) * (rank + 2), high=high, mode="constant")


def in_float(node: Node, op: str, operands: Sequence[Value], **attributes: Any) -> Value:
    """An op that calculates in float32 or float64 only; other types go through float32."""
    dtype = operands[0].type.dtype
    wide = dtype if dtype in (F32, F64) else F32
    out = node.emit(op, *(node.cast(v, wide) for v in operands), **attributes)
    return node.cast(out, dtype)


def grid_sample(node: Node) -> Value:
    mode = node.attr("mode", "linear")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    padding, aligned = node.attr("padding_mode", "zeros"), bool(node.attr("align_corners", 0))
    x, grid = node.x(0), node.x(1)
    return in_float(
        node, "grid_sample", (x, grid), mode=mode, padding=padding, align_corners=aligned
    )


def roi_align(node: Node) -> Value:
    """Before opset 16 there was no shift by half an element."""
    half = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    x, rois, indices = node.x(0), node.x(1), node.cast(node.x(2), I64)
    dtype = x.type.dtype
    wide = dtype if dtype in (F32, F64) else F32
    out = node.emit(
        "roi_align", node.cast(x, wide), node.cast(rois, wide), indices,
        height=node.attr("output_height", 1), width=node.attr("output_width", 1),
        sampling=node.attr("sampling_ratio", 0), scale=node.attr("spatial_scale", 1.0),
        half_pixel=node.attr("coordinate_transformation_mode", half) == "half_pixel",
        mode=node.attr("mode", "avg"),
    )  # fmt: skip
    return node.cast(out, dtype)


def determinant(node: Node) -> Value:
    return in_float(node, "determinant", (node.x(),))


COMPOSE = {
    "Det": determinant,
    "GridSample": grid_sample,
    "RoiAlign": roi_align,
    "Col2Im": col2im,
    "MaxUnpool": max_unpool,
}
