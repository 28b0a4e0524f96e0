"""Reshape, Slice, Pad, Range and the like with sizes that the data decide.

What ONNX says about such numbers (0 and -1 in a target, bounds that count from the end, negative
pads) is calculated by ops; the outcome, which is a plain size, is bound.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F64, I64
from graphwright.frontends.onnx.late import MOST_SIZES, bind, element
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

Sized = Dim | Value  # a size, or an i64 scalar that is one


def _number(node: Node, size: Sized) -> Value:
    return size if isinstance(size, Value) else node.size(size)


def _known(node: Node, i: int) -> list[Dim | None] | None:
    """The elements of input `i`, None where unknown; None when its length is unknown."""
    value = node.x(i)
    count = value.type.elements
    if not isinstance(count, int) or count > MOST_SIZES or value.type.rank > 1:
        return None
    array = node.known(value)
    if array is None:
        return [None for _ in range(count)]
    return [
        e if isinstance(e, Expr) else int(e) if isinstance(e, int | np.integer) else None
        for e in array.reshape(-1)
    ]


def _unknown(node: Node, *inputs: int) -> bool:
    """Whether some element of these inputs is known to the data alone."""
    for i in inputs:
        if node.has_input(i) and not node.importer.default_under(node.x(i)):
            known = _known(node, i)
            if known is not None and None in known:
                return True
    return False


def positions(node: Node, mask: Value) -> Value:
    """The flat positions where a tensor is not zero, as many as there are: i64[N]."""
    most = mask.type.elements
    found, count = node.emit_all("non_zero", mask)
    (size,) = bind(node, [count], at_most=[most], hint=f"{node.origin}.count")
    return node.slice_axis(found, 0, 0, size)


def late_target(node: Node, x: Value, shape: Value, *, allow_zero: bool) -> list[Dim] | None:
    """The target of a reshape whose elements are not all known; None when they are."""
    if not _unknown(node, 1):
        return None
    known = _known(node, 1)
    assert known is not None
    rank = x.type.rank
    missing = [i for i, e in enumerate(known) if e is None]
    wanted: list[Value] = []
    for i in missing:
        e = element(node, shape, i)
        if not allow_zero and i < rank:
            is_zero = node.emit("equal", e, node.scalar(0, I64))
            e = node.where(is_zero, node.size(x.type.shape[i]), e)
        wanted.append(e)
    target = [
        x.type.shape[i] if e == 0 and not allow_zero and i < rank else e
        for i, e in enumerate(known)
    ]
    if -1 not in target:
        wanted = _fill_in(node, x, target, wanted)
    bound = iter(bind(node, wanted, hint=f"{node.origin}.target"))
    out = [next(bound) if e is None else e for e in target]
    if -1 in out:
        rest = dims.product(d for d in out if d != -1)
        at = out.index(-1)
        # The whole is divisible; a factor that both have need not be divided.
        have = list(x.type.shape)
        for d in list(out):
            if d in have and d != -1:
                have.remove(d)
                rest = dims.floordiv(rest, d) if d != 0 else rest
        out[at] = dims.floordiv(dims.product(have), dims.maximum(rest, 1))
    return out


def _fill_in(
    node: Node, x: Value, target: Sequence[Dim | None], wanted: Sequence[Value]
) -> list[Value]:
    """The unknown elements, of which one may be -1, with what is left over in its place."""
    one, minus = node.scalar(1, I64), node.scalar(-1, I64)
    known = dims.product(d for d in target if d is not None)
    total = node.size(known)
    is_open = [node.emit("equal", e, minus) for e in wanted]
    for e, is_left in zip(wanted, is_open, strict=True):
        total = node.emit("mul", total, node.where(is_left, one, e))
    left = node.emit("div", node.size(x.type.elements), node.emit("maximum", total, one))
    return [node.where(o, left, e) for o, e in zip(is_open, wanted, strict=True)]


def late_slice(node: Node, x: Value) -> Value | None:
    """A slice with a bound or step that is only known at run time; None when all are known."""
    if not _unknown(node, 1, 2, 3, 4):
        return None
    starts, ends = _known(node, 1), _known(node, 2)
    steps = _known(node, 4) if node.has_input(4) else [1] * len(starts or ())
    if starts is None or ends is None or steps is None:
        raise Refusal("its bounds and steps are not all short vectors of integers")
    axes: Sequence[int] = range(len(starts))
    if node.has_input(3):
        axes = node.axes(node.axes_at(3, x.type.rank, ordered=True), x.type.rank)
    for i, axis in enumerate(axes):
        if len(starts) == 1 and steps[0] == 1 and (row := _at_counter(node, x, axis)) is not None:
            return row
        parts = [starts[i], ends[i], steps[i]]
        given: list[Sized] = [
            element(node, node.x((1, 2, 4)[k]), i) if p is None else p for k, p in enumerate(parts)
        ]
        x = _slice_axis(node, x, axis, *given)
    return x


def _at_counter(node: Node, x: Value, axis: int) -> Value | None:
    """x[i + a : i + b] for the counter i of a loop, where all of it certainly lies inside: of a
    size that is known, so that no iteration binds one.
    """
    start, end = (node.importer.counter_of(node.x(k)) for k in (1, 2))
    if start is None or end is None or start[0] is not end[0]:
        return None
    (loop, trips, first), last = start, end[2]
    del loop
    if trips is None or not 0 <= first < last:
        return None
    if dims.prove(x.type.shape[axis], ">=", trips - 1 + last) is not True:
        return None
    places = node.reshape(element(node, node.x(1), 0), (1,))
    if last - first > 1:
        places = node.emit("add", places, node.iota(last - first))
    return node.gather(x, places, axis)


def _slice_axis(node: Node, x: Value, axis: int, start: Sized, end: Sized, step: Sized) -> Value:
    """x[start:end:step] along an axis, with numpy's rules for what lies outside."""
    extent = x.type.shape[axis]
    zero, one = node.scalar(0, I64), node.scalar(1, I64)
    size, by = node.size(extent), _number(node, step)
    last = node.emit("sub", size, one)
    if isinstance(step, int):
        low_end, high = (zero, size) if step > 0 else (node.scalar(-1, I64), last)
    else:
        back = node.emit("less", by, zero)
        low_end = node.where(back, node.scalar(-1, I64), zero)
        high = node.where(back, last, size)

    def place(bound: Sized, low: Value) -> Value:
        at = _number(node, bound)
        from_end = node.emit("less", at, zero)
        at = node.where(from_end, node.emit("add", at, size), at)
        return node.emit("minimum", node.emit("maximum", at, low), high)

    first, stop = place(start, zero), place(end, low_end)
    count = _count(node, first, stop, by)
    if step == 1:
        begin, length = bind(node, [first, count], at_most=[extent, extent], hint=node.origin)
        # The two are bound apart; that they stay inside is certain from how they were made.
        return node.slice_axis(x, axis, begin, length)
    (length,) = bind(node, [count], at_most=[extent], hint=node.origin)
    places = node.emit("add", node.emit("mul", node.iota(length), by), first)
    return node.gather(x, places, axis)


def _count(node: Node, first: Value, stop: Value, step: Value) -> Value:
    """How many of first, first + step, ... come before stop: i64 scalars."""
    zero, one = node.scalar(0, I64), node.scalar(1, I64)
    sign = node.where(node.emit("less", step, zero), node.scalar(-1, I64), one)
    span = node.emit("mul", node.emit("sub", stop, first), sign)
    width = node.emit("abs", step)
    whole = node.emit("div", node.emit("add", span, node.emit("sub", width, one)), width)
    return node.where(node.emit("greater", span, zero), whole, zero)


def late_pads(node: Node, x: Value, axes: Sequence[int]) -> tuple[Value, Sequence[Dim]]:
    """The tensor, cropped where pads that the data decide are negative, and its pads."""
    if not _unknown(node, 1):
        return x, node.dims(1, "pads")
    known = _known(node, 1)
    assert known is not None
    zero = node.scalar(0, I64)
    missing = [i for i, e in enumerate(known) if e is None]
    wanted: list[Value] = []
    for i in missing:
        e = element(node, node.x(1), i)
        wanted += [node.emit("maximum", e, zero), node.emit("maximum", node.emit("neg", e), zero)]
    bound = bind(node, wanted, hint=f"{node.origin}.pads")
    more, less = dict(zip(missing, bound[::2], strict=True)), dict(zip(missing, bound[1::2], strict=True))  # fmt: skip
    for k, axis in enumerate(axes):
        low, high = less.get(k, 0), less.get(k + len(axes), 0)
        extent = x.type.shape[axis]
        x = node.slice_axis(x, axis, low, extent - low - high)
    return x, [more.get(i, 0) if e is None else e for i, e in enumerate(known)]


def late_range(node: Node, start: Value, limit: Value, delta: Value) -> Value:
    """start, start + delta, ... before limit."""
    dtype = start.type.dtype
    a, b, step = (node.reshape(v, ()) for v in (start, limit, delta))
    if dtype.is_integer:
        count = _count(node, *(node.cast(v, I64) for v in (a, b, step)))
    else:
        span = node.cast(node.emit("sub", b, a), F64)
        steps = node.emit("ceil", node.emit("div", span, node.cast(step, F64)))
        count = node.emit("maximum", node.cast(steps, I64), node.scalar(0, I64))
    (size,) = bind(node, [count], hint=f"{node.origin}.count")
    return node.emit("add", node.emit("mul", node.iota(size, dtype), step), a)
