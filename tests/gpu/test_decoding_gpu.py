"""Decoding on a GPU: forty steps from an empty cache, beside the module in float32 on torch."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import torch
from decode import SHAPES, Decoder
from test_cuda_executor import device_arch

import graphwright as gw

pytestmark = pytest.mark.gpu


def test_steps_from_an_empty_cache_follow_the_module() -> None:
    arch = device_arch()
    if arch is None:
        pytest.skip("no CUDA device, or no driver")
    torch.manual_seed(2)
    shape = SHAPES["tiny"]
    module = Decoder(shape, "cpu", torch.float16).eval()
    for name, buffer in module.named_buffers():
        if name.endswith(("keys", "values")):
            buffer.zero_()
    wide = Decoder(shape, "cpu", torch.float32).eval()
    wide.load_state_dict({k: v.float() for k, v in module.state_dict().items()})
    given = (torch.tensor([[3]]), torch.tensor([0]))
    model = gw.compile(torch.export.export(module, given), target=f"cuda:{arch}")
    for position in range(shape.context):
        word, place = torch.tensor([[position % shape.words]]), torch.tensor([position])
        with torch.no_grad():
            want = wide(word, place).double()
        got = model(word.cuda(), place.cuda()).cpu().double()
        assert (got - want).norm() <= 5e-3 * want.norm(), position
    for name, value in model.state().items():
        want = dict(wide.named_buffers())[name].double()
        assert (torch.from_numpy(value).double() - want).norm() <= 5e-3 * want.norm(), name
