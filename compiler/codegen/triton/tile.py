"""Output tiles of sums of products: what matmul and convolution kernels have in common.

A program computes a tile of `rows` x `columns` of one part (a batch, a group) by a loop over the
depth; the callers say what one element of the left and of the right operand is.  Where few tiles
would leave a GPU idle, the depth is split: the program that comes last to a tile adds the partial
sums, in their order, so that results repeat bit for bit.  On sm_90 large products stream: operands
come through tensor descriptors, and a fixed number of programs loops over the tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from graphwright.compiler.codegen.expressions import split_linear
from graphwright.compiler.codegen.kernel import Workspace
from graphwright.compiler.codegen.scalar import Load, Node
from graphwright.compiler.codegen.triton.arch import capability
from graphwright.compiler.codegen.triton.choose import MULTIPROCESSORS, Config, Product
from graphwright.compiler.codegen.triton.kernels import Extra, Region, next_power_of_two
from graphwright.compiler.codegen.triton.printing import TYPES, triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import DType
from graphwright.compiler.passes.profit import typical_size

GROUP = 8  # tiles that are walked down before the next column of tiles
FEW_TILES = 8
MOST_LINES = 4096  # of weights that a program asks for ahead


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand as memory: element (outer, inner) lies `base + outer * strides[0] + inner * strides[1]`
    elements into the storage of `load.source`.
    """

    load: Load
    base: Dim
    strides: tuple[Dim, Dim]


def matrix_of(node: Node, outer: Dim, inner: Dim, region: Region) -> Matrix | None:
    """The memory that a node is when two loops run, None when it is not a matrix."""
    if not isinstance(node, Load):
        return None
    symbols: list[Symbol] = []
    for d in (outer, inner):
        assert isinstance(d, Expr) and d.symbol is not None
        symbols.append(d.symbol)
    rest = region.domain.recombine(node.offset)
    strides: list[Dim] = []
    for symbol in symbols:
        stride, rest = split_linear(rest, symbol)
        if stride is None:
            return None
        strides.append(stride)
    left = region.printer().roots(rest)
    if left & set(symbols) or any(region.printer().roots(s) for s in strides):
        return None
    return Matrix(node, rest, (strides[0], strides[1]))


def can_stream(matrix: Matrix | None, region: Region) -> bool:
    """Whether a tensor descriptor can describe the matrix, on what is compiled for."""
    if matrix is None or matrix.base != 0 or capability() < 90:
        return False
    source = matrix.load.source
    pitch = [s for s in matrix.strides if s != 1]
    return (
        source.type.dtype.bits == 16
        and len(pitch) == 1
        and dims.is_multiple(pitch[0], 8)
        and dims.prove(pitch[0], ">", 0) is True
        and region.is_aligned(source)
        and not region.is_wide
    )


class Tile:
    """The loops `m`, `n` and `k` of a tile and `part`, bound to blocks of a program.

    Grid axis 0 counts the tiles of a part, axis 1 the parts, axis 2 the splits of the depth.
    """

    def __init__(
        self, region: Region, *, part: str, parts: Dim, rows: Dim, columns: Dim, depth: Dim
    ) -> None:
        self.region = region
        self.printer = region.printer()
        domain = region.domain
        self.part_name, self.parts = part, parts
        self.rows, self.columns, self.depth = rows, columns, depth
        self.part: Dim = domain.loop(part, parts) if parts != 1 else 0
        self.m, self.n = domain.loop("m", rows), domain.loop("n", columns)
        self.k = domain.loop("k", depth)
        self.extra: list[Extra] = []
        self.config = Config(16, 16, 16, 4, 2)
        bits = max(v.type.dtype.bits if v.type.dtype.is_float else 0 for v in region.inputs)
        self.sums_type = "tl.float64" if bits == 64 else "tl.float32"
        self.grid: tuple[Dim, ...] = ()

    def product(
        self, dtype: DType, *, step: int = 0, tf32: bool = False, can_stream: bool = False,
        gathers: bool = False, can_halve: bool = False,
    ) -> Product:  # fmt: skip
        """What the choice of a configuration must know."""
        sizes = (self.rows, self.columns, self.depth, self.parts)
        rows, columns, depth, parts = map(typical_size, sizes)
        static = all(isinstance(d, int) for d in sizes)
        return Product(
            rows, columns, depth, parts, dtype.bytes, step=step,
            exact=dtype.bits >= 32 and not tf32, gathers=gathers,
            can_split=static and dtype.bits < 64, can_stream=can_stream,
            can_halve=can_halve,
        )  # fmt: skip

    # -- the frame of a kernel

    def open(self, config: Config, weights: Value | None = None) -> None:
        """Prints which tile the program computes, and binds rows and part.

        `weights`: the right operand, when its columns lie one after the other, each whole.
        """
        self.config, p = config, self.printer
        down = dims.ceildiv(self.rows, config.block_m)
        across = dims.ceildiv(self.columns, config.block_n)
        self.down, self.across = down, across
        tiles = dims.multiply(down, across)
        index = self.region.index
        if config.streamed:
            self.grid = (dims.minimum(tiles, MULTIPROCESSORS),)
            p.line("_wait()")
            p.line(
                f"for tile in tl.range(tl.program_id(0), {p.dim(tiles)}, {MULTIPROCESSORS}, "
                "flatten=True):"
            )
            self._saved = p.enter()
        else:
            self.grid = (tiles, self.parts)
            p.line(f"tile = tl.program_id(0){index}")
            if self.parts != 1:
                p.line(f"{self.part_name} = tl.program_id(1){index}")
                p.bind(self.part, self.part_name)
            if config.splits > 1:
                self.grid = (tiles, self.parts, config.splits)
                p.line(f"split = tl.program_id(2){index}")
        self._order()
        if not config.streamed:
            p.line(f"m = down * {config.block_m} + tl.arange(0, {config.block_m})")
            p.line(f"n = across * {config.block_n} + tl.arange(0, {config.block_n})")
            self._bind_rows("m[:, None]")
            if weights is not None:
                self._prefetch(weights)
            p.line("_wait()")
        p.line(f"sums = tl.zeros([{config.block_m}, {config.block_n}], {self.sums_type})")

    def _prefetch(self, weights: Value) -> None:
        depth, columns = self.depth, self.columns
        if not isinstance(depth, int) or not isinstance(columns, int) or self.parts != 1:
            return
        if not self.region.is_weight(weights) or self.region.is_wide:
            return
        p, config = self.printer, self.config
        share = depth // config.splits
        each = 128 // weights.type.dtype.bytes  # elements of a line
        lines = next_power_of_two(-(-share // each))
        if lines * config.block_n > MOST_LINES:
            return
        begin = f"split * {share} + " if config.splits > 1 else ""
        p.line(f"line = tl.minimum(tl.arange(0, {lines}) * {each}, {share - 1})")
        p.line(f"column = tl.minimum(n, {columns - 1})")
        pointer = self.region.pointers[weights]
        p.line(f"_prefetch({pointer} + {begin}column[:, None] * {depth} + line[None, :])")

    def _order(self) -> None:
        """Neighbouring programs share columns of the right operand, and few rows of the left one."""
        p, down, across = self.printer, self.down, self.across
        if isinstance(down, int) and down <= FEW_TILES:
            p.line(f"down, across = tile % {down}, tile // {down}" if down > 1
                   else "down, across = 0, tile")  # fmt: skip
            return
        p.line(f"first = tile // ({GROUP} * {p.dim(across)}) * {GROUP}")
        p.line(f"tall = tl.minimum({p.dim(down)} - first, {GROUP})")
        p.line(f"among = tile % ({GROUP} * {p.dim(across)})")
        p.line("down, across = first + among % tall, among // tall")

    def _bind_rows(self, text: str) -> None:
        p = self.printer
        mask = ""
        if not dims.is_multiple(self.rows, self.config.block_m):
            p.line(f"in_m = m < {p.dim(self.rows)}")
            mask = text.replace("m", "in_m", 1)
        p.bind(self.m, text, mask)

    def _bind_columns(self) -> None:
        mask = "" if dims.is_multiple(self.columns, self.config.block_n) else "in_n[None, :]"
        self.printer.bind(self.n, "n[None, :]", mask)

    def _mask_columns(self) -> None:
        if not dims.is_multiple(self.columns, self.config.block_n):
            self.printer.line(f"in_n = n < {self.printer.dim(self.columns)}")

    # -- the loop

    def sum_products(
        self,
        dtype: DType,
        left: Callable[[], Node],
        right: Callable[[], Node],
        *,
        tf32: bool = False,
        walk: Callable[[], Callable[[bool], None]] | None = None,
    ) -> None:
        """`sums`: the tile's sums over k of left (at m, k) times right (at k, n), in fp32 or fp64.

        `walk` opens the loop over the depth itself and returns what binds its variables, for the
        left operand (True: across) or the right one.
        """
        type = triton_type(dtype)
        precision = "tf32" if tf32 else "ieee"

        def step(a: str, b: str) -> None:
            if dtype.bits == 64:  # not every Triton has the matrix units for it
                self.printer.line(
                    f"whole = {a}.to({type})[:, :, None] * {b}.to({type})[None, :, :]"
                )
                self.printer.line("sums += tl.sum(whole, axis=1)")
                return
            self.printer.line(
                f"sums = tl.dot({a}.to({type}), {b}.to({type}), sums, input_precision='{precision}')"
            )

        self.sum_by(left, right, step, walk)

    def sum_by(
        self,
        left: Callable[[], Node],
        right: Callable[[], Node],
        step: Callable[[str, str], None],
        walk: Callable[[], Callable[[bool], None]] | None = None,
    ) -> None:
        """The loop over the depth: `step` prints what is done with blocks [m, k] and [k, n]."""
        p = self.printer
        self._mask_columns()
        bind = self._walk() if walk is None else walk()
        bind(True)
        a = p.stored(left())
        p.forget(self.k)  # k runs down the right operand
        bind(False)
        self._bind_columns()
        step(a, p.stored(right()))
        p.leave(self._loop)
        self._bind_columns()

    @property
    def masks_depth(self) -> bool:
        """Whether the last step of the depth may reach beyond it, where `in_k` is false."""
        return not dims.is_multiple(self.depth, self.config.block_k * self.config.splits)

    def _walk(self) -> Callable[[bool], None]:
        p, config = self.printer, self.config
        depth = p.dim(self.depth)
        if config.splits > 1:
            share = typical_size(self.depth) // config.splits
            p.line(f"for start in range(split * {share}, (split + 1) * {share}, {config.block_k}):")
        else:
            p.line(f"for start in range(0, {depth}, {config.block_k}):")
        self._loop = p.enter()
        p.line(f"k = start + tl.arange(0, {config.block_k})")
        masked = self.masks_depth
        if masked:
            p.line(f"in_k = k < {depth}")

        def bind(across: bool) -> None:
            at = "[None, :]" if across else "[:, None]"
            p.bind(self.k, f"k{at}", f"in_k{at}" if masked else "")

        return bind

    def walk_taps(self, taps: Dim, tap: Dim, channels: int, channel: Dim) -> Callable[[bool], None]:
        """Opens a loop over taps and blocks of channels: a tap's position is one number a step."""
        p, config = self.printer, self.config
        blocks = channels // config.block_k
        total = typical_size(taps) * blocks
        if config.splits > 1:
            share = total // config.splits
            p.line(f"for step in range(split * {share}, (split + 1) * {share}):")
        else:
            p.line(f"for step in range(0, {total}):")
        self._loop = p.enter()
        number = "step" if blocks == 1 else f"step // {blocks}"
        first = "" if blocks == 1 else f"step % {blocks} * {config.block_k} + "
        p.line(f"tap = {number}")
        p.line(f"c = {first}tl.arange(0, {config.block_k})")
        p.bind(tap, "tap")

        def bind(across: bool) -> None:
            p.forget(channel)
            p.bind(channel, "c[None, :]" if across else "c[:, None]")

        return bind

    def sum_streamed(self, left: Matrix, right: Matrix) -> None:
        """`sum_products` for operands that come through tensor descriptors."""
        p, config = self.printer, self.config
        m, n, k = config.block_m, config.block_n, config.block_k
        down = right.strides[1] == 1  # k is innermost in the right operand too
        self._describe("d_left", left, (self.rows, self.depth), (m, k))
        if down:
            self._describe("d_right", right, (self.columns, self.depth), (n, k))
        else:
            self._describe("d_right", right, (self.depth, self.columns), (k, n), flip=True)
        p.line(f"for start in range(0, {p.dim(self.depth)}, {k}):")
        saved = p.enter()
        p.line(f"left = d_left.load([down * {m}, start])")
        if down:
            p.line(f"right = d_right.load([across * {n}, start]).T")
        else:
            p.line(f"right = d_right.load([start, across * {n}])")
        p.line("sums = tl.dot(left, right, sums)")
        p.leave(saved)
        p.line(f"m = down * {m} + tl.arange(0, {m})")
        p.line(f"n = across * {n} + tl.arange(0, {n})")
        self._bind_rows("m[:, None]")
        self._mask_columns()
        self._bind_columns()

    def _describe(
        self, name: str, matrix: Matrix, shape: tuple[Dim, Dim], box: tuple[int, int],
        *, flip: bool = False,
    ) -> None:  # fmt: skip
        source = matrix.load.source
        element = {"float16": "fp16", "bfloat16": "bf16"}[TYPES[source.type.dtype.name]]
        strides = matrix.strides[::-1] if flip else matrix.strides
        self.extra.append(
            Extra(
                name,
                f"tensordesc<{element}[{box[0]},{box[1]}]>",
                f"map:{self.region.inputs.index(source)}",
                scalars=(*shape, *strides),
            )
        )

    # -- the end

    def halves(self, result: Matrix) -> Generator[Callable[[str], None]]:
        """For each half of a finished tile's columns, bound as `sums`: what stores a block of it."""
        p, config = self.printer, self.config
        m, half = config.block_m, config.block_n // 2
        type = result.load.source.type.dtype
        element = {"float16": "fp16", "bfloat16": "bf16"}[TYPES[type.name]]
        number = len(self.region.inputs) + self.region.outputs.index(result.load.source)
        self.extra.append(
            Extra(
                "d_result",
                f"tensordesc<{element}[{m},{half}]>",
                f"map:{number}",
                scalars=(self.rows, self.columns, *result.strides),
            )
        )
        p.line(f"pair = tl.permute(tl.reshape(sums, ({m}, 2, {half})), (0, 2, 1))")
        p.line("sums0, sums1 = tl.split(pair)")
        for i in range(2):
            p.forget(self.n)
            first = f"across * {config.block_n} + {i * half}"
            p.line(f"n = {first} + tl.arange(0, {half})")
            self._mask_columns()
            self._bind_columns()
            p.line(f"sums = sums{i}")
            place = f"[down * {m}, {first}]"

            def store(text: str, place: str = place) -> None:
                p.line(f"d_result.store({place}, tl.cast({text}, {triton_type(type)}))")

            yield store

    @contextmanager
    def finished(self) -> Generator[None]:
        """Within it `sums` is complete, in one program a tile; afterwards the frame is closed."""
        p, config = self.printer, self.config
        if config.streamed:
            yield
            p.leave(self._saved)
            return
        if config.splits == 1:
            yield
            return
        area = config.block_m * config.block_n
        tiles = typical_size(dims.multiply(self.down, self.across))
        total = tiles * typical_size(self.parts)
        self.extra += [
            Extra("p_partial", "*fp32", "pointer", Workspace(4 * area * total * config.splits)),
            Extra("p_arrived", "*i32", f"zeros:{4 * total}"),
        ]
        number = "tile" if self.parts == 1 else f"({self.part_name} * {tiles} + tile)"
        p.line(f"rows = tl.arange(0, {config.block_m})[:, None] * {config.block_n}")
        p.line(f"place = rows + tl.arange(0, {config.block_n})[None, :]")
        p.line(f"partial = p_partial + {number} * {area * config.splits}")
        p.line(f"tl.store(partial + split * {area} + place, sums)")
        p.line("tl.debug_barrier()")
        p.line(f"arrived = tl.atomic_add(p_arrived + {number}, 1, sem='acq_rel', scope='gpu')")
        p.line(f"if arrived == {config.splits - 1}:")
        saved = p.enter()
        p.line(f"tl.store(p_arrived + {number}, 0)")
        p.line(f"sums = tl.zeros([{config.block_m}, {config.block_n}], tl.float32)")
        p.line(f"for other in range({config.splits}):")
        p.line(f"    sums += tl.load(partial + other * {area} + place, cache_modifier='.cg')")
        yield
        p.leave(saved)
