"""Loop and Scan as the IR's loop, or unrolled where that pays.

How many rows a scan output has is known before the loop when its condition stays true: the trip
count, which is bound in mid-run where the data make it.  Else storage is made for all trips, and the
size bound to the number of iterations that ran; where there is no useful limit, an outer loop adds
one chunk of rows after another, each as large as all before (`_by_chunks`).  Rows whose size only the
body knows are carried as one flat tensor that grows (`_collected`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.onnx.bodies import captures_of, complete, fill, inner_scope, weight_of
from graphwright.frontends.onnx.containers import Entry, Maybe, described
from graphwright.frontends.onnx.late import bind
from graphwright.frontends.onnx.loops import (
    Build,
    Misfit,
    Outcome,
    Prepared,
    Source,
    emit,
    prepare,
    unsettled_rows,
)
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.sequences import with_rows
from graphwright.frontends.onnx.structure import check_graph_names

ENDLESS = 2**63 - 1
# Unrolled: as many copies of the body's nodes as cost less than a loop's own steps; where a carried
# value changes its rank, as many as it takes.
MOST_NODES, MOST_NODES_FORCED = 48, 4096
# Rows that are worth storage for every trip; memory that is never written costs nothing.
MOST_ROWS = 2**16
FIRST_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Limits:
    """When a loop ends: trips (None: no limit; `known` where import knows them) and a condition."""

    trips: Value | None
    known: Dim | None
    condition: Value
    starts: bool | None  # the condition before the first iteration, where known

    @property
    def count(self) -> int | None:
        return max(self.known, 0) if isinstance(self.known, int) else None


def limits_of(node: Node, trips: Value | None, condition: Value | None) -> Limits:
    known: Dim | None = None
    if trips is not None:
        trips = node.reshape(node.cast(trips, I64), ())
        array = node.known(trips)
        element = None if array is None else array.reshape(()).item()
        if isinstance(element, int | Expr) and not isinstance(element, bool):
            known = element
    starts: bool | None = True
    if condition is None:
        condition = node.scalar(True, BOOL)
    else:
        condition = node.reshape(node.cast(condition, BOOL), ())
        array = node.known(condition)
        element = None if array is None else array.reshape(()).item()
        starts = element if isinstance(element, bool) else None
    return Limits(trips, known, condition, starts)


def run(
    node: Node, source: Source, limits: Limits, initial: Sequence[Entry], *, weight: int
) -> tuple[list[Entry], list[Value]]:
    """The loop's carried values and its stacked values."""
    count = limits.count if limits.starts is True else None
    try:
        prepared = prepare(node, source, initial)
    except Misfit as misfit:
        if not count or count * weight > MOST_NODES_FORCED:
            fix = "make it keep its rank and element type, or its trip count constant"
            raise Refusal(misfit.reason, misfit.fix or fix) from None
        return _unrolled(node, source, count, initial)
    # Of a loop without a turn the body still tells what rows would be like.
    if count and prepared.condition is None and count * weight <= MOST_NODES:
        return _unrolled(node, source, count, initial)
    _, carried, stacks = _looped(node, source, prepared, limits)
    rows = len(stacks) - sum(count for _, count in prepared.appended)
    added = iter(stacks[rows:])
    for k, each in prepared.appended:
        before = carried[k]
        assert not isinstance(before, Value | Maybe)
        carried[k] = with_rows(node, before, [next(added) for _ in range(each)])
    return carried, stacks[:rows]


def _unrolled(
    node: Node, source: Source, count: int, initial: Sequence[Entry]
) -> tuple[list[Entry], list[Value]]:
    carried = list(initial)
    stacks: list[list[Value]] = []
    for i in range(count):
        scope = inner_scope(node, node.graph, f"{node.origin}/{source.name}/{i}/")
        inside = type(node)(node.importer, scope, node.proto, node.origin)
        outcome = source.build(inside, node.scalar(i, I64), carried, source.extra)
        carried = complete(outcome.carried)
        known = None if outcome.condition is None else node.known(outcome.condition)
        is_true = outcome.condition is None or (
            known is not None and bool(known.reshape(()).item())
        )
        if i + 1 < count and not is_true:
            raise Refusal(f"its condition after iteration {i} depends on data")
        rows = complete(outcome.rows)
        stacks.append([r for r in rows if isinstance(r, Value)])
    return carried, [_stacked(node, rows) for rows in zip(*stacks, strict=True)]


def _stacked(node: Node, rows: Sequence[Value]) -> Value:
    parts = [node.reshape(r, (1, *r.type.shape)) for r in rows]
    return parts[0] if len(parts) == 1 else node.emit("concat", *parts, axis=0)


def _looped(
    node: Node, source: Source, prepared: Prepared, limits: Limits
) -> tuple[Value, list[Entry], list[Value]]:
    """How many iterations ran, the carried values, the stacked values."""
    trips = node.scalar(ENDLESS, I64) if limits.trips is None else limits.trips
    if prepared.condition is None and limits.trips is None and limits.starts is not False:
        raise Refusal("it never ends: it has no trip count, and its condition stays true")
    if not prepared.rows:
        return emit(node, prepared, trips=trips, condition=limits.condition, extent=0)
    if unsettled := unsettled_rows(prepared):
        return _collected(node, source, prepared, limits, unsettled)
    if prepared.condition is None:
        extent = _count(node, limits, trips)
        return emit(node, prepared, trips=trips, condition=limits.condition, extent=extent)
    most = limits.known
    if most is None or dims.prove(most, "<=", MOST_ROWS) is False:
        return _by_chunks(node, source, prepared, limits, trips)
    extent = dims.maximum(most, 0)
    ran, carried, stacks = emit(
        node, prepared, trips=trips, condition=limits.condition, extent=extent
    )
    (rows,) = bind(node, [ran], at_most=[extent], hint=f"{node.origin}.iterations")
    return ran, carried, [node.slice_axis(s, 0, 0, rows) for s in stacks]


def _collected(
    node: Node, source: Source, prepared: Prepared, limits: Limits, unsettled: Sequence[int]
) -> tuple[Value, list[Entry], list[Value]]:
    """Carries, for each of these rows, all elements so far, the last row, and whether it had the
    shape of those before.
    """
    count = len(prepared.initial)
    start: list[Entry] = list(prepared.initial)
    for j in unsettled:
        type = prepared.rows[j].type
        rows = node.full(0, type.dtype, (0,)), node.full(0, type.dtype, (0,) * type.rank)
        start += [*rows, node.scalar(True, BOOL)]

    def build(
        inside: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        outcome = source.build(inside, counter, carried[:count], extra)
        after: list[Entry | None] = list(outcome.carried)
        so_far = iter(_tensors(carried[count:]))
        for j in unsettled:
            flat, last, same, row = next(so_far), next(so_far), next(so_far), outcome.rows[j]
            if row is None:
                after += [None, None, None]
                continue
            longer = inside.emit("concat", flat, inside.reshape(row, (row.type.elements,)), axis=0)
            after += [
                longer,
                row,
                inside.emit("logical_and", same, _alike(inside, counter, last, row)),
            ]
        kept = [r for j, r in enumerate(outcome.rows) if j not in unsettled]
        return Outcome(outcome.condition, after, kept)

    collecting = Source(source.name, source.captures, build, source.extra, source.trips)
    ready = prepare(node, collecting, start)
    ran, carried, stacks = _looped(node, collecting, ready, limits)
    found = _tensors(carried[count:])
    limit: Dim = dims.MAX_EXTENT
    for j, same in zip(unsettled, found[2::3], strict=True):
        (is_same,) = bind(node, [node.cast(same, I64)], hint=f"{node.origin}.same")
        reason = f"{node.type} {node.origin}: all rows of its scan output {j} have one shape"
        node.require(is_same, "==", 1, reason)
        limit = dims.multiply(limit, is_same)  # a bind that nothing mentions would be dropped
    (rows,) = bind(node, [ran], at_most=[limit], hint=f"{node.origin}.iterations")
    collected = iter(zip(found[::3], found[1::3], strict=True))
    settled = iter(stacks)
    out: list[Value] = []
    for j in range(len(prepared.rows)):
        if j not in unsettled:
            out.append(next(settled))
            continue
        flat, last = next(collected)
        out.append(node.reshape(flat, (rows, *last.type.shape)))
    return ran, carried[:count], out


def _alike(node: Node, counter: Value, last: Value, row: Value) -> Value:
    """Whether a row has the shape of the last one, or is the first."""
    is_first = node.emit("equal", counter, node.scalar(0, I64))
    if not row.type.rank:
        return node.scalar(True, BOOL)
    same = node.emit("equal", node.sizes(last.type.shape), node.sizes(row.type.shape))
    return node.emit(
        "logical_or", is_first, node.emit("reduce_and", same, axes=(0,), keepdims=False)
    )


def _count(node: Node, limits: Limits, trips: Value) -> Dim:
    """How many iterations run when the condition stays true."""
    if limits.starts is False:
        return 0
    if limits.known is not None and limits.starts is True:
        return dims.maximum(limits.known, 0)
    count = node.emit("maximum", trips, node.scalar(0, I64))
    if limits.starts is None:
        count = node.where(limits.condition, count, node.scalar(0, I64))
    (extent,) = bind(node, [count], hint=f"{node.origin}.iterations")
    return extent


def _by_chunks(
    node: Node, source: Source, prepared: Prepared, limits: Limits, trips: Value
) -> tuple[Value, list[Entry], list[Value]]:
    """The loop inside another one, which carries the stacked values and appends to them."""
    count = len(prepared.initial)
    zero = node.scalar(0, I64)
    stacks = [node.full(0, r.type.dtype, (0, *r.type.shape)) for r in prepared.rows]
    start: list[Entry] = [zero, *prepared.initial, *stacks]

    def build(
        outer: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        del counter
        (done, *rest), (most, *more) = _tensors(carried[:1]) + list(carried[1:]), extra
        held, so_far = rest[:count], _tensors(rest[count:])
        assert isinstance(done, Value)
        chunk = dims.maximum(so_far[0].type.shape[0], FIRST_CHUNK)
        captures = {name: outer.scope.entry(name) for name in source.captures}
        inner = Source(source.name, captures, _with_condition(source), (done, *more))
        goes_on = outer.scalar(True, BOOL)
        ready = prepare(outer, inner, [goes_on, *held])
        room = outer.emit("minimum", outer.emit("sub", most, done), outer.size(chunk))
        ran, (is_open, *after), rows = emit(
            outer, ready, trips=room, condition=goes_on, extent=chunk
        )
        assert isinstance(is_open, Value)
        (new,) = bind(outer, [ran], at_most=[chunk], hint=f"{node.origin}.rows")
        longer = [
            outer.emit("concat", old, outer.slice_axis(s, 0, 0, new), axis=0)
            for old, s in zip(so_far, rows, strict=True)
        ]
        total = outer.emit("add", done, ran)
        go_on = outer.emit("logical_and", is_open, outer.emit("less", total, most))
        return Outcome(go_on, [total, *after, *longer], [])

    chunks = Source("chunks", source.captures, build, (trips, *source.extra))
    begins = node.emit("logical_and", limits.condition, node.emit("less", zero, trips))
    endless = node.scalar(ENDLESS, I64)
    ready = prepare(node, chunks, start)
    _, carried, _ = emit(node, ready, trips=endless, condition=begins, extent=0)
    (ran,) = _tensors(carried[:1])
    return ran, carried[1 : 1 + count], _tensors(carried[1 + count :])


def _with_condition(source: Source) -> Build:
    """The body with its condition as a carried value, and iterations counted from `extra[0]` on."""

    def build(
        inside: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        i = inside.emit("add", counter, extra[0])
        outcome = source.build(inside, i, carried[1:], extra[1:])
        return Outcome(outcome.condition, [outcome.condition, *outcome.carried], outcome.rows)

    return build


def _tensors(entries: Sequence[Entry]) -> list[Value]:
    return [e for e in entries if isinstance(e, Value)]


def loop(node: Node) -> Sequence[Entry | None]:
    body: onnx.GraphProto = node.attr("body")
    check_graph_names(body, f"body of {node.origin}")
    count = len(node.proto.input) - 2
    if len(body.input) != 2 + count or len(body.output) < 1 + count:
        raise Refusal(
            f"its body has {len(body.input)} inputs and {len(body.output)} outputs, want "
            f"{2 + count} inputs and at least {1 + count} outputs for {count} carried values"
        )
    trips, condition = node.maybe(0), node.maybe(1)
    wanted = [j for j in range(len(body.output) - 1 - count) if node.wants(count + j)]

    def build(
        inside: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        del extra
        names = inside.scope.names
        names[body.input[0].name] = _as_declared(inside, counter, body.input[0])
        names[body.input[1].name] = _as_declared(inside, inside.scalar(True, BOOL), body.input[1])
        for info, entry in zip(body.input[2:], carried, strict=True):
            names[info.name] = entry
        go_on, *rest = fill(inside, inside.scope, body, "body")
        held, rows = rest[:count], rest[count:]
        if condition is None:
            go_on = inside.scalar(True, BOOL)  # what the body says is ignored then
        elif isinstance(go_on, Value):
            go_on = inside.reshape(inside.cast(go_on, BOOL), ())
        else:
            return Outcome(None, held, [None])  # refused
        return Outcome(go_on, held, [as_row(rows[j], j) for j in wanted])

    initial = [node.entry(2 + k) for k in range(count)]
    limits = limits_of(node, trips, condition)
    source = Source("body", captures_of(node, [body]), build, trips=limits.known)
    carried, stacks = run(node, source, limits, initial, weight=weight_of(body))
    stacked = dict(zip(wanted, stacks, strict=True))
    return [*carried, *(stacked.get(j) for j in range(len(body.output) - 1 - count))]


def as_row(entry: Entry | None, j: int) -> Value | None:
    if entry is not None and not isinstance(entry, Value):
        raise Refusal(f"its scan output {j} is {described(entry)}, want a tensor")
    return entry


def _as_declared(node: Node, scalar: Value, info: onnx.ValueInfoProto) -> Value:
    """A scalar, as one element where the body's input says so."""
    rank = len(info.type.tensor_type.shape.dim)
    return node.reshape(scalar, (1,) * rank)


COMPOSE = {"Loop": loop}
