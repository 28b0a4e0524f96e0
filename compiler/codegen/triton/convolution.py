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
from graphwright.compiler.codegen.triton.matmul import store_product, tile_sizes
from graphwright.compiler.codegen.triton.printing import triton_type
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
    domain, p = region.domain, region.printer()
    out = root.result.type.shape
    pixels = dims.product((out[0], *out[2:]))
    columns = dims.floordiv(out[1], groups)
    taps = (w.type.shape[1], *kernel)
    depth = dims.product(taps)
    block_m, block_n, block_k, warps = tile_sizes(pixels, columns, depth)
    group = domain.loop("group", groups)
    m, n = domain.loop("m", pixels), domain.loop("n", columns)
    k = domain.loop("k", depth)
    tiles_n = dims.ceildiv(columns, block_n)
    p.line("tile = tl.program_id(0).to(tl.int64)")
    p.line("group = tl.program_id(1).to(tl.int64)")
    p.line(f"m = tile // {p.dim(tiles_n)} * {block_m} + tl.arange(0, {block_m})")
    p.line(f"n = tile % {p.dim(tiles_n)} * {block_n} + tl.arange(0, {block_n})")
    p.line(f"in_m, in_n = m < {p.dim(pixels)}, n < {p.dim(columns)}")
    p.bind(group, "group")
    p.bind(m, "m[:, None]", "in_m[:, None]")
    spatial = (0, *range(2, len(out)))
    pixel = axes_coordinates(m, out, spatial, domain)
    tap = axes_coordinates(k, taps, range(len(taps)), domain)
    channel = dims.multiply(group, columns) + n
    accumulate = "float64" if x.type.dtype.bits == 64 else "float32"
    p.line(f"sums = tl.zeros([{block_m}, {block_n}], tl.{accumulate})")
    p.line(f"for start in range(0, {p.dim(depth)}, {block_k}):")
    saved = p.enter()
    p.line(f"k = start + tl.arange(0, {block_k})")
    p.line(f"in_k = k < {p.dim(depth)}")
    p.bind(k, "k[None, :]", "in_k[None, :]")
    lowering = Lowering(domain)
    position, inside = window_position(root, pixel, [tap[i + 1] for i in range(len(kernel))])
    source = (pixel[0], dims.multiply(group, taps[0]) + tap[0], *position)
    zero = lowering.node(Number(0.0, compute_dtype(x.type.dtype)))
    left = p.node(lowering.choose(inside, lambda: lowering.at(x, source), lambda: zero))
    p.forget(k)
    p.bind(k, "k[:, None]", "in_k[:, None]")
    p.bind(n, "n[None, :]", "in_n[None, :]")
    at_w = (channel, tap[0], *(tap[i + 1] for i in range(len(kernel))))
    right = p.node(Lowering(domain).at(w, at_w))
    dtype = triton_type(x.type.dtype)
    p.line(f"sums = tl.dot({left}.to({dtype}), {right}.to({dtype}), sums, input_precision='ieee')")
    p.leave(saved)
    p.bind(n, "n[None, :]", "in_n[None, :]")
    at = (pixel[0], channel, *(pixel[a] for a in range(2, len(out))))
    bias = root.operands[2] if len(root.operands) > 2 else None
    store_product(region, root, p, at, (m, n), bias=bias, bias_at=(channel,))
    tiles = dims.multiply(dims.ceildiv(pixels, block_m), tiles_n)
    summary = f"convolution of {pixels} pixels, {columns} x {depth} in {groups} groups"
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(stem, summary, p, (tiles, groups), num_warps=warps)


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
