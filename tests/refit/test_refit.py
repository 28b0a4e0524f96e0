"""Refitting gives the bytes of compiling anew, and refuses what would have given another graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphwright as gw
from graphwright.compilation import build
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.refit import refit

OPTIONS = CompileOptions.make(target="cpu")
Weights = dict[str, np.ndarray]


def model_of(
    nodes: list[onnx.NodeProto], weights: Weights, shape: list[int | str], *, kind: int = 1
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "refit",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def numbers(seed: int, **shapes: tuple[int, ...]) -> Weights:
    random = np.random.default_rng(seed)
    return {n: random.uniform(0.5, 1.5, s).astype(np.float32) for n, s in shapes.items()}


def batch_norm(seed: int) -> onnx.ModelProto:
    """A convolution with a folded batch norm, another one behind it."""
    w = numbers(
        seed, w=(8, 3, 3, 3), scale=(8,), shift=(8,), mean=(8,), var=(8,), v=(5, 8, 1, 1), b=(5,)
    )
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Conv", ["r", "v", "b"], ["y"]),
    ]
    return model_of(nodes, w, ["N", 3, 6, 6])


def products(seed: int) -> onnx.ModelProto:
    """Weights transposed, cut, added and shared on the way to products; a table that stays whole."""
    w = numbers(seed, a=(16, 8), b=(16,), c=(8, 32), d=(8, 8), e=(16,), table=(4, 16))
    w["scale"] = np.float32(0.5)  # numbers that are the same for every seed
    w["zero"] = np.array([0])
    nodes = [
        helper.make_node("Gemm", ["x", "a", "b"], ["p"], transB=1),
        helper.make_node("Transpose", ["a"], ["at"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "at"], ["q"]),
        helper.make_node("Add", ["p", "q"], ["s"]),
        helper.make_node("Concat", ["c", "c"], ["cc"], axis=0),
        helper.make_node("MatMul", ["s", "cc"], ["t"]),
        helper.make_node("Mul", ["t", "scale"], ["u"]),
        helper.make_node("Add", ["b", "e"], ["be"]),
        helper.make_node("Constant", [], ["i"], value=numpy_helper.from_array(np.array([1, 3]))),
        helper.make_node("Gather", ["table", "i"], ["rows"]),
        helper.make_node("Add", ["rows", "be"], ["bias"]),
        helper.make_node("Concat", ["bias", "bias"], ["wide"], axis=1),
        helper.make_node("ReduceSum", ["wide", "zero"], ["one"], keepdims=0),
        helper.make_node("Add", ["u", "one"], ["y"]),
    ]
    return model_of(nodes, w, ["N", 8])


def recurrent(seed: int) -> onnx.ModelProto:
    w = numbers(seed, w=(1, 16, 3), r=(1, 16, 4), b=(1, 32))
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y"], hidden_size=4)
    return model_of([node], w, ["T", 1, 3])


def large(seed: int) -> onnx.ModelProto:
    """Folded constants above the size from which they are made anew for each reader."""
    w = numbers(seed, a=(1024, 512), b=(1024, 512))
    nodes = [
        helper.make_node("Add", ["a", "b"], ["ab"]),
        helper.make_node("Transpose", ["ab"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "t"], ["y"]),
    ]
    return model_of(nodes, w, ["N", 512])


def quantized(seed: int) -> onnx.ModelProto:
    random = np.random.default_rng(seed)
    w: Weights = {"w": random.integers(-100, 100, (8, 16)).astype(np.int8)}
    w |= {"zero": np.array(3, np.uint8), "wzero": np.array(0, np.int8)}
    nodes = [
        helper.make_node("MatMulInteger", ["x", "w", "zero", "wzero"], ["p"]),
        helper.make_node("Cast", ["p"], ["y"], to=TensorProto.FLOAT),
    ]
    return model_of(nodes, w, ["N", 8], kind=TensorProto.UINT8)


MODELS: list[Callable[[int], onnx.ModelProto]] = [
    batch_norm, products, recurrent, large, quantized,
]  # fmt: skip


def weights_of(model: onnx.ModelProto) -> Weights:
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def artifact(model: onnx.ModelProto, folder: Path) -> Path:
    build(model, OPTIONS).artifact.write(folder / "old.gw")
    return folder / "old.gw"


@pytest.mark.parametrize("make", MODELS, ids=lambda m: m.__name__)
def test_the_bytes_are_those_of_compiling_anew(
    make: Callable[[int], onnx.ModelProto], tmp_path: Path
) -> None:
    old, new = artifact(make(1), tmp_path), make(2)
    made = refit(old, weights_of(new), registry=REGISTRY).to_bytes()
    anew = build(new, OPTIONS).artifact
    assert made != old.read_bytes()
    assert made == anew.to_bytes()


def test_refitted_and_compiled_models_agree_with_onnx_runtime(tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime")
    new = products(2)
    path = tmp_path / "new.gw"
    refit(artifact(products(1), tmp_path), weights_of(new), registry=REGISTRY).write(path)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    (got,) = gw.load(path)(x)
    (want,) = runtime.InferenceSession(new.SerializeToString()).run(None, {"x": x})
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


def test_scalars_may_be_left_out(tmp_path: Path) -> None:
    old, new = artifact(products(1), tmp_path), weights_of(products(2))
    all_given = refit(old, new, registry=REGISTRY).to_bytes()
    del new["scale"]
    assert refit(old, new, registry=REGISTRY).to_bytes() == all_given


def test_every_weight_that_does_not_fit_is_named(tmp_path: Path) -> None:
    new = weights_of(products(2))
    del new["d"]  # nothing used it
    del new["c"]
    new["a"] = new["a"].T
    new["e"] = new["e"].astype(np.float64)
    new["f"] = new["b"]
    new["scale"] = np.float32(0.25)
    new["b"] = np.full_like(new["b"], np.inf)
    with pytest.raises(gw.InputError) as refused:
        refit(artifact(products(1), tmp_path), new, registry=REGISTRY)
    lines = str(refused.value).splitlines()
    assert lines[0].startswith("6 weights do not fit ")
    told = dict(line.strip("- ").split(": ", 1) for line in lines[1:])
    assert told["f"] == "the artifact was made of no such weight"
    assert told["a"] == "is float32[8, 16], want float32[16, 8]"
    assert told["e"] == "is float64[16], want float32[16]"
    assert told["c"] == "missing, want float32[8, 32]"
    assert "decided the structure" in told["scale"] and "compile anew" in told["scale"]
    assert "NaN or infinity" in told["b"]


def test_a_zero_point_decides_the_kernel(tmp_path: Path) -> None:
    new = weights_of(quantized(2))
    new["wzero"] = np.array(5, np.int8)
    with pytest.raises(gw.InputError, match="wzero: its value decided the structure"):
        refit(artifact(quantized(1), tmp_path), new, registry=REGISTRY)


def test_a_repeated_value_is_part_of_the_kernels(tmp_path: Path) -> None:
    model = batch_norm(1)
    for tensor in model.graph.initializer:
        if tensor.name == "b":
            tensor.CopyFrom(numpy_helper.from_array(np.ones(5, np.float32), "b"))
    with pytest.raises(gw.InputError, match="b: its value is part of the compiled kernels"):
        refit(artifact(model, tmp_path), weights_of(batch_norm(2)), registry=REGISTRY)
