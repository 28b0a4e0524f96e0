"""Products of few rows: each weight is read once, in wide loads, and multiplied as it passes.

A program computes some columns of every product of its region.  Weights do not depend on what ran
before, so that as many as registers hold are loaded before the program waits for the kernel in
front of it.  An RMS norm of the rows is computed by every program: a row is little beside weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, Lowering, offset_of, problem
from graphwright.compiler.codegen.scalar import Given, Load, Node, compute_dtype
from graphwright.compiler.codegen.triton.choose import MULTIPROCESSORS
from graphwright.compiler.codegen.triton.kernels import Region, next_power_of_two
from graphwright.compiler.codegen.triton.matmul import store_coordinates
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import DType

VECTOR = 8  # elements of 16 bits in one load
HELD = 128  # elements of weights that a thread may hold
MOST_DEPTH = 16384


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns a program, elements of the depth at a time, warps, and chunks loaded ahead."""

    columns: int
    chunk: int
    warps: int
    ahead: int


def shape_of(columns: int, depth: int, products: int, bits: int) -> Shape:
    """About 64 elements of weights a thread, while every multiprocessor has three programs.

    Half or twice as many were within 7 % on an H200, whichever way (docs/performance-log.md).
    """
    wide = VECTOR * 16 // max(bits, 16)
    warps = 8 if depth >= 8192 else 4
    while warps > 1 and 32 * warps * wide > 2 * next_power_of_two(depth):
        warps //= 2
    threads = 32 * warps
    chunk = min(threads * wide, next_power_of_two(depth))
    chunks = -(-depth // chunk)
    each = 64  # elements of weights a thread, where there are columns enough
    across = 1
    while (
        2 * across * chunks * chunk * products <= each * threads
        and -(-columns // (2 * across)) >= 3 * MULTIPROCESSORS
        and across < 16
    ):
        across *= 2
    held = across * chunk * products // threads
    return Shape(across, chunk, warps, min(chunks, max(HELD // max(held, 1), 1)))


def emit_products(op: Op) -> EmittedLaunch:
    """One program some columns of all products (grid axis 0)."""
    return _Products(op).emit()


class _Products:
    def __init__(self, op: Op) -> None:
        self.region = Region(op)
        ops = list(self.region.body.ops)
        self.roots = [o for o in ops if o.name == "matmul"]
        self.norms = [o for o in ops if o.name == "rms_norm"]
        first = self.roots[0]
        self.rows, self.shape = first.operands[0], first.result.type.shape
        count, depth, columns = (
            dims.product(self.shape[:-1]),
            self.rows.type.shape[-1],
            self.shape[-1],
        )
        if not isinstance(count, int) or not isinstance(depth, int) or not isinstance(columns, int):
            raise problem(first, "a product of few rows needs known sizes")
        self.count, self.depth, self.columns = count, depth, columns
        if any(r.operands[0] is not self.rows for r in self.roots) or len(self.norms) > 1:
            raise problem(first, "its products have different rows")
        bits = first.operands[1].type.dtype.bits
        self.tile = shape_of(columns, depth, len(self.roots), bits)
        domain = self.region.domain
        self.n, self.k = domain.loop("n", columns), domain.loop("k", depth)
        self.printer = self.region.printer()
        self.lowering = Lowering(domain)
        self.masked_n = columns % self.tile.columns != 0
        self.chunks = -(-depth // self.tile.chunk)

    # -- pieces

    def _at(self, row: int) -> tuple[int, ...]:
        """Coordinates of a row by number."""
        out: list[int] = []
        for extent in reversed(self.shape[:-1]):
            assert isinstance(extent, int)
            out.append(row % extent)
            row //= extent
        return tuple(out[::-1])

    def _bind_n(self, text: str) -> None:
        mask = text.replace("n", "in_n", 1) if self.masked_n else ""
        self.printer.forget(self.n)
        self.printer.bind(self.n, text, mask)

    def _bind_k(self, chunk: str, number: int | None) -> None:
        """Names the places of one chunk; `number`: None where it is one of a loop."""
        p, size = self.printer, self.tile.chunk
        p.forget(self.k)
        last = self.chunks - 1
        ragged = self.depth % size != 0 and number in (None, last)
        p.line(f"k = {chunk} + tl.arange(0, {size})")
        if ragged:
            p.line(f"in_k = k < {self.depth}")
        p.bind(self.k, "k[None, :]", "in_k[None, :]" if ragged else "")

    def _weights(self) -> list[str]:
        """Loads a chunk of every product's weights, as they are stored."""
        return [self.printer.stored(self._weight(root)) for root in self.roots]

    def _weight(self, root: Op) -> Node:
        weights = root.operands[1]
        outer = (0,) * (weights.type.rank - 2)
        return self.lowering.at(weights, (*outer, self.k, self.n))

    def _row(self, row: int, given: str = "") -> str:
        """Elements of a row at the chunk in float32; `given`: what the norm made of it."""
        at = (*self._at(row), self.k)
        lowering = self.lowering
        if given:
            (norm,) = self.norms
            made = Given(given, compute_dtype(norm.result.type.dtype))

            def know(value: Value, coordinates: Coordinates) -> Node | None:
                del coordinates
                return made if value is norm.result else None

            lowering = Lowering(self.region.domain, given=know)
        return self.printer.node(lowering.at(self.rows, at))

    # -- the kernel

    def emit(self) -> EmittedLaunch:
        p, tile = self.printer, self.tile
        index = self.region.index
        p.line(f"n = tl.program_id(0){index} * {tile.columns} + tl.arange(0, {tile.columns})")
        if self.masked_n:
            p.line(f"in_n = n < {self.columns}")
        self._bind_n("n[:, None]")
        known = all(
            isinstance(node := self._weight(r), Load) and self.region.is_weight(node.source)
            for r in self.roots
        )
        ahead = tile.ahead if known else 0
        held: list[list[str]] = []
        for c in range(ahead):
            self._bind_k(str(c * tile.chunk), c)
            held.append(self._weights())
        p.line("_wait()")
        if self.norms:
            self._measure_rows()
        for i in range(len(self.roots)):
            for row in range(self.count):
                p.line(f"sums{i}_{row} = tl.zeros([{tile.columns}, {tile.chunk}], tl.float32)")
        for c in range(ahead):
            self._bind_k(str(c * tile.chunk), c)
            self._add(held[c], c)
        if ahead < self.chunks:
            p.line(f"for start in range({ahead * tile.chunk}, {self.depth}, {tile.chunk}):")
            saved = p.enter()
            self._bind_k("start", None)
            self._add(self._weights(), None)
            p.leave(saved)
        self._finish()
        stem = "_".join(o.name for o in self.region.body.ops)
        several = f", {len(self.roots)} products" if len(self.roots) > 1 else ""
        summary = f"matmul {self.count} x {self.columns} x {self.depth}{several}"
        grid = (dims.ceildiv(self.columns, tile.columns),)
        return self.region.launch(stem, summary, p, grid, num_warps=tile.warps, num_stages=2)

    def _measure_rows(self) -> None:
        """Per row, one divided by the root of its mean square; rows that fit stay in registers."""
        p, (norm,) = self.printer, self.norms
        source, epsilon = norm.operands[0], float(norm.attribute("epsilon"))
        for row in range(self.count):
            names: list[str] = []
            for c in range(self.chunks):
                self._bind_k(str(c * self.tile.chunk), c)
                node = self.lowering.at(source, (*self._at(row), self.k))
                name = f"row{row}_{c}"
                p.line(f"{name} = {p.node(node)}")
                names.append(name)
            squares = " + ".join(f"{n} * {n}" for n in names)
            p.line(f"squares = {squares}")
            p.line(f"variance = tl.sum(squares, axis=1, keep_dims=True) / {self.depth}")
            p.line(f"scale{row} = 1.0 / tl.sqrt_rn(variance + {epsilon!r})")

    def _add(self, weights: Sequence[str], chunk: int | None) -> None:
        p = self.printer
        for row in range(self.count):
            given = ""
            if self.norms:
                given = f"normed{row}"
                p.line(f"{given} = {self._normed(row, chunk)}")
            p.line(f"factor = {self._row(row, given)}")
            for i, name in enumerate(weights):
                sums = f"sums{i}_{row}"
                p.line(f"{sums} = tl.fma({name}.to(tl.float32), factor, {sums})")

    def _normed(self, row: int, chunk: int | None) -> str:
        p, (norm,) = self.printer, self.norms
        at = (*self._at(row), self.k)
        x = f"row{row}_{chunk}"
        if chunk is None:
            x = p.node(self.lowering.at(norm.operands[0], at))
        text = f"{x} * scale{row}"
        if len(norm.operands) > 1:
            scale = norm.operands[1]
            where = self.lowering.broadcast(at, norm.operands[0].type.shape, scale.type.shape)
            text = f"({text}) * {p.node(self.lowering.at(scale, where))}"
        return text

    def _finish(self) -> None:
        """Adds up, and stores what the epilogue makes of the sums."""
        p, region = self.printer, self.region
        p.forget(self.k)
        self._bind_n("n")
        last = self.roots[-1]
        for row in range(self.count):
            given: dict[Value, Node] = {}
            for i, root in enumerate(self.roots):
                name = f"product{i}_{row}"
                p.line(f"{name} = tl.sum(sums{i}_{row}, axis=1)")
                given[root.result] = Given(name, compute_dtype(root.result.type.dtype))
            epilogue = Lowering(region.domain, given=lambda v, _, g=given: g.get(v))
            at: Coordinates = (*self._at(row), self.n)
            for value, pointer in zip(region.outputs, region.out_pointers, strict=True):
                inner, where = store_coordinates(value, at, last, region)
                offset = offset_of(value.type, where, region.domain)
                node = epilogue.at(inner, at)
                p.store(pointer, value.type.dtype, offset, node, dims.symbols_of(self.n))


def can_emit(rows: int, depth: object, columns: object, dtype: DType) -> bool:
    """Whether a lone product of few rows is for this emitter."""
    known = isinstance(depth, int) and isinstance(columns, int)
    return known and rows > 0 and int(str(depth)) <= MOST_DEPTH and dtype.bits <= 32
