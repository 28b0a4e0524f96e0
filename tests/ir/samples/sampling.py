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
    yield from _deformed()


def _deformed() -> Iterator[Sample]:
    for groups, (h, w), masked in itertools.product((1, 2), ((3, 2), (1, 1)), (False, True)):
        given = {
            "kernel": (h, w), "strides": (2, 1), "low": (1, 0), "high": (0, 1),
            "dilations": (1, 2), "groups": groups,
        }  # fmt: skip
        rows = (6 + 1 - h) // 2 + 1
        columns = 5 + 1 - (2 * (w - 1) + 1) + 1
        offset = normal(2, groups * h * w * 2, rows, columns, key="offset")
        arrays = [normal(2, 4, 6, 5), offset]
        if masked:
            arrays.append(normal(2, groups * h * w, rows, columns, key="mask"))
        yield Sample("deform_columns", tuple(arrays), given, f"{groups}_{h}x{w}_{masked:d}",
                     static=tuple(range(len(arrays))))  # fmt: skip
    far = np.float64([[[[0, 99.0, -1, 0.5]], [[np.nan, 0, -0.5, 1e30]]]])
    one = {"kernel": (1, 1), "strides": (1, 1), "low": (0, 0), "high": (0, 0), "dilations": (1, 1)}
    x = normal(1, 2, 1, 4).astype(np.float64)
    yield Sample("deform_columns", (x, far), one, "f64_outside", static=(0, 1))

    rois = np.float32([[0, 0, 0, 7, 5], [1, 1.5, 2.5, 4, 9], [1, 3, 3, 3, 3], [0, -2, -3, 30, 4],
                       [0, 20, 20, 25, 25]])  # fmt: skip
    x = normal(2, 3, 8, 9)
    for scale, (h, w) in itertools.product((1.0, 0.5), ((1, 1), (3, 2))):
        given = {"height": h, "width": w, "scale": scale}
        yield Sample("max_roi_pool", (x, rois), given, f"{scale}_{h}x{w}", static=(1,))
    odd = np.float32([[[[np.nan, 1], [2, -np.inf]]]])
    whole = np.float32([[0, 0, 0, 1, 1]])
    yield Sample("max_roi_pool", (odd, whole), {"height": 1, "width": 2}, "special", static=(1,))
