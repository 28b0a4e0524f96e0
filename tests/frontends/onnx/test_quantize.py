"""QLinear ops bit by bit against onnx.reference, and the QDQ form of the same against the QLinear op."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.target import Target
from graphwright.frontends.onnx import import_model

CPU = Target.parse("cpu:x86-64-v3")
Weights = dict[str, np.ndarray]


def octets(rng: np.random.Generator, dtype: type, *shape: int) -> np.ndarray:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def evaluated(nodes: list[onnx.NodeProto], weights: Weights, x: np.ndarray, y: type) -> np.ndarray:
    """What our default pipeline makes of the nodes, from x to y."""
    (got,) = evaluate(_optimised(_model(nodes, weights, x, y)), {"x": x})
    return got


def _model(
    nodes: list[onnx.NodeProto], weights: Weights, x: np.ndarray, y: type
) -> onnx.ModelProto:
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(t)) for t in (x.dtype, y)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kinds[0], x.shape)],
        [helper.make_tensor_value_info("y", kinds[1], None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _optimised(model: onnx.ModelProto):
    graph = import_model(model)
    Pipeline.parse(default_pipeline(CPU, 2)).run(graph, CPU)
    return graph


def quantization(rng: np.random.Generator, x: type, w: type, y: type, columns: int) -> Weights:
    """Scales and zero points; those of w one a column where `columns` is not 0."""
    count = (columns,) if columns else ()
    return {
        "xs": np.float32(rng.uniform(0.01, 0.1)),
        "xz": octets(rng, x)[()],
        "ws": rng.uniform(0.01, 0.1, count).astype(np.float32),
        "wz": np.zeros(count, w) if columns else octets(rng, w)[()],
        "ys": np.float32(rng.uniform(1, 5)),
        "yz": octets(rng, y)[()],
    }


@pytest.mark.parametrize("seed", range(24))
def test_matmul(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x_type, w_type, y_type = (rng.choice([np.uint8, np.int8]) for _ in range(3))
    columns = 6 if seed % 3 == 0 else 0
    weights = quantization(rng, x_type, w_type, y_type, columns)
    weights["w"] = octets(rng, w_type, 33, 6)
    x = octets(rng, x_type, 2, 5, 33)
    qlinear = [
        helper.make_node("QLinearMatMul", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"], ["y"])
    ]
    got = evaluated(qlinear, weights, x, y_type)
    # What the op defines, written out: exact sums, one factor in float32, one rounding.
    centred = (x.astype(np.int64) - weights["xz"]) @ (weights["w"].astype(np.int64) - weights["wz"])
    factor = np.float32(weights["xs"] * weights["ws"]) / weights["ys"]
    real = centred.astype(np.float32) * factor.astype(np.float32)
    info = np.iinfo(y_type)
    want = np.clip(np.rint(real) + weights["yz"].astype(np.float32), info.min, info.max)
    np.testing.assert_array_equal(got, want.astype(y_type))
    separate = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=1),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    np.testing.assert_array_equal(evaluated(separate, weights, x, y_type), got)


@pytest.mark.parametrize("seed", range(12))
def test_conv(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x_type, w_type, y_type = np.uint8, rng.choice([np.uint8, np.int8]), np.uint8
    weights = quantization(rng, x_type, w_type, y_type, 4 if seed % 2 else 0)
    weights["w"] = octets(rng, w_type, 4, 3, 3, 2)
    x = octets(rng, x_type, 2, 3, 6, 7)
    names = ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz"]
    window = {"pads": [1, 0, 1, 1], "strides": [1, 2]}
    if seed % 3 == 0:
        weights["bias"] = rng.integers(-5000, 5000, 4).astype(np.int32)
        names.append("bias")
    qlinear = [helper.make_node("QLinearConv", names, ["y"], **window)]
    model = _model(qlinear, weights, x, y_type)
    (got,) = evaluate(_optimised(model), {"x": x})
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    far = np.abs(got.astype(np.int64) - want.astype(np.int64))
    # The reference rounds in another order of multiplications: a tie may fall the other way.
    assert far.max() <= 1 and np.count_nonzero(far) <= far.size // 100
    if "bias" in weights:
        return
    separate = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["b"], axis=0),
        helper.make_node("Conv", ["a", "b"], ["c"], **window),
        helper.make_node("QuantizeLinear", ["c", "ys", "yz"], ["y"]),
    ]
    np.testing.assert_array_equal(evaluated(separate, weights, x, y_type), got)


@pytest.mark.parametrize("seed", range(6))
def test_small_models_against_the_reference(seed: int) -> None:
    """MatMulInteger and ConvInteger are exact."""
    rng = np.random.default_rng(seed)
    x, w = octets(rng, np.uint8, 4, 9), octets(rng, rng.choice([np.uint8, np.int8]), 9, 5)
    weights = {"w": w, "xz": np.uint8(7), "wz": w.dtype.type(3)}
    nodes = [helper.make_node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])]
    model = _model(nodes, weights, x, np.int32)
    (want,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_array_equal(evaluated(nodes, weights, x, np.int32), want)
