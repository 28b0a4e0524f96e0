"""Output tiles of sums of products: what matmul and convolution kernels have in common.

A program computes a tile of `rows` x `columns` of one part (a batch, a group) by a loop over the
depth; the callers say what one element of the left and of the right operand is.
"""

from __future__ import annotations

from collections.abc import Callable

from graphwright.compiler.codegen.scalar import Node
from graphwright.compiler.codegen.triton.kernels import Region, next_power_of_two
from graphwright.compiler.codegen.triton.printing import triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.types import DType


def tile_sizes(m: Dim, n: Dim, k: Dim) -> tuple[int, int, int, int]:
    """(block m, block n, block k, warps) for typical sizes: small tiles where few would fill a chip."""

    def typical(d: Dim) -> int:
        return dims.evaluate(d, {s.name: s.typical for s in dims.symbols_of(d)})

    rows, columns, depth = typical(m), typical(n), typical(k)
    block_m = min(max(next_power_of_two(rows), 16), 64)
    block_n = min(max(next_power_of_two(columns), 16), 64)
    block_k = min(max(next_power_of_two(depth), 16), 64 if block_m <= 32 else 32)
    return block_m, block_n, block_k, 4


class Tile:
    """The loops `m`, `n` and `k` of a tile and `part`, bound to blocks of a program.

    Grid axis 0 counts the tiles of a part, axis 1 the parts.
    """

    def __init__(
        self, region: Region, *, part: str, parts: Dim, rows: Dim, columns: Dim, depth: Dim
    ) -> None:
        self.printer = p = region.printer()
        domain = region.domain
        self.block_m, self.block_n, self.block_k, self.warps = tile_sizes(rows, columns, depth)
        self.depth = depth
        self.part = domain.loop(part, parts)
        self.m, self.n = domain.loop("m", rows), domain.loop("n", columns)
        self.k = domain.loop("k", depth)
        across = dims.ceildiv(columns, self.block_n)
        self.grid = (dims.multiply(dims.ceildiv(rows, self.block_m), across), parts)
        p.line("tile = tl.program_id(0).to(tl.int64)")
        p.line(f"{part} = tl.program_id(1).to(tl.int64)")
        p.line(f"m = tile // {p.dim(across)} * {self.block_m} + tl.arange(0, {self.block_m})")
        p.line(f"n = tile % {p.dim(across)} * {self.block_n} + tl.arange(0, {self.block_n})")
        p.line(f"in_m, in_n = m < {p.dim(rows)}, n < {p.dim(columns)}")
        p.bind(self.part, part)
        p.bind(self.m, "m[:, None]", "in_m[:, None]")

    def sum_products(
        self, dtype: DType, left: Callable[[], Node], right: Callable[[], Node]
    ) -> None:
        """`sums`: the tile's sums over k of left (at m, k) times right (at k, n), in fp32 or fp64.

        Afterwards m and n are bound as the tile's rows and columns.
        """
        p = self.printer
        wide = "float64" if dtype.bits == 64 else "float32"
        p.line(f"sums = tl.zeros([{self.block_m}, {self.block_n}], tl.{wide})")
        p.line(f"for start in range(0, {p.dim(self.depth)}, {self.block_k}):")
        saved = p.enter()
        p.line(f"k = start + tl.arange(0, {self.block_k})")
        p.line(f"in_k = k < {p.dim(self.depth)}")
        p.bind(self.k, "k[None, :]", "in_k[None, :]")
        a = p.node(left())
        p.forget(self.k)  # k runs down the right operand
        p.bind(self.k, "k[:, None]", "in_k[:, None]")
        p.bind(self.n, "n[None, :]", "in_n[None, :]")
        b = p.node(right())
        type = triton_type(dtype)
        p.line(f"sums = tl.dot({a}.to({type}), {b}.to({type}), sums, input_precision='ieee')")
        p.leave(saved)
        p.bind(self.n, "n[None, :]", "in_n[None, :]")
