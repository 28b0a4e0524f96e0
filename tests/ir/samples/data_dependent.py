"""Samples of ops whose results have as many elements as the data say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from samples.sample import Sample, integers, normal


def _non_zeros() -> Iterator[Sample]:
    yield Sample("non_zero", (np.array([[True, False, True], [False, False, True]]),), {}, "bool")
    special = np.float32([0.0, -0.0, np.nan, 1e-45, -3, np.inf])
    yield Sample("non_zero", (special,), {}, "special")
    yield Sample("non_zero", (integers(-1, 2, 7, 5),), {}, "i64")
    yield Sample("non_zero", (np.ones((), np.float32),), {}, "scalar")
    yield Sample("non_zero", (np.zeros((3, 0), np.uint8),), {}, "empty")
    yield Sample("non_zero", (np.zeros(9, np.float16),), {}, "none")
    yield Sample("non_zero", (integers(0, 2, 10, 4000, dtype=np.int8),), {}, "blocks")


def _uniques() -> Iterator[Sample]:
    rows = integers(0, 3, 40, 2, dtype=np.int32)
    for how in (True, False):
        name = "sorted" if how else "as_met"
        yield Sample("unique", (rows,), {"sorted": how}, name)
        nan = np.float32([[np.nan], [1], [-0.0], [np.nan], [0.0], [-np.inf]])
        yield Sample("unique", (nan,), {"sorted": how}, f"special_{name}")
    yield Sample("unique", (np.zeros((0, 1), np.float32),), {}, "empty")
    yield Sample("unique", (normal(5, 0),), {}, "no_columns")
    yield Sample("unique", (integers(0, 9, 100, 1).astype(np.float64),), {}, "f64")
    yield Sample("unique", (np.array([[True], [False], [True]]),), {}, "bool")
    large = np.array([[2**60 + 1], [2**60], [2**60 + 1]], np.int64)
    yield Sample("unique", (large,), {}, "beyond_doubles")


def _suppressions() -> Iterator[Sample]:
    def case(name: str, batches: int, classes: int, n: int, most: int, iou: float,
             least: float = -np.inf, limit: int = 99, centered: bool = False) -> Sample:  # fmt: skip
        centers = normal(batches, n, 2, key=name)
        sizes = np.abs(normal(batches, n, 2, key=f"{name}/size")) + np.float32(0.5)
        pair = (centers, sizes) if centered else (centers + sizes, centers - sizes)
        scores = normal(batches, classes, n, key=f"{name}/score")
        scalars = (np.array(most), np.float32(iou), np.float32(least))
        arrays = (np.concatenate(pair, axis=-1), scores, *scalars)
        return Sample(
            "non_max_suppression",
            arrays,
            {"limit": limit, "centered": centered},
            name,
            static=(0, 1),
        )

    yield case("corners", 2, 3, 20, 5, 0.3)
    yield case("centered", 1, 2, 30, 50, 0.5, least=0.2, centered=True)
    yield case("limited", 1, 1, 9, 7, 0.9, limit=2)
    yield case("none_wanted", 1, 2, 4, 0, 0.5)
    yield case("no_boxes", 1, 2, 0, 3, 0.5)
    same = np.zeros((1, 4, 4), np.float32)  # degenerate boxes overlap nothing; equal scores
    arrays = (same, np.ones((1, 1, 4), np.float32), np.array(9), np.float32(0), np.float32(0))
    yield Sample("non_max_suppression", arrays, {"limit": 4}, "degenerate", static=(0, 1))


def samples() -> Iterator[Sample]:
    yield from _non_zeros()
    yield from _uniques()
    yield from _suppressions()
