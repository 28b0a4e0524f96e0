"""Which movement ops move nothing: affine index maps of tensor storage.

`affine_step` describes how one movement op addresses the storage of its first operand;
`affine_view` composes a chain of them; `view_of` tells whether a whole op is a *view*, that is,
whether its result, in the dense layout of its type, already lies in its operand's storage.  Memory
planning, fusion and code generation ask the same functions, so they cannot disagree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphwright.compiler.ir.dims import Dim, Shape, equal, multiply
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import origin_of, storage_elements, strides_of, window_in
from graphwright.compiler.ir.op import Kind


@dataclass(frozen=True, slots=True)
class AffineView:
    """Element (i, j, ...) lies `offset + i * strides[0] + j * strides[1] + ...` into a storage.

    `offset` and `strides` count elements of `source`'s storage.  The stride of an axis of extent 1
    means nothing; a stride of 0 repeats elements.
    """

    source: Value
    offset: Dim
    strides: Shape

    def lies_as(self, value: Value) -> bool:
        """Whether the elements of `value` lie here exactly as in its own storage, offset aside."""
        layout = value.type.layout
        if layout is not None and layout.blocks:
            return False
        want = strides_of(value.type.shape, layout)
        return all(
            extent == 1 or equal(a, b)
            for extent, a, b in zip(value.type.shape, self.strides, want, strict=True)
        )


def whole(value: Value) -> AffineView | None:
    """The view of a value's own storage; None for a blocked layout."""
    shape, layout = value.type.shape, value.type.layout
    if layout is not None and layout.blocks:
        return None
    return AffineView(value, origin_of(shape, layout), strides_of(shape, layout))


def reshape_groups(
    old: Sequence[Dim], new: Sequence[Dim]
) -> list[tuple[tuple[int, ...], tuple[int, ...]]] | None:
    """The smallest groups of axes that a reshape maps onto each other, in order; unit axes left out.

    Each pair holds the axes of `old` and of `new` whose extents have one product.  None when an
    extent is 0, since every shape is then equal to every other.
    """
    if any(d == 0 for d in (*old, *new)):
        return None
    left = [i for i, d in enumerate(old) if d != 1]
    right = [i for i, d in enumerate(new) if d != 1]
    ends: dict[Dim, int] = {}  # product of the first axes of `new` -> how many axes
    total: Dim = 1
    for count, axis in enumerate(right, 1):
        total = multiply(total, new[axis])
        ends[total] = count
    groups: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    begin_left = begin_right = 0
    total = 1
    for count, axis in enumerate(left, 1):
        total = multiply(total, old[axis])
        end = ends.get(total)
        if end is not None and end > begin_right:
            groups.append((tuple(left[begin_left:count]), tuple(right[begin_right:end])))
            begin_left, begin_right = count, end
    if begin_left != len(left) or begin_right != len(right):
        # Equal products that the canonical form does not show equal: one last group takes the rest.
        groups.append((tuple(left[begin_left:]), tuple(right[begin_right:])))
    return groups


def _reshape(op: Op, base: AffineView) -> AffineView | None:
    old, new = op.operands[0].type.shape, op.result.type.shape
    groups = reshape_groups(old, new)
    if groups is None:
        return AffineView(base.source, base.offset, (0,) * len(new))
    strides: list[Dim] = [1] * len(new)
    for left, right in groups:
        for outer, inner in itertools.pairwise(left):
            if not equal(base.strides[outer], multiply(base.strides[inner], old[inner])):
                return None  # the merged axes are not adjacent in memory
        step: Dim = base.strides[left[-1]] if left else 1
        for axis in reversed(right):
            strides[axis] = step
            step = multiply(step, new[axis])
    return AffineView(base.source, base.offset, tuple(strides))


def _transpose(op: Op, base: AffineView) -> AffineView | None:
    strides = tuple(base.strides[axis] for axis in op.attributes["permutation"])
    return AffineView(base.source, base.offset, strides)


def _slice(op: Op, base: AffineView) -> AffineView | None:
    offset = base.offset
    strides: list[Dim] = []
    attributes = op.attributes
    for start, step, stride in zip(
        attributes["starts"], attributes["steps"], base.strides, strict=True
    ):
        offset = offset + multiply(start, stride)
        strides.append(multiply(step, stride))
    return AffineView(base.source, offset, tuple(strides))


def _broadcast_to(op: Op, base: AffineView) -> AffineView | None:
    old, new = op.operands[0].type.shape, op.result.type.shape
    lead = len(new) - len(old)
    strides: list[Dim] = [0] * lead
    for extent, wide, stride in zip(old, new[lead:], base.strides, strict=True):
        if extent == wide:
            strides.append(stride)
        elif extent == 1:
            strides.append(0)
        else:
            return None  # extents that only a binding can tell apart
    return AffineView(base.source, base.offset, tuple(strides))


def _same(op: Op, base: AffineView) -> AffineView | None:
    return base


def _concat(op: Op, base: AffineView) -> AffineView | None:
    return base if len(op.operands) == 1 else None


def is_joined(op: Op) -> bool:
    """Whether a concatenation's operands lie in one storage already, each in its window of it.

    The layouts say so: all operands then share the storage of the first, and so does the result.
    """
    if op.name != "concat" or len(op.operands) < 2:
        return False
    result, axis = op.result.type, op.attributes["axis"]
    start: Dim = 0
    for operand in op.operands:
        if operand.type.layout != window_in(result.layout, result.shape, axis, start):
            return False
        start = start + operand.type.shape[axis]
    return True


def _pad(op: Op, base: AffineView) -> AffineView | None:
    return base if all(d == 0 for d in (*op.attributes["low"], *op.attributes["high"])) else None


_STEPS: dict[str, Callable[[Op, AffineView], AffineView | None]] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "broadcast_to": _broadcast_to,
    "relayout": _same,
    "concat": _concat,
    "pad": _pad,
}


def affine_step(op: Op, base: AffineView) -> AffineView | None:
    """Where the elements of a movement op's result lie, given where its operand's lie.

    None when they are not at affine places, or the op does not only move elements.
    """
    step = _STEPS.get(op.name) if op.kind is Kind.MOVEMENT else None
    return step(op, base) if step is not None else None


def affine_view(value: Value, *, stop: Callable[[Value], bool] | None = None) -> AffineView | None:
    """The chain of movement ops above `value` as one affine view of the value that it starts from.

    Goes up while ops are movement (to a body's inputs, in a body) and `stop` does not hold; None
    when the composition is not affine.  A value that no movement op made is a view of itself.
    """
    chain: list[Op] = []
    at = value
    while at.op is not None and at.op.kind is Kind.MOVEMENT and not (stop and stop(at)):
        chain.append(at.op)
        at = at.op.operands[0]
    view = whole(at)
    for op in reversed(chain):
        if view is None:
            return None
        view = affine_step(op, view)
    return view


def view_of(op: Op) -> Dim | None:
    """The byte offset in its first operand's storage at which a top-level op's result lies already.

    None when the op has to move bytes.  A view costs nothing at run time: its result shares the
    storage, from the offset on, as its own type says.  A joined concatenation (`is_joined`) is a view.
    """
    if op.kind is not Kind.MOVEMENT or op.name not in _STEPS or not op.operands:
        return None
    operand, result = op.operands[0].type, op.result.type
    if operand.dtype.bits < 8:  # two elements a byte: only a change of the outer axes is safe
        same_rows = operand.layout is None and result.layout is None and operand.shape
        if op.name != "reshape" or not same_rows or operand.shape[-1:] != result.shape[-1:]:
            return None
        return 0
    if is_joined(op) or (op.name == "relayout" and operand.layout == result.layout):
        return 0
    base = whole(op.operands[0])
    view = affine_step(op, base) if base is not None else None
    if view is None or not view.lies_as(op.result):
        return None
    offset = view.offset - origin_of(result.shape, result.layout)
    if result.layout is not None and result.layout.windows:
        # The storage around the window is the operand's own, or there is none.
        same = storage_elements(operand.shape, operand.layout)
        if offset != 0 or same != storage_elements(result.shape, result.layout):
            return None
    return multiply(offset, operand.dtype.bytes)


def storage_of(value: Value) -> tuple[Value, Dim]:
    """The value whose storage a top-level value shares through views, and its byte offset there."""
    offset: Dim = 0
    while value.op is not None:
        step = view_of(value.op)
        if step is None:
            break
        value, offset = value.op.operands[0], offset + step
    return value, offset
