"""Small ONNX models for the viewer's tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def block(layers: int, *, first: str = "start", extra: bool = False) -> onnx.ModelProto:
    """Layers of matmul, add and relu in modules of their own, then a softmax.

    `first` names the first node; `extra` puts one more op before the softmax.
    """
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Mul", ["x", "two"], ["h0"], name=first)]
    weights = [numpy_helper.from_array(np.float32(2.0), "two")]
    for n in range(layers):
        weights += [
            numpy_helper.from_array(rng.standard_normal((8, 8), np.float32), f"w{n}"),
            numpy_helper.from_array(rng.standard_normal(8, np.float32), f"b{n}"),
        ]
        path = f"/encoder/layer.{n}"
        nodes += [
            helper.make_node("MatMul", [f"h{n}", f"w{n}"], [f"m{n}"], name=f"{path}/dense/MatMul"),
            helper.make_node("Add", [f"m{n}", f"b{n}"], [f"a{n}"], name=f"{path}/dense/Add"),
            helper.make_node("Relu", [f"a{n}"], [f"h{n + 1}"], name=f"{path}/activation/Relu"),
        ]
    last = f"h{layers}"
    if extra:
        nodes.append(helper.make_node("Tanh", [last], ["extra"], name="/head/Tanh"))
        last = "extra"
    nodes.append(helper.make_node("Softmax", [last], ["y"], name="/head/Softmax"))
    graph = helper.make_graph(
        nodes,
        "blocks",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write(path: Path, model: onnx.ModelProto) -> Path:
    onnx.save(model, path)
    return path
