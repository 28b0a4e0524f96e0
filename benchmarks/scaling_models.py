"""Synthetic ONNX models of any number of nodes, each of a shape that some compiler step could hate.

`MODELS` maps a name to `make(nodes) -> ModelProto`; weights are tiny, so that only the number of
nodes costs anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16
OPSET = 17


class _Nodes:
    """Nodes and initializers while a model is written."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(0)

    def add(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=f"n{name}", **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        array = (self.random.standard_normal(shape) * 0.2).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def numbers(self, *values: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def bytes(self, array: np.ndarray | np.generic) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def model(self, output: str, shape: list[int | str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "scaling",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def chain(nodes: int) -> onnx.ModelProto:
    """One pointwise op after another, as deep as there are nodes."""
    m, x = _Nodes(), "x"
    ops = ("Relu", "Sigmoid", "Tanh", "Abs", "Exp", "Neg", "Softplus")
    for i in range(nodes):
        x = m.add(ops[i % len(ops)], x)
    return m.model(x, ["B", WIDTH])


def layers(nodes: int) -> onnx.ModelProto:
    """Equal layers of a perceptron with norms and residuals, exported piece by piece."""
    m, x = _Nodes(), "x"
    epsilon = m.scalar(1e-5)
    while len(m.nodes) < nodes:
        mean = m.add("ReduceMean", x, axes=[-1])
        centred = m.add("Sub", x, mean)
        square = m.add("Mul", centred, centred)
        variance = m.add("ReduceMean", square, axes=[-1])
        root = m.add("Sqrt", m.add("Add", variance, epsilon))
        normal = m.add("Mul", m.add("Div", centred, root), m.weight(WIDTH))
        hidden = m.add("MatMul", m.add("Add", normal, m.weight(WIDTH)), m.weight(WIDTH, WIDTH))
        active = m.add("Relu", m.add("Add", hidden, m.weight(WIDTH)))
        out = m.add("Add", m.add("MatMul", active, m.weight(WIDTH, WIDTH)), m.weight(WIDTH))
        x = m.add("Add", x, out)
    return m.model(x, ["B", WIDTH])


def fan(nodes: int) -> onnx.ModelProto:
    """One input with thousands of users, whose results are added up in a tree."""
    m = _Nodes()
    leaves: list[str] = []
    while 3 * len(leaves) < nodes:
        product = m.add("MatMul", "x", m.weight(WIDTH, WIDTH))
        leaves.append(m.add("Sigmoid", product))
    while len(leaves) > 1:
        pairs = [m.add("Add", *leaves[i : i + 2]) for i in range(0, len(leaves) - 1, 2)]
        leaves = pairs + leaves[len(leaves) // 2 * 2 :]
    return m.model(leaves[0], ["B", WIDTH])


def shapes(nodes: int) -> onnx.ModelProto:
    """Attention heads split and merged with sizes that are read from tensors."""
    m, x = _Nodes(), "x"
    while len(m.nodes) < nodes:
        shape = m.add("Shape", x)
        batch = m.add("Unsqueeze", m.add("Gather", shape, m.numbers(0)), m.numbers(1))
        batch = m.add("Reshape", batch, m.numbers(-1))
        split = m.add("Concat", batch, m.numbers(-1, 4, WIDTH // 4), axis=0)
        heads = m.add("Transpose", m.add("Reshape", x, split), perm=[0, 2, 1, 3])
        scores = m.add("MatMul", heads, m.add("Transpose", heads, perm=[0, 1, 3, 2]))
        mixed = m.add("MatMul", m.add("Softmax", scores, axis=-1), heads)
        merged = m.add("Concat", batch, m.numbers(-1, WIDTH), axis=0)
        x = m.add("Reshape", m.add("Transpose", mixed, perm=[0, 2, 1, 3]), merged)
        x = m.add("Add", x, m.weight(WIDTH))
    return m.model(x, ["B", "S", WIDTH])


def convolutions(nodes: int) -> onnx.ModelProto:
    """Residual blocks of convolutions with batch norms, and a concatenation now and then."""
    m, x = _Nodes(), "x"
    while len(m.nodes) < nodes:
        y = m.add("Conv", x, m.weight(8, 8, 3, 3), pads=[1, 1, 1, 1])
        y = m.add("BatchNormalization", y, m.weight(8), m.weight(8), m.weight(8), _ones(m, 8))
        y = m.add("Conv", m.add("Relu", y), m.weight(8, 8, 1, 1))
        joined = m.add("Concat", x, m.add("HardSwish", y), axis=1)
        pooled = m.add("MaxPool", joined, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
        x = m.add("Add", x, m.add("Conv", pooled, m.weight(8, 16, 1, 1)))
    return m.model(x, [1, 8, 8, 8])


def quantized(nodes: int) -> onnx.ModelProto:
    """Convolutions between quantize and dequantize, each with filters of its own."""
    m, x = _Nodes(), "x"
    scale, zero, none = m.scalar(0.05), m.bytes(np.uint8(128)), m.bytes(np.int8(0))
    while len(m.nodes) < nodes:
        filters = m.bytes(m.random.integers(-127, 127, (8, 8, 3, 3)).astype(np.int8))
        weights = m.add("DequantizeLinear", filters, scale, none)
        steps = m.add("QuantizeLinear", x, scale, zero)
        y = m.add("DequantizeLinear", steps, scale, zero)
        x = m.add("Relu", m.add("Conv", y, weights, pads=[1, 1, 1, 1]))
    return m.model(x, ["B", 8, 8, 8])


def _ones(m: _Nodes, size: int) -> str:
    name = m.weight(size)
    m.weights[-1].CopyFrom(numpy_helper.from_array(np.linspace(1, 2, size).astype("f4"), name))
    return name


MODELS: Mapping[str, Callable[[int], onnx.ModelProto]] = {
    "chain": chain,
    "layers": layers,
    "fan": fan,
    "shapes": shapes,
    "convolutions": convolutions,
    "quantized": quantized,
}
