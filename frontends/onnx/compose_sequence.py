"""Sequences and optional values: bookkeeping while their lengths are known, tensors of tensors after."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64, DType
from graphwright.frontends.onnx.bodies import captures_of, complete, fill, inner_scope, weight_of
from graphwright.frontends.onnx.compose_loop import Limits, run
from graphwright.frontends.onnx.containers import (
    Entry,
    Items,
    Maybe,
    Packed,
    SequenceEntry,
    Stack,
    described,
    flatten,
    rebuilt,
)
from graphwright.frontends.onnx.forms import shape_row
from graphwright.frontends.onnx.late import bind, element
from graphwright.frontends.onnx.loops import Outcome, Source
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.sequences import (
    Position,
    at,
    concatenated,
    erase,
    insert,
    length_of,
)
from graphwright.frontends.onnx.structure import check_graph_names
from graphwright.frontends.onnx.tensors import element_type

MOST_ITEMS = 256  # a split into more equal parts is one tensor of rows


def _sequence(node: Node, i: int) -> SequenceEntry:
    entry = node.entry(i)
    if isinstance(entry, Maybe):
        entry = _content(node, entry)
    if isinstance(entry, Value | Maybe):
        raise Refusal(f"its input {i} is {described(entry)}, want a sequence")
    return entry


def _position(node: Node, i: int) -> Position:
    value = node.x(i)
    known = node.known(value)
    if known is not None and known.dtype != object:
        return int(known.reshape(()).item())
    return element(node, value, 0)


def construct(node: Node) -> Entry:
    values = tuple(node.inputs)
    kinds = {v.type.dtype for v in values}
    if len(kinds) > 1:
        raise Refusal(f"its inputs are of several types: {', '.join(map(str, kinds))}")
    return Items(values, values[0].type.dtype if values else None)


def empty(node: Node) -> Entry:
    number = int(node.attr("dtype", 0))
    return Items((), node.dtype(number or onnx.TensorProto.FLOAT))


def sequence_at(node: Node) -> Entry:
    return at(node, _sequence(node, 0), _position(node, 1))


def sequence_insert(node: Node) -> Entry:
    position = _position(node, 2) if node.has_input(2) else None
    return insert(node, _sequence(node, 0), node.x(1), position)


def sequence_erase(node: Node) -> Entry:
    position = _position(node, 1) if node.has_input(1) else -1
    return erase(node, _sequence(node, 0), position)


def sequence_length(node: Node) -> Entry:
    return length_of(node, _sequence(node, 0))


def concat_from_sequence(node: Node) -> Entry:
    axis, new_axis = int(node.attr("axis")), bool(node.attr("new_axis", 0))
    return concatenated(node, _sequence(node, 0), axis, new_axis=new_axis)


def split_to_sequence(node: Node) -> Entry:
    x = node.x()
    axis = node.axis(int(node.attr("axis", 0)), x.type.rank)
    keep = bool(node.attr("keepdims", 1))
    extent = x.type.shape[axis]
    if not node.has_input(1):
        return _single_rows(node, x, axis, keep=keep)
    node.ignore("keepdims")
    split = node.x(1)
    if split.type.rank == 1:
        return _parts(node, x, axis, node.dims(1, "split"))
    known = node.known(split)
    size = None if known is None else known.reshape(()).item()
    if (
        isinstance(size, int)
        and isinstance(extent, int)
        and 0 < size <= extent <= size * MOST_ITEMS
    ):
        ends = [min(size, extent - start) for start in range(0, extent, size)]
        return _parts(node, x, axis, ends)
    return _equal_parts(node, x, axis, split)


def _single_rows(node: Node, x: Value, axis: int, *, keep: bool) -> Entry:
    extent = x.type.shape[axis]
    if isinstance(extent, int) and extent <= MOST_ITEMS:
        parts = [node.slice_axis(x, axis, i, 1) for i in range(extent)]
        rest = [d for a, d in enumerate(x.type.shape) if a != axis]
        return Items(tuple(p if keep else node.reshape(p, rest) for p in parts), x.type.dtype)
    first = node.transpose(x, [axis, *(a for a in range(x.type.rank) if a != axis)])
    if keep:
        row = [1 if a == axis else d for a, d in enumerate(x.type.shape)]
        first = node.reshape(first, (extent, *row))
    return Stack(first)


def _parts(node: Node, x: Value, axis: int, sizes: Sequence[Dim]) -> Entry:
    start: Dim = 0
    parts: list[Value] = []
    for size in sizes:
        parts.append(node.slice_axis(x, axis, start, size))
        start = start + size
    reason = f"SplitToSequence {node.origin}: the parts are the whole"
    node.require(start, "==", x.type.shape[axis], reason)
    return Items(tuple(parts), x.type.dtype)


def _equal_parts(node: Node, x: Value, axis: int, split: Value) -> Entry:
    """Parts of one size, the last perhaps smaller, of which only a call knows how many."""
    shape = x.type.shape
    one, extent = node.scalar(1, I64), node.size(shape[axis])
    size = element(node, split, 0)
    checked = node.where(node.emit("less", size, one), node.scalar(-1, I64), size)
    whole = node.emit("add", extent, node.emit("sub", size, one))
    count = node.emit("div", whole, node.emit("maximum", size, one))
    most = dims.maximum(shape[axis], 1)
    step, parts = bind(node, [checked, count], hint=f"{node.origin}.parts")
    node.require(parts, "<=", most, f"SplitToSequence {node.origin}: no part is empty")
    starts = node.emit("mul", node.iota(parts), node.size(step))
    lengths = node.emit("minimum", node.emit("sub", extent, starts), node.size(step))
    table = node.broadcast_to(
        node.reshape(shape_row(node, shape, len(shape)), (1, len(shape))), (parts, len(shape))
    )
    here = node.reshape(node.array(np.arange(len(shape)) == axis), (1, len(shape)))
    table = node.where(here, node.reshape(lengths, (parts, 1)), table)
    flat = node.reshape(x, (x.type.elements,))
    if axis:
        before, after = dims.product(shape[:axis]), dims.product(shape[axis + 1 :])
        place = node.iota(shape[axis])
        which = node.emit("div", place, node.size(dims.maximum(step, 1)))
        start = node.emit("mul", which, node.size(step))
        length = node.gather(lengths, which, 0)
        spread = (before, shape[axis], after)

        def along(value: Value, k: int) -> Value:
            return node.reshape(value, [d if i == k else 1 for i, d in enumerate(spread)])

        # Where each element goes: parts one after another, each in row-major order.
        row = node.emit("mul", along(node.iota(before), 0), along(length, 1))
        inside = node.emit("add", row, along(node.emit("sub", place, start), 1))
        at_ = node.emit("mul", inside, node.size(after))
        first = along(node.emit("mul", start, node.size(before * after)), 1)
        to = node.emit("add", node.emit("add", first, at_), along(node.iota(after), 2))
        to = node.reshape(to, (x.type.elements,))
        zeros = node.full(0, x.type.dtype, (x.type.elements,))
        flat = node.emit("scatter_elements", zeros, to, flat, axis=0, reduction="none")
    return Packed(flat, table, len(shape))


# -- SequenceMap


def sequence_map(node: Node) -> Sequence[Entry | None]:
    body: onnx.GraphProto = node.attr("body")
    check_graph_names(body, f"body of {node.origin}")
    given = [node.entry(i) for i in range(len(node.proto.input))]
    if len(body.input) != len(given) or isinstance(given[0], Value | Maybe):
        raise Refusal(f"its body has {len(body.input)} inputs for {len(given)} of the node")
    names = [info.name for info in body.input]

    def one(inside: Node, entries: Sequence[Entry], position: Position) -> list[Entry | None]:
        for name, entry in zip(names, entries, strict=True):
            is_tensor = isinstance(entry, Value | Maybe)
            inside.scope.names[name] = entry if is_tensor else at(inside, entry, position)
        return fill(inside, inside.scope, body, "body")

    first = given[0]
    if isinstance(first, Items):
        columns: list[list[Value]] = []
        for i in range(len(first.values)):
            scope = inner_scope(node, node.graph, f"{node.origin}/body/{i}/")
            inside = type(node)(node.importer, scope, node.proto, node.origin)
            columns.append([_tensor(e) for e in complete(one(inside, given, i))])
        if not columns:
            return [Items((), _declared(o)) for o in body.output]
        return [Items(tuple(v), v[0].type.dtype) for v in zip(*columns, strict=True)]

    def build(
        inside: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        del extra
        entries = [inside.scope.entry(f"\0in{i}") for i in range(len(given))]
        after: list[Entry | None] = []
        for entry, new in zip(carried, one(inside, entries, counter), strict=True):
            assert not isinstance(entry, Value | Maybe)
            after.append(None if new is None else insert(inside, entry, _tensor(new), None))
        return Outcome(None, after, [])

    captures = captures_of(node, [body]) | {f"\0in{i}": e for i, e in enumerate(given)}
    trips = length_of(node, first)
    assert isinstance(first, Stack | Packed)
    limits = Limits(trips, first.length, node.scalar(True, BOOL), True)
    initial = [Items((), _declared(o)) for o in body.output]
    carried, _ = run(node, Source("body", captures, build), limits, initial, weight=weight_of(body))
    return carried


def _tensor(entry: Entry) -> Value:
    if not isinstance(entry, Value):
        raise Refusal(f"its body yields {described(entry)}, want a tensor")
    return entry


def _declared(info: onnx.ValueInfoProto) -> DType | None:
    number = info.type.tensor_type.elem_type
    return element_type(number, f"the body's output {info.name!r}") if number else None


# -- optional values


def optional(node: Node) -> Entry:
    node.ignore("type")
    if not node.has_input(0):
        return Maybe(False, None)
    entry = node.entry(0)
    if isinstance(entry, Maybe):
        raise Refusal("its input is optional already")
    return Maybe(True, entry)


def has_element(node: Node) -> Entry:
    if not node.has_input(0):
        return node.scalar(False, BOOL)
    entry = node.entry(0)
    present = entry.present if isinstance(entry, Maybe) else True
    return present if isinstance(present, Value) else node.scalar(present, BOOL)


def get_element(node: Node) -> Entry:
    entry = node.entry(0)
    return _content(node, entry) if isinstance(entry, Maybe) else entry


def _content(node: Node, entry: Maybe) -> Entry:
    """What an optional value holds; where it is absent, the call ends."""
    if entry.present is False or entry.content is None:
        raise Refusal("its optional input is always empty")
    if entry.present is True or not (parts := flatten(entry.content)):
        return entry.content
    # The check needs somebody to read the symbol: a slice that is the whole when all is well.
    (there,) = bind(node, [node.cast(entry.present, I64)], at_most=[1], hint=f"{node.origin}.there")
    node.require(there, "==", 1, f"{node.type} {node.origin}: its input is there")
    first, *rest = parts
    flat = first if first.type.rank else node.reshape(first, (1,))
    flat = node.slice_axis(flat, 0, 1 - there, flat.type.shape[0])
    content = rebuilt(entry.content, [node.reshape(flat, first.type.shape), *rest])
    assert not isinstance(content, Maybe)
    return content


def identity(node: Node) -> Entry:
    return node.entry(0)


COMPOSE = {
    "ConcatFromSequence": concat_from_sequence,
    "Identity": identity,
    "Optional": optional,
    "OptionalGetElement": get_element,
    "OptionalHasElement": has_element,
    "SequenceAt": sequence_at,
    "SequenceConstruct": construct,
    "SequenceEmpty": empty,
    "SequenceErase": sequence_erase,
    "SequenceInsert": sequence_insert,
    "SequenceLength": sequence_length,
    "SequenceMap": sequence_map,
    "SplitToSequence": split_to_sequence,
}
