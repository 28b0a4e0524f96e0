"""Samples of every row of the pointwise table, made from its type rule; casts pair by pair."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.ops.pointwise import Pointwise
from graphwright.compiler.ir.types import DTYPES, DType
from samples.sample import Sample, integers, normal, rng

SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, -1e-42, 1.5e-38, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5,
     -2.5, 3.0, 1e-5, -1e-5, 20.25, -20.25, 88.0, -90.0, 1e4, -1e10, 3e38],
    np.float32,
)  # fmt: skip
PAIRS = np.array(
    [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 2.0, -3.0, 0.5, 7.5, 1e30], np.float32
)

ALTERNATIVES: dict[str, tuple[dict[str, Any], ...]] = {
    "gelu": ({"approximate": "tanh"},),
    "mod": ({"fmod": True},),
    "is_inf": ({"negative": False}, {"positive": False}, {"negative": False, "positive": False}),
    "hard_sigmoid": ({"alpha": 0.5, "beta": 0.6},),
    "elu": ({"alpha": 2.0},),
    "selu": ({"alpha": 2.0, "gamma": 3.0},),
    "celu": ({"alpha": 2.0},),
    "leaky_relu": ({"alpha": 0.1},),
    "thresholded_relu": ({"alpha": -0.5},),
    "shrink": ({"lambd": 1.5, "bias": 1.5},),
}
KINDS = {
    "float": "f", "number": "fi", "signed": "fs", "integer": "i", "bool": "b", "any": "fib",
}  # fmt: skip
APART = ("cast", "quantize", "dequantize")


def extremes(dtype: Any) -> np.ndarray:
    limits = np.iinfo(dtype)
    values = {limits.min, limits.min + 1, limits.max, limits.max - 1, 0, 1, 2, 3, 7, 64, 100}
    if limits.min < 0:
        values |= {-1, -2, -3, -7}
    if limits.bits == 64:
        values |= {2**53 + 1, 2**31, 2**32 + 3}
    return np.array(sorted(values), dtype)


def _floats(op: Pointwise, attributes: dict[str, Any], tag: str) -> Iterator[Sample]:
    count = len(op.operands)
    typed = range(count) if op.typed is None else op.typed

    def make(name: str, arrays: list[np.ndarray]) -> Sample:
        for i in op.conditions:
            arrays[i] = rng(op.name, name).random(arrays[i].shape) < 0.5
        return Sample(op.name, tuple(arrays), attributes, f"{name}{tag}")

    def shapes(*given: tuple[int, ...]) -> list[np.ndarray]:
        return [normal(*s, key=f"{op.name}{i}") for i, s in enumerate(given)]

    if count == 1:
        yield make("special", [SPECIAL])
        yield make("special_f16", [SPECIAL.astype(np.float16)])
        yield make("odd", [3 * normal(2, 3, 17)])
    elif count == 2:
        yield make("pairs", [PAIRS[:, None], PAIRS[None, :]])
        yield make("same_shape", shapes((5, 13), (5, 13)))
        yield make("broadcast", shapes((2, 1, 5), (3, 1)))
    else:
        yield make("pairs", [PAIRS[:, None], PAIRS[None, :], PAIRS[::-1]])
        yield make("broadcast", shapes((4, 9), (9,), (4, 1)))
        yield make("scalars", shapes((3, 7), (), ()))
    if tag:
        return
    broad = shapes(*[(3, 7)] * (count - 1), (7,)) if count > 1 else shapes((11,))
    for dtype in (np.float64, np.float16, ml_dtypes.bfloat16):
        cast = [a.astype(dtype) if i in typed else a for i, a in enumerate(broad)]
        yield make(np.dtype(dtype).name, cast)
    yield make("scalar", shapes(*[()] * count))
    yield make("empty", shapes(*[(0, 4)] * count))


def _integers(op: Pointwise, attributes: dict[str, Any], tag: str) -> Iterator[Sample]:
    count = len(op.operands)
    for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint64):
        x = extremes(dtype)
        name = f"{np.dtype(dtype).name}{tag}"
        if op.conditions:
            arrays = (rng(op.name, name).random(x.shape) < 0.5, x, x[::-1].copy())
        elif count == 3:
            arrays = (x, np.asarray(x[3]), np.asarray(x[-3]))
        elif count == 2:
            arrays = (x[:, None], x[None, :])
        else:
            arrays = (x,)
        yield Sample(op.name, arrays, attributes, name)
        if op.name.startswith("shift"):
            counts = np.arange(x.dtype.itemsize * 8).astype(dtype)
            yield Sample(op.name, (x[:, None], counts), attributes, f"{name}_inside")


def _bools(op: Pointwise) -> Iterator[Sample]:
    count = len(op.operands)
    table = np.array(list(itertools.product([False, True], repeat=count)))
    yield Sample(op.name, tuple(table.T), {}, "bool")
    yield Sample(op.name, (np.zeros((0, 2), np.bool_),) * count, {}, "empty_bool")
    odd = [rng(op.name, i).random((3, 1, 5)[i % 2 :]) < 0.5 for i in range(count)]
    yield Sample(op.name, tuple(odd), {}, "odd_bool")


def _rows() -> Iterator[Sample]:
    for op in REGISTRY.values():
        if not isinstance(op, Pointwise) or op.name in APART:
            continue
        for i, attributes in enumerate(({}, *ALTERNATIVES.get(op.name, ()))):
            tag = f"_{i}" if i else ""
            if "f" in KINDS[op.accepts]:
                yield from _floats(op, attributes, tag)
            if "i" in KINDS[op.accepts]:
                yield from _integers(op, attributes, tag)
        if "b" in KINDS[op.accepts]:
            yield from _bools(op)


def _source(dtype: DType) -> np.ndarray:
    """Values that show how a conversion rounds, wraps and saturates."""
    if dtype.kind == "bool":
        return np.array([[True, False, True]])
    if dtype.is_float:
        wide = [0.5, -0.5, 2.5, 50.9, -50.9, 127.5, 255.5, 300.0, 464.0, 465.0, -3e4, 1 + 2.0**-24,
                65519.0, 65520.0, 3e9, -3e9, 1e19, 2e19, 1e39, 1e-9]  # fmt: skip
        return np.array([*SPECIAL, *wide], np.float64).astype(dtype.numpy)
    if dtype.bits < 8:
        low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
        high = low + 2**dtype.bits
        return np.arange(low, high).astype(dtype.numpy)
    return extremes(dtype.numpy)


def _casts() -> Iterator[Sample]:
    names = ("bool", "i4", "u4", "i8", "u8", "i16", "i32", "u32", "i64", "u64", "f8e4m3fn",
             "f8e5m2", "f16", "bf16", "f32", "f64")  # fmt: skip
    rare = ("i2", "u2", "f4e2m1fn", "f8e8m0fnu", "f8e4m3fnuz", "f8e5m2fnuz")
    usual = ("f32", "f16", "i8", "u8", "i32", "bool")
    pairs = [*itertools.product(names, names), *itertools.product(rare, usual),
             *itertools.product(usual, rare)]  # fmt: skip
    for a, b in pairs:
        if a == b and a != "f32":
            continue
        x = _source(DTYPES[a])
        yield Sample("cast", (x,), {"dtype": DTYPES[b]}, f"{a}_{b}")
        if b.startswith("f8") and DTYPES[a].is_float:
            attributes = {"dtype": DTYPES[b], "saturate": False}
            yield Sample("cast", (x,), attributes, f"{a}_{b}_wild")
    yield Sample("cast", (normal(0, 3),), {"dtype": DTYPES["i32"]}, "empty")
    yield Sample("cast", (np.asarray(np.float32(-1.5)),), {"dtype": DTYPES["i32"]}, "scalar")


def _quantization() -> Iterator[Sample]:
    x = np.concatenate([np.linspace(-40, 40, 65), [0.5, 1.5, 2.5, -0.5, 1e9, -1e9, np.nan]])
    x = x.astype(np.float32)
    rows = normal(3, 20, key="rows") * 10
    for name in (
        "i8",
        "u8",
        "i16",
        "u16",
        "i4",
        "u4",
        "i2",
        "u2",
        "f4e2m1fn",
        "f8e4m3fn",
        "f8e5m2",
    ):
        dtype = DTYPES[name]
        zero = np.asarray(0 if dtype.is_float else 3 if dtype.bits > 2 else 1).astype(dtype.numpy)
        at = {"dtype": dtype}
        yield Sample("quantize", (x, np.float32([0.25]).reshape(()), zero), at, f"tensor_{name}")
        scales = np.float32([[0.1], [0.5], [2.0]])
        zeros = np.asarray([[0], [0 if dtype.is_float else 1], [0]]).astype(dtype.numpy)
        yield Sample("quantize", (rows, scales, zeros), at, f"axis_{name}")
        codes = (
            _source(dtype)
            if dtype.is_float
            else integers(0, min(8, 2 ** (dtype.bits - 1)), 3, 9).astype(dtype.numpy)
        )
        back = {"dtype": DTYPES["f32"]}
        yield Sample(
            "dequantize", (codes, np.float32([0.25]).reshape(()), zero), back, f"tensor_{name}"
        )
        if codes.ndim == 2:
            yield Sample("dequantize", (codes, scales, zeros), back, f"axis_{name}")
    half = (x.astype(np.float16), np.float16([0.25]).reshape(()), np.asarray(np.int8(1)))
    yield Sample("quantize", half, {"dtype": DTYPES["i8"]}, "half")
    deep = (extremes(np.int32), np.float32([1e-3]).reshape(()), np.asarray(np.int32(0)))
    yield Sample("dequantize", deep, {"dtype": DTYPES["f32"]}, "i32")


def samples() -> Iterator[Sample]:
    with np.errstate(over="ignore"):  # conversions beyond the range are among the samples
        yield from [*_rows(), *_casts(), *_quantization()]
