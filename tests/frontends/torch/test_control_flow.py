"""Higher-order ops, autocast and no_grad regions, sizes that the data decide."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

import numpy as np  # noqa: E402
from torch._higher_order_ops.scan import scan  # noqa: E402
from torch._higher_order_ops.while_loop import while_loop  # noqa: E402
from torch_modules import assert_same  # noqa: E402

import graphwright as gw  # noqa: E402
from graphwright.compiler.ir.evaluate import evaluate  # noqa: E402
from graphwright.compiler.ir.ops import REGISTRY  # noqa: E402
from graphwright.compiler.ir.shapes import ShapeSpec  # noqa: E402
from graphwright.frontends.torch import import_program  # noqa: E402
from graphwright.frontends.torch.exported import export_module, program_of  # noqa: E402


class Conditional(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return torch.cond(
            x.sum() > 0, lambda x: self.layer(x) * 2, lambda x: x - self.layer.bias, (x,)
        )


class Loop(torch.nn.Module):
    def forward(self, x):
        return while_loop(
            lambda i, y: (i < 5) & (y.sum() < 40),
            lambda i, y: (i + 1, y * 1.5),
            (torch.tensor(0), x),
        )


class Scan(torch.nn.Module):
    def forward(self, x):
        return scan(lambda c, row: (c + row, (c * row).sum()), torch.zeros(4), x, dim=0)


class Regions(torch.nn.Module):
    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x.T
        with torch.no_grad():
            return y, y.float().sum()


class Found(torch.nn.Module):
    def forward(self, x):
        return x.nonzero(), x[x > 0], (x > 0).sum().item() * x


CASES = {
    "cond": (Conditional, [torch.ones(3, 4), -torch.ones(3, 4)]),
    "while_loop": (Loop, [torch.ones(3, 4), 3 * torch.ones(3, 4), 9 * torch.ones(3, 4)]),
    "scan": (Scan, [torch.arange(12.0).view(3, 4)]),
    "regions": (Regions, [torch.arange(12.0).view(3, 4)]),
    "found": (Found, [torch.tensor([[1.0, 0.0], [-2.0, 3.0]]), torch.zeros(2, 2)]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_reference_agrees(name: str) -> None:
    kind, inputs = CASES[name]
    module = kind().eval()
    exported = export_module(module, (inputs[0],), shapes=ShapeSpec())
    graph = import_program(program_of(exported, registry=REGISTRY))
    for x in inputs:
        with torch.no_grad():
            want = torch.utils._pytree.tree_leaves(module(x))
        got = [
            torch.from_numpy(np.array(a if a.dtype.name != "bfloat16" else a.astype(np.float32)))
            for a in evaluate(graph, [x.numpy()])
        ]
        want = [w.float() if w.dtype is torch.bfloat16 else w for w in want]
        assert_same(got, want, 5e-3 if name == "regions" else 2e-6)


@pytest.mark.parametrize("name", ["cond", "while_loop", "scan", "found"])
def test_compiled(name: str) -> None:
    kind, inputs = CASES[name]
    module = kind().eval()
    compiled = gw.compile(module, (inputs[0],), target="cpu:native")
    for x in inputs:
        with torch.no_grad():
            assert_same(compiled(x), module(x))
