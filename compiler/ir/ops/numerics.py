"""The exact arithmetic of the pointwise table where numpy has no function, or another meaning.

Every function takes broadcastable arrays and returns an array of the first one's type, unless it
says otherwise.  Integers wrap; nothing here goes through a float on its way from int to int.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphwright.compiler.ir.types import (
    F4E2M1,
    F8E4M3,
    F8E4M3FNUZ,
    F8E5M2,
    F8E5M2FNUZ,
    F8E8M0,
    DType,
)

FLOAT8_MAX = {F8E4M3: 448.0, F8E4M3FNUZ: 240.0, F8E5M2: 57344.0, F8E5M2FNUZ: 57344.0}
# The range of every small float that casts saturate to.
SMALL_FLOATS = {d: (-limit, limit) for d, limit in FLOAT8_MAX.items()} | {
    F4E2M1: (-6.0, 6.0),
    F8E8M0: (2.0**-127, 2.0**127),
}


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Floats: a / b.  Integers: truncated toward zero; by zero 0; the most negative by -1 wraps."""
    if a.dtype.kind == "f":
        return a / b
    quotient = np.floor_divide(a, b)
    inexact = (np.remainder(a, b) != 0) & ((a < 0) != (b < 0))
    return quotient + inexact.astype(quotient.dtype)


def modulo(a: np.ndarray, b: np.ndarray, *, fmod: bool) -> np.ndarray:
    """The remainder with the sign of b; `fmod`: of a, as C's fmod and %.  Integers by zero: 0."""
    return np.fmod(a, b) if fmod else np.mod(a, b)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """C's pow.  Integers wrap; a negative exponent gives 0, but powers of 1 and -1 are exact."""
    if a.dtype.kind != "i":
        return np.power(a, b)
    negative = b < 0
    plain = np.power(a, np.where(negative, 0, b).astype(b.dtype))
    sign = np.where(b % 2 == 0, 1, -1)
    unit = np.where(a == 1, 1, np.where(a == -1, sign, 0))
    return np.where(negative, unit.astype(a.dtype), plain)


def arc_tangent(a: np.ndarray, b: np.ndarray) -> Any:
    """The angle of the point (b, a), in [-pi, pi]; calculated in float64."""
    return np.arctan2(a.astype(np.float64), b.astype(np.float64))


def _shift_counts(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    outside = (b < 0) | (b >= a.dtype.itemsize * 8)
    return outside, np.where(outside, 0, b).astype(b.dtype)


def shift_left(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a * 2**b, wrapped; 0 when b is negative or at least the width."""
    outside, count = _shift_counts(a, b)
    return np.where(outside, np.zeros((), a.dtype), np.left_shift(a, count))


def shift_right(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Arithmetic for signed types; a count that is negative or too large leaves the sign (0, -1)."""
    outside, count = _shift_counts(a, b)
    rest = -(a < 0).astype(a.dtype) if a.dtype.kind == "i" else np.zeros((), a.dtype)
    return np.where(outside, rest, np.right_shift(a, count))


def clip(x: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """min(max(x, low), high): NaN stays, and `high` wins where low > high."""
    return np.minimum(np.maximum(x, low), high)


def is_inf(x: np.ndarray, *, negative: bool, positive: bool) -> np.ndarray:
    """Which elements are infinite with one of the asked signs (bool)."""
    return (np.isposinf(x) & positive) | (np.isneginf(x) & negative)


def cast(x: np.ndarray, *, dtype: DType, saturate: bool = True) -> np.ndarray:
    """x in another element type.

    To bool: x != 0 (NaN is true).  Float to integer: truncated toward zero, then limited to the
    type's range; NaN is 0.  Integer to integer wraps.  To a float: rounded to nearest even,
    infinite beyond the range; to a float8 type `saturate` limits to the largest finite value, and
    without it what is too large becomes infinite or, where the type has no infinity, NaN.  f4e2m1fn
    always saturates; f8e8m0fnu rounds ties up, and saturates zero to its smallest power of two.
    """
    if dtype.kind == "bool":
        return x != 0
    if dtype in SMALL_FLOATS:
        x = x.astype(np.float32) if x.dtype.kind != "f" else x
        low, high = SMALL_FLOATS[dtype]
        return (np.clip(x, low, high) if saturate else x).astype(dtype.numpy)
    if dtype.is_float or x.dtype.kind != "f":
        return x.astype(dtype.numpy)
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = 2 ** (dtype.bits - 1) - 1 if dtype.kind == "int" else 2**dtype.bits - 1
    whole = np.trunc(x).astype(np.float64)
    # high + 1 is a power of two: exact, where high itself may not be.
    above, below, inside = whole >= float(high) + 1, whole < low, np.isfinite(whole)
    kept = np.where(above | below | ~inside, 0.0, whole)
    wide = np.dtype(np.uint64 if dtype.kind == "uint" else np.int64)
    out = np.where(above, wide.type(high), np.where(below, wide.type(low), kept.astype(wide)))
    return out.astype(dtype.numpy)


def quantize(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, *, dtype: DType) -> Any:
    """round_even(x / scale) + zero_point, limited to the range of `dtype`; float8 is not rounded
    before the cast.  NaN becomes 0 in an integer type."""
    ratio = x / scale
    if dtype.is_integer:
        ratio = np.rint(ratio)
    return cast(ratio + zero_point.astype(ratio.dtype), dtype=dtype)


def dequantize(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, *, dtype: DType) -> Any:
    """(x - zero_point) * scale, calculated in the type of the scale."""
    del dtype  # the caller narrows
    return (x.astype(scale.dtype) - zero_point.astype(scale.dtype)) * scale


# W. J. Cody, Rational Chebyshev approximations for the error function, Math. Comp. 23 (1969):
# relative errors below 6e-19 before rounding.  Coefficients from the highest power down.
_NEAR = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2,
     3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
     2.84423683343917062e3),
)  # fmt: skip
_MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1,
     2.98635138197400131e2, 8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3,
     1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
     1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3,
     1.23033935480374942e3),
)  # fmt: skip
_FAR = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
     1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346725e0, 5.27905102951428412e-1,
     6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip


def _ratio(form: tuple[tuple[float, ...], tuple[float, ...]], x: np.ndarray) -> np.ndarray:
    return np.polyval(form[0], x) / np.polyval(form[1], x)


def _complement(y: np.ndarray) -> np.ndarray:
    """erfc(y) of float64 y >= 0.46875."""
    middle = _ratio(_MIDDLE, np.minimum(y, 4.0))
    far = np.minimum(np.maximum(y, 4.0), 30.0)
    square = 1.0 / (far * far)
    tail = (1.0 / np.sqrt(np.pi) - square * _ratio(_FAR, square)) / far
    # exp(-y*y) in two factors, the first of an exact square, keeps the relative accuracy.
    y = np.minimum(y, 30.0)
    whole = np.trunc(y * 16) / 16
    scale = np.exp(-whole * whole) * np.exp(-(y - whole) * (y + whole))
    return scale * np.where(y <= 4.0, middle, tail)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function, within 4 ulp of float64."""
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    near = wide * _ratio(_NEAR, np.minimum(y, 0.5) ** 2)
    far = np.copysign(1.0 - _complement(np.maximum(y, 0.46875)), wide)
    out = np.where(y <= 0.46875, near, far)
    return np.where(np.isnan(wide), wide, out).astype(x.dtype)


def erfc(x: np.ndarray) -> np.ndarray:
    """1 - erf(x) without cancellation, within 8 ulp of float64."""
    wide = np.asarray(x, np.float64)
    y = np.abs(wide)
    tail = _complement(np.maximum(y, 0.46875))
    near = 1.0 - wide * _ratio(_NEAR, np.minimum(y, 0.5) ** 2)
    out = np.where(y <= 0.46875, near, np.where(wide < 0, 2.0 - tail, tail))
    return np.where(np.isnan(wide), wide, out).astype(x.dtype)
