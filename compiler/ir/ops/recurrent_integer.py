"""An LSTM whose products are of 8-bit integers, its activations quantized while it runs.

What `com.microsoft:DynamicQuantizeLSTM` means: weights are stored as integers with a scale and a zero
point a direction or a gate unit; x, as a whole, and the hidden state, at each step, become u8 by the
range of their numbers, and the sums of products are 32-bit integers.  ONNX Runtime quantizes the states
of as many sequences together as one of its threads serves; here a sequence's result never depends on
the others of its batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim
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
    check_indices,
    check_length,
    check_rank,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import results
from graphwright.compiler.ir.ops.recurrent import (
    Lstm,
    directions_of,
    limited_activations,
    parse_activation,
    run_steps,
)
from graphwright.compiler.ir.types import F32, I8, U8, TensorType


def quantized_product(a: np.ndarray, b: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """a [M, K] as u8, times centred integers b [K, N], times scales (one, or [N]), in float64.

    u8 as DynamicQuantizeLinear has it: the range of a and 0 in 255 steps, the scale 1 where a is all
    zeros.  Numbers that are not finite make all sums NaN.
    """
    wide = a.astype(np.float64)
    if not np.isfinite(wide).all():
        return np.full((len(a), b.shape[1]), np.nan)
    low, high = wide.min(initial=0.0), wide.max(initial=0.0)
    step = 1.0 if low == high else (high - low) / 255.0
    zero = np.clip(np.rint(-low / step), 0, 255)
    centred = np.clip(np.rint(wide / step) + zero, 0, 255) - zero
    return np.matmul(centred, b) * (step * scale.astype(np.float64))


class LstmInteger(OpDef):
    """`lstm` (its equations, gate order, results, `lengths`, `peepholes`) on quantized weights.

    x [time, batch, input] is f32; w [directions, input, 4 * hidden] and r [directions, hidden, 4 *
    hidden] are i8 or u8, their scales and zero points [directions] or [directions, 4 * hidden].  All of x
    shares one scale; the state of each sequence has one of its own at each step.
    """

    name = "lstm_integer"
    kind = Kind.OPAQUE
    operands = (
        "x", "w", "r", "w_scale", "w_zero", "r_scale", "r_zero", "bias", "initial_h", "initial_c",
        "lengths?", "peepholes?",
    )  # fmt: skip
    results = ("y", "y_h", "y_c")
    attributes = {
        "direction": Attribute("str", "forward"),
        "activations": Attribute("strs", ("sigmoid", "tanh", "tanh")),
        "clip": Attribute("float", None),
        "input_forget": Attribute("bool", False),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_choice(
            self.name, "direction", attributes["direction"], ("forward", "reverse", "bidirectional")
        )
        count = len(directions_of(attributes["direction"]))
        if len(attributes["activations"]) != 3:
            check_length(self.name, "activations", attributes["activations"], 3 * count)
        for text in attributes["activations"]:
            parse_activation(text)
        named = dict(zip((n.rstrip("?") for n in self.operands), types, strict=False))
        integers = {"w": "w", "r": "r", "w_zero": "w", "r_zero": "r"}
        for name, t in named.items():
            if name == "lengths":
                check_indices(self.name, t)
            elif name not in integers and t.dtype is not F32:
                raise InferenceError(f"{self.name}: {name} is {t}, want f32")
            elif name in integers and (
                t.dtype not in (I8, U8) or t.dtype is not named[integers[name]].dtype
            ):
                raise InferenceError(f"{self.name}: {name} is {t}, want i8 or u8 as its weights")
        for name in ("x", "w", "r"):
            check_rank(self.name, name, named[name], 3)
        time, batch, width = named["x"].shape
        hidden = named["r"].shape[1]
        state = (count, batch, hidden)
        shapes: dict[str, tuple[Dim, ...]] = {
            "w": (count, width, 4 * hidden), "r": (count, hidden, 4 * hidden),
            "bias": (count, 8 * hidden), "initial_h": state, "initial_c": state,
            "lengths": (batch,), "peepholes": (count, 3 * hidden),
        }  # fmt: skip
        for name in ("w_scale", "w_zero", "r_scale", "r_zero"):
            shapes[name] = (count,) if named[name].rank == 1 else (count, 4 * hidden)
        for name, shape in shapes.items():
            if name in named:
                require_shape(inference, self.name, name, named[name], shape)
        y = named["x"].with_shape((time, count, batch, hidden))
        return [y, *[y.with_shape(state)] * 2]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, w, r, w_scale, w_zero, r_scale, r_zero, bias, h, c = arrays[:10]
        time, batch = x.shape[:2]
        lengths = arrays[10] if len(arrays) > 10 else np.full(batch, time)
        extra = [a.astype(np.float64) for a in arrays[11:]]
        functions = limited_activations(attributes["activations"], attributes["clip"], 3)
        y: list[np.ndarray] = []
        last: list[tuple[np.ndarray, ...]] = []
        for d, backwards in enumerate(directions_of(attributes["direction"])):
            own = functions[3 * d % len(functions) :][:3]
            centred_w, centred_r = (
                m[d].astype(np.float64) - z[d].astype(np.float64)
                for m, z in ((w, w_zero), (r, r_zero))
            )
            flat = x.reshape(time * batch, -1)
            into, again = np.split(bias[d].astype(np.float64), 2)
            projected = quantized_product(flat, centred_w, w_scale[d]) + into + again

            def product(state: np.ndarray, b: np.ndarray = centred_r, d: int = d) -> np.ndarray:
                rows = [quantized_product(s[None], b, r_scale[d]) for s in state]
                return np.concatenate(rows) if rows else np.zeros((0, b.shape[1]))

            step = Lstm.cell(product, own, [e[d] for e in extra], attributes)
            start = tuple(s[d].astype(np.float64) for s in (h, c))
            projected = projected.reshape(time, batch, -1)
            outs, states = run_steps(projected, start, step, lengths.astype(np.int64), backwards)
            y.append(outs)
            last.append(states)
        ends = [np.stack([states[i] for states in last]) for i in range(2)]
        return results([np.stack(y, axis=1), *ends], context)


OPS: tuple[OpDef, ...] = (LstmInteger(),)
