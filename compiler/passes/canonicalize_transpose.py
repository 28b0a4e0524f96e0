"""Canonicalize, transposes sink toward the outputs, so that they meet and cancel.

A transpose moves past an op only where their number does not grow: every transposed operand is
used by that op alone, and constants are transposed at compile time.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.fold_constants import folded_value
from graphwright.compiler.passes.match import is_cheap, only_user, op_named, static
from graphwright.compiler.passes.rewrite import Rewriter, rule


def _inverse(permutation: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(permutation)), key=permutation.__getitem__))


def _common(op: Op) -> tuple[int, ...] | None:
    """The one permutation of all transposed operands, when the op alone uses them."""
    found: set[tuple[int, ...]] = set()
    for value in op.operands:
        inner = op_named(value, "transpose")
        if inner is None:
            continue
        if any(u.user is not op for u in value.uses):
            return None
        found.add(inner.attribute("permutation"))
    return found.pop() if len(found) == 1 else None


def _untransposed(
    rw: Rewriter, value: Value, permutation: tuple[int, ...], *, broadcast: bool
) -> Value | None:
    """The value as it was before the transpose; None for one that was not transposed."""
    rank = len(permutation)
    inner = op_named(value, "transpose")
    if inner is not None:
        return inner.operands[0]
    shape = static(value.type.shape)
    if broadcast and shape is not None and all(d == 1 for d in shape):
        # One element: any shape of ones will do, if its rank does not exceed the result's.
        return value if len(shape) == 0 or len(shape) <= rank else None
    if shape is None or not is_cheap(value) or (not broadcast and len(shape) != rank):
        return None
    if len(shape) < rank:
        shape = (1,) * (rank - len(shape)) + shape
        value = folded_value(rw, "reshape", [value], {"shape": shape})
    return folded_value(rw, "transpose", [value], {"permutation": _inverse(permutation)})


@rule(kinds=[Kind.POINTWISE])
def transpose_past_pointwise(op: Op, rw: Rewriter) -> bool | None:
    """add(transpose(x), transpose(y)) => transpose(add(x, y)), and with constants beside."""
    permutation = _common(op)
    if permutation is None or op.result.type.rank != len(permutation):
        return None
    if any(op_named(v, "transpose") and v.type.rank != len(permutation) for v in op.operands):
        return None
    operands = [_untransposed(rw, v, permutation, broadcast=True) for v in op.operands]
    known = [v for v in operands if v is not None]
    if len(known) != len(operands):
        return rw.fail("another operand is not transposed")
    moved = rw.create(op.name, known, op.attributes).result
    return rw.replace_by("transpose", moved, permutation=permutation)


@rule("concat")
def transpose_past_concat(op: Op, rw: Rewriter) -> bool | None:
    """concat(transpose(x), transpose(y)) => transpose(concat(x, y))."""
    permutation = _common(op)
    if permutation is None:
        return None
    operands = [_untransposed(rw, v, permutation, broadcast=False) for v in op.operands]
    known = [v for v in operands if v is not None]
    if len(known) != len(operands):
        return rw.fail("another operand is not transposed")
    moved = rw.create("concat", known, {"axis": permutation[op.attribute("axis")]}).result
    return rw.replace_by("transpose", moved, permutation=permutation)


@rule("slice")
def transpose_past_slice(op: Op, rw: Rewriter) -> bool | None:
    """slice(transpose(x)) => transpose(slice(x))."""
    return _past_per_axis(op, rw, ("starts", "sizes", "steps"))


@rule("pad")
def transpose_past_pad(op: Op, rw: Rewriter) -> bool | None:
    """pad(transpose(x)) => transpose(pad(x))."""
    return _past_per_axis(op, rw, ("low", "high"))


def _past_per_axis(op: Op, rw: Rewriter, names: tuple[str, ...]) -> bool | None:
    inner = op_named(op.operands[0], "transpose")
    if inner is None or only_user(inner.result) is not op:
        return None
    permutation: tuple[int, ...] = inner.attribute("permutation")
    back = _inverse(permutation)
    attributes = dict(op.attributes)
    for name in names:
        attributes[name] = tuple(attributes[name][i] for i in back)
    moved = rw.create(op.name, [inner.operands[0], *op.operands[1:]], attributes).result
    return rw.replace_by("transpose", moved, permutation=permutation)


_REDUCTIONS = (
    "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or",
)  # fmt: skip


@rule(*_REDUCTIONS)
def transpose_past_reduction(op: Op, rw: Rewriter) -> bool | None:
    """reduce_mean(transpose(x)) => transpose(reduce_mean(x)) over the axes where x had them.

    The terms of a sum come in another order; reductions fix an order of their own anyway.
    """
    inner = op_named(op.operands[0], "transpose")
    if inner is None or only_user(inner.result) is not op:
        return None
    permutation: tuple[int, ...] = inner.attribute("permutation")
    axes = tuple(sorted(permutation[a] for a in op.attribute("axes")))
    reduced = rw.create(op.name, [inner.operands[0]], {**op.attributes, "axes": axes}).result
    if not op.attribute("keepdims"):
        kept = [p for p in permutation if p not in axes]
        permutation = tuple(sorted(kept).index(p) for p in kept)
    return rw.replace_by("transpose", reduced, permutation=permutation)
