"""Ops on images that other ops of ours express: columns back to images, pooling undone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, F64, I64
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _each(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = tuple(node.attr(name, (default,) * rank))
    if len(values) != rank:
        raise Refusal(f"its attribute {name} has {len(values)} entries, want {rank}")
    return values


def col2im(node: Node) -> Value:
    """Blocks added up where they overlap: a transposed depthwise convolution with unit kernels."""
    x = node.ranked(0, 3)
    image, block = node.dims(1, "the image shape"), node.ints(2, "the block shape")
    rank = len(block)
    if len(image) != rank:
        raise Refusal(f"its image has {len(image)} axes, its block {rank}")
    strides, dilations = _each(node, "strides", rank, 1), _each(node, "dilations", rank, 1)
    pads = _each(node, "pads", 2 * rank, 0)
    low, high = pads[:rank], pads[rank:]
    positions = math.prod(block)
    channels = dims.floordiv(x.type.shape[1], positions)
    if not isinstance(channels, int) or positions < 1:
        raise Refusal(f"its input is {x.type}, want a known number of channels")
    counts: list[Dim] = []
    extra: list[int] = []
    for i, size in enumerate(image):
        room = size + low[i] + high[i] - (dilations[i] * (block[i] - 1) + 1)
        counts.append(dims.floordiv(room, strides[i]) + 1)
        rest = dims.modulo(room, strides[i])
        if not isinstance(rest, int):
            raise Refusal("its strides may not divide the image", "fix the dims with --shape")
        extra.append(rest)
    node.require(
        x.type.shape[2], "==", dims.product(counts), f"Col2Im {node.origin}: number of blocks"
    )
    unit = np.zeros((channels, positions, 1, *block))
    for i, at in enumerate(itertools.product(*map(range, block))):
        unit[(slice(None), i, 0, *at)] = 1
    kernel = node.array(unit.reshape(channels * positions, 1, *block), x.type.dtype)
    return node.emit(
        "conv_transpose", node.reshape(x, (x.type.shape[0], channels * positions, *counts)), kernel,
        strides=strides, low=low, high=high, dilations=dilations, groups=channels,
        output_padding=tuple(extra),
    )  # fmt: skip


def max_unpool(node: Node) -> Value:
    """Zeros but at the given flat places; the indices count in the shape that pooling came from."""
    x, indices = node.ranked(0, 3, or_more=True), node.x(1)
    rank = x.type.rank - 2
    kernel = node.attr("kernel_shape")
    strides, pads = _each(node, "strides", rank, 1), _each(node, "pads", 2 * rank, 0)
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
