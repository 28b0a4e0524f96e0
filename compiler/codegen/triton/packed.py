"""matmul_packed: products with weights of 2, 4 or 8 bits, which are unpacked where a tile reads them."""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering
from graphwright.compiler.codegen.scalar import Node
from graphwright.compiler.codegen.terms import Term, Terms
from graphwright.compiler.codegen.triton.arch import capability
from graphwright.compiler.codegen.triton.choose import choose
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates
from graphwright.compiler.codegen.triton.matmul import store_product
from graphwright.compiler.codegen.triton.tile import Tile
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import F32, I32, U8


def emit_matmul_packed(op: Op) -> list[EmittedLaunch]:
    """One program a tile; sums in float32."""
    region = Region(op)
    (root,) = region.body.ops
    a = root.operands[0]
    shape = root.result.type.shape
    tile = Tile(
        region, part="batch", parts=1, rows=dims.product(shape[:-1]), columns=shape[-1],
        depth=a.type.shape[-1],
    )  # fmt: skip
    lowering = Lowering(region.domain)
    over_rows = axes_coordinates(tile.m, shape[:-1], range(len(shape) - 1), region.domain)
    leading = [over_rows[i] for i in range(len(shape) - 1)]
    if tile.rows == 1 and leading:
        leading[-1] = tile.m  # a block too, of which the mask leaves one
    config = choose(tile.product(F32, gathers=True), capability())
    tile.open(config)
    left = lowering.at(a, (*leading, tile.k))
    right = _weight(lowering, root, tile.n, tile.k)
    tile.sum_products(F32, lambda: left, lambda: right)
    with tile.finished():
        store_product(region, root, tile.printer, (*leading, tile.n), (tile.m, tile.n))
    bits = root.attribute("bits")
    summary = f"matmul {tile.rows} x {tile.columns} x {tile.depth}, weights of {bits} bits"
    launch = region.launch(
        op.name, summary, tile.printer, tile.grid, num_warps=config.warps,
        num_stages=config.stages, extra=tile.extra,
    )  # fmt: skip
    return [launch]


def _weight(lowering: Lowering, root: Op, n: Dim, k: Dim) -> Node:
    """(b - zero) * scale of column n at depth k."""
    _, b, scales, *zeros = root.operands
    bits, block = root.attribute("bits"), root.attribute("block")
    terms, domain = Terms(lowering, root.graph.registry), lowering.domain
    each = 8 // bits  # elements of a byte

    def unpacked(value: Value, at: tuple[Dim, ...], place: Dim) -> Term:
        octet = terms.of(lowering.at(value, at)).to(I32)
        shift = terms.index(domain.remainder(place, each) * bits, I32)
        low = terms.call("shift_right", octet, shift)
        return terms.call("bitwise_and", low, terms.number(2**bits - 1, I32)).to(F32)

    part, within = domain.quotient(k, block), domain.remainder(k, block)
    weight = unpacked(b, (n, part, domain.quotient(within, each)), within)
    if not zeros:
        zero: Term | float = float(2 ** (bits - 1))
    elif zeros[0].type.dtype is U8:
        zero = unpacked(zeros[0], (n, domain.quotient(part, each)), part)
    else:
        zero = terms.of(lowering.at(zeros[0], (n, part)))
    return ((weight - zero) * terms.of(lowering.at(scales, (n, part)))).node
