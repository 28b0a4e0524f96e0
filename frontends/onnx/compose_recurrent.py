"""RNN, GRU and LSTM: absent inputs filled in, batch-first layouts turned around."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I32
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULT_ACTIVATIONS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}


# ONNX's names: ours, and how many of alpha and beta the function takes.
_ACTIVATIONS = {
    "Affine": ("affine", 2),
    "Elu": ("elu", 1),
    "HardSigmoid": ("hard_sigmoid", 2),
    "LeakyRelu": ("leaky_relu", 1),
    "Relu": ("relu", 0),
    "ScaledTanh": ("scaled_tanh", 2),
    "Sigmoid": ("sigmoid", 0),
    "Softplus": ("softplus", 0),
    "Softsign": ("softsign", 0),
    "Tanh": ("tanh", 0),
    "ThresholdedRelu": ("thresholded_relu", 1),
}


def recurrent(node: Node) -> Sequence[Value]:
    """x [T, B, I], w [D, G*H, I], r [D, G*H, H]; results y [T, D, B, H] and the last states."""
    x, w, r = (node.ranked(i, 3) for i in range(3))
    batch_first = bool(node.attr("layout", 0))
    if batch_first:
        x = node.transpose(x, (1, 0, 2))
    steps, batch = x.type.shape[:2]
    directions, hidden = w.type.shape[0], r.type.shape[2]
    dtype = x.type.dtype
    node.require(
        hidden, "==", node.attr("hidden_size", hidden), f"{node.type} {node.origin}: hidden_size"
    )
    bias = node.maybe(3)
    if bias is None:
        bias = node.full(0.0, dtype, (directions, 2 * _GATES[node.type] * hidden))
    operands = [x, w, r, bias]
    states = (5, 6) if node.type == "LSTM" else (5,)
    for i in states:
        state = node.maybe(i)
        if state is None:
            state = node.full(0.0, dtype, (directions, batch, hidden))
        elif batch_first:
            state = node.transpose(state, (1, 0, 2))
        operands.append(state)
    lengths = node.maybe(4)
    peepholes = node.maybe(7) if node.type == "LSTM" else None
    if lengths is None and peepholes is not None:
        lengths = node.broadcast_to(node.size(steps, I32), (batch,))
    operands += [v for v in (lengths, peepholes) if v is not None]
    results = node.emit_all(node.type.lower(), *operands, **_attributes(node))
    if not batch_first:
        return results
    y, *last = results
    return (node.transpose(y, (2, 0, 1, 3)), *(node.transpose(s, (1, 0, 2)) for s in last))


def _attributes(node: Node) -> dict[str, Any]:
    direction = node.attr("direction", "forward")
    if direction not in ("forward", "reverse", "bidirectional"):
        raise Refusal(f"its direction is {direction!r}")
    count = 2 if direction == "bidirectional" else 1
    kind = "LSTM" if node.type.endswith("LSTM") else node.type
    activations = node.attr("activations", _DEFAULT_ACTIVATIONS[kind] * count)
    out: dict[str, Any] = {
        "direction": direction,
        "activations": _activations(node, activations),
        "clip": node.attr("clip", 0.0) or None,
    }
    if kind == "LSTM":
        out["input_forget"] = bool(node.attr("input_forget", 0))
    if kind == "GRU":
        out["linear_before_reset"] = bool(node.attr("linear_before_reset", 0))
    return out


def _activations(node: Node, names: Sequence[str]) -> tuple[str, ...]:
    """Names with parameters; each function takes the next alpha and beta when it has such."""
    alphas, betas = iter(node.attr("activation_alpha", ())), iter(node.attr("activation_beta", ()))
    known = {name.lower(): found for name, found in _ACTIVATIONS.items()}
    out: list[str] = []
    for name in names:
        if name.lower() not in known:
            raise Refusal(f"its activation {name!r} is unknown; known: {', '.join(_ACTIVATIONS)}")
        ours, parameters = known[name.lower()]
        values = [next(source, None) for source in (alphas, betas)[:parameters]]
        while values and values[-1] is None:
            values.pop()
        out.append(":".join([ours, *(str(0.0 if v is None else v) for v in values)]))
    return tuple(out)


def dynamic_quantize_lstm(node: Node) -> Sequence[Value]:
    """DynamicQuantizeLSTM of com.microsoft: integer weights [D, I, 4H] and [D, H, 4H] with scales and
    zero points [D] or [D, 4H]; x and the hidden state are quantized on the way.
    """
    x, w, r = (node.ranked(i, 3) for i in range(3))
    steps, batch = x.type.shape[:2]
    directions, hidden = w.type.shape[0], r.type.shape[1]
    size = node.attr("hidden_size", hidden)
    node.require(hidden, "==", size, f"{node.type} {node.origin}: hidden_size")
    parameters: list[Value] = []
    for scale, of in ((8, w), (10, r)):
        zero = node.maybe(scale + 1)
        if zero is None:
            zero = node.full(0, of.type.dtype, (directions,))
        parameters += [node.x(scale), zero]
    bias = node.maybe(3)
    if bias is None:
        bias = node.full(0.0, x.type.dtype, (directions, 8 * hidden))
    states: list[Value] = []
    for i in (5, 6):
        state = node.maybe(i)
        if state is None:
            state = node.full(0.0, x.type.dtype, (directions, batch, hidden))
        states.append(state)
    lengths, peepholes = node.maybe(4), node.maybe(7)
    if lengths is None and peepholes is not None:
        lengths = node.broadcast_to(node.size(steps, I32), (batch,))
    more = [v for v in (lengths, peepholes) if v is not None]
    return node.emit_all(
        "lstm_integer", x, w, r, *parameters, bias, *states, *more, **_attributes(node)
    )


COMPOSE = {
    "com.microsoft:DynamicQuantizeLSTM": dynamic_quantize_lstm,
    "GRU": recurrent,
    "LSTM": recurrent,
    "RNN": recurrent,
}
