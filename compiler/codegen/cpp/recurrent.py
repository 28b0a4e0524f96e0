"""LSTM, GRU and RNN layers in C++.

The usual layers (default activations, no clipping, constant weights) go through gw/recurrent.h with
packed weights; everything else through the plain loops of gw/recurrent_any.h.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.epilogue import check_float
from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.operand import Operands, Strided
from graphwright.compiler.codegen.cpp.types import float_literal
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed, Source, Workspace
from graphwright.compiler.codegen.lower import as_region, problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.layout import strides_of
from graphwright.compiler.ir.ops.recurrent import directions_of, parse_activation
from graphwright.compiler.ir.types import F32, I64

GATES = {"lstm": 4, "gru": 3, "rnn": 1, "lstm_integer": 4}
DEFAULTS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh")}
SPELLED = {
    "tanh": "gw::tanh(x)",
    "sigmoid": "gw::sigmoid(x)",
    "relu": "gw::relu(x)",
    "softsign": "gw::softsign(x)",
    "softplus": "gw::softplus(x)",
    "affine": "{0} * x + {1}",
    "leaky_relu": "gw::leaky_relu(x, {0})",
    "thresholded_relu": "gw::thresholded_relu(x, {0})",
    "scaled_tanh": "{0} * gw::tanh({1} * x)",
    "hard_sigmoid": "gw::hard_sigmoid(x, {0}, {1})",
    "elu": "gw::elu(x, {0})",
}


class Layer:
    """A recurrent op with its operands by name and the kernel that is being built.

    Operands are float32 but for those that `integers` names.
    """

    def __init__(self, op: Op, *, integers: Sequence[str] = ("lengths",)) -> None:
        self.op = op
        self.body, values = as_region(op)
        self.root = next(iter(self.body.ops))
        self.builder = KernelBuilder(op, op.name)
        self.operands = Operands(self.builder, self.body, values)
        names = [n.rstrip("?*") for n in op.definition.operands]
        self.inputs = dict(zip(names, self.root.operands, strict=False))
        for name, value in self.inputs.items():
            if name not in integers and value.type.dtype is not F32:
                check_float(self.root)
                kind = value.type.dtype.long_name
                raise problem(op, f"its {name} is {kind}, its kernel is for float32", "cast it")
        self.backwards = directions_of(op.attribute("direction"))
        self.steps, self.batch, self.width = self.inputs["x"].type.shape
        self.hidden = self.inputs["initial_h"].type.shape[2]
        self.gates = GATES[op.name]

    @property
    def directions(self) -> int:
        return len(self.backwards)

    def constant(self, name: str) -> Source | None:
        return self.operands.constant(self.inputs[name])

    def row_major(self, name: str) -> str:
        """The address of an operand as a plain row-major float tensor."""
        value = self.inputs[name]
        at = self.operands.strided(value)
        if at is None or at.strides != strides_of(value.type.shape, None):
            at = self.operands.staged(value, range(value.type.rank))
        return self.address(at)

    def address(self, at: Strided) -> str:
        return at.pointer if at.base == 0 else f"{at.pointer} + {self.size('base', at.base)}"

    def size(self, name: str, dim: Dim) -> str:
        """A size as a scalar of the kernel, so that layers of other sizes share it."""
        return str(dim) if dim in (0, 1) else self.builder.scalar(name, dim)

    def results(self) -> list[str]:
        names: list[str] = []
        for i, value in enumerate(self.op.results):
            if i > 0 and value.type.layout is not None:
                raise problem(self.op, "its last state has a layout of its own")
            names.append(self.builder.tensor(f"out{i}", value, written=True))
        return names

    def workspace(self, name: str, type: str, count: Dim, bytes: int) -> str:
        space = Workspace(dims.multiply(count, bytes))
        return self.builder.pointer(name, type, space, written=True)

    def lengths(self, type: str) -> list[str]:
        """Statements that make `lengths`, or nothing when every sequence has full length."""
        value = self.inputs.get("lengths")
        if value is None:
            return []
        pointer = self.operands.pointer(value)
        own = "int64_t" if value.type.dtype is I64 else "int32_t"
        if own == type:
            return [f"l.lengths = {pointer};"]
        name = self.workspace("lengths", type, self.batch, 8)
        batch = self.size("batch", self.batch)
        return [
            f"for (int64_t b = 0; b < {batch}; ++b) {name}[b] = static_cast<{type}>({pointer}[b]);",
            f"l.lengths = {name};",
        ]

    @property
    def y_strides(self) -> tuple[Dim, ...]:
        """Strides of y [time, directions, batch, hidden]; hidden is contiguous."""
        type = self.op.results[0].type
        strides = strides_of(type.shape, type.layout)
        if strides[3] != 1 and type.shape[3] != 1:
            raise problem(self.op, "its hidden axis is not contiguous in y")
        return strides


def emit_recurrent(op: Op) -> list[EmittedLaunch]:
    """One recurrent layer as one launch."""
    layer = Layer(op)
    constant = all(layer.constant(name) is not None for name in ("w", "r", "bias"))
    if constant and _is_usual(op):
        return [_usual(layer)]
    return [_any(layer)]


def _is_usual(op: Op) -> bool:
    defaults = DEFAULTS.get(op.name)
    if defaults is None or op.attribute("clip") is not None:
        return False
    if op.attributes.get("input_forget"):
        return False
    given = [parse_activation(t)[0] for t in op.attribute("activations")]
    return tuple(given) in (defaults, defaults * 2)


def _usual(layer: Layer) -> EmittedLaunch:
    op, builder = layer.op, layer.builder
    x = layer.operands.strided(layer.inputs["x"])
    if x is None or (x.strides[2] != 1 and layer.width != 1):
        x = layer.operands.staged(layer.inputs["x"], range(3))
    linear = bool(op.attributes.get("linear_before_reset"))
    packings = {"w": "recurrent", "r": "recurrent", "bias": f"{op.name}_bias"}
    if op.name == "gru" and not linear:
        packings["r"] = "gru_recurrent"
    lines = ["gw::Recurrent l;", f"l.x = {layer.address(x)};"]
    for name, packing in packings.items():
        source = layer.constant(name)
        assert source is not None
        given = (("linear", int(linear)),) if packing == "gru_bias" else ()
        builder.pointer(name, "float", Packed(source, packing, given))
        lines.append(f"l.{name} = {name};")
    for field, name in (("h0", "initial_h"), ("c0", "initial_c"), ("peephole", "peepholes")):
        if name in layer.inputs:
            lines.append(f"l.{field} = {layer.row_major(name)};")
    lines += layer.lengths("int32_t")
    outs = layer.results()
    for field, name in zip(("y", "h_last", "c_last"), outs, strict=False):
        lines.append(f"l.{field} = {name};")
    rows = dims.multiply(layer.steps + 1, layer.gates) + 3
    floats = dims.product((layer.directions, layer.batch, layer.hidden, rows))
    space = layer.workspace("space", "float", floats, 4)
    y = layer.y_strides
    numbers: Sequence[tuple[str, Dim]] = (
        ("steps", layer.steps), ("batch", layer.batch), ("input", layer.width),
        ("hidden", layer.hidden), ("directions", layer.directions), ("x_step", x.strides[0]),
        ("x_batch", x.strides[1]), ("y_step", y[0]), ("y_direction", y[1]), ("y_batch", y[2]),
    )  # fmt: skip
    lines += [f"l.{name} = {layer.size(name, value)};" for name, value in numbers]
    lines.append(f"l.workspace = {space};")
    if layer.backwards == (True,):
        lines.append("l.reverse = true;")
    if linear:
        lines.append("l.linear_before_reset = true;")
    builder.body += [*lines, f"gw::{op.name}(l, pool);"]
    builder.includes.append("gw/recurrent.h")
    return builder.launch(None, op.operands)


def _any(layer: Layer) -> EmittedLaunch:
    op, builder = layer.op, layer.builder
    gates, hidden, width = layer.gates, layer.hidden, layer.width
    state = dims.multiply(layer.batch, hidden)
    bases = {name: layer.row_major(name) for name in layer.inputs if name != "lengths"}
    outs = layer.results()
    floats = dims.multiply(hidden, 2 * gates + 1)
    space = layer.workspace("space", "float", floats, 4)
    y = layer.y_strides
    lines = ["gw::AnyRecurrent l;", f"l.x = {bases['x']};", f"l.workspace = {space};"]
    lines += layer.lengths("int64_t")
    numbers: Sequence[tuple[str, Dim]] = (
        ("steps", layer.steps), ("batch", layer.batch), ("input", width), ("hidden", hidden),
        ("y_step", y[0]), ("y_batch", y[2]),
    )  # fmt: skip
    lines += [f"l.{name} = {layer.size(name, value)};" for name, value in numbers]
    if op.attribute("clip") is not None:
        lines.append(f"l.clip = {float_literal(op.attribute('clip'), 'float')};")
    for flag in ("input_forget", "linear_before_reset"):
        if op.attributes.get(flag):
            lines.append(f"l.{flag} = true;")
    functions = [_functor(text) for text in op.attribute("activations")]
    each = len(functions) // layer.directions if len(functions) != _count(op) else len(functions)
    per_direction: dict[str, tuple[str, str, Dim]] = {
        "w": (bases["w"], "w_size", dims.product((gates, hidden, width))),
        "r": (bases["r"], "r_size", dims.product((gates, hidden, hidden))),
        "bias": (bases["bias"], "bias_size", dims.multiply(hidden, 2 * gates)),
        "h0": (bases["initial_h"], "state_size", state),
        "y": (outs[0], "y_direction", y[1]),
        "h": (outs[1], "state_size", state),
    }
    if op.name == "lstm":
        per_direction["c0"] = (bases["initial_c"], "state_size", state)
        per_direction["c"] = (outs[2], "state_size", state)
    if "peepholes" in bases:
        per_direction["peephole"] = (bases["peepholes"], "peephole_size", 3 * hidden)
    for d, backwards in enumerate(layer.backwards):
        for field, (base, name, size) in per_direction.items():
            step = f" + {layer.size(name, size)} * {d}" if d else ""
            lines.append(f"l.{field} = {base}{step};")
        lines.append(f"l.backwards = {'true' if backwards else 'false'};")
        first = d * each % len(functions)
        own = functions[first : first + each]
        lines.append(f"gw::{op.name}_any(l, {', '.join(own)});")
    builder.body += lines
    builder.includes.append("gw/recurrent_any.h")
    return builder.launch(None, op.operands)


def _count(op: Op) -> int:
    """Activations of one direction."""
    return {"lstm": 3, "gru": 2, "rnn": 1}[op.name]


def _functor(text: str) -> str:
    name, parameters = parse_activation(text)
    values = [float_literal(p, "float") for p in parameters]
    return f"[](float x) {{ return {SPELLED[name].format(*values)}; }}"
