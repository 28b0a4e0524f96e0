"""Matmul regions: output tiles with masks, any movement in front as index maps, epilogue in registers.

fp32 stays fp32 (`input_precision="ieee"`); sums are kept in fp32 in a fixed order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import (
    Coordinates,
    Lowering,
    offset_of,
    problem,
    reshape_coordinates,
)
from graphwright.compiler.codegen.scalar import Given, Load, Node, compute_dtype
from graphwright.compiler.codegen.triton.arch import capability
from graphwright.compiler.codegen.triton.choose import MULTIPROCESSORS, choose
from graphwright.compiler.codegen.triton.kernels import (
    Region,
    axes_coordinates,
    next_power_of_two,
)
from graphwright.compiler.codegen.triton.printing import Printer
from graphwright.compiler.codegen.triton.tile import Matrix, Tile, can_stream, matrix_of
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape, Symbol
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.profit import typical_size

FEW_ROWS = 4  # up to which every row of the right operand is read once by lanes, without tiles
VECTOR_DEPTH = 1024
INVERTIBLE = ("transpose", "reshape", "relayout")


class Frame:
    """The loops of a product as tiles, and the elements of its operands under them.

    A batch on the left alone is more rows.
    """

    def __init__(self, region: Region, root: Op) -> None:
        a, b = root.operands[:2]
        if a.type.rank < 2 or b.type.rank < 2:
            raise problem(
                root, "a matmul of vectors has no Triton kernel yet", "reshape to matrices"
            )
        self.root, self.shape = root, root.result.type.shape
        shape, domain = self.shape, region.domain
        flat = all(d == 1 for d in b.type.shape[:-2])
        batch_shape = () if flat else shape[:-2]
        rows = dims.product(shape[:-1]) if flat else shape[-2]
        self.tile = tile = Tile(
            region, part="batch", parts=dims.product(batch_shape), rows=rows, columns=shape[-1],
            depth=a.type.shape[-1],
        )  # fmt: skip
        if flat:
            over_rows = axes_coordinates(tile.m, shape[:-1], range(len(shape) - 1), domain)
            self.leading = tuple(over_rows[i] for i in range(len(shape) - 2))
            # (a lone row is a block too, of which the mask leaves one)
            self.row = tile.m if rows == 1 else over_rows[len(shape) - 2]
        else:
            axes = range(len(batch_shape))
            over_batch = axes_coordinates(tile.part, batch_shape, axes, domain)
            self.leading, self.row = tuple(over_batch[i] for i in axes), tile.m
        self.lowering = Lowering(domain)
        self.at: Coordinates = (*self.leading, self.row, tile.n)

    def element(self, operand: Value, row: Dim, column: Dim) -> Node:
        """An element of the last two axes of an operand, in the batch of the tile."""
        outer = self.lowering.broadcast(self.leading, self.shape[:-2], operand.type.shape[:-2])
        return self.lowering.at(operand, (*outer, row, column))

    def left(self) -> Node:
        return self.element(self.root.operands[0], self.row, self.tile.k)

    def right(self) -> Node:
        return self.element(self.root.operands[1], self.tile.k, self.tile.n)


def emit_matmul(op: Op, root: Op) -> EmittedLaunch:
    """One program a tile (grid axis 0), batch (axis 1) and part of the depth (axis 2)."""
    region = Region(op)
    a = root.operands[0]
    if not a.type.dtype.is_float:
        raise problem(root, f"a matmul of {a.type.dtype} has no Triton kernel yet")
    frame = Frame(region, root)
    tile = frame.tile
    rows, shape = tile.rows, frame.shape
    left, right = frame.left(), frame.right()
    left_matrix = matrix_of(left, tile.m, tile.k, region)
    right_matrix = matrix_of(right, tile.n, tile.k, region)
    stem = "_".join(o.name for o in region.body.ops)
    summary = f"matmul {rows} x {shape[-1]} x {tile.depth}, {tile.parts} batches"
    if (
        isinstance(rows, int) and rows <= FEW_ROWS and tile.parts == 1 and right_matrix is not None
        and right_matrix.strides[1] == 1 and a.type.dtype.bits < 64
    ):  # fmt: skip
        from graphwright.compiler.codegen.triton.products import can_emit, emit_products

        if can_emit(rows, tile.depth, tile.columns, a.type.dtype):
            return emit_products(op)
        at = [tuple(_row_of(i, shape[:-1])) for i in range(rows)]
        return _emit_few_rows(region, root, tile, at, stem, summary)
    streams = (
        tile.parts == 1
        and can_stream(left_matrix, region)
        and can_stream(right_matrix, region)
        and left_matrix is not None
        and left_matrix.strides[1] == 1
    )
    tf32 = bool(root.attribute("tf32"))
    result = result_matrix(region, root, tile, frame.at) if streams else None
    product = tile.product(
        a.type.dtype, tf32=tf32, can_stream=streams, can_halve=result is not None
    )
    config = choose(product, capability())
    tile.open(config)
    if config.streamed:
        assert left_matrix is not None and right_matrix is not None
        tile.sum_streamed(left_matrix, right_matrix)
    else:
        tile.sum_products(a.type.dtype, lambda: left, lambda: right, tf32=tf32)
    with tile.finished():
        for store in tile.halves(result) if config.halves and result is not None else (None,):
            store_product(region, root, tile.printer, frame.at, (tile.m, tile.n), store=store)
    return region.launch(
        stem, summary, tile.printer, tile.grid, num_warps=config.warps, num_stages=config.stages,
        extra=tile.extra,
    )  # fmt: skip


def _row_of(number: int, shape: Sequence[Dim]) -> list[int]:
    """Coordinates of a row by number."""
    out: list[int] = []
    for extent in reversed(shape):
        assert isinstance(extent, int)
        out.append(number % extent)
        number //= extent
    return out[::-1]


def _emit_few_rows(
    region: Region, root: Op, tile: Tile, rows: Sequence[tuple[int, ...]], stem: str, summary: str
) -> EmittedLaunch:
    """Columns a program: each weight is read once, and multiplied with the same place of every row."""
    p, lowering = tile.printer, Lowering(region.domain)
    a, b = root.operands
    columns, depth = typical_size(tile.columns), typical_size(tile.depth)
    block_k = min(VECTOR_DEPTH, next_power_of_two(depth))
    block_n = 4 if columns >= 4 * 4 * MULTIPROCESSORS or block_k < VECTOR_DEPTH else 2
    block_n = max(block_n, min(4096 // block_k, 16) if columns >= 4096 else block_n)
    p.line(f"n = tl.program_id(0){region.index} * {block_n} + tl.arange(0, {block_n})")
    masked_n = not dims.is_multiple(tile.columns, block_n)
    if masked_n:
        p.line(f"in_n = n < {p.dim(tile.columns)}")
    wide = "tl.float32"
    right = matrix_of(lowering.at(b, (*[0] * (b.type.rank - 2), tile.k, tile.n)), tile.n, tile.k,
                      region)  # fmt: skip
    if right is not None and right.base == 0 and region.is_weight(right.load.source):
        each = 128 // b.type.dtype.bytes
        lines = next_power_of_two(-(-depth // each))
        p.line(f"line = tl.minimum(tl.arange(0, {lines}) * {each}, {depth - 1})")
        p.line(f"column = tl.minimum(n, {columns - 1})")
        pitch, pointer = p.dim(right.strides[0]), region.pointers[right.load.source]
        if isinstance(tile.depth, int) and isinstance(tile.columns, int):
            p.line(f"_prefetch({pointer} + column[:, None] * {pitch} + line[None, :])")
    p.line("_wait()")
    for i in range(len(rows)):
        p.line(f"sums{i} = tl.zeros([{block_n}, {block_k}], {wide})")
    p.line(f"for start in range(0, {p.dim(tile.depth)}, {block_k}):")
    saved = p.enter()
    p.line(f"k = start + tl.arange(0, {block_k})")
    masked_k = not dims.is_multiple(tile.depth, block_k)
    if masked_k:
        p.line(f"in_k = k < {p.dim(tile.depth)}")
    p.bind(tile.n, "n[:, None]", "in_n[:, None]" if masked_n else "")
    p.bind(tile.k, "k[None, :]", "in_k[None, :]" if masked_k else "")

    def element(operand: Value, leading: Coordinates, row: Dim, column: Dim) -> Node:
        outer = lowering.broadcast(leading, root.result.type.shape[:-2], operand.type.shape[:-2])
        return lowering.at(operand, (*outer, row, column))

    for i, at in enumerate(rows):
        weight = p.node(element(b, at[:-1], tile.k, tile.n))
        value = p.node(element(a, at[:-1], at[-1], tile.k))
        p.line(f"sums{i} += {weight} * {value}")
    p.leave(saved)
    p.bind(tile.n, "n", "in_n" if masked_n else "")
    for i, at in enumerate(rows):
        p.line(f"sums = tl.sum(sums{i}, axis=1)")
        store_product(region, root, p, (*at, tile.n), (tile.n,))
    grid = (dims.ceildiv(tile.columns, block_n),)
    return region.launch(stem, summary, p, grid, num_warps=4)


def result_matrix(region: Region, root: Op, tile: Tile, at: Coordinates) -> Matrix | None:
    """The memory of the only result, where a tensor descriptor can describe it."""
    if len(region.outputs) != 1 or not follows(region.outputs[0], root):
        return None
    (value,) = region.outputs
    _, where = store_coordinates(value, at, root, region)
    offset = offset_of(value.type, where, region.domain)
    node = Lowering(region.domain).node(Load(value, offset, value.type.dtype))
    matrix = matrix_of(node, tile.m, tile.n, region)
    fits = can_stream(matrix, region) and matrix is not None and matrix.strides[1] == 1
    return matrix if fits else None


def store_product(
    region: Region,
    root: Op,
    p: Printer,
    at: Coordinates,
    over: tuple[Dim, ...],
    *,
    bias: Value | None = None,
    bias_at: Coordinates = (),
    store: Callable[[str], None] | None = None,
) -> None:
    """Bias, epilogue and stores of the tile `sums`; the only result by `store` where it is given.

    `at` are the coordinates of the tile's elements in the contraction's result, `over` the loops
    of its rows and columns.
    """
    stored = root.result.type.dtype
    text = "sums"
    if bias is not None:
        text = f"(sums + {p.node(Lowering(region.domain).at(bias, bias_at))})"
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
        if store is not None:
            store(p.node(node))
            continue
        offset = offset_of(value.type, where, region.domain)
        p.store(pointer, value.type.dtype, offset, node, symbols)


def follows(value: Value, root: Op) -> bool:
    """Whether a value of a region is calculated from a result of its root."""
    seen: set[Op] = set()
    stack = [value]
    while stack:
        op = stack.pop().op
        if op is root:
            return True
        if op is not None and op not in seen:
            seen.add(op)
            stack += op.operands
    return False


def store_coordinates(
    value: Value, at: Coordinates, root: Op, region: Region, *, shape: Shape | None = None
) -> tuple[Value, Coordinates]:
    """Strips the invertible movement ops at the end of an epilogue.

    Returns the value under them, which has `shape` (default: the root's result's), and where its
    element `at` lands in `value`.
    """
    wanted = root.result.type.shape if shape is None else shape
    if value.type.shape == wanted and not follows(value, root):
        return value, at
    chain: list[Op] = []
    inner = value
    while inner.op is not None and inner.op is not root and inner.op.name in INVERTIBLE:
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
    return inner, coordinates
