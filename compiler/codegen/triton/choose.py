"""Which tile computes a sum of products: candidates, and an estimate of their time on a GPU.

The figures are a fit to some 600 measured kernels on an H200 (sums of products of fp16, cold
weights, inside a CUDA graph); the estimate picks tiles within 2 % of the best measured ones in the
mean.  Times are microseconds, sizes elements unless they say bytes.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from graphwright.compiler.codegen.choice import choose_among
from graphwright.compiler.codegen.triton.arch import capabilities

MULTIPROCESSORS = 132
RATE = 5.98e6  # operations of one multiprocessor's matrix units
L2_RATE = 9.1e6  # bytes, of all multiprocessors
NEAR_RATE = 0.088e6  # bytes, of one multiprocessor
LATENCY = 0.74  # of one load
FIXED = 2.1  # a kernel's start and end
STORE = 0.47  # of a tile of 4096
SPLIT, SPLIT_PART = 1.66, 0.43  # of partial sums: once, and for each tile of 4096
SHARED_BYTES = {80: 163_000, 86: 99_000, 89: 99_000, 90: 227_000, 100: 227_000, 120: 99_000}
BUSY = 1.2  # what plain tiles lose against their rate when they come in waves
USED_SHARED = 214_000  # what tiles on one multiprocessor may use together

# How much of the matrix units' rate a tile reaches.
PLAIN = {
    (128, 256): 0.79, (256, 128): 0.85, (128, 128): 0.79, (128, 64): 0.59, (64, 128): 0.70,
    (64, 256): 0.70, (64, 64): 0.39, (64, 32): 0.35, (32, 64): 0.21, (32, 128): 0.22,
    (128, 32): 0.28, (32, 32): 0.14, (256, 64): 0.58, (16, 64): 0.1, (16, 32): 0.07,
    (16, 128): 0.12,
}  # fmt: skip
STREAMED = {(128, 256): 0.88, (128, 128): 0.85, (256, 128): 0.86, (128, 64): 0.6}
# Bytes per microsecond of a stream from memory, by its length in megabytes.
STREAM = ((0.5, 0.3e6), (2, 0.7e6), (8, 1.9e6), (16, 2.6e6), (32, 3.3e6), (64, 3.7e6),
          (128, 4.0e6), (512, 4.3e6))  # fmt: skip


@dataclass(frozen=True, slots=True)
class Config:
    """A tile of rows x columns, in steps of `block_k`; the depth in `splits` parts.

    `streamed`: operands come through tensor descriptors, and programs loop over tiles.  `halves`: so
    does the result, half of a tile's columns after the other, while the next tile is loaded.
    """

    block_m: int
    block_n: int
    block_k: int
    warps: int
    stages: int
    splits: int = 1
    streamed: bool = False
    halves: bool = False

    def __str__(self) -> str:
        more = f", {self.splits} splits" if self.splits > 1 else ""
        more += ", streamed" if self.streamed else ""
        more += ", stored in halves" if self.halves else ""
        tile = f"{self.block_m} x {self.block_n} x {self.block_k}"
        return f"{tile}, {self.warps} warps, {self.stages} stages{more}"


@dataclass(frozen=True, slots=True)
class Product:
    """What is known of a sum of products, at typical sizes.

    `step`: the depth must be walked in blocks that divide this (input channels of a convolution).
    """

    rows: int
    columns: int
    depth: int
    parts: int = 1
    bytes: int = 2  # of an element
    step: int = 0
    least_step: int = 16  # elements of the depth that the matrix units take at once
    exact: bool = False  # products of 32 or 64 bits without the matrix units
    gathers: bool = False  # elements of the left operand are found one by one
    can_split: bool = False
    can_stream: bool = False
    can_halve: bool = False


def choose(product: Product, capability: int) -> Config:
    """The candidate with the least estimate, unless a tuner chooses another."""
    ranked = sorted(candidates(product, capability), key=lambda c: estimate(product, c))
    return choose_among(ranked)


def candidates(product: Product, capability: int) -> Iterator[Config]:
    """Every tile that suits the sizes and fits the shared memory of a capability."""
    if product.bytes == 8:  # multiplied one by one
        yield Config(16, 16, 16, 4, 2)
        return
    among = capabilities() if capability in capabilities() else (capability,)
    shared = min(SHARED_BYTES.get(c, 99_000) for c in among)
    walk = product.step or product.depth
    widest_m = max(16, _power(product.rows))
    widest_n = max(32, _power(product.columns))
    found = False
    for (m, n), k, stages in _shapes(product):
        if (m + n) * k * product.bytes * stages > shared or m > widest_m or n > widest_n:
            continue
        if product.step and walk % k:
            continue
        if product.gathers and (m > 64 or k > 32 or stages > 2):
            continue  # more addresses than registers hold
        if product.exact and (m * n > 64 * 64 or k > 32 or stages > 3):
            continue
        if k > max(_power(walk), product.least_step) or k < product.least_step:
            continue
        warps = 8 if m * n >= 128 * 128 else 4
        found = True
        yield Config(m, n, k, warps, stages)
        if product.can_split and m * n <= 64 * 64:
            steps = math.ceil(product.depth / k)
            tiles = product.parts * math.ceil(product.rows / m) * math.ceil(product.columns / n)
            for splits in (2, 3, 4, 6, 8, 9, 12):
                even = product.depth % (k * splits) == 0
                if even and steps // splits >= 2 and tiles * splits <= 4 * MULTIPROCESSORS:
                    yield Config(m, n, k, warps, stages, splits)
    if product.can_stream and capability >= 90:
        for m, n in STREAMED:
            stages = 3 if m * n > 128 * 128 else 4
            warps = 8 if m * n > 128 * 128 else 4
            if n <= widest_n and product.depth >= 64:
                found = True
                # (stored in halves only where a tuner has timed it)
                for halves in (False, True) if product.can_halve else (False,):
                    yield Config(m, n, 64, warps, stages, streamed=True, halves=halves)
    if not found:
        yield Config(min(widest_m, 32), min(widest_n, 32), product.least_step, 4, 2)


def _shapes(product: Product) -> Iterator[tuple[tuple[int, int], int, int]]:
    for tile in PLAIN:
        for k in (128, 64, 32, 16):
            if k > 64 and tile[0] * tile[1] > 64 * 128:
                continue  # too few stages would fit
            for stages in (5, 4, 3, 2):
                if stages > max(2, math.ceil(product.depth / k)):
                    continue
                if (
                    k >= 64
                    or product.gathers
                    or product.depth < 64
                    or product.step
                    or product.bytes > 2
                ):
                    # (fewer bytes a step were never the better choice for 16 bits)
                    yield tile, k, stages


def _power(n: int) -> int:
    return 1 << max(n - 1, 0).bit_length()


def stream_rate(bytes: float) -> float:
    """Bytes per microsecond that a stream of so many bytes reaches."""
    size = max(bytes / 1e6, 1e-3)
    if size <= STREAM[0][0]:
        return STREAM[0][1]
    for (a, low), (b, high) in itertools.pairwise(STREAM):
        if size <= b:
            return low + (high - low) * math.log(size / a) / math.log(b / a)
    return STREAM[-1][1]


def estimate(product: Product, c: Config) -> float:
    """Microseconds of one launch."""
    tiles = product.parts * math.ceil(product.rows / c.block_m)
    tiles *= math.ceil(product.columns / c.block_n)
    steps = math.ceil(product.depth / c.block_k / c.splits)
    moved = (c.block_m + c.block_n) * c.block_k * product.bytes
    area = c.block_m * c.block_n
    work = 2 * area * c.block_k / RATE * (1 if product.bytes <= 2 else 2)
    weights = product.parts * product.columns * product.depth * product.bytes
    whole = (
        weights + product.parts * product.rows * (product.depth + product.columns) * product.bytes
    )
    if c.streamed:
        waves = math.ceil(tiles / MULTIPROCESSORS)
        one = max(work / STREAMED[c.block_m, c.block_n], moved / NEAR_RATE)
        return FIXED + LATENCY + max(waves * (steps * one + 0.4), whole / stream_rate(whole))
    programs = tiles * c.splits
    resident = max(
        1,
        min(
            USED_SHARED // (moved * c.stages),
            64 // c.warps,
            65536 // (area + 40 * 32 * c.warps),
            math.ceil(programs / MULTIPROCESSORS),
        ),
    )
    waves = math.ceil(programs / (MULTIPROCESSORS * resident))
    active = max(programs / MULTIPROCESSORS, 1) if waves == 1 else resident
    rate = PLAIN.get((c.block_m, c.block_n), 0.1)
    one = max(work / rate * active, moved / NEAR_RATE * active, LATENCY / max(c.stages - 1, 1))
    time = waves * (steps * one + STORE * area / 4096) * (BUSY if waves > 1 else 1)
    read = weights if product.rows < 1000 else whole
    time = max(time, programs * steps * moved / L2_RATE, read / stream_rate(read))
    if c.splits > 1:
        time += SPLIT + SPLIT_PART * c.splits * area / 4096
    return FIXED + time
