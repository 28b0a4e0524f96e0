"""Shape buckets: declared at compile, built once, one arena; padding only where rows are apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from control_harness import graph_of
from fake_gpu import FakeGpu
from tiny_models import two_step

from graphwright.compiler.buckets import check_buckets, describe_buckets, read_buckets
from graphwright.compiler.codegen.package import Artifact
from graphwright.compiler.driver import compile_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.errors import DowngradeError, InputError
from graphwright.runtime.buckets import BUCKETS
from graphwright.runtime.cuda_executor import CudaExecutor

ROWS = """
graph @rows(B in 1..512) {
  input %x: f32[B, 8]
  input %w: f32[8, 8]
  %0 = matmul(%x, %w) : f32[B, 8]
  %1 = softmax(%0) {axis = 1} : f32[B, 8]
  %2 = reshape(%1) {shape = [2*B, 4]} : f32[2*B, 4]
  %3 = reduce_sum(%2) {axes = [1], keepdims = false} : f32[2*B]
  return %3 as "y", %1 as "z"
}
"""


def with_buckets(artifact: Artifact, buckets: str, miss: str) -> Artifact:
    text = describe_buckets(read_buckets(buckets), miss)
    manifest = artifact.manifest
    metadata = {**manifest.metadata, BUCKETS: text}
    return replace(artifact, manifest=replace(manifest, metadata=metadata))


def feed(size: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.random.default_rng(size).standard_normal((2, 2, size)).astype(np.float32)
    return x, y


def want(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (x * np.float32(3) + y) * np.float32(3) + x


def test_read() -> None:
    assert read_buckets("B=1,8; S=4") == ((("B", 1), ("S", 4)), (("B", 8), ("S", 4)))
    assert read_buckets({"B": [1, 2]}) == read_buckets([{"B": 1}, {"B": 2}])
    for wrong in ("B", "B=", "B=x", "B=1,1"):
        with pytest.raises(ValueError):
            read_buckets(wrong)
    with pytest.raises(InputError, match="no CUDA graphs"):
        CompileOptions.make(graph_buckets="B=1")
    with pytest.raises(InputError, match="without graph_buckets"):
        CompileOptions.make(target="cuda:sm_90", graph_miss="pad")


def test_graphs_are_built_once_and_share_an_arena(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(with_buckets(two_step(library), "S=1,8,64", "raise"))
    model.warm_up()
    assert gpu.calls("cuGraphInstantiateWithFlags") == 3
    gpu.reset()
    for size in (64, 1, 8, 64, 8, 1):
        np.testing.assert_array_equal(model(*feed(size))[0], want(*feed(size)))
    for name in ("cuGraphInstantiateWithFlags", "cuMemAlloc_v2", "cuGraphExecDestroy"):
        assert gpu.calls(name) == 0
    executor = model.executor
    assert isinstance(executor, CudaExecutor)
    (context,) = executor.contexts()
    assert context.arena_bytes == model.memory({"x": (2, 64), "y": (2, 64)}).arena
    with pytest.raises(InputError, match=r"S = 9; .* S = 1 or S = 8 or S = 64 .*raise"):
        model(*feed(9))


def test_a_miss_runs_uncaptured(gpu: FakeGpu, library: bytes) -> None:
    model = gpu.load(with_buckets(two_step(library), "S=8,64", "uncaptured"))
    for size in (9, 64, 9, 3000):
        np.testing.assert_array_equal(model(*feed(size))[0], want(*feed(size)))
        x, y = map(gpu.array, feed(size))
        np.testing.assert_array_equal(model(x, y)[0].numpy(), want(*feed(size)))
    assert gpu.calls("cuLaunchKernel") == 2 * 2 * 3


def test_a_miss_is_padded(gpu: FakeGpu) -> None:
    graph = graph_of(ROWS)
    check_buckets(graph, read_buckets("B=4,32"), "pad")
    made = compile_graph(graph.clone(), Target.parse("cpu"), CompileOptions.make())
    model = gpu.load(with_buckets(made, "B=4,32", "pad"))
    rng = np.random.default_rng(0)
    w = rng.standard_normal((8, 8)).astype(np.float32)
    for rows in (1, 3, 4, 5, 31, 32, 2):
        x = rng.standard_normal((rows, 8)).astype(np.float32)
        scores = np.exp(x @ w - (x @ w).max(1, keepdims=True))
        z = scores / scores.sum(1, keepdims=True)
        on_device = model(gpu.array(x), gpu.array(w))
        for got in (model(x, w), [a.numpy() for a in on_device]):
            assert got[0].shape == (2 * rows,) and got[1].shape == (rows, 8)
            np.testing.assert_allclose(got[1], z, rtol=1e-5)
            np.testing.assert_allclose(got[0], z.reshape(-1, 4).sum(1), rtol=1e-5)
    with pytest.raises(InputError, match="none of them is as large"):
        model(np.zeros((33, 8), np.float32), w)


@pytest.mark.parametrize(
    ("op", "why"),
    [
        ("%0 = reduce_sum(%x) {axes = [0], keepdims = true} : f32[1, 8]", "all rows together"),
        ("%0 = softmax(%x) {axis = 0} : f32[B, 8]", "combines along the first axis"),
        ("%0 = cumsum(%x) {axis = 0} : f32[B, 8]", "combines along the first axis"),
        ("%0 = transpose(%x) {permutation = [1, 0]} : f32[8, B]", "another axis than the first"),
        ("%0 = concat(%x, %x) {axis = 0} : f32[2*B, 8]", "combines along the first axis"),
    ],
)
def test_rows_that_depend_on_each_other_are_not_padded(op: str, why: str) -> None:
    type = op.rpartition(": ")[2]
    graph = graph_of(
        f"graph @g(B in 1..64) {{\n  input %x: f32[B, 8]\n  {op}\n  %1 = relu(%0) : {type}\n"
        '  return %1 as "y"\n}\n'
    )
    with pytest.raises(DowngradeError, match=why):
        check_buckets(graph, read_buckets("B=8"), "pad")
    check_buckets(graph, read_buckets("B=8"), "uncaptured")
    with pytest.raises(InputError, match=r"B = 65, want 1 to 64"):
        check_buckets(graph, read_buckets("B=65"), "raise")
    with pytest.raises(InputError, match="a size of each of B"):
        check_buckets(graph, read_buckets("C=6"), "raise")
