"""Scan: a loop over slices of its inputs.  Opset 8 runs one for each element of a batch."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.onnx.bodies import captures_of, complete, fill, weight_of
from graphwright.frontends.onnx.compose_loop import Limits, as_row, run
from graphwright.frontends.onnx.containers import Entry
from graphwright.frontends.onnx.loops import Outcome, Source, emit, prepare
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.structure import check_graph_names


def scan(node: Node) -> Sequence[Entry | None]:
    body: onnx.GraphProto = node.attr("body")
    check_graph_names(body, f"body of {node.origin}")
    scans = int(node.attr("num_scan_inputs"))
    first = 1 if node.opset < 9 else 0
    states = len(node.proto.input) - first - scans
    if scans < 1 or states < 0 or len(body.input) != states + scans or len(body.output) < states:
        raise Refusal(
            f"its body has {len(body.input)} inputs and {len(body.output)} outputs, the node "
            f"{states} states and {scans} scan inputs"
        )
    if node.opset < 9:
        return _batched(node, body, states)
    initial = [node.entry(k) for k in range(states)]
    inputs = [node.x(states + j) for j in range(scans)]
    axes = [
        node.axis(a, x.type.rank)
        for a, x in zip(_each(node, "scan_input_axes", scans), inputs, strict=True)
    ]
    backward = _each(node, "scan_input_directions", scans)
    length = _length(node, inputs, axes)
    outputs = len(body.output) - states
    wanted = [j for j in range(outputs) if node.wants(states + j)]
    source = _slices(node, body, states, inputs, axes, backward, length, wanted)
    limits = Limits(node.size(length), length, node.scalar(True, BOOL), True)
    carried, stacks = run(node, source, limits, initial, weight=weight_of(body))
    to, flipped = (_each(node, f"scan_output_{what}", outputs) for what in ("axes", "directions"))
    stacked = {
        j: _placed(node, stack, to[j], flip=bool(flipped[j]))
        for j, stack in zip(wanted, stacks, strict=True)
    }
    return [*carried, *(stacked.get(j) for j in range(outputs))]


def _each(node: Node, attribute: str, count: int) -> tuple[int, ...]:
    """An attribute with a number for each input or output, 0 where it is absent."""
    found = tuple(node.attr(attribute, ()))
    if found and len(found) != count:
        raise Refusal(f"its attribute {attribute} has {len(found)} elements, want {count}")
    return found or (0,) * count


def _length(node: Node, inputs: Sequence[Value], axes: Sequence[int]) -> Dim:
    lengths = [x.type.shape[a] for x, a in zip(inputs, axes, strict=True)]
    for other in lengths[1:]:
        node.require(other, "==", lengths[0], f"Scan {node.origin}: scan inputs of one length")
    return lengths[0]


def _slices(
    node: Node,
    body: onnx.GraphProto,
    states: int,
    inputs: Sequence[Value],
    axes: Sequence[int],
    backward: Sequence[int],
    length: Dim,
    wanted: Sequence[int],
) -> Source:
    """The body, whose last inputs are slices at the counter."""

    def build(
        inside: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        names = inside.scope.names
        for info, entry in zip(body.input[:states], carried, strict=True):
            names[info.name] = entry
        for info, x, axis, back in zip(body.input[states:], extra, axes, backward, strict=True):
            at = counter
            if back:
                at = inside.emit("sub", inside.size(length - 1), counter)
            names[info.name] = inside.gather(x, at, axis)
        found = fill(inside, inside.scope, body, "body")
        return Outcome(None, found[:states], [as_row(found[states + j], j) for j in wanted])

    return Source("body", captures_of(node, [body]), build, tuple(inputs), length)


def _placed(node: Node, stack: Value, axis: int, *, flip: bool) -> Value:
    """A stacked value with its rows along an axis, in reverse order where `flip` says so."""
    rank = stack.type.rank
    if flip:
        length = stack.type.shape[0]
        last = node.emit("sub", node.size(length), node.scalar(1, I64))
        stack = node.gather(stack, node.emit("sub", last, node.iota(length)), 0)
    axis = node.axis(axis, rank)
    order = list(range(1, rank))
    order.insert(axis, 0)
    return node.transpose(stack, order)


def _batched(node: Node, body: onnx.GraphProto, states: int) -> Sequence[Entry | None]:
    """Opset 8: states are [batch, ...], scan inputs [batch, length, ...]; lengths may differ."""
    initial = [node.x(1 + k) for k in range(states)]
    inputs = [node.ranked(i, 2, or_more=True) for i in range(1 + states, len(node.proto.input))]
    lengths = node.maybe(0)
    backward = _each(node, "directions", len(inputs))
    if lengths is not None and any(backward):
        raise Refusal("it reads inputs of different lengths backwards", "use Scan of opset 9")
    batch, length = inputs[0].type.shape[:2]
    for v in (*initial, *inputs):
        node.require(v.type.shape[0], "==", batch, f"Scan {node.origin}: one batch size")
    _length(node, inputs, [1] * len(inputs))
    outputs = len(body.output) - states

    def build(
        outer: Node, counter: Value, carried: Sequence[Entry], extra: Sequence[Value]
    ) -> Outcome:
        del carried
        rows = [outer.gather(v, counter, 0) for v in extra]
        ends = rows.pop() if lengths is not None else None
        source = _slices(
            outer, body, states, rows[states:], [0] * len(inputs), backward, length, range(outputs)
        )
        if ends is None:
            trips = outer.size(length)
            limits = Limits(trips, length, outer.scalar(True, BOOL), True)
            after, stacks = run(outer, source, limits, rows[:states], weight=weight_of(body))
            return Outcome(None, [], [as_row(e, j) for j, e in enumerate((*after, *stacks))])
        ready = prepare(outer, source, rows[:states])
        trips = outer.emit("minimum", outer.cast(ends, I64), outer.size(length))
        _, after, stacks = emit(
            outer, ready, trips=trips, condition=outer.scalar(True, BOOL), extent=length
        )
        padded = [_padded(outer, s, trips) for s in stacks]
        return Outcome(None, [], [as_row(e, j) for j, e in enumerate((*after, *padded))])

    given = (*initial, *inputs, *(() if lengths is None else (lengths,)))
    outer = Source("batch", captures_of(node, [body]), build, given)
    limits = Limits(node.size(batch), batch, node.scalar(True, BOOL), True)
    _, stacks = run(node, outer, limits, [], weight=weight_of(body) + 2)
    return complete(stacks)


def _padded(node: Node, stack: Value, count: Value) -> Value:
    """Zeros instead of the rows from `count` on, which nobody wrote."""
    length = stack.type.shape[0]
    written = node.emit("less", node.iota(length), count)
    written = node.reshape(written, (length, *([1] * (stack.type.rank - 1))))
    return node.where(written, stack, node.scalar(0, stack.type.dtype))


COMPOSE = {"Scan": scan}
