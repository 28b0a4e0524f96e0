"""A small network for the examples: one convolution, ReLU, a mean over the picture, a matrix."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def small_network() -> onnx.ModelProto:
    """pictures [N, 3, H, W] to scores [N, 10], with random weights; N, H and W are dynamic."""
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> onnx.TensorProto:
        values = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        return numpy_helper.from_array(values.astype(np.float32), name)

    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["pictures", "filters"], ["maps"], name="conv", pads=[1] * 4),
            helper.make_node("Relu", ["maps"], ["active"], name="relu"),
            helper.make_node("GlobalAveragePool", ["active"], ["means"], name="pool"),
            helper.make_node("Flatten", ["means"], ["features"], name="flatten"),
            helper.make_node("Gemm", ["features", "matrix"], ["scores"], name="classify", transB=1),
        ],
        "small_network",
        [helper.make_tensor_value_info("pictures", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["N", 10])],
        [weight("filters", 16, 3, 3, 3), weight("matrix", 10, 16)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
