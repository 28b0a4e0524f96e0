"""Samples of reductions, softmax, norms, and the scans and selections along one axis."""

from __future__ import annotations

from collections.abc import Iterator

import ml_dtypes
import numpy as np

from samples.sample import Sample, integers, normal, rng

FLOATS = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")


def _reductions() -> Iterator[Sample]:
    x = normal(3, 4, 5, 7)
    for op in FLOATS:
        for axes in ((3,), (0,), (1, 2), (0, 1, 2, 3), (0, 2)):
            name = "".join(map(str, axes))
            yield Sample(op, (x,), {"axes": axes}, f"axes{name}")
        yield Sample(op, (x,), {"axes": (2, 3), "keepdims": True}, "kept")
        yield Sample(op, (x,), {"axes": ()}, "none")
        yield Sample(op, (normal(2, 1031),), {"axes": (1,)}, "long")
        yield Sample(op, (normal(0, 3),), {"axes": (0,)}, "nothing")
        yield Sample(op, (normal(3, 0, 2),), {"axes": (2,)}, "empty")
        odd = np.float32(
            [[1, np.nan, 2], [np.inf, 1, -1], [-np.inf, np.inf, 0], [-0.0, -0.0, -0.0]]
        )
        yield Sample(op, (odd,), {"axes": (1,)}, "special")
        for dtype in (np.float16, ml_dtypes.bfloat16, np.float64):
            given = normal(3, 130).astype(dtype)
            yield Sample(op, (given,), {"axes": (1,)}, np.dtype(dtype).name)
        yield Sample(op, (integers(-9, 9, 4, 6),), {"axes": (1,)}, "i64")
        yield Sample(op, (integers(0, 256, 3, 50, dtype=np.uint8),), {"axes": (1,)}, "u8_wraps")
        yield Sample(op, (integers(-(2**31), 2**31, 2, 5, dtype=np.int32),), {"axes": (1,)}, "i32")
    b = rng("bools").random((3, 4, 2)) < 0.7
    for op in ("reduce_and", "reduce_or"):
        yield Sample(op, (b,), {"axes": (1,)}, "axis1")
        yield Sample(op, (b,), {"axes": (0, 2), "keepdims": True}, "kept")
        yield Sample(op, (b[:, :0],), {"axes": (1,)}, "nothing")


def _arguments() -> Iterator[Sample]:
    ties = np.tile(np.float32([[2, 7, 7, 1], [7, 7, 7, 7], [0, -0.0, 0, 0]]), (1, 9))
    nan = np.float32([[1, np.nan, 3, np.nan], [np.inf, 1, -np.inf, 2]])
    for op in ("arg_max", "arg_min"):
        yield Sample(op, (normal(3, 37),), {"axis": 1}, "rows")
        yield Sample(op, (normal(2, 5, 3),), {"axis": 1, "keepdims": False}, "middle")
        yield Sample(op, (ties,), {"axis": 1, "keepdims": False}, "ties")
        yield Sample(op, (ties,), {"axis": 1, "select_last": True}, "last")
        yield Sample(op, (ties,), {"axis": 0, "select_last": True}, "last_rows")
        yield Sample(op, (nan,), {"axis": 1}, "nan")
        yield Sample(op, (integers(-9, 9, 6, 3, dtype=np.int8),), {"axis": 0}, "i8")


def _softmax() -> Iterator[Sample]:
    odd = np.float32([[1, -np.inf, 2], [np.nan, 1, 0], [-np.inf] * 3, [1e4, -1e4, 1e4]])
    for op in ("softmax", "log_softmax"):
        yield Sample(op, (normal(3, 5),), {"axis": 1}, "rows")
        yield Sample(op, (normal(2, 3, 4, 5),), {"axis": 1}, "channels")
        yield Sample(op, (normal(4, 1025) * 10,), {"axis": 1}, "long")
        yield Sample(op, (odd,), {"axis": 1}, "special")
        yield Sample(op, (normal(2, 9).astype(np.float16) * 8,), {"axis": 1}, "half")
        yield Sample(op, (normal(2, 9).astype(ml_dtypes.bfloat16),), {"axis": 1}, "bf16")
        yield Sample(op, (normal(2, 0),), {"axis": 1}, "empty")
        yield Sample(op, (normal(2, 7).astype(np.float64),), {"axis": 0}, "f64")
    x = normal(3, 4, 5)
    for p in (1, 2):
        yield Sample("lp_normalize", (x,), {"axis": 1, "p": p}, f"p{p}")
        zero = np.float32([[0, 0, 0], [3, -4, 0]])
        yield Sample("lp_normalize", (zero,), {"axis": 1, "p": p}, f"zero_p{p}")


def _norms() -> Iterator[Sample]:
    x = normal(2, 6, 5, 3)
    scale, bias = normal(3, key="scale"), normal(3, key="bias")
    yield Sample("layer_norm", (x, scale, bias), {"axis": 3}, "last")
    yield Sample("layer_norm", (x, normal(5, 3), normal(5, 3, key="b")), {"axis": 2}, "two_axes")
    yield Sample("layer_norm", (x,), {"axis": 3, "epsilon": 0.1}, "bare")
    yield Sample("layer_norm", (x, scale), {"axis": 1}, "scale_only")
    offset = (normal(4, 300) + 1000, normal(300), normal(300, key="b"))
    yield Sample("layer_norm", offset, {"axis": 1}, "large_mean")
    big = (normal(2, 64) * 3e3).astype(np.float16)
    halves = (big, normal(64).astype(np.float16), normal(64, key="b").astype(np.float16))
    yield Sample("layer_norm", halves, {"axis": 1}, "half_overflow")
    yield Sample("rms_norm", (x, scale), {"axis": 3}, "last")
    yield Sample("rms_norm", (x,), {"axis": 2, "epsilon": 0.5}, "bare")
    yield Sample("rms_norm", (big, halves[1]), {"axis": 1}, "half_overflow")
    six = [normal(6, key=k) for k in ("scale", "bias", "mean")]
    yield Sample("instance_norm", (x, *six[:2]), {}, "images")
    yield Sample("instance_norm", (normal(2, 6, 33), *six[:2]), {"epsilon": 0.1}, "sequences")
    yield Sample("instance_norm", (x + 500, *six[:2]), {}, "large_mean")
    for groups in (1, 2, 6):
        yield Sample("group_norm", (x, *six[:2]), {"groups": groups}, f"groups{groups}")
    variance = np.abs(normal(6, key="variance"))
    yield Sample("batch_norm", (x, *six, variance), {}, "images")
    yield Sample("batch_norm", (normal(4, 6), *six, variance), {"epsilon": 0.01}, "matrix")
    half = tuple(a.astype(np.float16) for a in (x, *six, variance))
    yield Sample("batch_norm", half, {}, "half")
    for size in (1, 2, 3, 5):
        given = {"size": size, "alpha": 0.1, "beta": 0.5, "bias": 2.0}
        yield Sample("lrn", (x,), given, f"size{size}")
    yield Sample("lrn", (normal(1, 4, 7),), {"size": 3}, "sequence")


def _along() -> Iterator[Sample]:
    x = normal(3, 5, 2)
    for exclusive in (False, True):
        for reverse in (False, True):
            given = {"axis": 1, "exclusive": exclusive, "reverse": reverse}
            for op in ("cumsum", "cumprod"):
                yield Sample(op, (x,), given, f"{exclusive:d}{reverse:d}")
    for op in ("cumsum", "cumprod"):
        yield Sample(op, (integers(-9, 9, 7),), {"axis": 0}, "i64")
        yield Sample(op, (normal(2, 0),), {"axis": 1, "exclusive": True}, "empty")
        yield Sample(op, (normal(3, 9).astype(np.float16),), {"axis": 1}, "half")
    yield Sample("top_k", (x,), {"k": 3, "axis": 1}, "largest")
    yield Sample("top_k", (x,), {"k": 2, "axis": 1, "largest": False}, "smallest")
    ties = np.float32([[1, 3, 3, 2, 3, 1], [0, -0.0, 0, 5, 5, -1]])
    yield Sample("top_k", (ties,), {"k": 4, "axis": 1}, "ties")
    yield Sample("top_k", (ties,), {"k": 4, "axis": 1, "largest": False}, "ties_smallest")
    nan = np.float32([1, np.nan, np.inf, -np.inf, 0])
    yield Sample("top_k", (nan,), {"k": 3, "axis": 0}, "nan")
    yield Sample("top_k", (integers(0, 256, 9, dtype=np.uint8),), {"k": 9, "axis": 0}, "u8")
    yield Sample("top_k", (x,), {"k": 0, "axis": 1}, "none")


def samples() -> Iterator[Sample]:
    yield from _reductions()
    yield from _arguments()
    yield from _softmax()
    yield from _norms()
    yield from _along()
