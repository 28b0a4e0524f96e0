"""set-precision: what becomes 16 bits wide, what stays float32, and that a compiled model is right."""

import numpy as np
import pytest

from graphwright.compiler.driver import compile_graph, optimise
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.pipeline_text import parse_items
from graphwright.compiler.target import Target
from graphwright.errors import CompileError
from graphwright.runtime import load

BLOCK = """graph @g(B in 1..64) {
  input %x: f32[B, 16, 32]
  input %m: bool[B, 1, 16]
  input %w: f32[32, 32]
  input %v: f32[32, 32]
  input %b: f32[32]
  %0 = matmul(%x, %w) : f32[B, 16, 32]
  %1 = add(%0, %b) : f32[B, 16, 32]
  %2 = transpose(%1) {permutation = [0, 2, 1]} : f32[B, 32, 16]
  %3 = matmul(%1, %2) : f32[B, 16, 16]
  %4 = constant {value = splat(0.0): f32[]} : f32[]
  %5 = constant {value = splat(-3.4028234663852886e+38): f32[]} : f32[]
  %6 = where(%m, %4, %5) : f32[B, 1, 16]
  %7 = add(%3, %6) : f32[B, 16, 16]
  %8 = softmax(%7) {axis = 2} : f32[B, 16, 16]
  %9 = matmul(%8, %1) : f32[B, 16, 32]
  %10 = matmul(%9, %v) : f32[B, 16, 32]
  %11 = reduce_mean(%10) {axes = [2], keepdims = true} : f32[B, 16, 1]
  %12 = exp(%11) : f32[B, 16, 1]
  %13 = add(%x, %12) : f32[B, 16, 32]
  return %13 as "y"
}
"""


def block() -> Graph:
    return parse_graph(BLOCK, registry=REGISTRY)


def narrowed(graph: Graph, options: str) -> dict[str, list[str]]:
    """The element types of each op's results, by op name, after the pass."""
    (one,) = parse_items(f"set-precision{{{options}}}")
    one.run(graph, Target.parse("cuda:sm_90"))
    types: dict[str, list[str]] = {}
    for op in graph.ops:
        types.setdefault(op.name, []).append(op.results[0].type.dtype.name)
    return types


@pytest.mark.parametrize("to", ["fp16", "bf16"])
def test_contractions_and_what_follows_are_narrow(to):
    types = narrowed(block(), f"to={to}")
    short = {"fp16": "f16", "bf16": "bf16"}[to]
    assert types["matmul"] == [short] * 4
    assert types["where"] == types["softmax"] == ["f32"]  # a mask beyond the range of 16 bits
    assert types["reduce_mean"] == types["exp"] == ["f32"]  # sums and exponentials
    assert types["add"] == [short, "f32", "f32"]


def test_named_ops_stay_float32():
    graph = block()
    first = next(op for op in graph.ops if op.name == "matmul")
    first.origins = ("layer/query",)
    types = narrowed(graph, "to=fp16,keep=softmax+layer/q*")
    assert types["matmul"] == ["f32", "f16", "f16", "f16"]
    assert types["softmax"] == ["f32"]


def test_a_pattern_without_ops_is_told():
    (one,) = parse_items("set-precision{to=fp16,keep=nothing}")
    assert "names no op" in one.run(block(), Target.parse("cpu")).notes[0]


def test_tf32_marks_contractions():
    graph = block()
    types = narrowed(graph, "to=tf32")
    assert set(types["matmul"]) == {"f32"}
    assert all(op.attribute("tf32") for op in graph.ops if op.name == "matmul")


def test_a_constant_beyond_the_range_names_its_node():
    text = """graph @g() {
  input %x: f32[4, 4]
  %0 = constant {value = splat(70000.0): f32[4, 4]} : f32[4, 4]
  %1 = matmul(%x, %0) : f32[4, 4]
  return %1 as "y"
}
"""
    graph = parse_graph(text, registry=REGISTRY)
    list(graph.ops)[-1].origins = ("head/MatMul",)
    with pytest.raises(CompileError, match=r"head/MatMul.*70000"):
        narrowed(graph.clone(), "to=fp16")
    assert narrowed(graph, "to=bf16")["matmul"] == ["bf16"]


@pytest.mark.parametrize(("to", "tolerance"), [("fp16", 2e-3), ("bf16", 2e-2)])
def test_a_cpu_artifact_is_right(to, tolerance, tmp_path):
    graph = block()
    options = CompileOptions.make(target="cpu:x86-64-v3", precision=to, cache_dir=tmp_path)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((3, 16, 32)).astype(np.float32)
    mask = rng.random((3, 1, 16)) < 0.7
    mask[1] = False  # a row without any place to look at
    weights = [(rng.standard_normal((32, 32)) / 6).astype(np.float32) for _ in range(2)]
    arrays = [x, mask, *weights, rng.standard_normal(32).astype(np.float32)]
    want = evaluate(graph, arrays, compute=np.float64)[0]
    artifact = compile_graph(graph, options.target, options)
    assert {"f32", {"fp16": "f16", "bf16": "bf16"}[to]} <= artifact.manifest.variants[
        0
    ].precision.keys()
    got = load(artifact.to_bytes(), device="cpu")(*arrays)[0]
    assert got.dtype == np.float32
    assert np.linalg.norm(got - want) < tolerance * np.linalg.norm(want)


def test_narrow_weights_are_stored_narrow():
    text = """graph @g() {
  input %x: f32[4, 64]
  %0 = constant {value = splat(0.5): f32[64, 64]} : f32[64, 64]
  %1 = matmul(%x, %0) : f32[4, 64]
  return %1 as "y"
}
"""
    graph = parse_graph(text, registry=REGISTRY)
    options = CompileOptions.make(target="cuda:sm_90", precision="bf16")
    optimise(graph, options.target, options)
    constants = [op for op in graph.ops if op.name == "constant"]
    assert [op.result.type.dtype.name for op in constants] == ["bf16"]
