"""Depthwise convolutions with channels innermost: a program holds several rows of output pixels.

An input pixel is loaded and widened once for all output rows that see it, and the weights of a column
of taps once for all pixels: with one output element a lane both happen once for every tap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.codegen.choice import choose_among
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of
from graphwright.compiler.codegen.scalar import Given, Node, Number, compute_dtype
from graphwright.compiler.codegen.triton.choose import MULTIPROCESSORS
from graphwright.compiler.codegen.triton.kernels import Region
from graphwright.compiler.codegen.triton.matmul import store_coordinates
from graphwright.compiler.codegen.triton.printing import Printer, triton_type
from graphwright.compiler.codegen.triton.windows import emit_flat_depthwise
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.profit import typical_size

NHWC = (0, 2, 3, 1)
MOST_PRODUCTS = 64  # of a column of taps: what is unrolled


@dataclass(frozen=True, slots=True)
class Block:
    """Output rows, pixels of a row and channels of a program."""

    rows: int
    pixels: int
    channels: int
    warps: int

    def __str__(self) -> str:
        return f"{self.rows} rows x {self.pixels} x {self.channels} channels, {self.warps} warps"


FLAT = "one element a lane"


def emit_depthwise(op: Op, root: Op) -> EmittedLaunch:
    """A convolution whose groups have one input channel: every output channel from one of them."""
    way = choose_among(ways(root))
    return _emit_rows(op, root, way) if isinstance(way, Block) else emit_flat_depthwise(op, root)


def ways(root: Op) -> Sequence[Block | str]:
    """The likely best first: seven rows of eight pixels (measured), fewer where programs are few."""
    x, w = root.operands[:2]
    result = root.result.type
    kernel = w.type.shape[2:]
    suits = (
        x.type.rank == 4
        and all(isinstance(n, int) for n in w.type.shape)
        and all(t.layout is not None and t.layout.order == NHWC for t in (x.type, result))
        and root.attribute("dilations") == (1, 1)
        and w.type.shape[0] == root.attribute("groups")
        and x.type.dtype.bits <= 32
    )
    if not suits:
        return [FLAT]
    images, channels, height, width = map(typical_size, result.shape)
    stride, taps = root.attribute("strides")[0], typical_size(kernel[0])
    found: list[Block] = []
    for rows in (7, 4, 2):
        bands = -(-height // rows)
        programs = images * bands * -(-width // 8) * -(-channels // 32)
        if rows * taps > MOST_PRODUCTS or rows > height or stride > 2 or taps > 11:
            continue
        if bands * rows > 1.25 * height or programs < 3 * MULTIPROCESSORS:
            continue
        found += [Block(rows, *rest) for rest in ((8, 32, 2), (8, 32, 1), (16, 32, 2), (4, 64, 1))]
    return [*found, FLAT]


def _emit_rows(op: Op, root: Op, block: Block) -> EmittedLaunch:
    """One program a block of pixels (grid axis 0: image, band of rows, columns) and channels (1)."""
    region = Region(op)
    x, w = root.operands[:2]
    images, channels, height, width = root.result.type.shape
    high, wide = (n for n in w.type.shape[2:] if isinstance(n, int))
    domain, p = region.domain, region.printer()
    image, channel = domain.loop("image", images), domain.loop("c", channels)
    column, row = domain.loop("column", width), domain.loop("row", height)
    bands = dims.ceildiv(height, block.rows)
    band, dx = domain.loop("band", bands), domain.loop("dx", wide)
    across, index = dims.ceildiv(width, block.pixels), region.index
    # (images share axis 0: other axes of a grid have 65,535 programs at most)
    p.line(f"place = tl.program_id(0){index} % {p.dim(dims.multiply(bands, across))}")
    p.line(f"image = tl.program_id(0){index} // {p.dim(dims.multiply(bands, across))}")
    # (as a block, like what it is compared with)
    p.line(f"band = place // {p.dim(across)} + tl.arange(0, {block.pixels}) * 0")
    p.line(f"column = place % {p.dim(across)} * {block.pixels} + tl.arange(0, {block.pixels})")
    p.line(f"c = tl.program_id(1){index} * {block.channels} + tl.arange(0, {block.channels})")
    masks = ["", ""]
    if not dims.is_multiple(width, block.pixels):
        p.line(f"in_column = (column < {p.dim(width)})[:, None]")
        masks[0] = "in_column"
    if not dims.is_multiple(channels, block.channels):
        p.line(f"in_c = (c < {p.dim(channels)})[None, :]")
        masks[1] = "in_c"
    p.bind(image, "image")
    p.bind(band, "band[:, None]")
    p.bind(column, "column[:, None]", masks[0])
    p.bind(channel, "c[None, :]", masks[1])
    p.line("_wait()")
    lowering = Lowering(domain)
    compute = compute_dtype(x.type.dtype)
    zero = lowering.node(Number(0.0, compute))
    kind = triton_type(compute_dtype(root.result.type.dtype))
    for r in range(block.rows):
        p.line(f"sums{r} = tl.zeros([{block.pixels}, {block.channels}], {kind})")
    p.line(f"for dx in range({wide}):")
    saved = p.enter()
    p.bind(dx, "dx")
    weights = [p.node(lowering.at(w, (channel, 0, dy, dx))) for dy in range(high)]
    steps, low = root.attribute("strides"), root.attribute("low")
    shape = x.type.shape
    at_column = column * steps[1] + dx - low[1]
    for i in range((block.rows - 1) * steps[0] + high):
        at_row = band * (block.rows * steps[0]) + (i - low[0])
        inside: list[tuple[Dim, Dim]] = [
            (-1, at_row), (at_row, shape[2]), (-1, at_column), (at_column, shape[3])
        ]  # fmt: skip
        source = (image, channel, at_row, at_column)
        value = p.node(lowering.choose(inside, lambda s=source: lowering.at(x, s), lambda: zero))
        for r in range(block.rows):
            dy = i - r * steps[0]
            if 0 <= dy < high:
                p.line(f"sums{r} = tl.fma({value}, {weights[dy]}, sums{r})")
    p.leave(saved)
    at: Coordinates = (image, channel, row, column)
    for r in range(block.rows):
        p.forget(row)
        p.line(f"row{r} = band * {block.rows} + {r}")
        whole = dims.is_multiple(height, block.rows)
        if not whole:
            p.line(f"in_row{r} = row{r} < {p.dim(height)}")
        p.bind(row, f"row{r}[:, None]", "" if whole else f"in_row{r}[:, None]")
        _finish(region, p, root, f"sums{r}", f"whole{r}", at)
    summary = f"depthwise convolution with windows of {(high, wide)}, {channels} channels"
    grid = (dims.product((images, bands, across)), dims.ceildiv(channels, block.channels))
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(stem, summary, p, grid, num_warps=block.warps)


def _finish(region: Region, p: Printer, root: Op, sums: str, name: str, at: Coordinates) -> None:
    """Bias, rounding, epilogue and stores of one row of pixels."""
    lowering = Lowering(region.domain)
    if len(root.operands) > 2:
        p.line(f"{sums} += {p.node(lowering.at(root.operands[2], (at[1],)))}")
    dtype = root.result.type.dtype
    compute = compute_dtype(dtype)
    rounded = f".to({triton_type(dtype)}).to({triton_type(compute)})" if compute != dtype else ""
    p.line(f"{name} = {sums}{rounded}")
    provided = Given(name, compute)

    def given(value: Value, coordinates: Coordinates) -> Node | None:
        del coordinates
        return provided if value is root.result else None

    epilogue = Lowering(region.domain, given=given)
    for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
        inner, where = store_coordinates(value, at, root, region)
        node = epilogue.at(inner, at)
        offset = offset_of(value.type, where, region.domain)
        p.store(pointer, value.type.dtype, offset, node, dims.symbols_of(at[1:]))
