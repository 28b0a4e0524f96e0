"""Sums of products of integers: 8-bit ones on the matrix units, all others by plain multiplication.

The matrix units multiply signed bytes.  Unsigned ones are moved by 128, their zero points too, so
that with a' and b' as multiplied the sum of (a' - za)(b' - zb) is

    sum a'b' - za * sum b' - zb * sum a' + depth * za * zb,

in 32 bits that wrap.  Padding of a convolution reads as the zero point.  A left operand of 16 bits
is two bytes, 256 * high + low + 128.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.scalar import Node, Number
from graphwright.compiler.codegen.triton.arch import capability
from graphwright.compiler.codegen.triton.choose import Config, choose
from graphwright.compiler.codegen.triton.convolution import window_position
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates
from graphwright.compiler.codegen.triton.matmul import Frame, store_product
from graphwright.compiler.codegen.triton.printing import Printer
from graphwright.compiler.codegen.triton.tile import Tile
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import DType

LEAST_DEPTH = 32  # of a step of the matrix units on bytes
PLAIN = Config(16, 16, 16, 4, 2)


@dataclass(frozen=True, slots=True)
class Side:
    """One operand of a product: its element and zero point where the tile's loops run."""

    element: Callable[[], Node]
    zero: Callable[[], Node]
    dtype: DType

    @property
    def shift(self) -> int:
        """What is subtracted from an element before it is multiplied."""
        return 128 if self.dtype.kind == "uint" else 0

    def is_centred(self) -> bool:
        """Whether the zero point is certainly 0 once it is moved."""
        zero = self.zero()
        return isinstance(zero, Number) and int(zero.value) == self.shift


def emit_matmul_integer(op: Op, root: Op) -> EmittedLaunch:
    """matmul_integer with an epilogue: one program a tile (grid axis 0) and batch (axis 1)."""
    region = Region(op)
    a, b, a_zero, b_zero = root.operands
    frame = Frame(region, root)
    tile, lowering = frame.tile, frame.lowering

    def zero_left() -> Node:
        if a_zero.type.rank == 0:
            return lowering.at(a_zero, ())
        return frame.element(a_zero, frame.row if a_zero.type.shape[-2] != 1 else 0, 0)

    def zero_right() -> Node:
        if b_zero.type.rank == 0:
            return lowering.at(b_zero, ())
        return frame.element(b_zero, 0, tile.n if b_zero.type.shape[-1] != 1 else 0)

    left = Side(frame.left, zero_left, a.type.dtype)
    right = Side(frame.right, zero_right, b.type.dtype)
    _open(tile)
    _sum_bytes(tile, left, right)
    store_product(region, root, tile.printer, frame.at, (tile.m, tile.n))
    return _launch(region, tile, f"integer product {tile.rows} x {tile.columns} x {tile.depth}")


def emit_conv_integer(op: Op, root: Op) -> EmittedLaunch:
    """conv_integer with an epilogue: a tile of pixels and channels (axis 0), a group (axis 1)."""
    region = Region(op)
    x, w, x_zero, w_zero = root.operands
    if not all(isinstance(n, int) for n in w.type.shape):
        raise problem(root, f"its weight has the shape {w.type}, want known extents")
    groups: int = root.attribute("groups")
    out, kernel, channels = root.result.type.shape, w.type.shape[2:], w.type.shape[1]
    columns = dims.floordiv(out[1], groups)
    taps = (channels, *kernel)
    tile = Tile(
        region, part="group", parts=groups, rows=dims.product((out[0], *out[2:])),
        columns=columns, depth=dims.product(taps),
    )  # fmt: skip
    domain = region.domain
    lowering = Lowering(domain)
    pixel = axes_coordinates(tile.m, out, (0, *range(2, len(out))), domain)
    if tile.rows == 1:
        pixel[0] = tile.m  # a block too, of which the mask leaves one
    filters = dims.multiply(tile.part, columns) + tile.n
    found = axes_coordinates(tile.k, taps, range(len(taps)), domain)
    tap = [found[i + 1] for i in range(len(kernel))]

    def element() -> Node:
        position, inside = window_position(root, pixel, tap)
        source = (pixel[0], dims.multiply(tile.part, channels) + found[0], *position)
        return lowering.choose(
            inside, lambda: lowering.at(x, source), lambda: lowering.at(x_zero, ())
        )

    left = Side(element, lambda: lowering.at(x_zero, ()), x.type.dtype)
    right = Side(
        lambda: lowering.at(w, (filters, found[0], *tap)),
        lambda: lowering.at(w_zero, (filters,) if w_zero.type.rank else ()),
        w.type.dtype,
    )
    _open(tile)
    _sum_bytes(tile, left, right)
    at = (pixel[0], filters, *(pixel[a] for a in range(2, len(out))))
    store_product(region, root, tile.printer, at, (tile.m, tile.n))
    return _launch(region, tile, f"integer convolution of {tile.rows} pixels, {columns} channels")


def emit_plain_matmul(op: Op, root: Op) -> EmittedLaunch:
    """matmul of integers in their own type, which wraps: small tiles, without matrix units."""
    region = Region(op)
    frame = Frame(region, root)
    tile, p = frame.tile, frame.tile.printer
    wide = "tl.int64" if root.result.type.dtype.bits == 64 else "tl.int32"
    tile.sums_type = wide
    tile.open(PLAIN)

    def step(left: str, right: str) -> None:
        p.line(f"whole = {left}.to({wide})[:, :, None] * {right}.to({wide})[None, :, :]")
        p.line("sums += tl.sum(whole, axis=1)")

    tile.sum_by(frame.left, frame.right, step)
    store_product(region, root, p, frame.at, (tile.m, tile.n))
    return _launch(region, tile, f"integer product {tile.rows} x {tile.columns} x {tile.depth}")


def _open(tile: Tile) -> None:
    byte = tile.region.inputs[0].type.dtype
    product = replace(tile.product(byte), bytes=1, can_split=False, least_step=LEAST_DEPTH)
    tile.sums_type = "tl.int32"
    tile.open(choose(product, capability()))


def _sum_bytes(tile: Tile, left: Side, right: Side) -> None:
    """`sums`: the tile's sums of products of what zero points leave of the operands: i32."""
    p, config = tile.printer, tile.config
    m, n = config.block_m, config.block_n
    two_bytes = left.dtype.bits == 16
    sums_left = not right.is_centred()
    sums_right = two_bytes or not left.is_centred()
    if two_bytes:
        p.line(f"tall = tl.zeros([{m}, {n}], tl.int32)")
    if sums_left:
        p.line(f"left_sums = tl.zeros([{m}], tl.int32)")
    if sums_right:
        p.line(f"right_sums = tl.zeros([{n}], tl.int32)")

    def step(a: str, b: str) -> None:
        p.line(f"left = {_moved(a, left, tile, 'in_k[None, :]')}")
        p.line(f"right = {_moved(b, right, tile, 'in_k[:, None]')}.to(tl.int8)")
        if two_bytes:
            p.line("tall = tl.dot((left >> 8).to(tl.int8), right, tall, out_dtype=tl.int32)")
            low = "((left & 255) - 128).to(tl.int8)"
        else:
            low = "left.to(tl.int8)"
        p.line(f"sums = tl.dot({low}, right, sums, out_dtype=tl.int32)")
        if sums_left:
            p.line("left_sums += tl.sum(left.to(tl.int32), axis=1)")
        if sums_right:
            p.line("right_sums += tl.sum(right.to(tl.int32), axis=0)")

    tile.sum_by(left.element, right.element, step)
    if two_bytes:
        p.line("sums += tall * 256 + 128 * right_sums[None, :]")
    za, zb = (_zero(p, side) for side in (left, right))
    if not left.is_centred():
        p.line(f"sums -= {za} * right_sums[None, :]")
    if sums_left:
        p.line(f"sums -= {zb} * left_sums[:, None]")
        if not left.is_centred():
            p.line(f"sums += {za} * {zb} * {p.dim(tile.depth)}")


def _moved(text: str, side: Side, tile: Tile, mask: str) -> str:
    """An element as it is multiplied, in 32 bits; 0 beyond the depth."""
    moved = f"({text}.to(tl.int32) - {side.shift})" if side.shift else f"{text}.to(tl.int32)"
    return f"tl.where({mask}, {moved}, 0)" if tile.masks_depth else moved


def _zero(p: Printer, side: Side) -> str:
    if side.is_centred():
        return "0"
    zero = p.node(side.zero())
    return f"(tl.cast({zero}, tl.int32) - {side.shift})"


def _launch(region: Region, tile: Tile, summary: str) -> EmittedLaunch:
    stem = "_".join(o.name for o in region.body.ops)
    config = tile.config
    return region.launch(
        stem, summary, tile.printer, tile.grid, num_warps=config.warps, num_stages=config.stages,
        extra=tile.extra,
    )  # fmt: skip
