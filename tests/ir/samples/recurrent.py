"""Samples of the recurrent layers: directions, lengths, activations, clip, peepholes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from samples.sample import Sample, normal

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
STATES = {"lstm": 2, "gru": 1, "rnn": 1}
LENGTHS = np.int32([6, 1, 4])
FULL = np.int32([6, 6, 6])


def layer(op: str, name: str, *, extra: tuple[np.ndarray, ...] = (), **attributes: Any) -> Sample:
    """6 steps of 3 sequences of width 5, hidden 4."""
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    gates, hidden = GATES[op], 4
    arrays = [
        normal(6, 3, 5, key="x"),
        normal(count, gates * hidden, 5, key="w") * 0.5,
        normal(count, gates * hidden, hidden, key="r") * 0.5,
        normal(count, 2 * gates * hidden, key="b") * 0.5,
        *(normal(count, 3, hidden, key=f"s{i}") * 0.5 for i in range(STATES[op])),
        *extra,
    ]
    dtype = attributes.pop("dtype", np.float32)
    typed = tuple(a.astype(dtype) if a.dtype == np.float32 else a for a in arrays)
    return Sample(op, typed, attributes, name, static=(1, 2, 3))


def integer_layer(
    name: str,
    *,
    signed: bool = True,
    each: bool = False,
    extra: tuple[np.ndarray, ...] = (),
    **attributes: Any,
) -> Sample:
    """`layer` with weights of 8 bits; `each`: a scale for each gate unit."""
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    hidden = 12  # 48 columns: more than one panel
    kind, low = (np.int8, -128) if signed else (np.uint8, 0)
    shape = (count, 4 * hidden) if each else (count,)

    def weights(rows: int, key: str) -> list[np.ndarray]:
        octets = np.clip(normal(count, rows, 4 * hidden, key=key) * 60 + 128, 0, 255).round() + low
        scale = np.float32(0.01) + np.abs(normal(*shape, key=key)) * np.float32(0.01)
        return [octets.astype(kind), scale, np.full(shape, 3 if signed else 131).astype(kind)]

    (w, *w_given), (r, *r_given) = weights(5, "w"), weights(hidden, "r")
    arrays = (
        normal(6, 3, 5, key="x"), w, r, *w_given, *r_given,
        normal(count, 8 * hidden, key="b") * 0.5,
        *(normal(count, 3, hidden, key=f"s{i}") * 0.5 for i in range(2)), *extra,
    )  # fmt: skip
    return Sample("lstm_integer", arrays, attributes, name, static=tuple(range(1, 8)))


def samples() -> Iterator[Sample]:
    for op in GATES:
        for direction in ("forward", "reverse", "bidirectional"):
            yield layer(op, direction, direction=direction)
            yield layer(op, f"{direction}_lengths", extra=(LENGTHS,), direction=direction)
        yield layer(op, "clipped", clip=0.3)
        yield layer(op, "f64", dtype=np.float64)
        yield layer(op, "half", dtype=np.float16)
    peepholes = normal(1, 12, key="p") * 0.5
    yield layer("lstm", "peepholes", extra=(FULL, peepholes))
    yield layer("lstm", "coupled", extra=(LENGTHS, peepholes), input_forget=True)
    yield layer("gru", "linear", linear_before_reset=True)
    both = "bidirectional"
    yield layer("gru", "linear_both", direction=both, linear_before_reset=True, extra=(LENGTHS,))
    yield layer("lstm", "activations", activations=("hard_sigmoid:0.3:0.4", "relu", "softsign"))
    yield layer("gru", "activations", activations=("sigmoid", "leaky_relu:0.2"))
    for activation in ("relu", "affine:0.5:0.1", "scaled_tanh:1.5:0.5", "elu:0.7", "softplus",
                       "thresholded_relu:0.2", "hard_sigmoid"):  # fmt: skip
        name = activation.partition(":")[0]
        yield layer("rnn", name, activations=(activation,))
    mixed = ("tanh", "relu")
    yield layer("rnn", "mixed", direction=both, activations=mixed)
    yield integer_layer("forward")
    yield integer_layer("both", direction=both, each=True)
    yield integer_layer("unsigned", direction="reverse", signed=False, extra=(LENGTHS,))
    yield integer_layer(
        "peepholes", extra=(LENGTHS, normal(1, 36, key="p") * 0.5), input_forget=True, clip=0.4
    )
    mixed = ("sigmoid", "relu", "tanh", "hard_sigmoid", "tanh", "softsign")
    yield integer_layer("activations", direction=both, activations=mixed)
