"""Concatenation without copying: operands are written where they belong in the result.

A value whose layout has a window lies inside a larger tensor.  When every operand of a `concat` has
the window that the result's layout implies, the concatenation is a view (`views.is_joined`).  Here
operands get such layouts where their kernels can write (and their other users read) a part of a
larger tensor; the few that cannot are copied by a `relayout`.
"""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import Layout, order_of, window_in
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.passes.profit import Sizes
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import is_joined, view_of
from graphwright.compiler.target import Target

# Ops of their own kernels that write through their result's layout and read through strides.
STRIDED = ("max_pool", "average_pool", "resize", "lrn")
_REGIONS = (Kind.POINTWISE, Kind.REDUCTION, Kind.CONTRACTION)


def join_concatenations(rw: Rewriter, target: Target) -> int:
    """Joins the concatenations of a graph where that pays; how many."""
    joined, sizes = 0, Sizes()
    for op in list(rw.graph.ops):
        if op.name == "concat" and len(op.operands) > 1 and _join(rw, op, target, sizes):
            joined += 1
    return joined


def _join(rw: Rewriter, op: Op, target: Target, sizes: Sizes) -> bool:
    result, axis = op.result.type, op.attributes["axis"]
    starts: list[Dim] = [0]
    for operand in op.operands:
        starts.append(starts[-1] + operand.type.shape[axis])
    layouts = [window_in(result.layout, result.shape, axis, start) for start in starts[:-1]]
    direct: dict[int, Value] = {}
    for i, operand in enumerate(op.operands):
        if operand not in direct.values() and _takes_window(operand, op, layouts[i]):
            direct[i] = operand
    seconds = (
        sum(2 * sizes.bytes(v) for v in direct.values() if _is_stored(v, sizes)) / target.bandwidth
    )
    # Alone, the concatenation would be one kernel that also does the pointwise work before it.
    kernels = sum(i not in direct or not _is_stored(direct[i], sizes) for i in range(len(layouts)))
    if _user_takes_it(op) or seconds <= (kernels - 1) * target.launch_seconds:
        return False
    with rw.step("join-concatenation", op):
        for i, (operand, layout) in enumerate(zip(op.operands, layouts, strict=True)):
            if i in direct:
                _place(rw, operand, layout)
            else:
                _copy(rw, op, i, operand, layout)
        rw.because(f"{len(direct)} of {len(layouts)} operands are written in place")
    return True


def _place(rw: Rewriter, value: Value, layout: Layout) -> None:
    """Gives a value a window; the operands of a joined concatenation that makes it go along."""
    op = value.op
    joined = op is not None and is_joined(op)
    value.type = value.type.with_layout(layout)
    if op is None or not joined:
        return
    start: Dim = 0
    for i, operand in enumerate(op.operands):
        window = window_in(layout, value.type.shape, op.attributes["axis"], start)
        start = start + operand.type.shape[op.attributes["axis"]]
        if operand.op is not None and operand.op.name == "relayout":
            _copy(rw, op, i, operand.op.operands[0], window)
        else:
            _place(rw, operand, window)


def _copy(rw: Rewriter, op: Op, index: int, value: Value, layout: Layout) -> None:
    copy = rw.create("relayout", [value], {"layout": layout}, before=op, names=[value.name])
    copy.result.equals = value.equals
    rw.set_operand(op, index, copy.result)


def _takes_window(value: Value, concat: Op, layout: Layout) -> bool:
    """Whether a value's kernel can write it into the window, and its other users can read it there."""
    op, type = value.op, value.type
    if op is None or value.is_output or op.definition.effect is not Effect.PURE:
        return False
    if type.dtype.bits < 8 or (type.layout is not None and type.layout.windows):
        return False
    if order_of(type.layout, type.rank) != layout.order:
        return False
    # Movement that moves bytes writes anywhere; a view lies where its operand does.
    moving = op.kind is Kind.MOVEMENT and (is_joined(op) or view_of(op) is None)
    if not (op.kind in _REGIONS or op.name in STRIDED or moving):
        return False
    if op.kind is Kind.MOVEMENT and not is_joined(op) and _lies_there(value, op, layout):
        return False
    if len([u for u in value.uses if u.user is concat]) != 1:
        return False
    return all(u is concat or u.kind in _REGIONS or u.name in STRIDED for u in value.users)


def _lies_there(value: Value, op: Op, layout: Layout) -> bool:
    """Whether in the window the value would be a part of its operand, whose storage the concatenation
    would then write over: a slice that is put back into the place that it was cut from.
    """
    plain = value.type
    value.type = plain.with_layout(layout)
    try:
        return view_of(op) is not None
    finally:
        value.type = plain


def _is_stored(value: Value, sizes: Sizes) -> bool:
    """Whether the value is written by a kernel of its own whatever becomes of the concatenation."""
    op = value.op
    for _ in range(64):
        if op is None or len(value.uses) > 1 or op.kind is not Kind.POINTWISE:
            break
        value = max(op.operands, key=sizes.bytes)
        op = value.op
    if op is None:
        return False
    if op.kind is Kind.MOVEMENT:
        return is_joined(op)
    return op.kind is not Kind.POINTWISE or len(value.uses) > 1


def _user_takes_it(op: Op) -> bool:
    """Whether the only user would do the concatenation on the way, as an index map."""
    users = op.result.users
    return len(users) == 1 and users[0].kind in (Kind.POINTWISE, Kind.REDUCTION)
