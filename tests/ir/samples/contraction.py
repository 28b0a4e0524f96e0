"""Samples of matrix multiplication, convolution, pooling and resize."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from samples.sample import Sample, integers, normal


def _matmuls() -> Iterator[Sample]:
    shapes = {
        "matrix": ((5, 7), (7, 3)),
        "vector_left": ((7,), (7, 3)),
        "vector_right": ((5, 7), (7,)),
        "vectors": ((7,), (7,)),
        "batched": ((2, 5, 7), (2, 7, 3)),
        "broadcast": ((2, 1, 5, 7), (3, 7, 4)),
        "batch_right": ((5, 7), (4, 7, 3)),
        "vector_batch": ((7,), (2, 7, 3)),
        "batch_vector": ((2, 5, 7), (7,)),
        "wide": ((33, 65), (65, 129)),
        "one_row": ((1, 300), (300, 17)),
        "no_depth": ((3, 0), (0, 4)),
        "no_rows": ((0, 3), (3, 4)),
    }
    for name, (a, b) in shapes.items():
        yield Sample("matmul", (normal(*a, key="a"), normal(*b, key="b")), {}, name)
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
        pair = tuple(normal(*s).astype(dtype) for s in ((4, 50), (50, 6)))
        yield Sample("matmul", pair, {}, np.dtype(dtype).name)
    ints = (integers(-(2**40), 2**40, 3, 4), integers(-(2**40), 2**40, 4, 2))
    yield Sample("matmul", ints, {}, "i64_wraps")
    bytes_ = (integers(-9, 9, 3, 8, dtype=np.int8), integers(-9, 9, 8, 2, dtype=np.int8))
    yield Sample("matmul", bytes_, {}, "i8_wraps")
    yield Sample("matmul", (np.float32([[np.inf, 1]]), np.float32([[0], [1]])), {}, "special")


def window(
    rank: int, *, strides: Any = 1, low: Any = 0, high: Any = None, dilations: Any = 1, **more: Any
) -> dict[str, Any]:
    """Window attributes, a number standing for one on every spatial axis; `high` defaults to `low`."""

    def each(value: Any) -> tuple[int, ...]:
        return (value,) * rank if isinstance(value, int) else tuple(value)

    return {
        "strides": each(strides),
        "low": each(low),
        "high": each(low if high is None else high),
        "dilations": each(dilations),
        **more,
    }


def _conv(
    name: str, x: tuple[int, ...], w: tuple[int, ...], *, bias: bool = True,
    dtype: Any = np.float32, **more: Any,
) -> Sample:  # fmt: skip
    given = [normal(*x, key="x"), normal(*w, key="w")] + [normal(w[0], key="b")] * bias
    arrays = tuple(a.astype(dtype) for a in given)
    return Sample("conv", arrays, window(len(x) - 2, **more), name, static=(1, 2))


def _convs() -> Iterator[Sample]:
    yield _conv("plain", (2, 3, 9, 8), (4, 3, 3, 3))
    yield _conv("padded", (1, 3, 9, 8), (4, 3, 3, 3), low=1)
    yield _conv("uneven_padding", (1, 3, 9, 8), (4, 3, 3, 2), low=(1, 0), high=(0, 2))
    yield _conv("strided", (2, 3, 11, 10), (5, 3, 3, 3), low=1, strides=2)
    yield _conv("uneven_strides", (1, 2, 11, 10), (3, 2, 3, 2), strides=(2, 3))
    yield _conv("dilated", (1, 3, 12, 12), (4, 3, 3, 3), low=2, dilations=2)
    yield _conv("grouped", (2, 6, 7, 7), (8, 3, 3, 3), low=1, groups=2)
    yield _conv("depthwise", (2, 6, 9, 9), (6, 1, 3, 3), low=1, groups=6)
    yield _conv("depthwise_strided", (1, 16, 13, 14), (16, 1, 5, 5), low=2, strides=2, groups=16)
    yield _conv("depthwise_double", (1, 4, 9, 9), (8, 1, 3, 3), low=1, groups=4)
    yield _conv("pointwise", (2, 8, 5, 6), (10, 8, 1, 1))
    yield _conv("pointwise_strided", (2, 8, 5, 6), (10, 8, 1, 1), strides=2)
    yield _conv("bare", (1, 3, 6, 6), (2, 3, 3, 3), bias=False)
    yield _conv("one_window", (2, 3, 4, 4), (5, 3, 4, 4))
    yield _conv("sequence", (2, 3, 20), (4, 3, 5), low=2)
    yield _conv("causal", (2, 3, 20), (4, 3, 3), low=4, high=0, dilations=2)
    yield _conv("volume", (1, 2, 5, 6, 7), (3, 2, 3, 3, 3), low=1, strides=(1, 2, 1))
    yield _conv("half", (1, 3, 6, 6), (2, 3, 3, 3), dtype=np.float16)
    yield _conv("f64", (1, 3, 6, 6), (2, 3, 3, 3), dtype=np.float64)
    yield _conv("no_images", (0, 3, 6, 6), (2, 3, 3, 3))


def _transposed(
    name: str, x: tuple[int, ...], w: tuple[int, ...], *, extra: Any = 0, bias: bool = True,
    **more: Any,
) -> Sample:  # fmt: skip
    rank, filters = len(x) - 2, w[1] * more.get("groups", 1)
    arrays = [normal(*x, key="x"), normal(*w, key="w")] + [normal(filters, key="b")] * bias
    padding = (extra,) * rank if isinstance(extra, int) else extra
    attributes = window(rank, **more) | {"output_padding": padding}
    return Sample("conv_transpose", tuple(arrays), attributes, name, static=(1, 2))


def _transposes() -> Iterator[Sample]:
    yield _transposed("plain", (2, 3, 4, 5), (3, 4, 3, 3))
    yield _transposed("doubling", (1, 3, 4, 5), (3, 4, 2, 2), strides=2)
    yield _transposed("padded", (1, 3, 4, 5), (3, 4, 3, 3), strides=2, low=1)
    yield _transposed("output_padding", (1, 3, 4, 5), (3, 4, 3, 3), strides=2, low=1, extra=1)
    yield _transposed("all", (1, 4, 5), (4, 3, 3), strides=3, low=1, dilations=2, groups=2, extra=2)
    yield _transposed("depthwise", (1, 4, 6, 6), (4, 1, 4, 4), strides=2, low=1, groups=4)
    yield _transposed("uneven", (1, 2, 4, 5), (2, 3, 3, 2), strides=(1, 2), low=(0, 1), high=(1, 0))
    yield _transposed("volume", (1, 2, 3, 3, 3), (2, 3, 2, 2, 2), strides=2, bias=False)


def _pools() -> Iterator[Sample]:
    x = normal(2, 3, 9, 10)
    cases: dict[str, tuple[np.ndarray, tuple[int, ...], dict[str, Any]]] = {
        "plain": (x, (2, 2), window(2, strides=2)),
        "padded": (x, (3, 3), window(2, strides=2, low=1)),
        "ceil": (x, (3, 3), window(2, strides=2, ceil_mode=True)),
        "ceil_padded": (x, (2, 2), window(2, strides=(2, 3), low=1, ceil_mode=True)),
        "dilated": (x, (3, 2), window(2, dilations=2)),
        "overlapping": (x, (5, 5), window(2, low=2)),
        "uneven": (x, (3, 2), window(2, low=(1, 0), high=(0, 1))),
        "whole": (x, (9, 10), window(2)),
        "sequence": (normal(2, 3, 11), (4,), window(1, strides=3, low=1)),
        "sequence_ceil": (normal(1, 1, 5), (2,), window(1, strides=2, low=1, ceil_mode=True)),
        "high_only": (normal(1, 1, 5), (3,), window(1, strides=2, low=0, high=1, ceil_mode=True)),
        "volume": (normal(1, 2, 5, 5, 6), (2, 2, 2), window(3, strides=2)),
        "half": (x.astype(np.float16), (3, 3), window(2, low=1)),
    }
    for name, (array, kernel, given) in cases.items():
        yield Sample("max_pool", (array,), {"kernel": kernel, **given}, name)
        columns = {"kernel": kernel, **given, "column_major": name in ("padded", "volume")}
        yield Sample("arg_max_pool", (array,), columns, name)
        for counted in (False, True):
            attributes = {"kernel": kernel, **given, "count_include_pad": counted}
            yield Sample("average_pool", (array,), attributes, name + "_counted" * counted)
    odd = np.float32([[[1, np.nan, 2, -np.inf, -np.inf, -np.inf, np.inf]]])
    for op in ("max_pool", "arg_max_pool"):
        yield Sample(op, (odd,), {"kernel": (2,), **window(1)}, "special")
    octets = integers(-128, 128, 1, 2, 6, 6, dtype=np.int8)
    yield Sample("max_pool", (octets,), {"kernel": (3, 3), **window(2, low=1)}, "i8")


def _resizes() -> Iterator[Sample]:
    x = normal(1, 2, 5, 4)
    rules = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric",
             "half_pixel_symmetric")  # fmt: skip
    for mode, rule, (h, w) in itertools.product(
        ("nearest", "linear", "cubic"), rules, ((10, 8), (3, 3), (7, 9), (1, 2))
    ):
        given: dict[str, Any] = {"sizes": (1, 2, h, w), "mode": mode, "coordinates": rule}
        yield Sample("resize", (x,), given, f"{mode}_{rule}_{h}x{w}")
    for nearest in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"):
        for rule in ("half_pixel", "asymmetric"):
            given = {"sizes": (1, 2, 8, 6), "coordinates": rule, "nearest": nearest}
            yield Sample("resize", (x,), given, f"{nearest}_{rule}")
    fraction = {"sizes": (1, 2, 12, 10), "scales": (1.0, 1.0, 2.5, 2.6)}
    for mode in ("nearest", "linear", "cubic"):
        for rule in rules:
            given = fraction | {"mode": mode, "coordinates": rule}
            yield Sample("resize", (x,), given, f"scales_{mode}_{rule}")
    for mode in ("nearest", "linear", "cubic"):
        crop = {
            "sizes": (1, 2, 4, 3),
            "mode": mode,
            "coordinates": "tf_crop_and_resize",
            "roi": (0.0, 0.0, 0.4, 0.6, 1.0, 1.0, 0.6, 1.2),
            "extrapolation": 10.0,
        }
        yield Sample("resize", (x,), crop, f"crop_{mode}")
    for rule in ("half_pixel", "asymmetric"):
        given = {
            "sizes": (1, 2, 8, 7),
            "mode": "cubic",
            "coordinates": rule,
            "cubic_a": -0.5,
            "exclude_outside": True,
        }
        yield Sample("resize", (x,), given, f"exclude_{rule}")
    for mode, sizes in itertools.product(("linear", "cubic"), ((1, 2, 3, 2), (1, 2, 2, 9))):
        given = {"sizes": sizes, "mode": mode, "antialias": True}
        yield Sample("resize", (normal(1, 2, 7, 5),), given, f"antialias_{mode}_{sizes[2]}")
    excluded = {"sizes": (1, 2, 2, 3), "scales": (1.0, 1.0, 0.3, 0.6), "mode": "cubic",
                "antialias": True, "exclude_outside": True}  # fmt: skip
    yield Sample("resize", (normal(1, 2, 7, 5),), excluded, "antialias_excluded", static=(0,))
    yield Sample("resize", (integers(0, 99, 2, 3, dtype=np.uint8),), {"sizes": (4, 9)}, "u8")
    # Scales and a region as data; an axis that is kept, for which infinities stay what they are.
    geometry = np.array([1, 1, 0.55, 1.8, 0, 0, 0.2, 0.1, 1, 1, 0.9, 1.3])
    x = normal(1, 2, 7, 5)
    for mode, rule, antialias in itertools.product(
        ("nearest", "linear", "cubic"), (*rules, "tf_crop_and_resize"), (False, True)
    ):
        given = {"sizes": (1, 2, 3, 9), "mode": mode, "coordinates": rule, "antialias": antialias}
        name = f"data_{mode}_{rule}_{antialias:d}"
        yield Sample("resize", (x, geometry), given, name, static=(1,))
    odd = np.array([[1, np.inf, 3], [-np.inf, 5, np.nan]])
    scales = np.array([1, 2, 0, 0, 1, 1.0])
    for mode in ("nearest", "linear"):
        given = {"sizes": (2, 6), "mode": mode}
        yield Sample("resize", (odd, scales), given, f"data_kept_{mode}", static=(1,))
    counts = integers(-(2**62), 2**62, 2, 3, dtype=np.int64)
    yield Sample("resize", (counts, scales), {"sizes": (2, 6)}, "data_i64", static=(1,))
    infinite = np.float32([[1, np.inf], [2, -np.inf]])
    yield Sample("resize", (infinite,), {"sizes": (4, 2), "mode": "linear"}, "kept_axis")
    yield Sample("resize", (normal(3, 7),), {"sizes": (3, 14), "mode": "linear"}, "matrix")
    half = {"sizes": (1, 2, 10, 8), "mode": "linear"}
    yield Sample("resize", (x.astype(np.float16),), half, "half")


def samples() -> Iterator[Sample]:
    yield from _matmuls()
    yield from _convs()
    yield from _transposes()
    yield from _pools()
    yield from _resizes()
