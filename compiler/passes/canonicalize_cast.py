"""Canonicalize, casts: only casts that cannot change a value disappear; a cast that rounds stays."""

from __future__ import annotations

from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import DType
from graphwright.compiler.passes.match import op_named
from graphwright.compiler.passes.rewrite import Rewriter, rule

# Bits of the significand, smallest and largest exponent of a normal number.
_FLOATS: dict[str, tuple[int, int, int]] = {
    "f8e4m3fn": (4, -6, 8),
    "f8e4m3fnuz": (4, -7, 7),
    "f8e5m2": (3, -14, 15),
    "f8e5m2fnuz": (3, -15, 15),
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "f32": (24, -126, 127),
    "f64": (53, -1022, 1023),
}


def preserves(source: DType, to: DType) -> bool:
    """Whether every value of `source`, NaN and infinities included, is a value of `to`."""
    if source is to:
        return True
    if source.kind == "bool":
        return to.is_integer or to.is_float
    if source.is_integer and to.is_integer:
        if source.kind == to.kind or source.kind == "uint":
            return to.bits > source.bits or (to.kind == source.kind and to.bits == source.bits)
        return False
    if source.is_integer and to.is_float and to.bits >= 16:
        digits, _, largest = _FLOATS[to.name]
        magnitude = source.bits - (source.kind == "int")
        return magnitude <= digits and source.bits <= largest
    if source.is_float and to.is_float and to.bits >= 16:
        a, b = _FLOATS[source.name], _FLOATS[to.name]
        # Subnormals of the source must be numbers of the target too.
        return a[0] <= b[0] and a[2] <= b[2] and a[1] - a[0] >= b[1] - b[0]
    return False


@rule("cast")
def cast_to_itself(op: Op, rw: Rewriter) -> bool | None:
    """cast(x: f32) to f32 => x."""
    x = op.operands[0]
    return rw.replace(x) if x.type == op.result.type else None


@rule("cast")
def cast_of_cast(op: Op, rw: Rewriter) -> bool | None:
    """cast(cast(x: f16) to f32) to T => cast(x) to T: the first cast changes no value.

    cast(cast(x: f32) to bf16) to f32 is a rounding and stays.
    """
    inner = op_named(op.operands[0], "cast")
    if inner is None:
        return None
    source, middle = inner.operands[0].type.dtype, inner.result.type.dtype
    if not preserves(source, middle):
        return rw.fail("the first cast may change values")
    return rw.replace_by("cast", inner.operands[0], **op.attributes)
