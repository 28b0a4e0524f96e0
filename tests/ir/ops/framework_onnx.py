"""What ONNX calls our ops: {op: function of (arrays, attributes) to a one-node model's parts}."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphwright.compiler.ir.types import DType, dtype_of

Attributes = Mapping[str, Any]
OPSET = 21
TYPES = {
    "bool": TensorProto.BOOL, "i4": TensorProto.INT4, "u4": TensorProto.UINT4,
    "i8": TensorProto.INT8, "u8": TensorProto.UINT8, "i16": TensorProto.INT16,
    "u16": TensorProto.UINT16, "i32": TensorProto.INT32, "u32": TensorProto.UINT32,
    "i64": TensorProto.INT64, "u64": TensorProto.UINT64, "f16": TensorProto.FLOAT16,
    "bf16": TensorProto.BFLOAT16, "f32": TensorProto.FLOAT, "f64": TensorProto.DOUBLE,
    "f8e4m3fn": TensorProto.FLOAT8E4M3FN, "f8e5m2": TensorProto.FLOAT8E5M2,
    "f8e4m3fnuz": TensorProto.FLOAT8E4M3FNUZ, "f8e5m2fnuz": TensorProto.FLOAT8E5M2FNUZ,
    "f8e8m0fnu": TensorProto.FLOAT8E8M0, "f4e2m1fn": TensorProto.FLOAT4E2M1,
    "i2": TensorProto.INT2, "u2": TensorProto.UINT2,
}  # fmt: skip


@dataclass
class Node:
    """An ONNX op's type, inputs (None: left out) and attributes; `outputs` in our order."""

    type: str
    inputs: list[np.ndarray | None]
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


Make = Callable[[list[np.ndarray], Attributes], Node | None]


def _plain(type: str, *names: str, renames: Mapping[str, str] | None = None) -> Make:
    """The same operands, and the named attributes."""

    def make(arrays: list[np.ndarray], a: Attributes) -> Node:
        spelled = renames or {}
        return Node(type, list(arrays), {spelled.get(n, n): _value(a[n]) for n in names})

    return make


def _value(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


def _i64(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def _cast(x: list[np.ndarray], a: Attributes) -> Node | None:
    to: DType = a["dtype"]
    if dtype_of(x[0]).is_float and to.is_integer:
        return None  # undefined beyond the range
    return Node("Cast", list(x), {"to": TYPES[to.name], "saturate": int(a["saturate"])})


def _axis(x: np.ndarray, scale: np.ndarray) -> dict[str, Any]:
    return {"axis": next((i for i, n in enumerate(scale.shape) if n > 1), 0)} if scale.ndim else {}


def _quantize(x: list[np.ndarray], a: Attributes) -> Node | None:
    scale, zero = (np.squeeze(v) for v in x[1:])
    return Node("QuantizeLinear", [x[0], scale, zero], _axis(x[0], x[1]))


def _dequantize(x: list[np.ndarray], a: Attributes) -> Node:
    scale, zero = (np.squeeze(v) for v in x[1:])
    return Node("DequantizeLinear", [x[0], scale, zero], _axis(x[0], x[1]))


def _shift(direction: str) -> Make:
    def make(x: list[np.ndarray], a: Attributes) -> Node | None:
        bits = x[1].dtype.itemsize * 8
        if x[0].dtype.kind != "u" or (x[1] >= bits).any():
            return None  # ONNX 21 leaves large counts open
        return Node("BitShift", list(x), {"direction": direction})

    return make


def _pad(x: list[np.ndarray], a: Attributes) -> Node:
    value = [x[1].reshape(())] if len(x) == 2 else []
    return Node("Pad", [x[0], _i64(*a["low"], *a["high"]), *value], {"mode": a["mode"]})


def _slice(x: list[np.ndarray], a: Attributes) -> Node | None:
    if 0 in a["sizes"] or not x[0].ndim:
        return None
    ends = [s + n * d for s, n, d in zip(a["starts"], a["sizes"], a["steps"], strict=True)]
    ends = [e if e >= 0 else -(2**31) for e in ends]
    axes = range(x[0].ndim)
    rest = [_i64(*v) for v in (a["starts"], ends, axes, a["steps"])]
    return Node("Slice", [x[0], *rest])


def _window(a: Attributes, *names: str) -> dict[str, Any]:
    out: dict[str, Any] = {
        "pads": [*a["low"], *a["high"]],
        "strides": list(a["strides"]),
        "dilations": list(a["dilations"]),
    }
    return out | {n: _value(a[n]) for n in names}


def _conv(x: list[np.ndarray], a: Attributes) -> Node:
    return Node("Conv", list(x), _window(a) | {"group": a["groups"]})


def _conv_transpose(x: list[np.ndarray], a: Attributes) -> Node:
    more = {"group": a["groups"], "output_padding": list(a["output_padding"])}
    return Node("ConvTranspose", list(x), _window(a) | more)


def _max_pool(x: list[np.ndarray], a: Attributes) -> Node:
    return Node("MaxPool", list(x), _window(a, "ceil_mode") | {"kernel_shape": a["kernel"]})


def _average_pool(x: list[np.ndarray], a: Attributes) -> Node:
    attributes = _window(a, "ceil_mode", "count_include_pad")
    return Node("AveragePool", list(x), attributes | {"kernel_shape": a["kernel"]})


def _resize(x: list[np.ndarray], a: Attributes) -> Node | None:
    if len(x) > 1:
        return None  # the same rules with numbers as data: kernels are compared with the reference
    attributes = {
        "mode": a["mode"],
        "coordinate_transformation_mode": a["coordinates"],
        "nearest_mode": a["nearest"],
        "cubic_coeff_a": a["cubic_a"],
        "exclude_outside": int(a["exclude_outside"]),
        "extrapolation_value": a["extrapolation"],
        "antialias": int(a["antialias"]),
    }
    roi = np.array(a["roi"], np.float32) if a["roi"] else None
    if a["scales"]:
        return Node("Resize", [x[0], roi, np.array(a["scales"], np.float32)], attributes)
    return Node("Resize", [x[0], roi, None, _i64(*a["sizes"])], attributes)


def _reduce(type: str) -> Make:
    def make(x: list[np.ndarray], a: Attributes) -> Node | None:
        if not a["axes"]:
            return None
        return Node(type, [x[0], _i64(*a["axes"])], {"keepdims": int(a["keepdims"])})

    return make


def _argument(type: str) -> Make:
    names = ("axis", "keepdims", "select_last")
    return _plain(type, *names, renames={"select_last": "select_last_index"})


def _cumsum(x: list[np.ndarray], a: Attributes) -> Node:
    attributes = {n: int(a[n]) for n in ("exclusive", "reverse")}
    return Node("CumSum", [x[0], _i64(a["axis"]).reshape(())], attributes)


def _top_k(x: list[np.ndarray], a: Attributes) -> Node:
    attributes = {"axis": a["axis"], "largest": int(a["largest"]), "sorted": 1}
    return Node("TopK", [x[0], _i64(a["k"])], attributes, outputs=2)


def _one_hot(x: list[np.ndarray], a: Attributes) -> Node:
    return Node("OneHot", [x[0], _i64(a["depth"]).reshape(()), x[1]], {"axis": a["axis"]})


def _trilu(x: list[np.ndarray], a: Attributes) -> Node:
    return Node("Trilu", [x[0], _i64(a["k"]).reshape(())], {"upper": int(a["upper"])})


def _layer_norm(x: list[np.ndarray], a: Attributes) -> Node | None:
    if len(x) == 1:
        return None
    return Node("LayerNormalization", list(x), {"axis": a["axis"], "epsilon": a["epsilon"]})


_NAMES = {
    "tanh": "Tanh", "sigmoid": "Sigmoid", "relu": "Relu", "softsign": "Softsign",
    "softplus": "Softplus", "affine": "Affine", "leaky_relu": "LeakyRelu", "elu": "Elu",
    "thresholded_relu": "ThresholdedRelu", "scaled_tanh": "ScaledTanh",
    "hard_sigmoid": "HardSigmoid",
}  # fmt: skip


def _recurrent(type: str, states: int, *names: str) -> Make:
    def make(x: list[np.ndarray], a: Attributes) -> Node:
        lengths = x[4 + states].astype(np.int32) if len(x) > 4 + states else None
        inputs = [*x[:4], lengths, *x[4 : 4 + states], *x[5 + states :]]
        count = len(x[1])
        texts = [t.split(":") for t in a["activations"]]
        texts = texts * (count * {"LSTM": 3, "GRU": 2, "RNN": 1}[type] // len(texts))
        attributes: dict[str, Any] = {
            "hidden_size": x[2].shape[2],
            "direction": a["direction"],
            "activations": [_NAMES[t[0]] for t in texts],
            **{n: int(a[n]) for n in names},
        }
        for i, name in ((1, "activation_alpha"), (2, "activation_beta")):
            # One value for each function that has the parameter, not for each function.
            values = [float(t[i]) for t in texts if len(t) > i]
            attributes |= {name: values} if values else {}
        if a["clip"] is not None:
            attributes["clip"] = a["clip"]
        return Node(type, inputs, attributes, outputs=1 + states)

    return make


PLAIN = {
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "pow": "Pow", "neg": "Neg",
    "abs": "Abs", "sign": "Sign", "exp": "Exp", "log": "Log", "sqrt": "Sqrt", "erf": "Erf",
    "reciprocal": "Reciprocal", "sin": "Sin", "cos": "Cos", "tan": "Tan", "asin": "Asin",
    "acos": "Acos", "atan": "Atan", "sinh": "Sinh", "cosh": "Cosh", "tanh": "Tanh",
    "asinh": "Asinh", "acosh": "Acosh", "atanh": "Atanh", "sigmoid": "Sigmoid", "relu": "Relu",
    "softplus": "Softplus", "softsign": "Softsign", "mish": "Mish", "hard_swish": "HardSwish",
    "floor": "Floor", "ceil": "Ceil", "round": "Round", "is_nan": "IsNaN", "logical_not": "Not",
    "bitwise_not": "BitwiseNot", "maximum": "Max", "minimum": "Min", "equal": "Equal",
    "less": "Less", "less_or_equal": "LessOrEqual", "greater": "Greater",
    "greater_or_equal": "GreaterOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_xor": "Xor", "bitwise_and": "BitwiseAnd", "bitwise_or": "BitwiseOr",
    "bitwise_xor": "BitwiseXor", "prelu": "PRelu", "where": "Where", "matmul": "MatMul",
}  # fmt: skip

MAKE: dict[str, Make] = {
    **{ours: _plain(theirs) for ours, theirs in PLAIN.items()},
    "mod": _plain("Mod", "fmod"),
    "is_inf": _plain(
        "IsInf",
        "negative",
        "positive",
        renames={"negative": "detect_negative", "positive": "detect_positive"},
    ),
    "gelu": _plain("Gelu", "approximate"),
    "hard_sigmoid": _plain("HardSigmoid", "alpha", "beta"),
    "elu": _plain("Elu", "alpha"),
    "selu": _plain("Selu", "alpha", "gamma"),
    "celu": _plain("Celu", "alpha"),
    "leaky_relu": _plain("LeakyRelu", "alpha"),
    "thresholded_relu": _plain("ThresholdedRelu", "alpha"),
    "shrink": _plain("Shrink", "bias", "lambd"),
    "cast": _cast,
    "quantize": _quantize,
    "dequantize": _dequantize,
    "shift_left": _shift("LEFT"),
    "shift_right": _shift("RIGHT"),
    "transpose": _plain("Transpose", "permutation", renames={"permutation": "perm"}),
    "concat": _plain("Concat", "axis"),
    "pad": _pad,
    "slice": _slice,
    "gather": _plain("Gather", "axis"),
    "gather_elements": _plain("GatherElements", "axis"),
    "gather_nd": _plain("GatherND", "batch_dims"),
    "scatter_elements": _plain("ScatterElements", "axis", "reduction"),
    "scatter_nd": _plain("ScatterND", "reduction"),
    "one_hot": _one_hot,
    "trilu": _trilu,
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_mean": _reduce("ReduceMean"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "reduce_prod": _reduce("ReduceProd"),
    "arg_max": _argument("ArgMax"),
    "arg_min": _argument("ArgMin"),
    "softmax": _plain("Softmax", "axis"),
    "log_softmax": _plain("LogSoftmax", "axis"),
    "lp_normalize": _plain("LpNormalization", "axis", "p"),
    "layer_norm": _layer_norm,
    "instance_norm": _plain("InstanceNormalization", "epsilon"),
    "group_norm": _plain(
        "GroupNormalization", "groups", "epsilon", renames={"groups": "num_groups"}
    ),
    "batch_norm": _plain("BatchNormalization", "epsilon"),
    "lrn": _plain("LRN", "size", "alpha", "beta", "bias"),
    "cumsum": _cumsum,
    "top_k": _top_k,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "max_pool": _max_pool,
    "average_pool": _average_pool,
    "resize": _resize,
    "lstm": _recurrent("LSTM", 2, "input_forget"),
    "gru": _recurrent("GRU", 1, "linear_before_reset"),
    "rnn": _recurrent("RNN", 1),
}


def model_of(node: Node) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model with the node alone, and its feed."""
    feed = {f"x{i}": a for i, a in enumerate(node.inputs) if a is not None}
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(node.inputs)]
    outputs = [f"y{i}" for i in range(node.outputs)]
    graph = helper.make_graph(
        [helper.make_node(node.type, names, outputs, **node.attributes)],
        "sample",
        [
            helper.make_tensor_value_info(n, TYPES[dtype_of(a).name], a.shape)
            for n, a in feed.items()
        ],
        [onnx.ValueInfoProto(name=n) for n in outputs],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return model, feed
