"""Canonicalize, reshapes sink toward the outputs past pointwise ops.

Arithmetic then follows directly on what made the numbers, a convolution say, and reshapes meet.
"""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.canonicalize_movement import axis_groups
from graphwright.compiler.passes.fold_constants import folded_value
from graphwright.compiler.passes.match import is_cheap, only_user, op_named, static
from graphwright.compiler.passes.rewrite import Rewriter, rule


@rule(kinds=[Kind.POINTWISE])
def reshape_past_pointwise(op: Op, rw: Rewriter) -> bool | None:
    """relu(reshape(x)) => reshape(relu(x)); add(reshape(x), reshape(y)) of one shape; constants
    beside are reshaped at compile time where they vary along axes that the reshape keeps."""
    reshapes = [r for v in op.operands if (r := op_named(v, "reshape")) is not None]
    if not reshapes or any(only_user(r.result) is not op for r in reshapes):
        return None
    shape, source = reshapes[0].result.type.shape, reshapes[0].operands[0].type.shape
    if op.result.type.shape != shape:
        return None
    for r in reshapes:
        if r.result.type.shape != shape or r.operands[0].type.shape != source:
            return None
    operands: list[Value] = []
    for value in op.operands:
        r = op_named(value, "reshape")
        before = r.operands[0] if r is not None else _before(rw, value, source, shape)
        if before is None:
            return rw.fail("another operand is not reshaped")
        operands.append(before)
    new = rw.create(op.name, operands, op.attributes).result
    if new.type.shape != source:
        return None
    return rw.replace_by("reshape", new, shape=shape)


def _before(rw: Rewriter, value: Value, source: Shape, shape: Shape) -> Value | None:
    """A constant that broadcasts against `shape`, so that it broadcasts alike against `source`."""
    extents = static(value.type.shape)
    if extents is None or len(extents) > len(shape):
        return None
    if all(d == 1 for d in extents):
        return value if not extents else _reshaped(rw, value, ())
    if not is_cheap(value):
        return None
    groups = axis_groups(source, shape)
    if groups is None:
        return None
    padded = (1,) * (len(shape) - len(extents)) + extents
    wanted: list[int] = [1] * len(source)
    for inner, outer in groups:
        if all(padded[a] == 1 for a in outer):
            continue
        long_inner = [a for a in inner if source[a] != 1]
        long_outer = [a for a in outer if shape[a] != 1]
        same: list[Dim] = [source[a] for a in long_inner]
        if same != [shape[a] for a in long_outer] or any(
            padded[a] != 1 for a in outer if a not in long_outer
        ):
            return None
        for a, b in zip(long_inner, long_outer, strict=True):
            wanted[a] = padded[b]
    return _reshaped(rw, value, tuple(wanted))


def _reshaped(rw: Rewriter, value: Value, shape: tuple[int, ...]) -> Value | None:
    return folded_value(rw, "reshape", [value], {"shape": shape}) if is_cheap(value) else None
