"""Quantized operands: integers, scale and zero point behind a real value that a contraction reads."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import F32, I4, I8, I16, U4, U8, DType
from graphwright.compiler.passes.match import is_uniform, literal_of, uniform_of
from graphwright.compiler.passes.rewrite import Rewriter

WIDER = {I4: I8, U4: U8}  # what contractions read such integers as
MAX_SUM = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Quantized:
    """(integers - zero) * scale.  Scale and zero point have rank 0 or the rank of the integers."""

    integers: Value
    scale: Value
    zero: Value

    def varies_along(self, axis: int) -> bool:
        """Whether scale or zero point may differ along an axis of the integers."""
        rank = self.integers.type.rank
        return any(v.type.rank == rank and v.type.shape[axis] != 1 for v in (self.scale, self.zero))


def quantized_operand(value: Value, rw: Rewriter) -> Quantized | None:
    """What is quantized behind a value: its dequantize, seen through movement; builds moved integers."""
    op = value.op
    if op is None:
        return None
    if op.name == "dequantize":
        return _dequantized(op, rw)
    if op.name not in ("transpose", "reshape", "slice", "broadcast_to", "pad"):
        return None
    inner = quantized_operand(op.operands[0], rw)
    if inner is None:
        return None
    attributes = op.attributes
    if op.name == "transpose":
        permutation = op.attribute("permutation")
        parts = [
            rw.value("transpose", v, permutation=permutation) if v.type.rank else v
            for v in (inner.scale, inner.zero)
        ]
        moved = rw.value("transpose", inner.integers, permutation=permutation)
        return Quantized(moved, parts[0], parts[1])
    if inner.scale.type.rank or inner.zero.type.rank:
        return None
    if op.name == "pad" and attributes["mode"] == "constant":
        if len(op.operands) > 1 and not is_uniform(op.operands[1], 0.0):
            return None
        moved = rw.create("pad", [inner.integers, inner.zero], attributes).result
    else:
        moved = rw.create(op.name, [inner.integers], attributes).result
    return Quantized(moved, inner.scale, inner.zero)


def _dequantized(op: Op, rw: Rewriter) -> Quantized | None:
    x, scale, zero = op.operands
    if not x.type.dtype.is_integer or op.result.type.shape != x.type.shape:
        return None
    if not scale.type.dtype.is_float or scale.type.dtype.bits > 32:
        return None
    wide = WIDER.get(x.type.dtype)
    if wide is not None:
        x, zero = (rw.value("cast", v, dtype=wide, saturate=True) for v in (x, zero))
    if scale.type.dtype is not F32:
        scale = rw.value("cast", scale, dtype=F32, saturate=True)
    scale, zero = (_ranked(v, x.type.rank, rw) for v in (scale, zero))
    return Quantized(x, scale, zero)


def _ranked(value: Value, rank: int, rw: Rewriter) -> Value:
    """With rank 0 where one element serves all, else with ones in front up to `rank`."""
    number = uniform_of(value)
    if number is not None:
        return value if value.type.rank == 0 else rw.scalar(number, value.type.dtype)
    if all(d == 1 for d in value.type.shape):
        return value if value.type.rank == 0 else rw.value("reshape", value, shape=())
    missing = rank - value.type.rank
    if missing == 0:
        return value
    return rw.value("reshape", value, shape=(*(1,) * missing, *value.type.shape))


def largest(integers: DType, zero: Value) -> int:
    """The largest |x - zero| of an element type, over all zero points unless one is known."""
    low, high = (int(f(np.iinfo(integers.numpy))) for f in (_least, _most))
    known = uniform_of(zero)
    if isinstance(known, int):
        return max(known - low, high - known)
    return high - low


def _least(info: np.iinfo) -> int:
    return int(info.min)


def _most(info: np.iinfo) -> int:
    return int(info.max)


def sums_fit(a: Quantized, b: Quantized, terms: Dim) -> bool:
    """Whether no sum of `terms` products can leave 32 bits."""
    each = largest(a.integers.type.dtype, a.zero) * largest(b.integers.type.dtype, b.zero)
    return dims.prove(terms, "<=", MAX_SUM // each) is True


def is_weight(value: Value) -> bool:
    """Whether a value is constant, or movement or casts of a constant."""
    while value.op is not None and value.op.name in ("transpose", "reshape", "cast", "slice"):
        value = value.op.operands[0]
    return literal_of(value) is not None


LEFT = (I8, U8, I16)
RIGHT = (I8, U8)
