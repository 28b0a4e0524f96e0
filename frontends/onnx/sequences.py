"""What can be done with a sequence, whatever form it has: read, insert, erase, join."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I64
from graphwright.frontends.onnx.containers import (
    Growing,
    Items,
    NotAppended,
    Packed,
    SequenceEntry,
    Stack,
)
from graphwright.frontends.onnx.forms import (
    Unlike,
    form_of,
    join,
    joined,
    packed,
    sizes_of,
)
from graphwright.frontends.onnx.late import bind
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

Position = int | Value  # known, or an i64 scalar; negative ones count from the end


def length_of(node: Node, seq: SequenceEntry) -> Value:
    """i64 scalar."""
    if isinstance(seq, Growing):
        raise NotAppended(seq.token)
    return node.size(seq.length)


def at(node: Node, seq: SequenceEntry, position: Position) -> Value:
    """One tensor of a sequence."""
    if isinstance(seq, Growing):
        raise NotAppended(seq.token)
    if isinstance(seq, Items):
        count = len(seq.values)
        if isinstance(position, int):
            if not -count <= position < count:
                raise Refusal(f"position {position} of a sequence of {count}")
            return seq.values[position]
        if not count:
            raise Refusal("it reads from an empty sequence")
        if len({v.type for v in seq.values}) == 1:
            rows = [node.reshape(v, (1, *v.type.shape)) for v in seq.values]
            seq = Stack(joined(node, rows, 0))
    if isinstance(seq, Stack):
        return node.gather(seq.tensor, _scalar(node, position), 0)
    return _at_packed(node, packed(node, seq), position)


def _scalar(node: Node, position: Position) -> Value:
    return position if isinstance(position, Value) else node.scalar(position, I64)


def _place(node: Node, seq: Packed, position: Position) -> Value:
    """The position from the front."""
    at = _scalar(node, position)
    back = node.emit("less", at, node.scalar(0, I64))
    return node.where(back, node.emit("add", at, node.size(seq.length)), at)


def _start(node: Node, seq: Packed, place: Value, sizes: Value) -> Value:
    """How many elements lie before a position."""
    before = node.emit("less", node.iota(seq.length), place)
    kept = node.where(before, sizes, node.scalar(0, I64))
    return node.emit("reduce_sum", kept, axes=(0,), keepdims=False)


def _inside(node: Node, seq: Packed, place: Value, *, end: int = 0) -> Value:
    """Whether a position from the front is one of the sequence; `end`: one more counts too."""
    low = node.emit("greater_or_equal", place, node.scalar(0, I64))
    high = node.emit("less", place, node.size(seq.length + end))
    return node.emit("logical_and", low, high)


def _at_packed(node: Node, seq: Packed, position: Position) -> Value:
    if seq.rank is None:
        raise Refusal(
            "it reads from a sequence whose tensors differ in rank, or whose type does not say it",
            "declare the shape of the sequence's elements",
        )
    place = _place(node, seq, position)
    inside = _inside(node, seq, place)
    start = _start(node, seq, place, sizes_of(node, seq))
    # What is not there ends the call: no size is negative.
    start = node.where(inside, start, node.scalar(-1, I64))
    wanted, limits = [start], [seq.data.type.elements]
    if seq.rank:
        row = row_at(node, seq, place)
        wanted += [node.reshape(node.slice_axis(row, 0, axis, 1), ()) for axis in range(seq.rank)]
        limits += [dims.MAX_EXTENT] * seq.rank
    begin, *shape = bind(node, wanted, at_most=limits, hint=f"{node.origin}.element")
    flat = node.slice_axis(seq.data, 0, begin, dims.product(shape))
    return node.reshape(flat, shape)


def row_at(node: Node, seq: Packed, place: Value) -> Value:
    """The extents of the tensor at a position: i64[width]; zeros where there is none."""
    here = node.emit("equal", node.iota(seq.length), place)
    kept = node.where(node.reshape(here, (seq.length, 1)), seq.shapes, node.scalar(0, I64))
    return node.emit("reduce_sum", kept, axes=(0,), keepdims=False)


def insert(
    node: Node, seq: SequenceEntry, tensor: Value, position: Position | None
) -> SequenceEntry:
    """The sequence with a tensor before a position (None: at the end)."""
    if seq.dtype is not None and seq.dtype is not tensor.type.dtype:
        raise Refusal(f"it inserts {tensor.type} into a sequence of {seq.dtype}")
    if isinstance(seq, Growing):
        if position is not None:
            raise NotAppended(seq.token)
        return Growing(seq.token, tensor.type.dtype, (*seq.appended, tensor))
    one = Items((tensor,), tensor.type.dtype)
    if position is None:
        return followed_by(node, seq, one)
    if isinstance(seq, Items):
        count = len(seq.values)
        if isinstance(position, int):
            if not -count <= position <= count:
                raise Refusal(f"position {position} in a sequence of {count}")
            place = position + count if position < 0 else position
            values = (*seq.values[:place], tensor, *seq.values[place:])
            return Items(values, tensor.type.dtype)
        if not count:
            return one
    first, second = _both_packed(node, seq, one)
    place = _place(node, first, position)
    start = _start(node, first, place, sizes_of(node, first))
    begin, row = _bound(node, first, start, place, _inside(node, first, place, end=1))
    return Packed(
        joined(node, [*_parts(node, first.data, begin, second.data)], 0),
        joined(node, [*_parts(node, first.shapes, row, second.shapes)], 0),
        first.rank,
    )


def _bound(node: Node, seq: Packed, start: Value, place: Value, inside: Value) -> tuple[Dim, Dim]:
    """Where a position's elements and its row begin.  A position outside ends the call."""
    none = node.scalar(-1, I64)
    values = [node.where(inside, start, none), node.where(inside, place, none)]
    begin, row = bind(
        node, values, at_most=[seq.data.type.elements, seq.length], hint=f"{node.origin}.place"
    )
    return begin, row


def _parts(node: Node, x: Value, at: Dim, between: Value) -> Sequence[Value]:
    extent = x.type.shape[0]
    return (
        node.slice_axis(x, 0, 0, at),
        between,
        node.slice_axis(x, 0, at, extent - at),
    )


def erase(node: Node, seq: SequenceEntry, position: Position) -> SequenceEntry:
    """The sequence without the tensor at a position."""
    if isinstance(seq, Growing):
        raise NotAppended(seq.token)
    if isinstance(seq, Items) and isinstance(position, int):
        count = len(seq.values)
        if not -count <= position < count:
            raise Refusal(f"position {position} of a sequence of {count}")
        place = position % count
        return Items((*seq.values[:place], *seq.values[place + 1 :]), seq.dtype)
    if isinstance(seq, Stack) and isinstance(position, int) and position in (0, -1):
        reason = f"{node.type} {node.origin}: the sequence is not empty"
        node.require(seq.length, ">=", 1, reason)
        first = 1 if position == 0 else 0
        return Stack(node.slice_axis(seq.tensor, 0, first, seq.length - 1))
    whole = packed(node, seq)
    place = _place(node, whole, position)
    inside = _inside(node, whole, place)
    sizes = sizes_of(node, whole)
    here = node.emit("equal", node.iota(whole.length), place)
    own = node.emit(
        "reduce_sum", node.where(here, sizes, node.scalar(0, I64)), axes=(0,), keepdims=False
    )
    start = _start(node, whole, place, sizes)
    begin, row = _bound(node, whole, start, place, inside)
    (size,) = bind(node, [own], at_most=[whole.data.type.elements], hint=f"{node.origin}.size")
    return Packed(
        _without(node, whole.data, begin, size), _without(node, whole.shapes, row, 1), whole.rank
    )


def _without(node: Node, x: Value, at: Dim, count: Dim) -> Value:
    before = node.slice_axis(x, 0, 0, at)
    after = node.slice_axis(x, 0, at + count, x.type.shape[0] - at - count)
    return joined(node, [before, after], 0)


def _both_packed(node: Node, a: SequenceEntry, b: SequenceEntry) -> tuple[Packed, Packed]:
    try:
        form = join(form_of(a), form_of(b))
    except Unlike as unlike:
        raise Refusal(f"it joins {unlike}") from None
    assert not isinstance(form, type(None))
    return packed(node, a, form), packed(node, b, form)  # type: ignore[arg-type]


def followed_by(node: Node, a: SequenceEntry, b: SequenceEntry) -> SequenceEntry:
    """One sequence after another."""
    if isinstance(a, Growing):
        raise NotAppended(a.token)
    if isinstance(b, Growing):
        raise NotAppended(b.token)
    if a.length == 0:
        return b
    if b.length == 0:
        return a
    if isinstance(a, Items) and isinstance(b, Items):
        return Items((*a.values, *b.values), a.dtype or b.dtype)
    shapes = {row for seq in (a, b) for row in _row_types(seq)}
    if len(shapes) == 1 and not isinstance(a, Packed) and not isinstance(b, Packed):
        return Stack(joined(node, [_as_rows(node, a), _as_rows(node, b)], 0))
    first, second = _both_packed(node, a, b)
    return Packed(
        joined(node, [first.data, second.data], 0),
        joined(node, [first.shapes, second.shapes], 0),
        first.rank,
    )


def _row_types(seq: SequenceEntry) -> list[tuple[Dim, ...]]:
    if isinstance(seq, Items):
        return [v.type.shape for v in seq.values]
    return [seq.tensor.type.shape[1:]] if isinstance(seq, Stack) else []


def _as_rows(node: Node, seq: SequenceEntry) -> Value:
    if isinstance(seq, Stack):
        return seq.tensor
    assert isinstance(seq, Items)
    return joined(node, [node.reshape(v, (1, *v.type.shape)) for v in seq.values], 0)


def with_rows(node: Node, seq: SequenceEntry, stacks: Sequence[Value]) -> SequenceEntry:
    """A sequence, and after it the first row of each stacked value, the second of each, and so on."""
    tensor = stacks[0]
    if len(stacks) > 1:
        count, *row = tensor.type.shape
        between = [node.reshape(s, (count, 1, *row)) for s in stacks]
        tensor = node.reshape(joined(node, between, 1), (count * len(stacks), *row))
    return followed_by(node, seq, Stack(tensor))


# -- joined to one tensor


def concatenated(node: Node, seq: SequenceEntry, axis: int, *, new_axis: bool) -> Value:
    """All tensors of a sequence along an axis, perhaps a new one (which may be negative)."""
    if isinstance(seq, Growing):
        raise NotAppended(seq.token)
    if isinstance(seq, Items):
        if not seq.values:
            raise Refusal("it concatenates an empty sequence")
        rank = seq.values[0].type.rank + new_axis
        axis = node.axis(axis, rank)
        parts = list(seq.values)
        if new_axis:
            parts = [node.unsqueeze(v, [axis]) for v in parts]
        return joined(node, parts, axis)
    if isinstance(seq, Packed):
        if seq.rank is None:
            raise Refusal("it concatenates tensors whose rank is not known")
        if not new_axis:
            return _concatenated_packed(node, seq, node.axis(axis, seq.rank))
        seq = _stacked(node, seq)
    stack = seq.tensor
    rank = stack.type.rank
    if new_axis:
        axis = node.axis(axis, rank)
        return node.transpose(stack, _moved(rank, axis))
    axis = node.axis(axis, rank - 1)
    rows = stack.type.shape[1:]
    whole = node.transpose(stack, _moved(rank, axis))
    shape = [*rows[:axis], stack.type.shape[0] * rows[axis], *rows[axis + 1 :]]
    return node.reshape(whole, shape)


def _moved(rank: int, axis: int) -> list[int]:
    order = list(range(1, rank))
    order.insert(axis, 0)
    return order


def _common(node: Node, seq: Packed, axes: Sequence[int]) -> tuple[Dim, ...]:
    """The extents along these axes, which all tensors have alike; else the call ends."""
    if not axes:
        return ()
    zero, none = node.scalar(0, I64), node.scalar(-1, I64)
    high = node.emit("reduce_max", seq.shapes, axes=(0,), keepdims=False)
    low = node.emit("reduce_min", seq.shapes, axes=(0,), keepdims=False)
    (is_empty,) = [node.emit("equal", node.size(seq.length), zero)]
    extents = node.where(node.emit("equal", high, low), high, none)
    extents = node.where(is_empty, zero, extents)
    wanted = [node.reshape(node.slice_axis(extents, 0, a, 1), ()) for a in axes]
    return bind(node, wanted, hint=f"{node.origin}.extent")


def _stacked(node: Node, seq: Packed) -> Stack:
    """A packed sequence of tensors of one shape."""
    assert seq.rank is not None
    row = _common(node, seq, range(seq.rank))
    return Stack(node.reshape(seq.data, (seq.length, *row)))


def _concatenated_packed(node: Node, seq: Packed, axis: int) -> Value:
    """Along an axis on which the tensors may differ."""
    assert seq.rank is not None
    others = [a for a in range(seq.rank) if a != axis]
    extents = dict(zip(others, _common(node, seq, others), strict=True))
    lengths = node.reshape(node.slice_axis(seq.shapes, 1, axis, 1), (seq.length,))
    sum_ = node.emit("reduce_sum", lengths, axes=(0,), keepdims=False)
    (whole,) = bind(node, [sum_], hint=f"{node.origin}.length")
    before = dims.product(extents[a] for a in others if a < axis)
    after = dims.product(extents[a] for a in others if a > axis)
    shape = [whole if a == axis else extents[a] for a in range(seq.rank)]
    if axis == 0:
        return node.reshape(seq.data, shape)
    ends = node.emit("cumsum", lengths, axis=0, exclusive=False, reverse=False)
    # For each place along the axis: which tensor it is of, where that begins, how long it is.
    place = node.iota(whole)
    past = node.emit(
        "less_or_equal", node.reshape(ends, (1, seq.length)), node.reshape(place, (whole, 1))
    )
    which = node.emit("reduce_sum", node.cast(past, I64), axes=(1,), keepdims=False)
    length = node.gather(lengths, which, 0)
    start = node.emit("sub", node.gather(ends, which, 0), length)
    spread = (before, whole, after)

    def along(value: Value, at: int) -> Value:
        return node.reshape(value, [d if k == at else 1 for k, d in enumerate(spread)])

    area = node.size(before * after)
    first = along(node.emit("mul", start, area), 1)
    inside = along(node.emit("sub", place, start), 1)
    row = node.emit("mul", along(node.iota(before), 0), along(length, 1))
    at = node.emit("mul", node.emit("add", row, inside), node.size(after))
    at = node.emit("add", node.emit("add", first, at), along(node.iota(after), 2))
    return node.reshape(
        node.gather(seq.data, node.reshape(at, (before * whole * after,)), 0), shape
    )
