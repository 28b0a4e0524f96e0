"""Samples of movement, indexing, scatter and source ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.types import (
    BF16,
    BOOL,
    DTYPES,
    F16,
    F32,
    F64,
    I32,
    I64,
    U8,
    dtype_of,
)
from samples.sample import Sample, integers, normal, rng


def _views() -> Iterator[Sample]:
    x = normal(2, 3, 4)
    yield Sample("reshape", (x,), {"shape": (6, 4)}, "merge")
    yield Sample("reshape", (x,), {"shape": (2, 3, 2, 2)}, "split")
    yield Sample("reshape", (x,), {"shape": (4, 1, 6)}, "mixed")
    yield Sample("reshape", (normal(1, 1),), {"shape": ()}, "to_scalar")
    yield Sample("reshape", (normal(0, 3),), {"shape": (3, 0, 5)}, "empty")
    yield Sample("reshape", (integers(0, 9, 3, 5),), {"shape": (15,)}, "i64")
    yield Sample("transpose", (x,), {"permutation": (2, 0, 1)}, "rotate")
    yield Sample("transpose", (x,), {"permutation": (0, 1, 2)}, "identity")
    yield Sample("transpose", (normal(7, 5),), {"permutation": (1, 0)}, "matrix")
    yield Sample("transpose", (normal(2, 3, 1, 5, 2),), {"permutation": (4, 1, 3, 0, 2)}, "rank5")
    yield Sample("transpose", (normal(),), {"permutation": ()}, "scalar")
    yield Sample("transpose", (rng().random((3, 4)) < 0.5,), {"permutation": (1, 0)}, "bool")
    half = normal(33, 17).astype(np.float16)
    yield Sample("transpose", (half,), {"permutation": (1, 0)}, "half")
    yield Sample("broadcast_to", (normal(3, 1),), {"shape": (2, 3, 4)}, "middle")
    yield Sample("broadcast_to", (normal(),), {"shape": (2, 5)}, "scalar")
    yield Sample("broadcast_to", (normal(2, 3),), {"shape": (2, 3)}, "same")
    yield Sample("broadcast_to", (normal(1, 3),), {"shape": (0, 3)}, "empty")
    for name, layout in (("channels_last", Layout((0, 2, 3, 1))), ("row_major", None)):
        yield Sample("relayout", (normal(2, 3, 4, 5),), {"layout": layout}, name)


def _slice(name: str, x: np.ndarray, *axes: tuple[int, int, int]) -> Sample:
    starts, sizes, steps = zip(*axes, strict=True)
    return Sample("slice", (x,), {"starts": starts, "sizes": sizes, "steps": steps}, name)


def _slices() -> Iterator[Sample]:
    x = normal(5, 7, 3)
    yield _slice("middle", x, (1, 3, 1), (0, 7, 1), (2, 1, 1))
    yield _slice("steps", x, (0, 3, 2), (1, 2, 3), (0, 3, 1))
    yield _slice("backwards", x, (4, 5, -1), (6, 3, -2), (1, 2, -1))
    yield _slice("empty", x, (0, 0, 1), (3, 0, -1), (0, 3, 1))
    yield _slice("bytes", integers(0, 9, 9, dtype=np.uint8), (2, 5, 1))
    yield Sample("slice", (normal(),), {"starts": (), "sizes": (), "steps": ()}, "scalar")


def _joins() -> Iterator[Sample]:
    a, b, c = normal(2, 3, key="a"), normal(2, 1, key="b"), normal(2, 4, key="c")
    yield Sample("concat", (a, b, c), {"axis": 1}, "columns")
    yield Sample("concat", (a, a), {"axis": 0}, "rows")
    yield Sample("concat", (a,), {"axis": 0}, "single")
    yield Sample("concat", (a, normal(0, 3)), {"axis": 0}, "with_empty")
    yield Sample("concat", (integers(0, 9, 3), integers(0, 9, 2)), {"axis": 0}, "i64")
    x = normal(3, 4, 5)
    some = {"low": (0, 1, 2), "high": (0, 0, 3)}
    yield Sample("pad", (x,), some, "zero")
    yield Sample("pad", (x, np.float32([-2.5]).reshape(())), some, "value")
    yield Sample("pad", (x, np.float32([np.inf])), some, "one_element_value")
    for mode in ("edge", "reflect", "wrap"):
        yield Sample("pad", (x,), some | {"mode": mode}, mode)
        outer = {"low": (2, 0, 0), "high": (1, 3, 4), "mode": mode}
        yield Sample("pad", (x,), outer, f"{mode}_outer")
    yield Sample("pad", (normal(0, 2),), {"low": (1, 0), "high": (1, 1)}, "empty")
    yield Sample("pad", (integers(0, 9, 4),), {"low": (2,), "high": (0,)}, "i64")
    yield Sample("pad", (x,), {"low": (0, 0, 0), "high": (0, 0, 0)}, "nothing")


def _gathers() -> Iterator[Sample]:
    x = normal(4, 5, 6)
    index = integers(-5, 5, 2, 3)
    yield Sample("gather", (x, index % 4), {"axis": 0}, "rows")
    yield Sample("gather", (x, index), {"axis": 1}, "negative")
    yield Sample("gather", (x, np.asarray(np.int32(-1))), {"axis": 2}, "scalar")
    yield Sample("gather", (x, np.zeros((0,), np.int64)), {"axis": 0}, "empty")
    table = integers(0, 99, 10, dtype=np.int8)
    yield Sample("gather", (table, index), {"axis": 0}, "bytes")
    elements = integers(-5, 5, 4, 3, 6)
    yield Sample("gather_elements", (x, elements), {"axis": 1}, "axis1")
    narrow = integers(-4, 4, 2, 5, 3, dtype=np.int32)
    yield Sample("gather_elements", (x, narrow), {"axis": 0}, "narrow")
    yield Sample("gather_elements", (normal(5), np.int64([4, -5, 0])), {"axis": 0}, "vector")
    yield Sample("gather_nd", (x, integers(-4, 4, 3, 2)), {}, "pairs", static=(1,))
    yield Sample("gather_nd", (x, integers(-4, 4, 2, 1, 3)), {}, "elements", static=(1,))
    yield Sample(
        "gather_nd", (x, integers(-5, 5, 4, 2, 1)), {"batch_dims": 1}, "batch1", static=(1,)
    )
    yield Sample(
        "gather_nd", (x, integers(-6, 6, 4, 5, 1)), {"batch_dims": 2}, "batch2", static=(1,)
    )
    yield Sample("gather_nd", (x, np.int64([2])), {}, "one_tuple", static=(1,))


def _scatters() -> Iterator[Sample]:
    x = normal(4, 5)
    distinct = np.stack([rng(i).permutation(5)[:3] for i in range(4)]) - 5
    updates = normal(4, 3, key="u")
    at: dict[str, Any] = {"axis": 1}
    yield Sample("scatter_elements", (x, distinct, updates), at, "distinct")
    repeated = integers(-5, 5, 4, 3, key="r")
    for reduction in ("add", "mul", "max", "min"):
        given = at | {"reduction": reduction}
        yield Sample("scatter_elements", (x, repeated, updates), given, reduction)
    column = (x, np.int32([[3, 0]]), np.float32([[1.0, np.nan]]))
    yield Sample("scatter_elements", column, {"axis": 0}, "column")
    big = (np.int64([2**53 + 1, 5]), np.int64([0, 0]), np.int64([1, 1]))
    yield Sample("scatter_elements", big, {"axis": 0, "reduction": "add"}, "i64")
    pairs, rows = np.int64([[0, 2], [3, -1], [1, 1]]), np.int64([[[2]], [[-2]]])
    yield Sample("scatter_nd", (x, pairs, normal(3, key="p")), {}, "elements", static=(1,))
    yield Sample("scatter_nd", (x, np.int64([[3], [0]]), normal(2, 5)), {}, "rows")
    for reduction in ("add", "mul", "max", "min"):
        arrays = (x, rows, normal(2, 1, 5, key="q"))
        yield Sample("scatter_nd", arrays, {"reduction": reduction}, f"repeated_{reduction}")
    nothing = (x, np.zeros((0, 2), np.int64), np.zeros((0,), np.float32))
    yield Sample("scatter_nd", nothing, {}, "empty", static=(1,))
    values = np.float32([-1.0, 2.0])
    for axis in range(3):
        hot = (integers(-6, 7, 3, 2), values)
        yield Sample("one_hot", hot, {"axis": axis, "depth": 5}, f"axis{axis}")
    yield Sample(
        "one_hot", (np.asarray(np.int32(1)), np.int64([0, 1])), {"axis": 0, "depth": 3}, "scalar"
    )
    yield Sample(
        "one_hot", (integers(0, 9, 4), np.array([False, True])), {"axis": 1, "depth": 9}, "bool"
    )


def _triangles() -> Iterator[Sample]:
    for upper in (True, False):
        word = "upper" if upper else "lower"
        for k in (0, 1, -2, 9):
            yield Sample("trilu", (normal(2, 4, 5),), {"upper": upper, "k": k}, f"{word}{k}")
        yield Sample("trilu", (integers(1, 9, 3, 3),), {"upper": upper}, f"{word}_i64")
    nan = np.full((3, 3), np.nan, np.float32)
    yield Sample("trilu", (nan,), {}, "nan_is_dropped")


def _sources() -> Iterator[Sample]:
    yield Sample("full", (), {"value": 1.5, "dtype": F32, "shape": (2, 3)}, "f32")
    yield Sample("full", (), {"value": 0.1, "dtype": F16, "shape": (4,)}, "rounded")
    yield Sample("full", (), {"value": True, "dtype": BOOL, "shape": ()}, "bool")
    yield Sample("full", (), {"value": -7, "dtype": I64, "shape": (0, 3)}, "empty")
    yield Sample("full", (), {"value": 200, "dtype": U8, "shape": (5,)}, "u8")
    yield Sample("full", (), {"value": float("-inf"), "dtype": BF16, "shape": (3,)}, "inf")
    yield Sample("iota", (), {"size": 7}, "plain")
    yield Sample("iota", (), {"size": 5, "start": 10, "step": -3, "dtype": I32}, "down")
    yield Sample("iota", (), {"size": 9, "start": 0.5, "step": 0.1, "dtype": F32}, "f32")
    yield Sample("iota", (), {"size": 0, "dtype": F64}, "empty")
    yield Sample("from_dims", (), {"dims": (2, 3, 5)}, "vector")
    yield Sample("from_dims", (), {"dims": (4,), "scalar": True}, "scalar")
    yield Sample("from_dims", (), {"dims": ()}, "empty")
    for op in ("random_uniform", "random_normal"):
        yield Sample(op, (), {"shape": (3, 4), "seed": 1.0}, "seeded")
        yield Sample(op, (), {"shape": (5,), "dtype": F16}, "stream")


def _copies() -> Iterator[Sample]:
    """Movement of the 16-bit and 8-bit floats, which carry their bits unchanged."""
    odd = np.array([np.nan, -0.0, 448.0, 1e-3], np.float32)
    for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn):
        x = odd.astype(dtype)
        name = np.dtype(dtype).name
        yield Sample("reshape", (x,), {"shape": (2, 2)}, name)
        yield Sample("concat", (x, x), {"axis": 0}, name)
        yield Sample("gather", (x, np.int64([3, 0, -2])), {"axis": 0}, name)
    packed = [DTYPES[n] for n in ("i4", "u4", "i2", "u2", "f4e2m1fn")]
    for dtype in packed:
        wide = integers(0, 2, 3, 7) if dtype.bits == 2 else integers(0, 4, 3, 7)
        x = wide.astype(dtype.numpy)
        yield Sample("transpose", (x,), {"permutation": (1, 0)}, dtype.name)
        yield Sample(
            "slice", (x,), {"starts": (0, 1), "sizes": (3, 4), "steps": (1, 1)}, dtype.name
        )
        yield Sample("concat", (x, x[:, :2]), {"axis": 1}, dtype.name)


def _bitcasts() -> Iterator[Sample]:
    odd = np.array([np.nan, -0.0, 1.5, -np.inf, 3e-8], np.float32)
    payload = np.array([0x7F800001, 0xFFC12345, 0x80000000, 1], np.uint32)
    pairs: list[tuple[np.ndarray, str]] = [
        (odd, "i32"), (payload, "f32"), (payload.view(np.uint16), "bf16"),
        (odd.astype(np.float16), "u16"), (odd.astype(np.float64), "u64"),
        (np.arange(-128, 128, dtype=np.int8), "u8"), (np.arange(256, dtype=np.uint8), "f8e5m2"),
        (np.arange(16).astype(ml_dtypes.uint4), "i4"), (np.arange(-8, 8).astype(ml_dtypes.int4), "u4"),
        (np.arange(16).astype(ml_dtypes.uint4), "f4e2m1fn"), (np.float32(1.0), "u32"),
        (np.zeros((0, 3), np.float32), "i32"),
    ]  # fmt: skip
    for i, (x, name) in enumerate(pairs):
        given = {"source": dtype_of(np.asarray(x)), "dtype": DTYPES[name]}
        yield Sample("bitcast", (x,), given, f"{i}_{name}")


def samples() -> Iterator[Sample]:
    yield from _views()
    yield from _slices()
    yield from _joins()
    yield from _gathers()
    yield from _scatters()
    yield from _triangles()
    yield from _sources()
    yield from _copies()
    yield from _bitcasts()
