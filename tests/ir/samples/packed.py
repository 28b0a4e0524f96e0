"""Samples of products with packed weights: bits, blocks, zero points, depths that end within a block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samples.sample import Sample, integers, normal


def product(
    name: str, bits: int, block: int, depth: int, *, rows: tuple[int, ...] = (3,), zeros: str = ""
) -> Sample:
    """37 columns."""
    count, blocks = 37, -(-depth // block)
    arrays = [
        normal(*rows, depth, key="a"),
        integers(0, 256, count, blocks, block * bits // 8, dtype=np.uint8, key="b"),
        np.abs(normal(count, blocks, key="s")) * np.float32(0.1),
    ]
    if zeros == "packed":
        arrays.append(integers(0, 256, count, -(-blocks * bits // 8), dtype=np.uint8, key="z"))
    elif zeros:
        arrays.append(normal(count, blocks, key="z") * np.float32(5))
    return Sample(
        "matmul_packed", tuple(arrays), {"bits": bits, "block": block}, name, static=(1, 2, 3)
    )


def samples() -> Iterator[Sample]:
    yield product("four", 4, 32, 96)
    yield product("eight_zeros", 8, 16, 100, zeros="packed", rows=(2, 5))
    yield product("two", 2, 16, 90, zeros="packed", rows=(19,))
    yield product("four_zeros", 4, 16, 70, zeros="packed", rows=(1,))
    yield product("floats", 4, 64, 130, zeros="floats", rows=(8,))
    yield product("many", 4, 32, 70, zeros="packed", rows=(3, 13))
    yield product("many_two", 2, 16, 48, zeros="floats", rows=(40,))
    yield product("many_eight", 8, 64, 100, rows=(33,))
    yield product("vector", 2, 128, 256, rows=())
    yield product("none", 8, 32, 64, rows=(0,))
