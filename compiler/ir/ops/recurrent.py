"""Recurrent layers over whole sequences, with ONNX's equations and gate orders (layout 0).

x is [time, batch, input]; w [directions, gates * hidden, input], r [directions, gates * hidden,
hidden], bias [directions, 2 * gates * hidden] (of w, then of r); states [directions, batch,
hidden].  Results: y [time, directions, batch, hidden] and the last states.

`direction` is forward, reverse or bidirectional (forward first).  `activations` has one entry a
function, or one a function a direction: a name of `ACTIVATIONS`, parameters after colons
("leaky_relu:0.1"); see `parse_activation`.  `clip` limits the sums that enter activations to [-clip, clip]; None does not.
`lengths` (integers, [batch]) end sequences early: later elements of y are 0, the last state is that
of the last element, and the reverse direction starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import (
    check_choice,
    check_float,
    check_indices,
    check_length,
    check_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import TensorType

Function = Callable[..., np.ndarray]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * np.tanh(0.5 * x) + 0.5


ACTIVATIONS: dict[str, tuple[Function, tuple[float, ...]]] = {  # name: function, default parameters
    "tanh": (np.tanh, ()),
    "sigmoid": (_sigmoid, ()),
    "relu": (lambda x: np.maximum(x, 0.0), ()),
    "softsign": (lambda x: x / (1.0 + np.abs(x)), ()),
    "softplus": (lambda x: np.logaddexp(x, 0.0), ()),
    "affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "leaky_relu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "thresholded_relu": (lambda x, a: np.where(x > a, x, 0.0), (1.0,)),
    "scaled_tanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "hard_sigmoid": (lambda x, a, b: np.clip(a * x + b, 0.0, 1.0), (0.2, 0.5)),
    "elu": (lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), (1.0,)),
}
"""Recurrent activations: the numpy function and its parameters' defaults."""


def parse_activation(text: str) -> tuple[str, tuple[float, ...]]:
    """("leaky_relu", (0.1,)) from "leaky_relu:0.1"; parameters left out take their defaults."""
    name, *given = text.split(":")
    if name not in ACTIVATIONS:
        raise InferenceError(f"activation {name!r} is unknown; known: {', '.join(ACTIVATIONS)}")
    defaults = ACTIVATIONS[name][1]
    try:
        values = tuple(map(float, given))
    except ValueError:
        raise InferenceError(f"activation {text!r}: parameters are numbers after colons") from None
    if len(values) > len(defaults):
        raise InferenceError(f"activation {text!r}: {name} has {len(defaults)} parameters")
    return name, values + defaults[len(values) :]


def limited_activations(
    texts: Sequence[str], clip: float | None, count: int
) -> list[Callable[..., np.ndarray]]:
    """The functions; of `count` a direction, a third one (of the cell state) is not clipped."""

    def make(index: int, text: str) -> Callable[..., np.ndarray]:
        name, parameters = parse_activation(text)
        function = ACTIVATIONS[name][0]
        limit = np.inf if clip is None or index % count == 2 else clip
        return lambda x: function(np.clip(x, -limit, limit), *parameters)

    return [make(i, t) for i, t in enumerate(texts)]


def directions_of(direction: str) -> tuple[bool, ...]:
    """For each direction, whether it runs backwards."""
    return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[direction]


Step = Callable[[np.ndarray, tuple[np.ndarray, ...]], tuple[np.ndarray, ...]]


def run_steps(
    x: np.ndarray, states: tuple[np.ndarray, ...], step: Step, lengths: np.ndarray, backwards: bool
) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """One direction: `step(projected x at a time, states) -> states`, states[0] being the output."""
    time, batch = x.shape[:2]
    order = np.broadcast_to(np.arange(time)[:, None], (time, batch))
    if backwards:  # each sequence from its own end; what lies after the end stays in place
        order = np.where(order < lengths, lengths - 1 - order, order)
    x = np.take_along_axis(x, order[:, :, None], axis=0)
    y = np.zeros((time, batch, states[0].shape[-1]), x.dtype)
    for t in range(time):
        running = (t < lengths)[:, None]
        new = step(x[t], states)
        states = tuple(np.where(running, n, s) for n, s in zip(new, states, strict=True))
        y[t] = np.where(running, states[0], 0.0)
    return np.take_along_axis(y, order[:, :, None], axis=0), states


class _Recurrent(OpDef):
    kind = Kind.OPAQUE
    gates = 1
    functions = 1
    states = 1  # how many operands after the bias are initial states

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, w, r, bias = types[:4]
        check_choice(
            self.name, "direction", attributes["direction"], ("forward", "reverse", "bidirectional")
        )
        count = len(directions_of(attributes["direction"]))
        if len(attributes["activations"]) != self.functions:
            check_length(
                self.name, "activations", attributes["activations"], count * self.functions
            )
        for text in attributes["activations"]:
            parse_activation(text)
        floats = [t for i, t in enumerate(types) if self.operands[i] != "lengths?"]
        check_float(self.name, x)
        check_same_dtype(self.name, floats)
        for name, t in zip(("x", "w", "r"), types, strict=False):
            check_rank(self.name, name, t, 3)
        time, batch, width = x.shape
        hidden = r.shape[2]
        require_shape(inference, self.name, "w", w, (count, self.gates * hidden, width))
        require_shape(inference, self.name, "r", r, (count, self.gates * hidden, hidden))
        require_shape(inference, self.name, "bias", bias, (count, 2 * self.gates * hidden))
        state = (count, batch, hidden)
        for name, t in zip(self.operands[4 : 4 + self.states], types[4:], strict=False):
            require_shape(inference, self.name, name, t, state)
        for name, t in zip(
            self.operands[4 + self.states :], types[4 + self.states :], strict=False
        ):
            if name == "lengths?":
                check_indices(self.name, t)
                require_shape(inference, self.name, "lengths", t, (batch,))
            else:
                require_shape(inference, self.name, "peepholes", t, (count, 3 * hidden))
        y = x.with_shape((time, count, batch, hidden))
        return [y, *[x.with_shape(state)] * self.states]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        after = 4 + self.states
        x, w, r, bias, *states = (accumulate(a, context) for a in arrays[:after])
        time, batch = x.shape[:2]
        lengths = arrays[after] if len(arrays) > after else np.full(batch, time)
        extra = [accumulate(a, context) for a in arrays[after + 1 :]]
        functions = limited_activations(
            attributes["activations"], attributes["clip"], self.functions
        )
        runs: list[tuple[np.ndarray, tuple[np.ndarray, ...]]] = []
        for d, backwards in enumerate(directions_of(attributes["direction"])):
            first = d * self.functions % len(functions)
            own = functions[first : first + self.functions]
            into, again = np.split(bias[d], 2)
            step = self.step(r[d].T, again, own, [e[d] for e in extra], attributes)
            projected = np.matmul(x, w[d].T) + into
            start = tuple(s[d] for s in states)
            runs.append(run_steps(projected, start, step, lengths.astype(np.int64), backwards))
        y = np.stack([run[0] for run in runs], axis=1)
        last = [np.stack([run[1][i] for run in runs]) for i in range(self.states)]
        return results([y, *last], context)

    def step(
        self,
        r: np.ndarray,
        bias: np.ndarray,
        functions: Sequence[Callable[..., np.ndarray]],
        extra: Sequence[np.ndarray],
        attributes: Attributes,
    ) -> Step:
        """One time step; `r` is transposed, `bias` the recurrent one.  Each cell has its own."""
        raise NotImplementedError(f"{self.name}: step")


def _attributes(*activations: str) -> dict[str, Attribute]:
    return {
        "direction": Attribute("str", "forward"),
        "activations": Attribute("strs", activations),
        "clip": Attribute("float", None),
    }


class Rnn(_Recurrent):
    """h' = f(x w + bias_w + h r + bias_r)."""

    name = "rnn"
    operands = ("x", "w", "r", "bias", "initial_h", "lengths?")
    results = ("y", "y_h")
    attributes = _attributes("tanh")

    def step(
        self,
        r: np.ndarray,
        bias: np.ndarray,
        functions: Sequence[Callable[..., np.ndarray]],
        extra: Sequence[np.ndarray],
        attributes: Attributes,
    ) -> Step:
        return lambda x, states: (functions[0](x + states[0] @ r + bias),)


class Gru(_Recurrent):
    """Gates z, r, h: z and r = f(...), h~ = g(x w + (r * h) r + biases), h' = (1 - z) h~ + z h.

    With `linear_before_reset` r multiplies h r + bias_r instead of h.
    """

    name = "gru"
    operands = ("x", "w", "r", "bias", "initial_h", "lengths?")
    results = ("y", "y_h")
    attributes = _attributes("sigmoid", "tanh") | {"linear_before_reset": Attribute("bool", False)}
    gates, functions = 3, 2

    def step(
        self,
        r: np.ndarray,
        bias: np.ndarray,
        functions: Sequence[Callable[..., np.ndarray]],
        extra: Sequence[np.ndarray],
        attributes: Attributes,
    ) -> Step:
        f, g = functions
        n = r.shape[0]
        linear = attributes["linear_before_reset"]

        def step(x: np.ndarray, states: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            (h,) = states
            both = f(x[:, : 2 * n] + h @ r[:, : 2 * n] + bias[: 2 * n])
            z, reset = both[:, :n], both[:, n:]
            if linear:
                inner = reset * (h @ r[:, 2 * n :] + bias[2 * n :])
            else:
                inner = (reset * h) @ r[:, 2 * n :] + bias[2 * n :]
            return ((1.0 - z) * g(x[:, 2 * n :] + inner) + z * h,)

        return step


class Lstm(_Recurrent):
    """Gates i, o, f, c: c' = f * c + i * g(...), h' = o * h(c'); i, f, o by the first activation.

    `peepholes` [directions, 3 * hidden] (of i, o, f) add p * c to i and f, and p * c' to o.
    `input_forget` couples f = 1 - i.  `clip` limits the gates' sums, not c', as ONNX Runtime does.
    """

    name = "lstm"
    operands = ("x", "w", "r", "bias", "initial_h", "initial_c", "lengths?", "peepholes?")
    results = ("y", "y_h", "y_c")
    attributes = _attributes("sigmoid", "tanh", "tanh") | {
        "input_forget": Attribute("bool", False),
    }
    gates, functions, states = 4, 3, 2

    def step(
        self,
        r: np.ndarray,
        bias: np.ndarray,
        functions: Sequence[Callable[..., np.ndarray]],
        extra: Sequence[np.ndarray],
        attributes: Attributes,
    ) -> Step:
        return self.cell(lambda h: h @ r + bias, functions, extra, attributes)

    @staticmethod
    def cell(
        product: Callable[[np.ndarray], np.ndarray],
        functions: Sequence[Callable[..., np.ndarray]],
        extra: Sequence[np.ndarray],
        attributes: Attributes,
    ) -> Step:
        """One time step; `product` gives the hidden state's part of the gates' sums."""
        gate, inner, outer = functions
        peepholes = np.split(extra[0], 3) if extra else None
        coupled = attributes["input_forget"]

        def step(x: np.ndarray, states: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
            h, c = states
            i, o, f, new = np.split(x + product(h), 4, axis=1)
            if peepholes is not None:
                i, f = i + peepholes[0] * c, f + peepholes[2] * c
            i = gate(i)
            f = 1.0 - i if coupled else gate(f)
            c = f * c + i * inner(new)
            o = o if peepholes is None else o + peepholes[1] * c
            return gate(o) * outer(c), c

        return step


OPS: tuple[OpDef, ...] = (Lstm(), Gru(), Rnn())
