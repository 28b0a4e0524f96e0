"""Ops that read images at places that other tensors give: grids, deformed kernels, regions."""

from __future__ import annotations

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, F64, I64
from graphwright.frontends.onnx.compose_image import each_of, in_float
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def affine_grid(node: Node) -> Value:
    """theta times the homogeneous positions of a grid from -1 to 1: [N, spatial..., axes].

    An axis of one element lies at 0, as torch has it.
    """
    theta = node.ranked(0, 3)
    size = node.dims(1, "the size")
    dtype, axes = theta.type.dtype, len(size) - 2
    if axes not in (2, 3) or theta.type.shape[1:] != (axes, axes + 1):
        raise Refusal(f"its theta is {theta.type}, its size has {len(size)} numbers")
    node.require(theta.type.shape[0], "==", size[0], f"AffineGrid {node.origin}: batch")
    aligned = bool(node.attr("align_corners", 0))
    spatial = size[2:]
    columns: list[Value] = []
    for axis in reversed(range(axes)):  # x, the last axis, comes first
        extent = spatial[axis]
        twice = node.emit("mul", node.iota(extent), node.scalar(2, I64))
        place = node.cast(node.emit("sub", twice, node.size(extent - 1)), dtype)
        length = dims.maximum(extent - 1, 1) if aligned else extent
        place = node.emit("div", place, node.size(length, dtype))
        shape: list[Dim] = [1] * (axes + 1)
        shape[axis] = extent
        columns.append(node.broadcast_to(node.reshape(place, shape), (*spatial, 1)))
    columns.append(node.full(1.0, dtype, (*spatial, 1)))
    positions = dims.product(spatial)
    base = node.reshape(node.emit("concat", *columns, axis=axes), (positions, axes + 1))
    out = node.emit("matmul", base, node.transpose(theta, (0, 2, 1)))
    return node.reshape(out, (theta.type.shape[0], *spatial, axes))


def deform_conv(node: Node) -> Value:
    """The columns that the deformed kernel reads, times the filters."""
    x, w, offset = node.ranked(0, 4), node.ranked(1, 4), node.ranked(2, 4)
    kernel = node.attr("kernel_shape", w.type.shape[2:])
    if any(not isinstance(k, int) for k in kernel) or tuple(kernel) != w.type.shape[2:]:
        raise Refusal(f"its filters are {w.type}, its kernel_shape {tuple(kernel)}")
    strides, dilations = each_of(node, "strides", 2, 1), each_of(node, "dilations", 2, 1)
    pads = each_of(node, "pads", 4, 0)
    groups, parts = node.attr("group", 1), node.attr("offset_group", 1)
    mask = node.maybe(4)
    columns = in_float(
        node, "deform_columns", (x, offset, *([mask] if mask is not None else [])),
        kernel=tuple(kernel), strides=strides, low=pads[:2], high=pads[2:], dilations=dilations,
        groups=parts,
    )  # fmt: skip
    batch, _, rows, width = offset.type.shape
    filters, positions = w.type.shape[0], rows * width
    taps = kernel[0] * kernel[1]
    inner = w.type.shape[1] * taps
    node.require(x.type.shape[1], "==", w.type.shape[1] * groups, f"DeformConv {node.origin}: channels")  # fmt: skip
    node.require(dims.modulo(filters, groups), "==", 0, f"DeformConv {node.origin}: filters")
    each = dims.floordiv(filters, groups)
    left = node.reshape(w, (groups, each, inner))
    right = node.reshape(columns, (batch, groups, inner, positions))
    out = node.reshape(node.emit("matmul", left, right), (batch, filters, rows, width))
    bias = node.maybe(3)
    if bias is None:
        return out
    return node.emit("add", out, node.reshape(bias, (1, filters, 1, 1)))


def max_roi_pool(node: Node) -> Value:
    """The maximum of each bin of each region."""
    x, rois = node.ranked(0, 4), node.ranked(1, 2)
    height, width = node.attr("pooled_shape")
    dtype = x.type.dtype
    wide = dtype if dtype in (F32, F64) else F32
    out = node.emit(
        "max_roi_pool", node.cast(x, wide), node.cast(rois, wide),
        height=height, width=width, scale=node.attr("spatial_scale", 1.0),
    )  # fmt: skip
    return node.cast(out, dtype)


COMPOSE = {"AffineGrid": affine_grid, "DeformConv": deform_conv, "MaxRoiPool": max_roi_pool}
