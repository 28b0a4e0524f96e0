"""Convolutions in C++: implicit GEMM over channels-last tensors, depthwise, 1x1 as GEMM."""

from __future__ import annotations

import itertools

from graphwright.compiler.codegen.cpp.epilogue import Tiling, check_float
from graphwright.compiler.codegen.cpp.operand import Strided
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import F32, DType

AXIS_NAMES = ("d", "h", "w")


def emit_conv(region: ContractionRegion) -> EmittedLaunch:
    """conv(x, w, bias?) with an epilogue."""
    root = region.root
    check_float(root)
    x, w = root.operands[:2]
    out = root.result.type.shape
    channels = x.type.shape[1]
    groups: int = root.attribute("groups")
    if x.type.rank > 5:
        raise problem(root, f"{x.type.rank - 2} spatial axes, want at most 3")
    source = channels_last(region, x)
    tiling = spatial_tiling(root)
    bias = root.operands[2] if len(root.operands) > 2 else None

    if groups == 1 and _is_pointwise(root) and _uniform_rows(x, source) is not None:
        stride = _uniform_rows(x, source)
        assert stride is not None
        weights = region.packed_window(w, "conv", groups=1)
        epilogue = region.epilogue(tiling, bias=bias)
        region.builder.body = [
            *region.builder.body,
            f"const auto epilogue = {epilogue};",
            "gw::Gemm g;",
            f"g.a = {region.address(source)};",
            f"g.b = {weights};",
            f"g.a_row_stride = {region.scalar('row_stride', stride)};",
            f"g.m = {region.scalar('m', tiling.rows)};",
            f"g.n = {region.scalar('n', out[1])};",
            f"g.k = {region.scalar('k', channels)};",
            "gw::gemm(g, epilogue, pool);",
        ]
        return region.launch("gw/gemm.h")

    depthwise = groups > 1 and dims.equal(channels, groups)
    if depthwise:
        weights = region.packed_window(w, "depthwise", groups=groups)
    else:
        weights = region.packed_window(w, "conv", groups=groups)
    epilogue = region.epilogue(tiling, bias=bias)
    region.builder.body += [
        f"const auto epilogue = {epilogue};",
        *conv_fields(region, source, weights),
        f"gw::{'depthwise' if depthwise else 'conv'}(c, epilogue, pool);",
    ]
    return region.launch("gw/depthwise.h" if depthwise else "gw/conv.h")


def emit_conv_transpose(region: ContractionRegion) -> EmittedLaunch:
    """conv_transpose(x, w, bias?) with an epilogue."""
    root = region.root
    check_float(root)
    x, w = root.operands[:2]
    if x.type.rank > 5:
        raise problem(root, f"{x.type.rank - 2} spatial axes, want at most 3")
    source = channels_last(region, x)
    weights = region.packed_window(w, "conv_transpose", groups=root.attribute("groups"))
    bias = root.operands[2] if len(root.operands) > 2 else None
    epilogue = region.epilogue(spatial_tiling(root), bias=bias)
    region.builder.body += [
        f"const auto epilogue = {epilogue};",
        *conv_fields(region, source, weights),
        "gw::conv_transpose(c, epilogue, pool);",
    ]
    return region.launch("gw/conv_transpose.h")


def channels_last(region: ContractionRegion, x: Value, *, dtype: DType = F32) -> Strided:
    """x read in place when its channels are contiguous, else copied to channels-last order."""
    strided = region.operands.strided(x, dtype=dtype)
    if strided is not None and (strided.strides[1] == 1 or x.type.shape[1] == 1):
        return strided
    rank = x.type.rank
    return region.operands.staged(x, (0, *range(2, rank), 1))


def spatial_tiling(root: Op) -> Tiling:
    """Rows are output positions (image, then spatial axes), columns are channels."""
    out = root.result.type.shape
    spatial = out[2:]

    def coordinates(domain: Domain, batch: Dim, row: Dim, column: Dim) -> Coordinates:
        positions: list[Dim] = []
        rest = row
        for extent in reversed(spatial):
            positions.append(domain.remainder(rest, extent))
            rest = domain.quotient(rest, extent)
        return (rest, column, *reversed(positions))

    return Tiling(1, dims.product((out[0], *spatial)), out[1], coordinates)


def _is_pointwise(root: Op) -> bool:
    kernel = root.operands[1].type.shape[2:]
    padded = any(d != 0 for name in ("low", "high") for d in root.attribute(name))
    return all(k == 1 for k in kernel) and not padded and set(root.attribute("strides")) <= {1}


def _uniform_rows(x: Value, source: Strided) -> Dim | None:
    """The distance between neighbouring pixels when all pixels of x are that far apart."""
    shape, strides = x.type.shape, source.strides
    axes = [a for a in (0, *range(2, x.type.rank)) if shape[a] != 1]
    if not axes:
        return 0
    for outer, inner in itertools.pairwise(axes):
        if not dims.equal(strides[outer], dims.multiply(strides[inner], shape[inner])):
            return None
    return strides[axes[-1]]


def conv_fields(
    region: ContractionRegion, source: Strided, weights: str, *, struct: str = "gw::Conv"
) -> list[str]:
    """The statements that fill a gw::Conv, or a struct with its fields, for the region's root."""
    root = region.root
    x, w = root.operands[:2]
    groups: int = root.attribute("groups")
    out = root.result.type.shape
    lines = [f"{struct} c;", f"c.x = {region.address(source)};", f"c.w = {weights};"]

    def put(field: str, name: str, value: Dim, default: Dim) -> None:
        if value != default:
            lines.append(f"c.{field} = {region.scalar(name, value)};")

    put("n", "images", x.type.shape[0], 1)
    put("ci", "ci", dims.floordiv(x.type.shape[1], groups), 0)
    put("co", "co", dims.floordiv(out[1], groups), 0)
    put("groups", "groups", groups, 1)
    put("xn", "xn", source.strides[0], 0)
    spatial = x.type.rank - 2
    for i in range(spatial):
        axis = 3 - spatial + i
        letter = AXIS_NAMES[axis]
        put(f"in[{axis}]", f"in_{letter}", x.type.shape[2 + i], 1)
        put(f"out[{axis}]", f"out_{letter}", out[2 + i], 1)
        put(f"kernel[{axis}]", f"kernel_{letter}", w.type.shape[2 + i], 1)
        put(f"stride[{axis}]", f"stride_{letter}", root.attribute("strides")[i], 1)
        put(f"dilation[{axis}]", f"dilation_{letter}", root.attribute("dilations")[i], 1)
        put(f"pad[{axis}]", f"pad_{letter}", root.attribute("low")[i], 0)
        put(f"xs[{axis}]", f"xs_{letter}", source.strides[2 + i], 0)
    if any(dims.prove(d, ">", 0) is not True for d in out):
        lines.append("if (c.n * c.co * c.out[0] * c.out[1] * c.out[2] == 0) return;")
    return lines
