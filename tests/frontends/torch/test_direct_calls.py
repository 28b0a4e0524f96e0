"""Core overloads that op_db's samples do not call by that name: called directly, evaluated and compiled."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch")

from op_samples import Call, difference, import_traced, run_reference, trace_call  # noqa: E402

from graphwright.compiler.driver import compile_batch  # noqa: E402
from graphwright.frontends.torch.tensors import array_of  # noqa: E402
from graphwright.runtime import load  # noqa: E402
from graphwright.runtime.interop import array_to_tensor  # noqa: E402

sys.path.append(str(Path(__file__).parents[2] / "backend"))
from backend_run import quick_options  # noqa: E402

aten = torch.ops.aten
X = torch.linspace(-3, 3, 24).view(4, 6)
IMAGE = torch.linspace(-2, 2, 2 * 3 * 8 * 8).view(2, 3, 8, 8).sin()
VOLUME = torch.linspace(-2, 2, 2 * 3 * 4 * 4 * 4).view(2, 3, 4, 4, 4).cos()
WHOLE = torch.arange(-12, 12).view(4, 6)
INDEX = torch.tensor([[0, 2, 1, 3, 0, 2]])
OFFSETS, BAG = torch.tensor([0, 2, 5]), torch.tensor([0, 3, 1, 1, 2, 0, 3])
STATISTICS = torch.tensor([0.1, -0.2, 0.3]), torch.tensor([1.0, 2.0, 0.5])

# Overload: (arguments, of which tensors are those of the call).
CALLS: dict[str, tuple[Any, ...]] = {
    "_embedding_bag.default": (X, BAG, OFFSETS, False, 1),
    "_native_batch_norm_legit.default": (IMAGE, None, None, *STATISTICS, False, 0.1, 1e-5),
    "_native_batch_norm_legit.no_stats": (IMAGE, None, None, True, 0.1, 1e-5),
    "alias.default": (X,),
    "any.dims": (X > 2.5, [0, 1], True),
    "bitwise_and.Scalar": (WHOLE, 6),
    "bitwise_not.default": (WHOLE,),
    "bitwise_or.Scalar": (WHOLE, 5),
    "bitwise_xor.Scalar": (WHOLE, 3),
    "bitwise_xor.Tensor": (WHOLE, WHOLE + 3),
    "col2im.default": (torch.ones(1, 12, 16).cumsum(2), [5, 5], [2, 2], [1, 1], [0, 0], [1, 1]),
    "div.Scalar_mode": (X, 0.7, "floor"),
    "eq.Scalar": (WHOLE, 3),
    "fmod.Scalar": (X, 0.7),
    "ge.Scalar": (X, 0.5),
    "gt.Scalar": (X, 0.5),
    "index.Tensor": (X, [INDEX[0, :4], INDEX[0, :4]]),
    "le.Scalar": (X, 0.5),
    "lt.Scalar": (X, 0.5),
    "pow.Scalar": (2.0, X),
    "reflection_pad2d.default": (IMAGE, [1, 2, 0, 3]),
    "reflection_pad3d.default": (VOLUME, [1, 2, 0, 3, 1, 1]),
    "remainder.Scalar": (X, -0.7),
    "replication_pad2d.default": (IMAGE, [1, 2, 0, 3]),
    "replication_pad3d.default": (VOLUME, [1, 2, 0, 3, 1, 1]),
    "scatter.value": (X, 0, INDEX, 7.0),
    "sub.Scalar": (X, 1.5, 2),
    "upsample_bilinear2d.vec": (IMAGE, None, False, [1.5, 2.0]),
    "upsample_nearest2d.vec": (IMAGE, None, [1.5, 2.0]),
    "var.dim": (X, [1], False, True),
}  # fmt: skip

# What torch's functionalisation makes of some of them before anybody else sees them.
BECOMES = {
    "_native_batch_norm_legit.default": "_native_batch_norm_legit_functional.default",
    "upsample_bilinear2d.vec": "upsample_bilinear2d.default",
    "upsample_nearest2d.vec": "upsample_nearest2d.default",
    "var.dim": "var.correction",
}


def call_of(name: str) -> Call:
    base, _, overload = name.partition(".")
    op = getattr(getattr(aten, base), overload)
    arguments = CALLS[name]
    places = [i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor)]
    held = [a for a in arguments if isinstance(a, list) and isinstance(a[0], torch.Tensor)]

    def run(*tensors: torch.Tensor) -> list[torch.Tensor]:
        given = list(arguments)
        for place, tensor in zip(places, tensors, strict=False):
            given[place] = tensor
        if held:
            given[1] = list(tensors[len(places) :])
        named = [
            (a.name, v) for a, v in zip(op._schema.arguments, given, strict=False) if a.kwarg_only
        ]
        out = op(*given[: len(given) - len(named)], **dict(named))
        # Beyond the first, what these return is for the gradient.
        return [out if isinstance(out, torch.Tensor) else out[0]]

    function: Callable[..., Any] = run
    return Call(name, function, (*[arguments[i] for i in places], *(held[0] if held else ())))


@pytest.fixture(scope="module")
def compiled() -> dict[str, Any]:
    """(call, graph, overloads seen, model) by name, all in one library."""
    made = {}
    for name in CALLS:
        call = call_of(name)
        made[name] = (call, *import_traced(trace_call(call), call))
    options = quick_options(True)
    artifacts = compile_batch([m[1] for m in made.values()], options.target, options)
    models = [a if isinstance(a, Exception) else load(a.to_bytes(), threads=1) for a in artifacts]
    return {n: (*m, model) for (n, m), model in zip(made.items(), models, strict=True)}


@pytest.mark.parametrize("name", CALLS)
def test_call(compiled, name: str) -> None:
    call, graph, ops, model = compiled[name]
    assert BECOMES.get(name, name) in ops, ops
    want = call.function(*call.tensors)
    assert difference(run_reference(graph, call.tensors), want) == ""
    got = model._call([array_of(t) for t in call.tensors], None)
    assert difference([array_to_tensor(g.copy()) for g in got], want) == ""
