"""RNN, GRU and LSTM over whole sequences: torch's layers, one of ours each."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Value
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal

# torch's order of gates in ours: LSTM i f g o -> i o f c; GRU r z n -> z r h.
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}


def recurrent(kind: str, activation: str = "tanh") -> Compose:
    def compose(node: Node) -> Sequence[Value | None]:
        node.ignore("dropout")
        if node.arg("train") and node.arg("dropout"):
            raise Refusal("it is in training mode with dropout", "call .eval() on the module")
        x = node.x("input")
        weights = node.tensors("params")
        states = node.tensors("hx") if kind == "lstm" else [node.x("hx")]
        first = bool(node.arg("batch_first"))
        layers, both = node.static("num_layers"), bool(node.arg("bidirectional"))
        has_biases = bool(node.arg("has_biases"))
        if x.type.rank == 2:
            raise Refusal("it has a single sequence without a batch axis", "add the axis")
        if first:
            x = node.transpose(x, (1, 0, 2))
        directions = 2 if both else 1
        each = 4 if has_biases else 2
        if len(weights) != layers * directions * each:
            raise Refusal("it has projections, which are not supported")
        last: list[list[Value]] = [[] for _ in states]
        for layer in range(int(layers)):
            own = weights[layer * directions * each : (layer + 1) * directions * each]
            begin = [node.slice_axis(s, 0, layer * directions, directions) for s in states]
            y, *ends = _layer(node, kind, activation, x, own, begin, directions)
            x = _merged(node, y)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        out = node.transpose(x, (1, 0, 2)) if first else x
        return [out, *(node.concat(parts, 0) for parts in last)]

    return compose


def _merged(node: Node, y: Value) -> Value:
    """[T, D, B, H] as torch has it: [T, B, D * H]."""
    time, directions, batch, hidden = y.type.shape
    return node.reshape(node.transpose(y, (0, 2, 1, 3)), [time, batch, directions * hidden])


def _layer(
    node: Node,
    kind: str,
    activation: str,
    x: Value,
    weights: Sequence[Value],
    states: Sequence[Value],
    directions: int,
) -> Sequence[Value]:
    each = len(weights) // directions
    order = _GATES[kind]
    columns: list[list[Value]] = [[], [], []]
    for d in range(directions):
        w, r, *biases = (_reordered(node, p, order) for p in weights[d * each : (d + 1) * each])
        if not biases:
            none = node.full(0, w.type.dtype, [w.type.shape[0]])
            biases = [none, none]
        for column, value in zip(columns, (w, r, node.concat(biases, 0)), strict=True):
            column.append(node.unsqueeze(value, (0,)))
    w, r, bias = (node.concat(c, 0) for c in columns)
    attributes: dict[str, object] = {"direction": "bidirectional" if directions == 2 else "forward"}
    if kind == "gru":
        attributes["linear_before_reset"] = True
    if kind == "rnn":
        attributes["activations"] = (activation,)
    return node.emit_all(kind, x, w, r, bias, *states, **attributes)


def _reordered(node: Node, parameter: Value, order: Sequence[int]) -> Value:
    """The rows of each gate, in our order."""
    if len(order) == 1:
        return parameter
    size = parameter.type.shape[0] // len(order)
    return node.concat([node.slice_axis(parameter, 0, g * size, size) for g in order], 0)


COMPOSE: dict[str, Compose] = {
    "lstm.input": recurrent("lstm"),
    "gru.input": recurrent("gru"),
    "rnn_tanh.input": recurrent("rnn", "tanh"),
    "rnn_relu.input": recurrent("rnn", "relu"),
}
