"""State on a device: kept between calls, written where it lies or in turn with a second buffer."""

from __future__ import annotations

import numpy as np
import pytest
from fake_gpu import FakeGpu

pytest.importorskip("torch", reason="torch is not installed")

import torch

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.frontends.torch.exported import export_module, program_of
from graphwright.frontends.torch.model import import_program
from graphwright.runtime.model import CompiledModel


class Counter(torch.nn.Module):
    """`total` can be added to where it lies; `shifted` needs its old value to the end."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.arange(6.0))
        self.register_buffer("shifted", torch.arange(6.0))

    def forward(self, x):
        self.total.add_(x)
        self.shifted.copy_(self.shifted.flip(0) + x)
        return self.total * 2, self.shifted + 1


def model(gpu: FakeGpu) -> CompiledModel:
    exported = export_module(Counter(), (torch.zeros(6),), shapes=None)
    graph = import_program(program_of(exported, registry=REGISTRY))
    return gpu.load(compile_graph(graph, Target.parse("cpu"), CompileOptions.make()))


def test_state_moves_on_and_stays_on_the_device(gpu: FakeGpu) -> None:
    made, own = model(gpu), Counter()
    for step in range(5):
        x = torch.full((6,), float(step))
        want = own(x)
        got = made(gpu.array(x.numpy()))
        for a, b in zip(got, want, strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
    for name, value in made.state().items():
        np.testing.assert_array_equal(value, dict(own.named_buffers())[name].numpy())
    x = gpu.array(np.ones(6, np.float32))
    gpu.reset()
    made(x)
    for name in ("cuMemcpyHtoDAsync_v2", "cuMemcpyDtoDAsync_v2", "cuMemcpyDtoHAsync_v2"):
        assert gpu.calls(name) == 0


def test_state_can_be_reset_and_set(gpu: FakeGpu) -> None:
    made = model(gpu)
    x = np.ones(6, np.float32)
    first = [np.array(a) for a in made(x)]
    made(x)
    made.reset_state()
    for a, b in zip(made(x), first, strict=True):
        np.testing.assert_array_equal(a, b)
    made.reset_state({"total": np.zeros(6, np.float32)})
    np.testing.assert_array_equal(np.array(made(x)[0]), 2 * x)
