"""The CUDA target on a real GPU: an artifact made by the compiler, loaded and replayed as a graph."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.errors import ArtifactError, InputError
from graphwright.runtime import load

MLP = """graph @mlp(B in 1..4096) {
  input %x: f32[B, 64]
  input %w1: f32[64, 256]
  input %b1: f32[256]
  input %w2: f32[256, 64]
  input %scale: f32[64]
  input %bias: f32[64]
  %0 = matmul(%x, %w1) : f32[B, 256]
  %1 = add(%0, %b1) : f32[B, 256]
  %2 = gelu(%1) : f32[B, 256]
  %3 = matmul(%2, %w2) : f32[B, 64]
  %4 = add(%3, %x) : f32[B, 64]
  %5 = layer_norm(%4, %scale, %bias) {axis = 1, epsilon = 1e-05} : f32[B, 64]
  %6 = softmax(%5) {axis = 1} : f32[B, 64]
  return %6 as "y", %4 as "residual"
}
"""


def device_arch() -> str | None:
    """The first GPU's compute capability, None without a GPU or a driver."""
    try:
        from graphwright.runtime.cuda_driver import Device

        return Device(0).info().arch
    except ArtifactError:  # CudaError among them
        return None


pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def artifact() -> tuple[Graph, bytes]:
    arch = device_arch()
    if arch is None:
        pytest.skip("no CUDA device, or no driver")
    graph = parse_graph(MLP, registry=REGISTRY)
    options = CompileOptions.make(target=f"cuda:{arch}")
    return graph, compile_graph(graph.clone(), options.target, options).to_bytes()


def feed(graph: Graph, batch: int, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    shapes = [[d if isinstance(d, int) else batch for d in v.type.shape] for v in graph.inputs]
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


@pytest.mark.parametrize("batch", [1, 3, 64, 517])
def test_equals_the_float64_reference(artifact, batch):
    graph, data = artifact
    model = load(data, device="cuda:0")
    arrays = feed(graph, batch)
    for got, want in zip(model(*arrays), evaluate(graph, arrays, compute=np.float64), strict=True):
        assert np.linalg.norm(got - want) < 1e-6 * np.linalg.norm(want)


def test_repeats_bit_for_bit_and_shapes_may_alternate(artifact):
    graph, data = artifact
    model = load(data, device="cuda:0")
    first = {b: model(*feed(graph, b))[0] for b in (5, 6, 7)}
    for b in (7, 5, 6, 5):
        np.testing.assert_array_equal(model(*feed(graph, b))[0], first[b])


def test_torch_tensors_stay_on_the_device(artifact):
    torch = pytest.importorskip("torch")
    graph, data = artifact
    model = load(data, device="cuda:0")
    arrays = feed(graph, 9)
    tensors = [torch.from_numpy(a).cuda() for a in arrays]
    y, residual = model(*tensors)
    assert y.is_cuda and residual.is_cuda
    np.testing.assert_array_equal(y.cpu().numpy(), model(*arrays)[0])
    out = [torch.full_like(y, float("nan")), torch.full_like(residual, float("nan"))]
    model(*tensors, out=out)
    assert torch.equal(out[0], y)
    other = torch.cuda.Stream()
    with torch.cuda.stream(other):
        again = model(*tensors)[0]
    other.synchronize()
    assert torch.equal(again, y)
    with pytest.raises(InputError, match="not contiguous"):
        model(torch.zeros(64, 9, device="cuda").t(), *tensors[1:])
    with pytest.raises(InputError, match="float64"):
        model(tensors[0].double(), *tensors[1:])


def test_a_run_imports_neither_torch_nor_the_compiler(artifact, tmp_path: Path):
    _, data = artifact
    (tmp_path / "m.gw").write_bytes(data)
    code = (
        "import sys, numpy as np, graphwright.runtime as rt\n"
        "m = rt.load('m.gw', device='cuda:0')\n"
        "shapes = [[n if isinstance(n, int) else 2 for n in t.shape] for t in m.inputs]\n"
        "m(*(np.ones(s, np.float32) for s in shapes))\n"
        "bad = [n for n in ('torch', 'triton', 'onnx', 'graphwright.compiler') if n in sys.modules]\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)


def test_an_absent_device_is_named(artifact):
    with pytest.raises(ArtifactError, match="cuda:77 does not exist"):
        load(artifact[1], device="cuda:77")
