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
from graphwright.compiler.codegen.triton.kernels import Region, axes_coordinates, next_power_of_two
from graphwright.compiler.codegen.triton.printing import Printer, triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape, Symbol
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind


def tile_sizes(m: Dim, n: Dim, k: Dim) -> tuple[int, int, int, int]:
    """(block m, block n, block k, warps) for typical sizes: small tiles where few would fill a chip."""

    def typical(d: Dim) -> int:
        return dims.evaluate(d, {s.name: s.typical for s in dims.symbols_of(d)})

    rows, columns, depth = typical(m), typical(n), typical(k)
    block_m = min(max(next_power_of_two(rows), 16), 64)
    block_n = min(max(next_power_of_two(columns), 16), 64)
    block_k = min(max(next_power_of_two(depth), 16), 64 if block_m <= 32 else 32)
    return block_m, block_n, block_k, 4


def emit_matmul(op: Op, root: Op) -> EmittedLaunch:
    """One program per tile (grid axis 0) and batch (grid axis 1)."""
    region = Region(op)
    a, b = root.operands
    if a.type.rank < 2 or b.type.rank < 2:
        raise problem(root, "a matmul of vectors has no Triton kernel yet", "reshape to matrices")
    if not a.type.dtype.is_float:
        raise problem(root, f"a matmul of {a.type.dtype} has no Triton kernel yet")
    domain, p = region.domain, region.printer()
    batch_shape = root.result.type.shape[:-2]
    m_extent, n_extent = root.result.type.shape[-2:]
    k_extent = a.type.shape[-1]
    batches = dims.product(batch_shape)
    block_m, block_n, block_k, warps = tile_sizes(m_extent, n_extent, k_extent)
    batch = domain.loop("batch", batches)
    m, n = domain.loop("m", m_extent), domain.loop("n", n_extent)
    k = domain.loop("k", k_extent)
    tiles_n = dims.ceildiv(n_extent, block_n)
    p.line("tile = tl.program_id(0).to(tl.int64)")
    p.line("batch = tl.program_id(1).to(tl.int64)")
    p.line(f"m = tile // {p.dim(tiles_n)} * {block_m} + tl.arange(0, {block_m})")
    p.line(f"n = tile % {p.dim(tiles_n)} * {block_n} + tl.arange(0, {block_n})")
    p.line(f"in_m, in_n = m < {p.dim(m_extent)}, n < {p.dim(n_extent)}")
    p.bind(batch, "batch")
    p.bind(m, "m[:, None]", "in_m[:, None]")
    over_batch = axes_coordinates(batch, batch_shape, range(len(batch_shape)), domain)
    leading = tuple(over_batch[i] for i in range(len(batch_shape)))
    accumulate = "float64" if a.type.dtype.bits == 64 else "float32"
    p.line(f"sums = tl.zeros([{block_m}, {block_n}], tl.{accumulate})")
    p.line(f"for start in range(0, {p.dim(k_extent)}, {block_k}):")
    saved = p.enter()
    p.line(f"k = start + tl.arange(0, {block_k})")
    p.line(f"in_k = k < {p.dim(k_extent)}")
    dtype = triton_type(a.type.dtype)
    lowering = Lowering(domain)
    p.bind(k, "k[None, :]", "in_k[None, :]")
    at_a = (*lowering.broadcast(leading, batch_shape, a.type.shape[:-2]), m, k)
    left = p.node(lowering.at(a, at_a))
    p.forget(k)
    p.bind(k, "k[:, None]", "in_k[:, None]")
    p.bind(n, "n[None, :]", "in_n[None, :]")
    at_b = (*lowering.broadcast(leading, batch_shape, b.type.shape[:-2]), k, n)
    right = p.node(lowering.at(b, at_b))
    p.line(f"sums = tl.dot({left}.to({dtype}), {right}.to({dtype}), sums, input_precision='ieee')")
    p.leave(saved)
    p.bind(n, "n[None, :]", "in_n[None, :]")
    store_product(region, root, p, (*leading, m, n), (m, n))
    tiles = dims.multiply(dims.ceildiv(m_extent, block_m), tiles_n)
    summary = f"matmul {m_extent} x {n_extent} x {k_extent}, {batches} batches"
    stem = "_".join(o.name for o in region.body.ops)
    return region.launch(stem, summary, p, (tiles, batches), num_warps=warps)


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
