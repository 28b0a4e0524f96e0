"""Modules compiled through torch.export and through the hook, compared with eager."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from torch_modules import ConvNet, Counter, Encoder, Perceptron, assert_same  # noqa: E402

import graphwright as gw  # noqa: E402

TARGET = "cpu:native"
MODULES = {
    "perceptron": (Perceptron, lambda n: (torch.randn(n, 16),), {"x": "Bx16"}),
    "conv": (ConvNet, lambda n: (torch.randn(n, 3, 16, 16),), {"x": "Bx3x16x16"}),
    "encoder": (Encoder, lambda n: (torch.randint(0, 50, (2, 5 + n)),), {"ids": "2xS[1..64]"}),
}


@pytest.mark.parametrize("name", MODULES)
def test_export_with_a_dynamic_axis(name: str) -> None:
    kind, make, shapes = MODULES[name]
    module = kind().eval()
    compiled = gw.compile(module, make(2), shapes=shapes, target=TARGET)
    for n in (2, 4, 1):
        inputs = make(n)
        with torch.no_grad():
            assert_same(compiled(*inputs), module(*inputs))


@pytest.mark.parametrize("name", MODULES)
def test_hook(name: str) -> None:
    kind, make, _ = MODULES[name]
    module = kind().eval()
    compiled = torch.compile(module, backend="graphwright", fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            inputs = make(2)
            assert_same(compiled(*inputs), module(*inputs))


def test_gradients_are_refused() -> None:
    compiled = torch.compile(Perceptron().eval(), backend="graphwright")
    with pytest.raises(Exception, match=r"needs gradients.*no_grad"):
        compiled(torch.randn(2, 16))


def test_weights_changed_after_compiling() -> None:
    module = Perceptron().eval()
    compiled = torch.compile(module, backend="graphwright")
    x = torch.randn(2, 16)
    with torch.no_grad():
        compiled(x)
        module.second.weight.mul_(2)
        assert_same(compiled(x), module(x))


def test_state_is_kept_saved_and_reset(tmp_path) -> None:
    module = Counter().eval()
    compiled = gw.compile(module, (torch.zeros(2, 3),), target=TARGET)
    compiled.save(tmp_path / "counter.gw")
    eager = Counter().eval()
    for model in (compiled, gw.load(tmp_path / "counter.gw")):
        eager.total.zero_()
        for _ in range(3):
            x = torch.randn(2, 3)
            assert_same(model(x), eager(x))
        assert_same(torch.from_numpy(model.state()["total"]), eager.total)
        model.reset_state()
        assert not model.state()["total"].any()
        model.reset_state({"total": torch.ones(3)})
        eager.total.fill_(1)
        assert_same(model(x), eager(x))


def test_an_unsupported_op_is_named_with_its_line() -> None:
    class Bad(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x), torch.special.i0(x)

    with pytest.raises(gw.UnsupportedError) as caught:
        gw.compile(Bad().eval(), (torch.eye(3),))
    reasons = [str(p) for p in caught.value.problems]
    assert len(reasons) == 2 and "test_modules.py" in reasons[0]
