"""Transposed convolution regions: a tile of output pixels gathers the inputs that reach it.

An input reaches an output through a tap where the distance is a whole number of strides; the others
are masked, so that a stride wastes products but needs no sums in memory, and the order is fixed.
"""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.scalar import Number, compute_dtype
from graphwright.compiler.codegen.triton.arch import capability
from graphwright.compiler.codegen.triton.choose import choose
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates
from graphwright.compiler.codegen.triton.matmul import store_product
from graphwright.compiler.codegen.triton.tile import Tile
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op


def emit_conv_transpose(op: Op, root: Op) -> EmittedLaunch:
    """One program a tile of output pixels and channels (grid axis 0) and group (axis 1)."""
    region = Region(op)
    x, w = root.operands[:2]
    dtype = x.type.dtype
    if not dtype.is_float:
        raise problem(root, f"a transposed convolution of {dtype} has no Triton kernel yet")
    if not all(isinstance(n, int) for n in w.type.shape):
        raise problem(root, f"its weight has the shape {w.type}, want known extents")
    groups: int = root.attribute("groups")
    out = root.result.type.shape
    channels = dims.floordiv(w.type.shape[0], groups)
    kernel = w.type.shape[2:]
    taps = (channels, *kernel)
    pixels, columns = dims.product((out[0], *out[2:])), w.type.shape[1]
    tile = Tile(
        region, part="group", parts=groups, rows=pixels, columns=columns, depth=dims.product(taps)
    )
    domain = region.domain
    pixel = axes_coordinates(tile.m, out, (0, *range(2, len(out))), domain)
    if pixels == 1:
        pixel[0] = tile.m  # a block too, of which the mask leaves one
    found = axes_coordinates(tile.k, taps, range(len(taps)), domain)
    strides, dilations, low = (root.attribute(n) for n in ("strides", "dilations", "low"))
    position: list[Dim] = []
    inside: list[tuple[Dim, Dim]] = []
    for i, size in enumerate(kernel):
        stride = strides[i]
        # A multiple of the stride is added so that the distance is never negative.
        lift = dims.ceildiv(dilations[i] * size, stride)
        reach = pixel[i + 2] + low[i] - dilations[i] * found[i + 1] + stride * lift
        at = domain.quotient(reach, stride) - lift
        position.append(at)
        if stride != 1:
            inside.append((domain.remainder(reach, stride), 1))
        inside += [(-1, at), (at, x.type.shape[i + 2])]
    channel = dims.multiply(tile.part, channels) + found[0]
    lowering = Lowering(domain)
    zero = lowering.node(Number(0.0, compute_dtype(dtype)))
    left = lowering.choose(
        inside, lambda: lowering.at(x, (pixel[0], channel, *position)), lambda: zero
    )
    right = lowering.at(w, (channel, tile.n, *(found[i + 1] for i in range(len(kernel)))))
    tf32 = bool(root.attribute("tf32"))
    config = choose(tile.product(dtype, tf32=tf32, gathers=True), capability())
    tile.open(config)
    tile.sum_products(dtype, lambda: left, lambda: right, tf32=tf32)
    filters = dims.multiply(tile.part, columns) + tile.n
    at = (pixel[0], filters, *(pixel[a] for a in range(2, len(out))))
    bias = root.operands[2] if len(root.operands) > 2 else None
    with tile.finished():
        store_product(
            region, root, tile.printer, at, (tile.m, tile.n), bias=bias, bias_at=(filters,)
        )
    summary = f"transposed convolution to {pixels} pixels, {columns} x {tile.depth}"
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(
        stem, summary, tile.printer, tile.grid, num_warps=config.warps, num_stages=config.stages,
        extra=tile.extra,
    )  # fmt: skip
