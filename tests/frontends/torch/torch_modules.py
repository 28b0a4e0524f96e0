"""Small modules of the usual kinds, and how results are compared."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Linear(32, 8)

    def forward(self, x):
        return {"y": self.second(nn.functional.gelu(self.first(x)))}


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, 2), nn.GroupNorm(4, 16), nn.SiLU(), nn.AdaptiveAvgPool2d(1),
            nn.Flatten(), nn.Linear(16, 10),
        )  # fmt: skip

    def forward(self, x):
        return self.layers(x), x.mean()


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.embed = nn.Embedding(50, 32)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids):
        return self.layers(self.embed(ids)).softmax(-1)


class Counter(nn.Module):
    """State: a total that every call adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total.add_(x.sum(0))
        return self.total * 2, [x + 1, None, 7]


def assert_same(got: Any, want: Any, tolerance: float = 2e-6) -> None:
    """Equal structure, types, shapes; values within a relative distance, NaN equal to NaN."""
    got_leaves, got_spec = pytree.tree_flatten(got)
    want_leaves, want_spec = pytree.tree_flatten(want)
    assert got_spec == want_spec
    for g, w in zip(got_leaves, want_leaves, strict=True):
        if not isinstance(w, torch.Tensor):
            assert type(g) is type(w) and g == w
            continue
        assert g.dtype == w.dtype and g.shape == w.shape
        if not w.dtype.is_floating_point:
            assert torch.equal(g, w)
            continue
        g, w = g.double(), w.double()
        assert torch.equal(g.isnan(), w.isnan())
        assert torch.equal(g.isinf() * g.sign(), w.isinf() * w.sign())
        finite = w.isfinite()
        distance = (g - w)[finite].norm()
        assert distance <= tolerance * w[finite].norm().clamp_min(1e-30) + 1e-12, float(distance)
