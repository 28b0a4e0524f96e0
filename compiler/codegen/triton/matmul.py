"""Matmul regions: output tiles with masks, any movement in front as index maps, epilogue in registers.

fp32 stays fp32 (`input_precision="ieee"`); sums are kept in fp32 in a fixed order.
"""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import (
    Coordinates,
    Lowering,
    offset_of,
    problem,
    reshape_coordinates,
)
from graphwright.compiler.codegen.scalar import Given, Node, compute_dtype
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates
from graphwright.compiler.codegen.triton.printing import Printer, triton_type
from graphwright.compiler.codegen.triton.tile import Tile
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape, Symbol
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind


def emit_matmul(op: Op, root: Op) -> EmittedLaunch:
    """One program per tile (grid axis 0) and batch (grid axis 1)."""
    region = Region(op)
    a, b = root.operands
    if a.type.rank < 2 or b.type.rank < 2:
        raise problem(root, "a matmul of vectors has no Triton kernel yet", "reshape to matrices")
    if not a.type.dtype.is_float:
        raise problem(root, f"a matmul of {a.type.dtype} has no Triton kernel yet")
    batch_shape = root.result.type.shape[:-2]
    rows, columns = root.result.type.shape[-2:]
    depth = a.type.shape[-1]
    batches = dims.product(batch_shape)
    tile = Tile(region, part="batch", parts=batches, rows=rows, columns=columns, depth=depth)
    axes = range(len(batch_shape))
    over_batch = axes_coordinates(tile.part, batch_shape, axes, region.domain)
    leading = tuple(over_batch[i] for i in axes)
    lowering = Lowering(region.domain)

    def element(operand: Value, row: Dim, column: Dim) -> Node:
        outer = lowering.broadcast(leading, batch_shape, operand.type.shape[:-2])
        return lowering.at(operand, (*outer, row, column))

    tile.sum_products(
        a.type.dtype, lambda: element(a, tile.m, tile.k), lambda: element(b, tile.k, tile.n)
    )
    store_product(region, root, tile.printer, (*leading, tile.m, tile.n), (tile.m, tile.n))
    summary = f"matmul {rows} x {columns} x {depth}, {batches} batches"
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(stem, summary, tile.printer, tile.grid, num_warps=tile.warps)


def store_product(
    region: Region,
    root: Op,
    p: Printer,
    at: Coordinates,
    over: tuple[Dim, Dim],
    *,
    bias: Value | None = None,
    bias_at: Coordinates = (),
) -> None:
    """Bias, rounding to the contraction's type, epilogue and stores of the tile `sums`.

    `at` are the coordinates of the tile's elements in the contraction's result, `over` the loops
    of its rows and columns.
    """
    stored = root.result.type.dtype
    compute = triton_type(stored) if stored.bits == 64 else "tl.float32"
    text = "sums"
    if bias is not None:
        text = f"(sums + {p.node(Lowering(region.domain).at(bias, bias_at))})"
    if triton_type(stored) != compute:
        text = f"{text}.to({triton_type(stored)}).to({compute})"
    p.line(f"product = {text}")
    provided = Given("product", compute_dtype(stored))

    def given(value: Value, coordinates: Coordinates) -> Node | None:
        del coordinates
        return provided if value is root.result else None

    epilogue = Lowering(region.domain, given=given)
    symbols: tuple[Symbol, ...] = dims.symbols_of(over)
    for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
        inner, where = store_coordinates(value, at, root, region)
        node = epilogue.at(inner, at)
        offset = offset_of(value.type, where, region.domain)
        p.store(pointer, value.type.dtype, offset, node, symbols)


def store_coordinates(
    value: Value, at: Coordinates, root: Op, region: Region, *, shape: Shape | None = None
) -> tuple[Value, Coordinates]:
    """Strips the invertible movement ops at the end of an epilogue.

    Returns the value under them, which has `shape` (default: the root's result's), and where its
    element `at` lands in `value`.
    """
    wanted = root.result.type.shape if shape is None else shape
    chain: list[Op] = []
    inner = value
    while inner.op is not None and inner.op is not root and inner.op.kind is Kind.MOVEMENT:
        if inner.type.shape == wanted and inner.op.name == "broadcast_to":
            break
        chain.append(inner.op)
        inner = inner.op.operands[0]
    if inner.type.shape != wanted:
        raise problem(root, f"its epilogue changes the shape to {inner.type}")
    coordinates = at
    for op in reversed(chain):
        if op.name == "transpose":
            coordinates = tuple(coordinates[a] for a in op.attribute("permutation"))
        elif op.name == "reshape":
            source = op.operands[0].type.shape
            coordinates = reshape_coordinates(
                coordinates, source, op.result.type.shape, region.domain
            )
        elif op.name != "relayout":
            raise problem(op, "it cannot follow a contraction or reduction in one kernel")
    return inner, coordinates
