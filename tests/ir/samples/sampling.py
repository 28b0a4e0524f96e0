"""Samples of reading between elements, and of determinants."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from samples.sample import Sample, normal


def samples() -> Iterator[Sample]:
    x, grid = normal(2, 3, 5, 4), normal(2, 3, 6, 2, key="grid")
    for mode, padding, aligned in itertools.product(
        ("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (False, True)
    ):
        given = {"mode": mode, "padding": padding, "align_corners": aligned}
        yield Sample("grid_sample", (x, grid), given, f"{mode}_{padding}_{aligned:d}", static=(1,))
    volume = (normal(1, 2, 3, 4, 5), normal(1, 2, 2, 3, 3, key="grid"))
    for mode in ("nearest", "linear", "cubic"):
        yield Sample("grid_sample", volume, {"mode": mode}, f"volume_{mode}", static=(0, 1))
    line = (normal(1, 2, 7), normal(1, 5, 1, key="grid"))
    yield Sample("grid_sample", line, {"padding": "border"}, "line", static=(0, 1))
    wide = tuple(a.astype(np.float64) for a in (x, grid))
    yield Sample("grid_sample", wide, {}, "f64", static=(1,))
    odd = np.float32([[[[np.nan, 0], [np.inf, -np.inf], [9, 9], [-1, 1]]]])
    yield Sample("grid_sample", (normal(1, 1, 3, 3), odd), {}, "outside", static=(1,))

    rois = np.float32([[0, 0, 7, 5], [1.5, 2, 4, 9], [3, 3, 3.5, 3.2], [-2, -3, 30, 4]])
    images = np.int64([0, 1, 1, 0])
    for mode, half, sampling in itertools.product(("avg", "max"), (False, True), (0, 2)):
        given = {"height": 3, "width": 2, "mode": mode, "half_pixel": half, "sampling": sampling}
        arrays = (normal(2, 3, 8, 9), rois, images)
        yield Sample("roi_align", arrays, given, f"{mode}_{half:d}_{sampling}", static=(1, 2))
    scaled = {"height": 2, "width": 2, "scale": 0.5}
    yield Sample("roi_align", (normal(2, 3, 8, 9), rois, images), scaled, "scale", static=(1, 2))

    for n in (1, 2, 5):
        yield Sample("determinant", (normal(3, n, n),), {}, f"{n}")
    yield Sample("determinant", (normal(4, 4).astype(np.float64),), {}, "f64")
    yield Sample("determinant", (np.float32([[1, 2], [2, 4]]),), {}, "singular")
