"""Canonicalize, quantized values: weights stay integers, scales follow them, round trips vanish.

`dequantize` is the one form of integers times a scale.  It passes what only moves or limits numbers,
so that it stands before the arithmetic that wants real numbers, and bytes are moved in place of floats.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import DType
from graphwright.compiler.passes.match import broadcasts, literal_of, op_named, uniform_of
from graphwright.compiler.passes.rewrite import Rewriter, rule

# Smaller constants are folded like any other.
_LARGE = 15


def is_stored_quantized(value: Value) -> bool:
    """Whether a value is a constant of many integers of at most 8 bits: quantized weights."""
    literal = literal_of(value)
    return (
        literal is not None
        and not literal.is_splat
        and literal.elements > _LARGE
        and value.type.dtype.is_integer
        and value.type.dtype.bits <= 8
    )


def _is_float(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits >= 16


def positive(scale: Value) -> bool:
    """Whether a scale is one known positive finite number, neither tiny nor huge."""
    number = uniform_of(scale)
    return isinstance(number, float) and 2.0**-100 < number < 2.0**100


def same_number(a: Value, b: Value) -> bool:
    """Whether both are the same value, or known and equal in type and every element."""
    if a is b:
        return True
    x = uniform_of(a)
    return a.type.dtype is b.type.dtype and x is not None and x == uniform_of(b)


@rule("cast")
def cast_of_quantized_weights(op: Op, rw: Rewriter) -> bool | None:
    """cast(w: i8) to f32 => dequantize(w, 1, 0), w constant: integers are what is stored.

    The same bits: x - 0 is x, and x * 1 is x.
    """
    w = op.operands[0]
    if not is_stored_quantized(w) or not _is_float(op.result.type.dtype):
        return None
    if op.result.is_output:
        return None
    dtype = op.result.type.dtype
    return rw.replace_by(
        "dequantize", w, rw.scalar(1.0, dtype), rw.scalar(0, w.type.dtype), dtype=dtype
    )


@rule("mul")
def multiply_dequantized(op: Op, rw: Rewriter) -> bool | None:
    """dequantize(w, 1, z) * s => dequantize(w, s, z), w constant.  The same bits."""
    for x, s in (op.operands, op.operands[::-1]):
        inner = op_named(x, "dequantize")
        if inner is None or literal_of(inner.operands[0]) is None or literal_of(s) is None:
            continue
        w, one, zero = inner.operands
        if uniform_of(one) != 1.0 or inner.result.type.dtype is not s.type.dtype:
            continue
        if not broadcasts(s.type.shape, w.type.shape):
            continue
        return rw.replace_by("dequantize", w, s, zero, dtype=op.result.type.dtype)
    return None


@rule("sub", "add")
def subtract_zero_point(op: Op, rw: Rewriter) -> bool | None:
    """dequantize(w, 1, 0) - z => dequantize(w, 1, z), w constant, z one integer of w's type."""
    inner = op_named(op.operands[0], "dequantize")
    if inner is None or literal_of(inner.operands[0]) is None:
        return None
    w, one, zero = inner.operands
    number = uniform_of(op.operands[1])
    if uniform_of(one) != 1.0 or uniform_of(zero) != 0 or not isinstance(number, float):
        return None
    if not w.type.dtype.is_integer or op.result.type != inner.result.type:
        return None
    point = -number if op.name == "add" else number
    bits, signed = w.type.dtype.bits, w.type.dtype.kind == "int"
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    if not point.is_integer() or not low <= point <= high:
        return rw.fail("what is subtracted from quantized weights is no zero point of their type")
    moved = rw.scalar(int(point), w.type.dtype)
    return rw.replace_by("dequantize", w, one, moved, dtype=op.result.type.dtype)


@rule("gather")
def gather_before_dequantize(op: Op, rw: Rewriter) -> bool | None:
    """gather(dequantize(w, s, z), i) => dequantize(gather(w, i), ...), w constant: rows of bytes."""
    inner = op_named(op.operands[0], "dequantize")
    if inner is None or not is_stored_quantized(inner.operands[0]):
        return None
    table, axis, indices = inner.operands[0], op.attribute("axis"), op.operands[1]
    moved = [_gathered(rw, v, table.type.rank, axis, indices) for v in inner.operands[1:]]
    rows = rw.value("gather", table, indices, axis=axis)
    return rw.replace_by("dequantize", rows, *moved, dtype=op.result.type.dtype)


def _gathered(rw: Rewriter, value: Value, rank: int, axis: int, indices: Value) -> Value:
    """A scale or zero point for the chosen rows."""
    if value.type.rank == 0:
        return value
    shape: Sequence[Dim] = (*(1,) * (rank - value.type.rank), *value.type.shape)
    if tuple(shape) != value.type.shape:
        value = rw.value("reshape", value, shape=tuple(shape))
    if shape[axis] != 1:
        return rw.value("gather", value, indices, axis=axis)
    spread = (*shape[:axis], *(1,) * indices.type.rank, *shape[axis + 1 :])
    return value if spread == tuple(shape) else rw.value("reshape", value, shape=spread)


@rule("quantize")
def quantize_of_dequantized(op: Op, rw: Rewriter) -> bool | None:
    """quantize(dequantize(q, s, z), s, z) => q for one s and z.

    (q - z) * s rounds by less than half a unit of its last place, so divided by s it is nearer
    to q - z than to any other integer.
    """
    inner = op_named(op.operands[0], "dequantize")
    if inner is None or inner.operands[0].type != op.result.type:
        return None
    if op.result.type.dtype.bits > 8 or not op.result.type.dtype.is_integer:
        return None
    if inner.result.type.dtype.bits < 32 or not positive(op.operands[1]):
        return None
    for a, b in zip(inner.operands[1:], op.operands[1:], strict=True):
        if not same_number(a, b) or a.type.rank or b.type.rank:
            return None
    return rw.replace(inner.operands[0])


@rule("concat")
def concat_before_dequantize(op: Op, rw: Rewriter) -> bool | None:
    """concat(dequantize(p, s, z), dequantize(q, s, z)) => dequantize(concat(p, q), s, z)."""
    parts = [d for v in op.operands if (d := op_named(v, "dequantize")) is not None]
    if len(parts) != len(op.operands) or len(parts) < 2:
        return None
    first = parts[0]
    for part in parts:
        for a, b in zip(part.operands[1:], first.operands[1:], strict=True):
            if a.type.rank or not same_number(a, b):
                return None
        if part.operands[0].type.dtype is not first.operands[0].type.dtype:
            return None
        if len(part.result.uses) > 1:
            return rw.fail("a dequantized part is needed elsewhere")
    joined = rw.create("concat", [p.operands[0] for p in parts], op.attributes).result
    return rw.replace_by("dequantize", joined, *first.operands[1:], **first.attributes)


@rule("relu")
def relu_before_dequantize(op: Op, rw: Rewriter) -> bool | None:
    """relu(dequantize(q, s, z)) => dequantize(maximum(q, z), s, z) for s > 0: the order is the same."""
    inner = op_named(op.operands[0], "dequantize")
    if inner is None or len(inner.result.uses) > 1:
        return None
    q, scale, zero = inner.operands
    if not positive(scale) or scale.type.rank or zero.type.rank or not q.type.dtype.is_integer:
        return None
    limited = rw.value("maximum", q, zero)
    return rw.replace_by("dequantize", limited, scale, zero, **inner.attributes)
