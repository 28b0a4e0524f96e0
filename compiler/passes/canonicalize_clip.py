"""Canonicalize, limits: relu, clip, maximum and minimum with constants become one clip.

On numbers these form a distributive lattice, and NaN passes through each of them, so every rule
holds for NaN and infinities.  Which zero max(-0.0, 0.0) gives is open, before and after.
"""

from __future__ import annotations

import math

from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.match import is_uniform, op_named, uniform_of
from graphwright.compiler.passes.rewrite import Rewriter, rule


def _limits(op: Op | None) -> tuple[Value, float, float] | None:
    """(x, low, high) of an op that is min(max(x, low), high) with constant limits, else None."""
    if op is None or op.name not in ("relu", "maximum", "minimum", "clip"):
        return None
    if op.operands[0].type != op.result.type:
        return None
    x = op.operands[0]
    if op.name == "relu":
        return x, 0.0, math.inf
    if op.name in ("maximum", "minimum"):
        number = _real(op.operands[1])
        if number is None:
            return None
        return (x, number, math.inf) if op.name == "maximum" else (x, -math.inf, number)
    if op.name == "clip":
        low, high = _real(op.operands[1]), _real(op.operands[2])
        return None if low is None or high is None else (x, low, high)
    return None


def _real(value: Value) -> float | None:
    """The repeated number; None for NaN, and for integers that a float cannot hold."""
    number = uniform_of(value)
    if number is None or isinstance(number, complex) or number != number:
        return None
    return float(number) if not isinstance(number, int) or abs(number) <= 2**53 else None


@rule("clip", "maximum", "minimum", "relu")
def merge_limits(op: Op, rw: Rewriter) -> bool | None:
    """clip(relu(x), -1, 6) => clip(x, 0, 6); maximum(minimum(x, 6), 0) => clip(x, 0, 6)."""
    outer = _limits(op)
    inner = _limits(outer[0].op) if outer is not None else None
    if outer is None or inner is None:
        return None
    dtype = op.result.type.dtype
    x, a, b = inner
    _, c, d = outer
    # min(max(min(max(x, a), b), c), d) = min(max(x, a, c), max(b, c), d)
    low, high = max(a, c), min(max(b, c), d)
    if low == 0 and high == math.inf:
        return rw.replace_by("relu", x)
    low = min(low, high)
    if not dtype.is_float and (math.isinf(low) or math.isinf(high)):
        return None  # an integer has no infinite limit to write down
    return rw.replace_by("clip", x, rw.scalar(low, dtype), rw.scalar(high, dtype))


@rule("clip")
def simplify_clip(op: Op, rw: Rewriter) -> bool | None:
    """clip(x, 0, inf) => relu(x); clip(x, -inf, inf) => x; one infinite limit: maximum, minimum."""
    limits = _limits(op)
    if limits is None or not op.result.type.dtype.is_float:
        return None
    x, low, high = limits
    if low == -math.inf and high == math.inf:
        return rw.replace(x)
    if high == math.inf:
        return rw.replace_by("relu", x) if low == 0 else rw.replace_by("maximum", x, op.operands[1])
    return rw.replace_by("minimum", x, op.operands[2]) if low == -math.inf else None


@rule("maximum")
def maximum_with_zero(op: Op, rw: Rewriter) -> bool | None:
    """maximum(x, 0) => relu(x)."""
    x, c = op.operands
    if not (is_uniform(c, 0) or is_uniform(c, -0.0)) or x.type != op.result.type:
        return None
    return rw.replace_by("relu", x)


@rule("minimum", "maximum")
def limit_of_clip_operand(op: Op, rw: Rewriter) -> bool | None:
    """minimum(x, inf) => x, maximum(x, -inf) => x."""
    x, c = op.operands
    infinite = math.inf if op.name == "minimum" else -math.inf
    if not is_uniform(c, infinite) or x.type != op.result.type:
        return None
    return rw.replace(x)


@rule("prelu")
def prelu_of_constant(op: Op, rw: Rewriter) -> bool | None:
    """prelu with one repeated slope => leaky_relu."""
    x, slope = op.operands
    number = _real(slope)
    if number is None or x.type != op.result.type or not x.type.dtype.is_float:
        return None
    if op_named(slope, "constant") is None or math.isinf(number):
        return None
    return rw.replace_by("leaky_relu", x, alpha=number)
