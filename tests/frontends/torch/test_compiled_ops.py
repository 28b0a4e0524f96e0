"""Ops of every family through kernels, in one build: a module that calls them all."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from torch.nn import functional as F  # noqa: E402
from torch_modules import assert_same  # noqa: E402

import graphwright as gw  # noqa: E402


class Everything(torch.nn.Module):
    def forward(self, x, image, index, whole, flags):
        y = x.t().contiguous().t()
        return {
            "arithmetic": [x + 2 * y, x - whole, x / (y.abs() + 1), x % 0.7, x // 0.3, 2**x, -x],
            "integers": [whole // 3, whole % 5, whole << 1, whole & 6, ~whole, whole.abs().sum(0)],
            "small": [whole.to(torch.uint8) + 250, whole.half() * 0.5, x.bfloat16().float()],
            "logic": [flags & (x > 0), ~flags, flags.any(0), flags.all(1), x.isnan()],
            "functions": [x.atan2(y + 1), x.erf(), x.abs().log2(), x.exp().log1p(), x.round(), x.sign()],
            "activations": [F.gelu(x), F.silu(x), F.elu(x), F.softplus(x), F.hardswish(x), F.glu(x)],
            "sums": [x.sum(), x.mean(0), x.var(1), x.std(), x.amax(1), x.prod(0), x.logsumexp(1)],
            "order": [x.sort(1).values, x.topk(2, 1), x.argmax(1), x.cumsum(0), x.cummax(1)],
            "norms": [x.softmax(0), x.log_softmax(1), F.layer_norm(x, (6,)), F.group_norm(image, 2)],
            "movement": [x.flip(0), x.roll(1, 1), x.repeat(2, 1), x[:, ::2], x.unfold(1, 3, 2), x.tril()],
            "reads": [x[index], x[:, index], x.gather(1, index[:, None].expand(4, 2)), x.diagonal()],
            "writes": [
                x.index_copy(0, index[:1], x[:1] * 2), x.index_add(1, index, x[:, :4]),
                x.scatter(1, index[:, None], 7.0), x.masked_fill(flags, -1.0),
            ],
            "products": [x @ y.T, F.linear(x, y), torch.einsum("ij,kj->ik", x, y)],
            "images": [
                F.max_pool2d(image, 2), F.avg_pool2d(image, 2), F.interpolate(image, scale_factor=2.0),
                F.interpolate(image, size=(5, 7), mode="bilinear"), F.pad(image, (1, 2, 0, 1), "reflect"),
                F.adaptive_avg_pool2d(image, (2, 3)), F.pixel_shuffle(image, 2),
            ],
            "empty": [x[:0].sum(0), torch.cat([x[:0], x]), x[:, :0] @ y[:, :0].T, x.new_zeros(0)],
            "scalars": [x[0, 0] + whole[0, 0], torch.tensor(3) * x.sum(), x.shape[0]],
        }  # fmt: skip


def test_everything() -> None:
    inputs = (
        torch.randn(4, 6), torch.randn(2, 4, 8, 8), torch.tensor([3, 0, 2, 1]),
        torch.randint(-9, 9, (4, 6)), torch.rand(4, 6) < 0.5,
    )  # fmt: skip
    module = Everything().eval()
    compiled = gw.compile(module, inputs, target="cpu:native")
    want = module(*inputs)
    got = compiled(*inputs)
    for family, values in want.items():
        # torch's named tuples come back as tuples or dicts.
        mine = torch.utils._pytree.tree_leaves(got[family])
        assert_same(mine, torch.utils._pytree.tree_leaves(values), 4e-6)
