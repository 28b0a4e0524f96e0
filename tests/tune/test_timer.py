"""The timer on a device of numpy memory: what it allocates, fills, poisons, compares and gives back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphwright.compiler.codegen.emit import emit
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.triton.build import build
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.target import Target
from graphwright.compiler.tune.timer import RUNS, Candidate, CudaTimer

pytest.importorskip("triton")

TEXT = """graph @g() {
  input %x: f16[64, 128]
  input %w: f16[128, 64]
  %0 = fused(%x, %w) {region = "contraction"} : f16[64, 64]
    body(%a0: f16[64, 128], %a1: f16[128, 64]) {
      %0 = matmul(%a0, %a1) : f16[64, 64]
      return %0
    }
  return %0 as "y"
}
"""
BASE = 1 << 20


class NumpyDevice:
    """The calls that the timer makes; a launch writes `results[i]` to the output of the first set."""

    def __init__(self) -> None:
        self.memory = np.zeros(400 << 20, np.uint8)
        self.end, self.live, self.launches = BASE, set[int](), 0
        self.pointers: list[tuple[int, ...]] = []
        self.results: list[np.ndarray] = []
        self.poisoned = True

    @contextmanager
    def current(self) -> Iterator[None]:
        yield

    def at(self, address: int, size: int) -> np.ndarray:
        return self.memory[address - BASE : address - BASE + size]

    def allocate(self, nbytes: int, what: str) -> int:
        address, self.end = self.end, self.end + -(-nbytes // 256) * 256
        assert self.end - BASE <= self.memory.nbytes, what
        self.live.add(address)
        return address

    def free(self, address: int) -> None:
        self.live.remove(address)

    def upload(self, address: int, array: np.ndarray, stream: int) -> None:
        self.at(address, array.nbytes)[:] = array

    def download(self, array: np.ndarray, address: int, stream: int) -> None:
        array[:] = self.at(address, array.nbytes)

    def copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        self.at(target, nbytes)[:] = self.at(source, nbytes)

    def fill(self, address: int, byte: int, nbytes: int, stream: int) -> None:
        self.at(address, nbytes)[:] = byte

    def add_kernel_node(self, graph: int, before: int | None, params: Any, *, early: bool) -> int:
        return len(self.pointers)

    def instantiate(self, graph: int) -> int:
        return 2

    def time_graph(self, executable: int, stream: int) -> float:
        array = self.results[self.launches // 8]
        out = self.at(self.output, array.nbytes)
        self.poisoned &= self.launches % 8 != 0 or bool((out == 0xFF).all())
        out[:] = array.view(np.uint8).reshape(-1)
        self.launches += 1
        return 24.0 * (1 + self.launches // 8)

    output = 0

    def nothing(self, *arguments: Any) -> int:
        return 1

    create_stream = create_graph = load_module = function = synchronize = nothing
    synchronize_all = destroy_graph = unload_module = nothing


def candidate(tmp_path: Path, text: str = "a") -> Candidate:
    graph = parse_graph(TEXT, registry=REGISTRY)
    (step,) = emit(next(iter(graph.ops)), Target.parse("cuda:sm_90"))
    assert isinstance(step, EmittedLaunch)
    return Candidate(text, ((step, build(step.kernel, "sm_90", tmp_path)),))  # type: ignore[arg-type]


def test_times_poisons_compares_and_frees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from graphwright.compiler.tune import timer as module

    device = NumpyDevice()
    seen = device.pointers

    class Node:
        def __init__(self, _device: Any, _function: int, kernel: Any, grid: Any, pointers: Any,
                     scalars: Any, *, first_pointer: int, zeros: int) -> None:  # fmt: skip
            seen.append(tuple(pointers))
            device.output = seen[0][2]
            self.params = None

    monkeypatch.setattr(module, "Node", Node)
    right = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float16)
    wrong = right.copy()
    wrong[:32] = 0
    nan = right.copy()
    nan[3, 3] = np.nan
    device.results = [right, right, wrong, nan]
    timer = CudaTimer.__new__(CudaTimer)
    timer._device = device  # type: ignore[assignment]
    one = candidate(tmp_path)
    times = timer.measure([one] * 4)
    assert times[0] == pytest.approx(24.0 / RUNS, rel=0.5) and isinstance(times[1], float)
    assert "away from the first candidate's" in str(times[2])
    assert "not finite where" in str(times[3])
    assert device.poisoned and not device.live
    assert len(set(seen[:RUNS])) > 8  # runs take turns on buffers of their own
    x = device.at(seen[0][0], 64 * 128 * 2).view(np.float16).astype(float)
    assert 0.4 < x.std() < 0.6
