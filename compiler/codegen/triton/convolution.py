"""Convolution regions: implicit GEMM over pixels and channels; depthwise ones as sums of taps.

Rows of a tile are output pixels (n, spatial...), columns the channels of a group, depth the taps
and input channels.  Padding is a mask on the load, any layout an index map.  Sums are fp32, in a
fixed order.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.scalar import Node, Number, compute_dtype
from graphwright.compiler.codegen.triton.arch import capability
from graphwright.compiler.codegen.triton.choose import choose
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates
from graphwright.compiler.codegen.triton.matmul import result_matrix, store_product
from graphwright.compiler.codegen.triton.tile import Tile, can_stream, matrix_of
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op


def emit_convolution(op: Op, root: Op) -> EmittedLaunch:
    """One program a tile of pixels and channels (grid axis 0), group (axis 1), part of the depth (2).

    With channels innermost, where a block of channels never crosses a tap, the depth is walked tap
    by tap.  A kernel of one place without steps or padding is a matrix product.
    """
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
    channels = w.type.shape[1]
    assert isinstance(channels, int)
    inner_order = x.type.layout is not None and x.type.layout.order[-1] == 1
    taps = (*kernel, channels) if inner_order else (channels, *kernel)
    tile = Tile(
        region, part="group", parts=groups, rows=pixels, columns=columns,
        depth=dims.product(taps),
    )  # fmt: skip
    domain = region.domain
    pixel = axes_coordinates(tile.m, out, (0, *range(2, len(out))), domain)
    if pixels == 1:
        pixel[0] = tile.m  # a block too, of which the mask leaves one
    dtype, tf32 = x.type.dtype, bool(root.attribute("tf32"))
    lowering = Lowering(domain)
    zero = lowering.node(Number(0.0, compute_dtype(dtype)))
    filters = dims.multiply(tile.part, columns) + tile.n

    def elements(tap: Sequence[Dim], channel: Dim) -> tuple[Node, Node]:
        position, inside = window_position(root, pixel, list(tap))
        source = (pixel[0], dims.multiply(tile.part, channels) + channel, *position)
        left = lowering.choose(inside, lambda: lowering.at(x, source), lambda: zero)
        return left, lowering.at(w, (filters, channel, *tap))

    at = (pixel[0], filters, *(pixel[a] for a in range(2, len(out))))
    bias = root.operands[2] if len(root.operands) > 2 else None
    lone = all(n == 1 for n in kernel)
    left, right = elements((0,) * len(kernel), tile.k) if lone else (zero, zero)
    left_matrix = matrix_of(left, tile.m, tile.k, region) if lone else None
    right_matrix = matrix_of(right, tile.n, tile.k, region) if lone else None
    streams = (
        groups == 1 and can_stream(left_matrix, region) and can_stream(right_matrix, region)
        and left_matrix is not None and left_matrix.strides[1] == 1
    )  # fmt: skip
    by_tap = inner_order and not lone and channels % 16 == 0 and dtype.bits <= 32
    step = channels if by_tap else 0
    gathers = not lone and not by_tap and not (inner_order and channels % 4 == 0)
    result = result_matrix(region, root, tile, at) if streams else None
    product = tile.product(
        dtype, step=step, tf32=tf32, can_stream=streams, gathers=gathers,
        can_halve=result is not None,
    )  # fmt: skip
    config = choose(product, capability())
    inner_weights = w.type.layout is not None and w.type.layout.order[-1] == 1
    whole = groups == 1 and (lone or (inner_weights and inner_order))
    tile.open(config, w if whole and w.op is None else None)
    if config.streamed:
        assert left_matrix is not None and right_matrix is not None
        tile.sum_streamed(left_matrix, right_matrix)
    elif by_tap:
        tap, channel = domain.loop("tap", dims.product(kernel)), domain.loop("c", channels)
        places = axes_coordinates(tap, kernel, range(len(kernel)), domain)
        left, right = elements([places[i] for i in range(len(kernel))], channel)
        tile.sum_products(
            dtype, lambda: left, lambda: right, tf32=tf32,
            walk=lambda: tile.walk_taps(dims.product(kernel), tap, channels, channel),
        )  # fmt: skip
    else:
        if not lone:
            first = 0 if inner_order else 1
            found = axes_coordinates(tile.k, taps, range(len(taps)), domain)
            places = [found[i + first] for i in range(len(kernel))]
            left, right = elements(places, found[len(kernel) if inner_order else 0])
        tile.sum_products(dtype, lambda: left, lambda: right, tf32=tf32)
    with tile.finished():
        for store in tile.halves(result) if config.halves and result is not None else (None,):
            store_product(
                region, root, tile.printer, at, (tile.m, tile.n), bias=bias, bias_at=(filters,),
                store=store,
            )  # fmt: skip
    summary = f"convolution of {pixels} pixels, {columns} x {tile.depth} in {groups} groups"
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(
        stem, summary, tile.printer, tile.grid, num_warps=config.warps, num_stages=config.stages,
        extra=tile.extra,
    )  # fmt: skip


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
