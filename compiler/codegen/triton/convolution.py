"""Convolution regions: implicit GEMM over pixels and channels; depthwise ones as sums of taps.

Rows of a tile are output pixels (n, spatial...), columns the channels of a group, depth the taps
and input channels.  Padding is a mask on the load, any layout an index map.  Sums are fp32, in a
fixed order.
"""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.scalar import Number, compute_dtype
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates
from graphwright.compiler.codegen.triton.matmul import store_product
from graphwright.compiler.codegen.triton.tile import Tile
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op


def emit_convolution(op: Op, root: Op) -> EmittedLaunch:
    """One program per tile of pixels and channels (grid axis 0) and group (grid axis 1)."""
    region = Region(op)
    x, w = root.operands[:2]
    if not x.type.dtype.is_float:
        raise problem(root, f"a convolution of {x.type.dtype} has no Triton kernel yet")
    kernel = w.type.shape[2:]
    if not all(isinstance(n, int) for n in w.type.shape):
        raise problem(root, f"its weight has the shape {w.type}, want known extents")
    groups: int = root.attribute("groups")
    out = root.result.type.shape
    pixels = dims.product((out[0], *out[2:]))
    columns = dims.floordiv(out[1], groups)
    taps = (w.type.shape[1], *kernel)
    depth = dims.product(taps)
    tile = Tile(region, part="group", parts=groups, rows=pixels, columns=columns, depth=depth)
    domain = region.domain
    pixel = axes_coordinates(tile.m, out, (0, *range(2, len(out))), domain)
    tap = axes_coordinates(tile.k, taps, range(len(taps)), domain)
    inner = [tap[i + 1] for i in range(len(kernel))]
    channel = dims.multiply(tile.part, columns) + tile.n
    lowering = Lowering(domain)
    position, inside = window_position(root, pixel, inner)
    source = (pixel[0], dims.multiply(tile.part, taps[0]) + tap[0], *position)
    zero = lowering.node(Number(0.0, compute_dtype(x.type.dtype)))
    tile.sum_products(
        x.type.dtype,
        lambda: lowering.choose(inside, lambda: lowering.at(x, source), lambda: zero),
        lambda: lowering.at(w, (channel, tap[0], *inner)),
    )
    at = (pixel[0], channel, *(pixel[a] for a in range(2, len(out))))
    bias = root.operands[2] if len(root.operands) > 2 else None
    over = (tile.m, tile.n)
    store_product(region, root, tile.printer, at, over, bias=bias, bias_at=(channel,))
    summary = f"convolution of {pixels} pixels, {columns} x {depth} in {groups} groups"
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(stem, summary, tile.printer, tile.grid, num_warps=tile.warps)


def window_position(
    root: Op, pixel: dict[int, Dim], tap: list[Dim]
) -> tuple[tuple[Dim, ...], list[tuple[Dim, Dim]]]:
    """Input coordinates of the spatial axes for an output pixel and a tap, and when they are inside
    (left < right for every pair).
    """
    shape = root.operands[0].type.shape
    strides, dilations = root.attribute("strides"), root.attribute("dilations")
    low, high = root.attribute("low"), root.attribute("high")
    position: list[Dim] = []
    inside: list[tuple[Dim, Dim]] = []
    for i in range(len(tap)):
        at = pixel[i + 2] * strides[i] + tap[i] * dilations[i] - low[i]
        position.append(at)
        if low[i] != 0:
            inside.append((-1, at))
        if high[i] != 0 or root.attributes.get("ceil_mode"):
            inside.append((at, shape[i + 2]))
    return tuple(position), inside
