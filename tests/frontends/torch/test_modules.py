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


class Cache(torch.nn.Module):
    """Two writes to an argument, one by a slice and one by an index tensor."""

    def forward(self, cache, place, new):
        cache[:, 2:4] = new
        cache.index_copy_(1, place, new)
        return cache * 2


def test_updates_of_arguments_are_made_in_place() -> None:
    def inputs():
        return torch.arange(24.0).view(2, 6, 2), torch.tensor([5, 0]), torch.ones(2, 2, 2)

    module = Cache().eval()
    exported = gw.compile(module, inputs(), target=TARGET)
    hooked = torch.compile(module, backend="graphwright", fullgraph=True)
    for compiled in (exported, hooked):
        mine, eager = inputs(), inputs()
        with torch.no_grad():
            for _ in range(2):
                version = mine[0]._version
                assert_same(compiled(*mine), module(*eager))
                assert_same(mine[0], eager[0])
        if compiled is hooked:
            assert mine[0]._version > version
            manifest = gw.report(hooked).graphs[0].models[0].manifest
        else:
            manifest = exported.manifest
        assert 0 in [t.in_place for t in manifest.outputs]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.add_(1).mul_(2),
        lambda x: (x.add_(1), x * 2, x[1:], x),
        lambda x: x.add_(1).view(2, 2),
    ],
    ids=["itself", "among others", "a view"],
)
def test_an_updated_argument_is_returned(function) -> None:
    hooked = torch.compile(function, backend="graphwright", fullgraph=True)
    mine, eager = torch.ones(4), torch.ones(4)
    got, want = hooked(mine), function(eager)
    assert_same(got, want)
    assert_same(mine, eager)
    (got[0] if isinstance(got, tuple) else got).fill_(7)
    assert mine.tolist() == [7] * 4  # as in eager, what is returned is the argument's memory


def test_report_and_save(tmp_path) -> None:
    def broken(x):
        y = x * 2
        torch._dynamo.graph_break()
        return y.exp()

    compiled = torch.compile(broken, backend="graphwright")
    with torch.no_grad():
        compiled(torch.ones(3))
    report = gw.report(compiled)
    assert len(report.graphs) == 2 and "graph_break" in report.breaks[0]
    assert "1 kernels" in str(report)
    with pytest.raises(gw.InputError, match="2 graphs"):
        gw.save(compiled, tmp_path / "no.gw")
    module = Perceptron().eval()
    whole = torch.compile(module, backend="graphwright")
    x = torch.randn(4, 16)
    with torch.no_grad():
        want = whole(x)
    gw.save(whole, tmp_path / "whole.gw")
    assert_same(gw.load(tmp_path / "whole.gw")(x), want["y"])


def test_unsupported_ops_run_in_eager_when_allowed() -> None:
    def function(x):
        return torch.special.i0(x.relu()).sum(0) + 1

    x = torch.randn(4, 8)
    compiled = torch.compile(function, backend="graphwright", options={"allow": ["eager"]})
    with torch.no_grad():
        assert_same(compiled(x), function(x))
    assert [p.op for p in gw.report(compiled).eager] == ["i0.default"]
    strict = torch.compile(function, backend="graphwright")
    torch._dynamo.reset()
    with torch.no_grad(), pytest.raises(gw.UnsupportedError, match=r"i0\.default"):
        strict(x)


def test_an_unsupported_op_is_named_with_its_line() -> None:
    class Bad(torch.nn.Module):
        def forward(self, x):
            return torch.linalg.eigvalsh(x), torch.special.i0(x)

    with pytest.raises(gw.UnsupportedError) as caught:
        gw.compile(Bad().eval(), (torch.eye(3),))
    reasons = [str(p) for p in caught.value.problems]
    assert len(reasons) == 2 and "test_modules.py" in reasons[0]


def test_the_command_line_takes_exported_programs(tmp_path) -> None:
    from graphwright.compiler.cli.command import execute

    path = tmp_path / "perceptron.pt2"
    torch.export.save(torch.export.export(Perceptron().eval(), (torch.randn(4, 16),)), path)
    for command in ("check", "verify", "bench --warmup 10ms --duration 20ms", "inspect"):
        name, *options = command.split()
        assert execute([name, str(path), *options]) == 0, command


class Halved(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2, 2, ceil_mode=True) * x.shape[-1]


def test_inputs_that_show_multiples_of_a_size() -> None:
    """An extent of 2 * half: the symbol of the signature is the product."""
    module = Halved().eval()
    extent = 2 * torch.export.Dim("half", min=1, max=50)
    compiled = gw.compile(
        module, (torch.randn(1, 3, 4, 20),), dynamic_shapes={"x": {3: extent}}, target=TARGET
    )
    for n in (20, 2, 66):
        x = torch.randn(1, 3, 4, n)
        assert_same(compiled(x), module(x))
    with pytest.raises(gw.InputError, match="multiple of 2"):
        compiled(torch.randn(1, 3, 4, 7))
