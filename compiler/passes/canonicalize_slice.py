"""Canonicalize, parts: slice, concat, pad, gather with known indices.

Every rule is exact.  With symbolic extents a rule fires when containment is proven for all sizes.
"""

from __future__ import annotations

import itertools

from graphwright.compiler.ir.dims import Dim, prove
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.match import (
    literal_of,
    only_user,
    op_named,
    static,
    uniform_of,
)
from graphwright.compiler.passes.rewrite import Rewriter, rule


@rule("slice")
def slice_of_everything(op: Op, rw: Rewriter) -> bool | None:
    """A slice of every element in order => x."""
    x = op.operands[0]
    if x.type != op.result.type:
        return None
    for start, step, extent in zip(
        op.attribute("starts"), op.attribute("steps"), x.type.shape, strict=True
    ):
        if extent != 1 and (start != 0 or step != 1):
            return None
    return rw.replace(x)


@rule("slice")
def slice_of_slice(op: Op, rw: Rewriter) -> bool | None:
    """slice(slice(x)) => slice(x)."""
    inner = op_named(op.operands[0], "slice")
    if inner is None:
        return None
    starts = tuple(
        a + s * b
        for a, s, b in zip(
            inner.attribute("starts"), inner.attribute("steps"), op.attribute("starts"), strict=True
        )
    )
    steps = tuple(
        a * b for a, b in zip(inner.attribute("steps"), op.attribute("steps"), strict=True)
    )
    sizes = op.attribute("sizes")
    return rw.replace_by("slice", inner.operands[0], starts=starts, sizes=sizes, steps=steps)


def _span(op: Op, axis: int) -> tuple[Dim, Dim]:
    """The smallest and largest index that a slice takes along an axis (if it takes any)."""
    start: Dim = op.attribute("starts")[axis]
    size: Dim = op.attribute("sizes")[axis]
    step: int = op.attribute("steps")[axis]
    last = start + (size - 1) * step
    return (start, last) if step > 0 else (last, start)


def _shifted(op: Op, axis: int, by: Dim) -> dict[str, tuple[Dim, ...]]:
    """The slice's attributes with the start along an axis moved down by `by`."""
    starts: list[Dim] = list(op.attribute("starts"))
    starts[axis] = starts[axis] - by
    return {**op.attributes, "starts": tuple(starts)}


@rule("slice")
def slice_of_concat(op: Op, rw: Rewriter) -> bool | None:
    """slice(concat(a, b)) that stays inside a or b => slice(a) or slice(b)."""
    inner = op_named(op.operands[0], "concat")
    if inner is None:
        return None
    axis: int = inner.attribute("axis")
    low, high = _span(op, axis)
    offset: Dim = 0
    for part in inner.operands:
        extent = part.type.shape[axis]
        if prove(low, ">=", offset) and prove(high, "<", offset + extent):
            return rw.replace(rw.create("slice", [part], _shifted(op, axis, offset)).result)
        offset = offset + extent
    return rw.fail("the slice is not proven to stay inside one input of the concat")


@rule("slice")
def slice_of_pad(op: Op, rw: Rewriter) -> bool | None:
    """slice(pad(x)) that takes no padding along an axis where there is some => less padding."""
    inner = op_named(op.operands[0], "pad")
    if inner is None or only_user(inner.result) is not op:
        return None
    x = inner.operands[0]
    low: list[Dim] = list(inner.attribute("low"))
    high: list[Dim] = list(inner.attribute("high"))
    attributes = dict(op.attributes)
    starts: list[Dim] = list(op.attribute("starts"))
    changed = False
    for axis, extent in enumerate(x.type.shape):
        if low[axis] == 0 and high[axis] == 0:
            continue
        first, last = _span(op, axis)
        if prove(first, ">=", low[axis]) and prove(last, "<", low[axis] + extent):
            starts[axis] = starts[axis] - low[axis]
            low[axis] = high[axis] = 0
            changed = True
    if not changed:
        return rw.fail("the slice may take padding along every padded axis")
    attributes["starts"] = tuple(starts)
    padded = rw.create(
        "pad", inner.operands, {**inner.attributes, "low": tuple(low), "high": tuple(high)}
    ).result
    return rw.replace(rw.create("slice", [padded], attributes).result)


@rule("slice")
def slice_of_broadcast(op: Op, rw: Rewriter) -> bool | None:
    """slice(broadcast_to(x)) => broadcast_to(slice(x)), or less repeating where x is repeated."""
    inner = op_named(op.operands[0], "broadcast_to")
    if inner is None:
        return None
    x, shape = inner.operands[0], inner.result.type.shape
    new = len(shape) - x.type.rank
    starts: list[Dim] = []
    sizes: list[Dim] = []
    steps: list[int] = []
    for axis, extent in enumerate(x.type.shape, new):
        if extent == 1:  # the only element, however many the slice takes
            starts, sizes, steps = [*starts, 0], [*sizes, 1], [*steps, 1]
        elif extent == shape[axis]:
            starts.append(op.attribute("starts")[axis])
            sizes.append(op.attribute("sizes")[axis])
            steps.append(op.attribute("steps")[axis])
        else:
            return rw.fail("it is unknown whether the axis is repeated")
    part = rw.value("slice", x, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))
    return rw.replace_by("broadcast_to", part, shape=op.result.type.shape)


@rule("concat")
def concat_of_one(op: Op, rw: Rewriter) -> bool | None:
    """concat(x) => x; inputs of extent 0 are dropped."""
    axis = op.attribute("axis")
    kept = [v for v in op.operands if v.type.shape[axis] != 0] or [op.operands[0]]
    if len(kept) == 1 and kept[0].type == op.result.type:
        return rw.replace(kept[0])
    if len(kept) == len(op.operands):
        return None
    new = rw.create("concat", kept, op.attributes).result
    return rw.replace(new) if new.type == op.result.type else None


@rule("concat")
def concat_of_concat(op: Op, rw: Rewriter) -> bool | None:
    """concat(concat(a, b), c) => concat(a, b, c) along one axis, the inner one used only here."""
    axis = op.attribute("axis")
    flat: list[Value] = []
    for value in op.operands:
        inner = op_named(value, "concat")
        if inner is not None and inner.attribute("axis") == axis and only_user(value) is op:
            flat += inner.operands
        else:
            flat.append(value)
    if len(flat) == len(op.operands):
        return None
    return rw.replace(rw.create("concat", flat, op.attributes).result)


@rule("concat")
def concat_of_adjacent_slices(op: Op, rw: Rewriter) -> bool | None:
    """concat(slice(x, 0:3), slice(x, 3:8)) => slice(x, 0:8)."""
    axis = op.attribute("axis")
    for i, (left, right) in enumerate(zip(op.operands, op.operands[1:], strict=False)):
        a, b = op_named(left, "slice"), op_named(right, "slice")
        if a is None or b is None or a.operands[0] is not b.operands[0]:
            continue
        if a.attribute("steps") != b.attribute("steps"):
            continue
        step, size = a.attribute("steps")[axis], a.attribute("sizes")[axis]
        if a.attribute("starts")[axis] + step * size != b.attribute("starts")[axis]:
            continue
        others = [n for n in range(left.type.rank) if n != axis]
        if any(a.attribute(k)[n] != b.attribute(k)[n] for k in ("starts", "sizes") for n in others):
            continue
        sizes = list(a.attribute("sizes"))
        sizes[axis] = sizes[axis] + b.attribute("sizes")[axis]
        joined = rw.create("slice", a.operands, {**a.attributes, "sizes": tuple(sizes)}).result
        rest = [*op.operands[:i], joined, *op.operands[i + 2 :]]
        return rw.replace(rw.create("concat", rest, op.attributes).result)
    return None


@rule("pad")
def pad_by_nothing(op: Op, rw: Rewriter) -> bool | None:
    """pad by 0 everywhere => x."""
    if any(d != 0 for d in (*op.attribute("low"), *op.attribute("high"))):
        return None
    return rw.replace(op.operands[0])


def _pad_value(op: Op) -> object:
    return uniform_of(op.operands[1]) if len(op.operands) == 2 else 0


@rule("pad")
def pad_of_pad(op: Op, rw: Rewriter) -> bool | None:
    """pad(pad(x)) with the same constant => pad(x)."""
    inner = op_named(op.operands[0], "pad")
    if inner is None or only_user(inner.result) is not op:
        return None
    if op.attribute("mode") != "constant" or inner.attribute("mode") != "constant":
        return None
    outer_value, inner_value = _pad_value(op), _pad_value(inner)
    if outer_value is None or repr(outer_value) != repr(inner_value):
        same = len(op.operands) == 2 and op.operands[1:] == inner.operands[1:]
        zero = outer_value == 0 and inner_value == 0 and "-" not in f"{outer_value}{inner_value}"
        if not same and not zero:
            return rw.fail("the paddings have different values")
    low, high = (
        tuple(a + b for a, b in zip(inner.attribute(n), op.attribute(n), strict=True))
        for n in ("low", "high")
    )
    new = rw.create("pad", inner.operands, {"low": low, "high": high, "mode": "constant"})
    return rw.replace(new.result)


@rule("reshape")
def unit_reshape_of_pad(op: Op, rw: Rewriter) -> bool | None:
    """reshape(pad(x)) that only adds axes of extent 1 => pad(reshape(x)), next to what may take
    the padding over (a convolution)."""
    inner = op_named(op.operands[0], "pad")
    if inner is None or only_user(inner.result) is not op:
        return None
    x, shape = inner.operands[0], op.result.type.shape
    places: list[int | None] = []  # for each new axis the axis of x, or None for an added one
    axis = 0
    for extent in shape:
        if axis < x.type.rank and extent == inner.result.type.shape[axis]:
            places.append(axis)
            axis += 1
        elif extent == 1:
            places.append(None)
        else:
            return None
    if axis != x.type.rank or len(shape) == x.type.rank:
        return None
    before = tuple(1 if a is None else x.type.shape[a] for a in places)
    low, high = (
        tuple(0 if a is None else inner.attribute(side)[a] for a in places)
        for side in ("low", "high")
    )
    moved = rw.value("reshape", x, shape=before)
    attributes = {**inner.attributes, "low": low, "high": high}
    return rw.replace(rw.create("pad", [moved, *inner.operands[1:]], attributes).result)


@rule("gather")
def gather_one(op: Op, rw: Rewriter) -> bool | None:
    """gather with one known index => slice (and a reshape that drops the axis)."""
    x, indices = op.operands
    axis: int = op.attribute("axis")
    literal = literal_of(indices)
    if literal is None or literal.elements < 1:
        return None
    found = [int(i) for i in literal.array().reshape(-1)[:2]]
    step = found[1] - found[0] if literal.elements > 1 else 1
    extent = x.type.shape[axis]
    # A run: n indices with one distance between neighbours, none of them wrapping around.
    if literal.elements > 1:
        flat = [int(i) for i in literal.array().reshape(-1)]
        if step == 0 or any(b - a != step for a, b in itertools.pairwise(flat)):
            return None
        if (flat[0] < 0) != (flat[-1] < 0):
            return None
    first: Dim = found[0] if found[0] >= 0 else extent + found[0]
    last = first + step * (literal.elements - 1)
    if not all(prove(i, ">=", 0) and prove(i, "<", extent) for i in (first, last)):
        return rw.fail("an index is not proven to lie inside the axis")
    rank = x.type.rank
    starts: tuple[Dim, ...] = tuple(first if a == axis else 0 for a in range(rank))
    sizes = tuple(literal.elements if a == axis else d for a, d in enumerate(x.type.shape))
    steps = tuple(step if a == axis else 1 for a in range(rank))
    part = rw.value("slice", x, starts=starts, sizes=sizes, steps=steps)
    return rw.replace_by("reshape", part, shape=op.result.type.shape)


@rule("conv", "average_pool")
def pad_into_window(op: Op, rw: Rewriter) -> bool | None:
    """conv(pad(x) with zeros on the spatial axes) => conv with that padding.

    average_pool only where it counts padding as elements.
    """
    inner = op_named(op.operands[0], "pad")
    if inner is None or inner.attribute("mode") != "constant" or _pad_value(inner) != 0:
        return None
    if op.name == "average_pool" and not (
        op.attribute("count_include_pad") and not op.attribute("ceil_mode")
    ):
        return rw.fail("the pool does not count padding as elements")
    low, high = static(inner.attribute("low")), static(inner.attribute("high"))
    if low is None or high is None or any((*low[:2], *high[:2])):
        return rw.fail("batch or channels are padded, or by an unknown amount")
    attributes = dict(op.attributes)
    attributes["low"] = tuple(a + b for a, b in zip(attributes["low"], low[2:], strict=True))
    attributes["high"] = tuple(a + b for a, b in zip(attributes["high"], high[2:], strict=True))
    new = rw.create(op.name, [inner.operands[0], *op.operands[1:]], attributes).result
    if new.type != op.result.type:
        return rw.fail("the extents are not proven equal")
    return rw.replace(new)
