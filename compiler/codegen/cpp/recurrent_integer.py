"""LSTM layers of 8-bit weights in C++: gw/lstm_integer.h with weights packed for integer products."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.codegen.cpp.integer_packing import packed_zero
from graphwright.compiler.codegen.cpp.recurrent import SPELLED, Layer
from graphwright.compiler.codegen.cpp.types import float_literal
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.ops.recurrent import parse_activation


def emit_lstm_integer(op: Op) -> list[EmittedLaunch]:
    """One layer as one launch.  Weights, zero points and biases must be constants."""
    layer = Layer(op, integers=("lengths", "w", "w_zero", "r", "r_zero"))
    builder = layer.builder
    x = layer.operands.strided(layer.inputs["x"])
    if x is None or (x.strides[2] != 1 and layer.width != 1):
        x = layer.operands.staged(layer.inputs["x"], range(3))
    lines = ["gw::IntegerLstm l;", f"l.x = {layer.address(x)};"]
    for name in ("w", "r"):
        weights, zeros = layer.constant(name), layer.constant(f"{name}_zero")
        if weights is None or zeros is None:
            raise problem(op, f"its {name} is calculated", "make its weights constants")
        packed = Packed(weights, "integer_lstm", more=(zeros,))
        builder.pointer(name, "uint8_t", packed)
        some = bool(packed_zero(zeros.array(), weights.dtype.numpy, "u8").any())
        lines += [f"l.{name} = {name};", f"l.{name}_zeros = {str(some).lower()};"]
        even = layer.inputs[f"{name}_scale"].type.rank == 1
        lines.append(f"l.{name}_even = {str(even).lower()};")
    bias = layer.constant("bias")
    if bias is None:
        raise problem(op, "its bias is calculated", "make it a constant")
    builder.pointer("bias", "float", Packed(bias, "lstm_bias"))
    lines.append("l.bias = bias;")
    for field, name in (
        ("w_scale", "w_scale"), ("r_scale", "r_scale"), ("h0", "initial_h"), ("c0", "initial_c"),
        ("peephole", "peepholes"),
    ):  # fmt: skip
        if name in layer.inputs:
            lines.append(f"l.{field} = {layer.row_major(name)};")
    lines += layer.lengths("int32_t")
    for field, name in zip(("y", "h_last", "c_last"), layer.results(), strict=True):
        lines.append(f"l.{field} = {name};")
    state = dims.multiply(layer.batch, layer.hidden)
    each = dims.multiply(layer.hidden, dims.multiply(layer.steps, 4) + 6) + 2
    floats = dims.product((layer.directions, layer.batch, each))
    inputs = dims.product((layer.steps, layer.batch, layer.width))
    lines.append(f"l.workspace = {layer.workspace('space', 'float', floats, 4)};")
    octets = inputs + dims.multiply(state, layer.directions)
    lines.append(f"l.bytes = {layer.workspace('bytes', 'uint8_t', octets, 1)};")
    y = layer.y_strides
    numbers: Sequence[tuple[str, Dim]] = (
        ("steps", layer.steps), ("batch", layer.batch), ("input", layer.width),
        ("hidden", layer.hidden), ("directions", layer.directions), ("x_step", x.strides[0]),
        ("x_batch", x.strides[1]), ("y_step", y[0]), ("y_direction", y[1]), ("y_batch", y[2]),
    )  # fmt: skip
    lines += [f"l.{name} = {layer.size(name, value)};" for name, value in numbers]
    if layer.backwards == (True,):
        lines.append("l.reverse = true;")
    if op.attribute("input_forget"):
        lines.append("l.input_forget = true;")
    functions = op.attribute("activations")
    first, second = _cell(op, functions[:3]), _cell(op, functions[-3:])
    builder.body += [*lines, f"gw::lstm_integer(l, {first}, {second}, pool);"]
    builder.includes.append("gw/lstm_integer.h")
    return [builder.launch(None, op.operands)]


def _cell(op: Op, activations: Sequence[str]) -> str:
    """The activations of one direction; what enters the first two is clipped where the op says so."""
    clip = op.attribute("clip")
    spelled: list[str] = []
    for i, text in enumerate(activations):
        name, parameters = parse_activation(text)
        body = SPELLED[name].format(*(float_literal(p, "float") for p in parameters))
        if clip is not None and i < 2:
            limit = float_literal(float(np.float32(clip)), "float")
            body = f"x = gw::clip(x, -{limit}, {limit}); return {body};"
        else:
            body = f"return {body};"
        spelled.append(f"[](float x) GW_INLINE_LAMBDA {{ {body} }}")
    return f"gw::LstmCell{{{', '.join(spelled)}}}"
