"""Random quantized graphs after the default pipeline, against float64: the bounds of docs/quantization.md."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.precision import every_op, macs_of
from graphwright.compiler.target import Target
from graphwright.frontends.onnx import import_model

CPU = Target.parse("cpu:x86-64-v3")
TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8}


class Model:
    """An ONNX graph under construction; tensors are named by what they hold."""

    def __init__(self, rng: np.random.Generator, opset: int) -> None:
        self.rng, self.opset = rng, opset
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.feed: dict[str, np.ndarray] = {}

    def weight(self, name: str, array: np.ndarray) -> str:
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op: str, inputs: list[str], **attributes: object) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    def integers(self, dtype: type, *shape: int) -> np.ndarray:
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max + 1, shape).astype(dtype)

    def quantized(
        self, name: str, shape: tuple[int, ...], dtype: type, *, axis: int | None, constant: bool
    ) -> str:
        """A dequantized input or weight; its scale one number, or one along an axis."""
        data = self.integers(dtype, *shape)
        if constant:
            self.weight(name, data)
        else:
            self.inputs.append(helper.make_tensor_value_info(name, TYPES[dtype], shape))
            self.feed[name] = data
        count = () if axis is None else (shape[axis],)
        scale = self.rng.uniform(0.001, 0.1, count).astype(np.float32)
        parts = [name, self.weight(f"{name}_s", scale)]
        if self.rng.random() < 0.8:
            parts.append(self.weight(f"{name}_z", self.integers(dtype, *count)))
        elif dtype is np.int8:
            # The default zero point is of u8; it says the type of a missing one in old opsets.
            parts.append(self.weight(f"{name}_z", np.zeros(count, dtype)))
        attributes = {} if axis is None else {"axis": axis}
        return self.node("DequantizeLinear", parts, **attributes)

    def graph(self, output: str, dtype: int) -> Graph:
        made = helper.make_graph(
            self.nodes, "g", self.inputs,
            [helper.make_tensor_value_info(output, dtype, None)], self.weights,
        )  # fmt: skip
        model = helper.make_model(
            made, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=9
        )
        return import_model(model)


def random_model(seed: int) -> tuple[Model, str, bool]:
    """A contraction between dequantized tensors, with movement, bias and activation around it."""
    rng = np.random.default_rng(seed)
    m = Model(rng, int(rng.choice([10, 13, 19, 21])))
    axes = m.opset >= 13
    left, right = (rng.choice([np.uint8, np.int8]) for _ in range(2))
    bias_of = int(rng.integers(2, 9))
    kind = rng.choice(["matmul", "gemm", "conv", "batched"])
    if kind == "conv":
        groups = int(rng.choice([1, 2]))
        x = m.quantized("x", (2, 4, 7, 6), left, axis=None, constant=False)
        axis = 0 if axes and rng.random() < 0.6 else None
        w = m.quantized("w", (6, 4 // groups, 3, 2), right, axis=axis, constant=True)
        pads = [int(p) for p in rng.integers(0, 2, 4)]
        inputs = [x, w]
        if rng.random() < 0.5:
            inputs.append(m.weight("b", rng.standard_normal(6).astype(np.float32)))
        y = m.node("Conv", inputs, pads=pads, group=groups, strides=[1, 2])
        bias = None
    elif kind == "batched":
        a = m.quantized("a", (2, 3, 5, 7), left, axis=None, constant=False)
        b = m.quantized("b", (2, 3, 9, 7), right, axis=None, constant=False)
        y = m.node("MatMul", [a, m.node("Transpose", [b], perm=[0, 1, 3, 2])])
        bias = None
    elif kind == "gemm":
        a = m.quantized("a", (5, 11), left, axis=None, constant=False)
        axis = 0 if axes and rng.random() < 0.6 else None
        w = m.quantized("w", (bias_of, 11), right, axis=axis, constant=True)
        c = m.weight("c", rng.standard_normal(bias_of).astype(np.float32))
        y, bias = m.node("Gemm", [a, w, c], transB=1), None
    else:
        a = m.quantized("a", (3, 22), left, axis=None, constant=False)
        if rng.random() < 0.5:
            a = m.node("Relu", [a])
        a = m.node("Reshape", [a, m.weight("shape", np.array([6, 11], np.int64))])
        axis = 1 if axes and rng.random() < 0.6 else None
        w = m.quantized("w", (11, bias_of), right, axis=axis, constant=True)
        y = m.node("MatMul", [a, w])
        bias = m.weight("c", rng.standard_normal(bias_of).astype(np.float32))
    if bias is not None and rng.random() < 0.5:
        y = m.node("Add", [y, bias])
    if rng.random() < 0.3:
        y = m.node("Relu", [y])
    quantize = bool(rng.random() < 0.6)
    if quantize:
        to = rng.choice([np.uint8, np.int8])
        step = m.weight("y_s", np.float32(rng.uniform(0.05, 5)))
        y = m.node("QuantizeLinear", [y, step, m.weight("y_z", m.integers(to)[()])])
        return m, y, True
    return m, y, False


def optimised(graph: Graph) -> Graph:
    graph = graph.clone()
    Pipeline.parse(default_pipeline(CPU, 2)).run(graph, CPU)
    return graph


@pytest.mark.parametrize("seed", range(60))
def test_dequantized_contractions(seed: int) -> None:
    m, output, quantized = random_model(seed)
    before = m.graph(output, TensorProto.FLOAT if not quantized else TensorProto.UINT8)
    after = optimised(before)
    macs = macs_of(after)
    assert macs and all("*" in name for name in macs), macs
    (want,) = evaluate(before, m.feed, compute=np.float64)
    (got,) = evaluate(after, m.feed)
    if not quantized:
        # Three roundings of the product, one of the sum with a bias.
        far = np.abs(got.astype(np.float64) - want)
        assert (far <= 2.0**-21 * (np.abs(want) + np.abs(want).max() * 2.0**-3)).all(), far.max()
        return
    steps = np.abs(got.astype(np.int64) - want.astype(np.int64))
    assert steps.max() <= 1
    assert (
        np.count_nonzero(steps) <= steps.size // 20
    )  # only where the exact number is next to a tie


@pytest.mark.parametrize("seed", range(12))
def test_weight_only(seed: int) -> None:
    """Each element moves by at most half a step of its row times the sum of the column's weights."""
    rng = np.random.default_rng(seed)
    m = Model(rng, 17)
    k, n = int(rng.choice([40, 384, 1536])), 24
    x = (rng.standard_normal((3, 5, k)) * 10.0 ** rng.uniform(-3, 3, (3, 5, 1))).astype(np.float32)
    m.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape))
    m.feed["x"] = x
    w = m.integers(np.int8, k, n)
    scale = rng.uniform(0.001, 0.1, (1, n)).astype(np.float32)
    cast = m.node("Cast", [m.weight("w", w)], to=TensorProto.FLOAT)
    real = m.node("Mul", [cast, m.weight("s", scale)])
    before = m.graph(m.node("MatMul", ["x", real]), TensorProto.FLOAT)
    after = optimised(before)
    assert list(macs_of(after)) == ["i16*i8"]
    (got,) = evaluate(after, m.feed)
    exact = x.astype(np.float64) @ (w * scale.astype(np.float64))
    weights = np.abs(w.astype(np.int64)).sum(axis=0)
    limit = min(32767, (2**31 - 256) // weights.max()) if k > 512 else 32767
    step = np.abs(x).max(axis=-1, keepdims=True).astype(np.float64) / limit
    bound = 0.502 * step * weights * scale.astype(np.float64) + 2.0**-21 * np.abs(exact)
    assert (np.abs(got - exact) <= bound).all()
    assert np.linalg.norm(got - exact) <= 1e-4 * np.linalg.norm(exact)


def test_weight_only_keeps_what_is_not_finite() -> None:
    rng = np.random.default_rng(5)
    m = Model(rng, 17)
    x = rng.standard_normal((4, 40)).astype(np.float32)
    x[1, 3], x[2], x[3] = np.nan, 0.0, 1e-42
    m.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape))
    m.feed["x"] = x
    w = m.quantized("w", (40, 3), np.int8, axis=None, constant=True)
    before = m.graph(m.node("MatMul", ["x", w]), TensorProto.FLOAT)
    (got,) = evaluate(optimised(before), m.feed)
    assert np.isnan(got[1]).all() and (got[2] == 0).all() and np.isfinite(got[3]).all()


def test_other_uses_of_a_dequantized_tensor_stay() -> None:
    """The float is also an output: the contraction runs in integers all the same."""
    m = Model(np.random.default_rng(3), 17)
    a = m.quantized("a", (4, 6), np.uint8, axis=None, constant=False)
    w = m.quantized("w", (6, 5), np.int8, axis=1, constant=True)
    y = m.node("MatMul", [a, w])
    total = m.node("ReduceSum", [a], keepdims=0)
    graph = m.graph(m.node("Add", [y, total]), TensorProto.FLOAT)
    after = optimised(graph)
    assert [op.name for op in every_op(after)].count("matmul_integer") == 1
    for want, got in zip(
        evaluate(graph, m.feed, compute=np.float64), evaluate(after, m.feed), strict=True
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("block", [4, 5])
def test_blocks_of_opset_21_stay_floats(block: int) -> None:
    """Scales along the summed axis are no factor: the weights are dequantized at compile time."""
    m = Model(np.random.default_rng(7), 21)
    a = m.quantized("a", (3, 10), np.uint8, axis=None, constant=False)
    w, blocks = m.integers(np.int8, 10, 6), -(-10 // block)
    scale = m.rng.uniform(0.001, 0.1, (blocks, 6)).astype(np.float32)
    parts = [
        m.weight("w", w),
        m.weight("ws", scale),
        m.weight("wz", np.zeros((blocks, 6), np.int8)),
    ]
    b = m.node("DequantizeLinear", parts, axis=0, block_size=block)
    before = m.graph(m.node("MatMul", [a, b]), TensorProto.FLOAT)
    after = optimised(before)
    assert list(macs_of(after)) == ["f32"]
    assert [op.name for op in every_op(after)].count("dequantize") == 1  # that of the activations
    (want,) = evaluate(before, m.feed, compute=np.float64)
    (got,) = evaluate(after, m.feed)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)
