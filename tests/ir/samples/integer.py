"""Samples of products of small integers: extremes, every pair of types, deep sums."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from samples.contraction import window
from samples.sample import Sample, integers

RANGES = {np.int8: (-128, 128), np.uint8: (0, 256), np.int16: (-32768, 32768)}
PAIRS = tuple(itertools.product((np.int8, np.uint8), (np.int8, np.uint8)))


def octets(dtype: Any, *shape: int, key: str = "") -> np.ndarray:
    """Over the whole range, its ends included where there is room for them."""
    out = integers(*RANGES[dtype], *shape, dtype=dtype, key=key)
    flat = out.reshape(-1)
    flat[:1], flat[1:2] = np.iinfo(dtype).min, np.iinfo(dtype).max
    return out


def _zero(dtype: Any, *shape: int) -> np.ndarray:
    return np.asarray(octets(dtype, *shape, key="zero")) if shape else np.asarray(dtype(3))


def _matmuls() -> Iterator[Sample]:
    def sample(name: str, a: Any, b: Any, *zeros: Any, static: tuple[int, ...] = ()) -> Sample:
        given = zeros or (np.zeros((), a.dtype), np.zeros((), b.dtype))
        return Sample("matmul_integer", (a, b, *given), {}, name, static)

    for left, right in PAIRS:
        name = f"{np.dtype(left).name}_{np.dtype(right).name}"
        a, b = octets(left, 13, 37, key="a"), octets(right, 37, 35, key="b")
        yield sample(name, a, b, _zero(left), _zero(right))
        yield sample(f"{name}_axes", a, b, _zero(left, 13, 1), _zero(right, 1, 35))
        yield sample(f"{name}_plain", a, b)
        lowest, highest = (
            (np.iinfo(d).min for d in (left, right)),
            (np.iinfo(d).max for d in (left, right)),
        )
        for end, (p, q) in (("lowest", lowest), ("highest", highest)):
            deep = np.full((2, 3000), p, left), np.full((3000, 5), q, right)
            yield sample(f"{name}_{end}", *deep)
            other = np.asarray(left(np.iinfo(left).max)), np.asarray(right(np.iinfo(right).max))
            yield sample(f"{name}_{end}_zero", *deep, *other)
    u8, i8 = np.uint8, np.int8
    shapes = {
        "vector_left": ((7,), (7, 3)),
        "vector_right": ((5, 7), (7,)),
        "vectors": ((9,), (9,)),
        "batched": ((2, 5, 7), (2, 7, 3)),
        "broadcast": ((2, 1, 5, 7), (3, 7, 4)),
        "batch_right": ((5, 7), (4, 7, 3)),
        "wide": ((33, 65), (65, 129)),
        "one_row": ((1, 300), (300, 17)),
        "rows": ((2, 40, 64), (64, 48)),
        "no_depth": ((3, 0), (0, 4)),
        "no_rows": ((0, 3), (3, 4)),
    }
    for name, (p, q) in shapes.items():
        yield sample(name, octets(u8, *p, key="a"), octets(i8, *q, key="b"), _zero(u8), _zero(i8))
    wide = octets(np.int16, 9, 66, key="a")
    yield sample("i16", wide, octets(i8, 66, 40, key="b"))
    yield sample("i16_u8", wide, octets(u8, 66, 7, key="b"), np.asarray(np.int16(5)), _zero(u8))
    deep = np.full((2, 500), -32768, np.int16), np.full((500, 3), 127, i8)
    yield sample("i16_deep", *deep)


def _conv(
    name: str, x: tuple[int, ...], w: tuple[int, ...], *zeros: Any,
    left: Any = np.uint8, right: Any = np.int8, **more: Any,
) -> Sample:  # fmt: skip
    arrays = octets(left, *x, key="x"), octets(right, *w, key="w")
    given = zeros or (_zero(left), _zero(right))
    return Sample(
        "conv_integer", (*arrays, *given), window(len(x) - 2, **more), name, static=(1, 3)
    )


def _convs() -> Iterator[Sample]:
    for left, right in PAIRS:
        name = f"{np.dtype(left).name}_{np.dtype(right).name}"
        types = {"left": left, "right": right}
        yield _conv(name, (2, 5, 9, 8), (7, 5, 3, 3), **types, low=1)
        zeros = np.asarray(left(np.iinfo(left).max)), _zero(right, 7)
        yield _conv(f"{name}_axis", (1, 5, 9, 8), (7, 5, 3, 3), *zeros, **types, low=(1, 0))
        yield _conv(f"{name}_depthwise", (2, 6, 9, 9), (6, 1, 3, 3), **types, low=1, groups=6)
    yield _conv("strided", (2, 3, 11, 10), (5, 3, 3, 3), low=1, strides=2)
    yield _conv("dilated", (1, 3, 12, 12), (4, 3, 3, 3), low=2, dilations=2)
    yield _conv("grouped", (2, 6, 7, 7), (8, 3, 3, 3), low=1, groups=2)
    yield _conv("depthwise_strided", (1, 16, 13, 14), (16, 1, 5, 5), low=2, strides=2, groups=16)
    yield _conv("depthwise_double", (1, 4, 9, 9), (8, 1, 3, 3), low=1, groups=4)
    yield _conv("pointwise", (2, 8, 5, 6), (10, 8, 1, 1))
    yield _conv("pointwise_wide", (1, 70, 5, 6), (40, 70, 1, 1))
    yield _conv("pointwise_strided", (2, 8, 5, 6), (10, 8, 1, 1), strides=2)
    yield _conv("one_window", (2, 3, 4, 4), (5, 3, 4, 4))
    yield _conv("sequence", (2, 3, 20), (4, 3, 5), low=2)
    yield _conv("causal", (2, 3, 20), (4, 3, 3), low=4, high=0, dilations=2)
    yield _conv("volume", (1, 2, 5, 6, 7), (3, 2, 3, 3, 3), low=1, strides=(1, 2, 1))
    yield _conv("wide", (1, 24, 8, 40), (96, 24, 3, 3), low=1)
    yield _conv("no_images", (0, 3, 6, 6), (2, 3, 3, 3))


def samples() -> Iterator[Sample]:
    yield from _matmuls()
    yield from _convs()
