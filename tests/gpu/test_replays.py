"""Many replays equal one cold run bit for bit: poisoned arena, streams, threads, changing pointers.

The graphs have split depths with counters, kernels that start before the one in front has ended,
rows reduced, and symbolic sizes; every call that differs from the first by a bit is counted on the
device.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from test_cuda_executor import MLP, device_arch
from test_half_precision import block

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.runtime import load
from graphwright.runtime.cuda_executor import CudaExecutor
from graphwright.runtime.model import CompiledModel

pytestmark = pytest.mark.gpu

# Few rows and a deep product: the depth is split, and the last program to arrive adds the parts up.
SPLIT = """graph @split() {
  input %x: f16[16, 8192]
  input %w: f16[8192, 512]
  input %v: f16[512, 256]
  %0 = matmul(%x, %w) : f16[16, 512]
  %1 = relu(%0) : f16[16, 512]
  %2 = matmul(%1, %v) : f16[16, 256]
  %3 = softmax(%2) {axis = 1} : f16[16, 256]
  return %3 as "y"
}
"""
BRANCH = """graph @branch(B in 1..4096) {
  input %x: f32[B, 64]
  input %c: bool[]
  %0 = sin(%x) : f32[B, 64]
  %1 = if(%c, %0, %x) : f32[B, 64]
    then_body(%a0: f32[B, 64], %a1: f32[B, 64]) {
      %0 = softmax(%a0) {axis = 1} : f32[B, 64]
      return %0
    }
    else_body(%a0: f32[B, 64], %a1: f32[B, 64]) {
      %0 = add(%a0, %a1) : f32[B, 64]
      return %0
    }
  %2 = mul(%1, %x) : f32[B, 64]
  return %2 as "y"
}
"""
LOOP = """graph @loop(B in 1..4096) {
  input %x: f32[B, 64]
  input %trips: i64[]
  %0 = constant {value = splat(true): bool[]} : bool[]
  %1, %2 = loop(%trips, %0, %x, %x) {carried = 1} : i64[], f32[B, 64]
    body(%a0: i64[], %a1: f32[B, 64], %a2: f32[B, 64]) {
      %0 = constant {value = splat(true): bool[]} : bool[]
      %1 = softmax(%a1) {axis = 1} : f32[B, 64]
      %2 = add(%1, %a2) : f32[B, 64]
      return %0, %2
    }
  return %2 as "y"
}
"""
GRAPHS = {"mlp": MLP, "split": SPLIT, "block": block(1, 128), "branch": BRANCH, "loop": LOOP}
REPLAYS = 1000


@pytest.fixture(scope="module")
def made() -> dict[str, bytes]:
    arch = device_arch()
    if arch is None:
        pytest.skip("no CUDA device, or no driver")
    options = CompileOptions.make(target=f"cuda:{arch}")
    return {
        name: compile_graph(
            parse_graph(text, registry=REGISTRY), options.target, options
        ).to_bytes()
        for name, text in GRAPHS.items()
    }


def arrays_of(model: CompiledModel, seed: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    batch = (1, 7, 64)[seed % 3]
    out: list[np.ndarray] = []
    for t in model.inputs:
        shape = [n if isinstance(n, int) else batch for n in t.shape]
        if t.dtype == "bool":
            out.append(np.array(seed % 2 == 0))
        elif t.dtype == "int64":
            out.append(np.array(seed % 4 + 1))
        else:
            out.append((rng.standard_normal(shape) * 0.1).astype(t.dtype))
    return out


def poison(model: CompiledModel, stream: int) -> None:
    """Fills what no call may read before it has written it."""
    executor = model.executor
    assert isinstance(executor, CudaExecutor)
    device = executor._device
    with device.current():
        for context in executor.contexts():
            context.follow(stream)
            device.fill(context.arena_address, 0xFF, context.arena_bytes, stream)
            context.finish(stream)


@pytest.mark.parametrize("name", list(GRAPHS))
def test_replays_repeat_a_cold_run(made: dict[str, bytes], name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    model = load(made[name], device="cuda:0")
    kernels = model.variant.kernels
    if name == "split":
        assert any(p.startswith("zeros:") for k in kernels for p in k.parameters)
    if name in ("split", "block") and device_arch() == "sm_90":
        assert any(k.waits for k in kernels)
    cases: list[tuple[list[Any], list[Any]]] = []
    for seed in range(6):
        arrays = [torch.from_numpy(a).cuda() for a in arrays_of(model, seed)]
        cold = load(made[name], device="cuda:0")(*arrays)
        torch.cuda.synchronize()
        assert all(bool(torch.isfinite(c).all()) for c in cold)
        cases.append((arrays, [c.clone() for c in cold]))
    differ = torch.zeros((), dtype=torch.int64, device="cuda")
    streams = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
    torch.cuda.synchronize()
    rng = np.random.default_rng(0)
    for turn in range(REPLAYS):
        arrays, want = cases[rng.integers(len(cases))]
        stream = streams[rng.integers(len(streams))]
        with torch.cuda.stream(stream):
            if turn % 7 == 0:
                poison(model, stream.cuda_stream)
            given = [a.clone() for a in arrays] if turn % 3 == 0 else arrays
            out = [torch.full_like(w, float("nan")) for w in want] if turn % 2 else None
            got = model(*given, out=out)
            for g, w in zip(got, want, strict=True):
                differ += (g != w).any()
        if turn % 50 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    assert int(differ) == 0


@pytest.mark.parametrize("name", list(GRAPHS))
def test_threads_share_a_model(made: dict[str, bytes], name: str) -> None:
    torch: Any = pytest.importorskip("torch")
    model = load(made[name], device="cuda:0")
    cases = [[torch.from_numpy(a).cuda() for a in arrays_of(model, s)] for s in range(4)]
    want = [[c.clone() for c in load(made[name], device="cuda:0")(*case)] for case in cases]
    torch.cuda.synchronize()
    wrong: list[int] = []

    def work(number: int) -> None:
        stream = torch.cuda.Stream()
        rng = np.random.default_rng(number)
        with torch.cuda.stream(stream):
            differ = torch.zeros((), dtype=torch.int64, device="cuda")
            for _ in range(REPLAYS // 4):
                at = int(rng.integers(len(cases)))
                for g, w in zip(model(*cases[at]), want[at], strict=True):
                    differ += (g != w).any()
            stream.synchronize()
            if int(differ):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_may_replace_inputs(made: dict[str, bytes]) -> None:
    torch: Any = pytest.importorskip("torch")
    model = load(made["loop"], device="cuda:0")
    arrays = [torch.from_numpy(a).cuda() for a in arrays_of(model, 4)]
    want = model(*arrays)[0].clone()
    for _ in range(3):
        x = arrays[0].clone()
        assert model(x, arrays[1], out=[x])[0] is x
        assert torch.equal(x, want)


def test_dlpack_both_ways(made: dict[str, bytes]) -> None:
    torch: Any = pytest.importorskip("torch")
    model = load(made["mlp"], device="cuda:0")
    arrays = arrays_of(model, 1)

    class Only:
        """A tensor that shows DLPack alone."""

        def __init__(self, tensor: Any) -> None:
            self._tensor = tensor

        def __dlpack__(self, **more: Any) -> Any:
            return self._tensor.__dlpack__(**more)

        def __dlpack_device__(self) -> Any:
            return self._tensor.__dlpack_device__()

    tensors = [torch.from_numpy(a).cuda() for a in arrays]
    want = model(*tensors)
    got = model(*map(Only, tensors))
    for g, w in zip(got, want, strict=True):
        assert torch.equal(torch.from_dlpack(g), w)
        assert torch.equal(torch.as_tensor(g, device="cuda"), w)  # the array interface
        np.testing.assert_array_equal(g.numpy(), w.cpu().numpy())


def test_every_device_of_the_machine(made: dict[str, bytes]) -> None:
    torch: Any = pytest.importorskip("torch")
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    first, second = (load(made["mlp"], device=f"cuda:{i}") for i in range(2))
    arrays = arrays_of(first, 2)
    want = first(*arrays)
    got = second(*(torch.from_numpy(a).to("cuda:1") for a in arrays))
    assert torch.cuda.current_device() == 0
    for g, w in zip(got, want, strict=True):
        assert g.device.index == 1
        np.testing.assert_array_equal(g.cpu().numpy(), w)
