"""The arithmetic that numpy does not have, against Python's integers and math module."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from graphwright.compiler.ir.ops import numerics
from graphwright.compiler.ir.types import DTYPES, F8E4M3, F8E5M2

BIG = 2**53 + 1


def truncated(a: int, b: int) -> int:
    return 0 if b == 0 else math.trunc(Fraction(a, b))


@pytest.mark.filterwarnings("ignore")
def test_division_is_exact_beyond_2_53() -> None:
    a = np.array([BIG, -BIG, 7, -7, 7, -7, 0, 5, -(2**63)], np.int64)
    b = np.array([1, 1, 2, 2, -2, -2, 3, 0, -1], np.int64)
    want = [truncated(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    want[-1] = -(2**63)
    assert numerics.divide(a, b).tolist() == want
    assert numerics.divide(a, b).dtype == np.int64


def test_narrow_division_keeps_its_type() -> None:
    a, b = np.array([-7, 100], np.int8), np.array([2, -3], np.int8)
    out = numerics.divide(a, b)
    assert out.dtype == np.int8
    assert out.tolist() == [-3, -33]


def test_modulo_signs() -> None:
    a, b = np.array([-4, 7, 5, 4, -7, 8]), np.array([2, -3, 8, -2, 3, 5])
    assert numerics.modulo(a, b, fmod=False).tolist() == [0, -2, 5, 0, 2, 3]
    assert numerics.modulo(a, b, fmod=True).tolist() == [0, 1, 5, 0, -1, 3]


def test_integer_power() -> None:
    a, b = np.array([2, -1, -1, 1, 5, 0, 3]), np.array([-1, -2, -3, -9, 3, -1, 0])
    assert numerics.power(a, b).tolist() == [0, 1, -1, 1, 125, 0, 1]


def test_shifts_beyond_the_width() -> None:
    a, b = np.array([1, -1, -8, 3], np.int8), np.array([8, 9, 1, -1], np.int8)
    assert numerics.shift_left(a, b).tolist() == [0, 0, -16, 0]
    assert numerics.shift_right(a, b).tolist() == [0, -1, -4, 0]
    u = np.array([255, 255], np.uint8)
    assert numerics.shift_right(u, np.array([4, 8], np.uint8)).tolist() == [15, 0]


@pytest.mark.parametrize("name", ["i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64"])
def test_cast_from_float_saturates(name: str) -> None:
    dtype = DTYPES[name]
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = 2 ** (dtype.bits - (dtype.kind == "int")) - 1
    x = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 2.9, -0.0, 5.5])
    want = [0, high, low, high, low, 2, 0, 5]
    assert [int(v) for v in numerics.cast(x, dtype=dtype)] == want
    assert [int(v) for v in numerics.cast(x.astype(np.float32), dtype=dtype)] == want


def test_cast_between_integers_wraps_and_is_exact() -> None:
    x = np.array([300, -1, 128, 65537], np.int32)
    assert numerics.cast(x, dtype=DTYPES["u8"]).tolist() == [44, 255, 128, 1]
    assert numerics.cast(x, dtype=DTYPES["i8"]).tolist() == [44, -1, -128, 1]
    big = np.array([BIG], np.int64)
    assert numerics.cast(big, dtype=DTYPES["u64"]).tolist() == [BIG]


def test_cast_to_float8() -> None:
    x = np.array([1e9, -np.inf, np.nan, 449.0, -0.0], np.float32)
    tamed = numerics.cast(x, dtype=F8E4M3).astype(np.float32)
    np.testing.assert_array_equal(tamed, [448, -448, np.nan, 448, 0])
    wild = numerics.cast(x, dtype=F8E4M3, saturate=False).astype(np.float32)
    np.testing.assert_array_equal(wild, [np.nan, np.nan, np.nan, 448, 0])
    wild = numerics.cast(x, dtype=F8E5M2, saturate=False).astype(np.float32)
    np.testing.assert_array_equal(wild, [np.inf, -np.inf, np.nan, 448, 0])


def test_error_function() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), 10.0 ** np.linspace(-300, 1, 500)])
    want = np.array([math.erf(v) for v in x])
    assert (np.abs(numerics.erf(x) - want) <= 4 * np.spacing(np.abs(want))).all()
    want = np.array([math.erfc(v) for v in x])
    assert (np.abs(numerics.erfc(x) - want) <= 8 * np.spacing(want)).all()
    np.testing.assert_array_equal(
        numerics.erf(np.array([np.inf, -np.inf, np.nan])), [1, -1, np.nan]
    )
