"""ONNX's own backend tests through importer and reference evaluator.

A test that `backend_rules` excludes has to be refused with UnsupportedError: when it starts to
pass, its rule goes.  Where only inputs that set shapes or axes are in the way, the test runs again
with these as constants.  The quick run takes every tenth test.
"""

from __future__ import annotations

import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test
import pytest
from backend_rules import DATA, WRONG, inputs_for_shapes, why_not
from onnx import numpy_helper

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

# Drawn from a generator that the standard does not fix: only types and shapes can be judged.
RANDOM = ("test_bernoulli", "test_training_dropout")
# float16 and bfloat16 results may be two units in the last place away.
TWO_ULP = {"float16": 2e-3, "bfloat16": 1.6e-2}


@lru_cache(maxsize=1)
def node_tests() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(collect_testcases(None), key=lambda c: c.name)


def array_of(value: Any) -> Any:
    if value is None:
        return None
    return (
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)
    )


def freeze(
    model: onnx.ModelProto, names: list[str], sets: list[Any]
) -> tuple[onnx.ModelProto, list[Any]] | None:
    """The test with the inputs that set shapes as initializers; None when that helps nothing."""
    fixed = inputs_for_shapes(model)
    if len(sets) != 1 or not fixed:
        return None
    inputs, outputs = sets[0]
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    for name, value in zip(names, inputs, strict=True):
        if name in fixed:
            array = array_of(value)
            if array is None:
                return None
            frozen.graph.initializer.append(numpy_helper.from_array(array, name))
    kept = [i for i in model.graph.input if i.name not in fixed]
    del frozen.graph.input[:]
    frozen.graph.input.extend(kept)
    if why_not(frozen):
        return None
    rest = [v for n, v in zip(names, inputs, strict=True) if n not in fixed]
    return frozen, [(rest, outputs)]


def problem_with(
    name: str, model: onnx.ModelProto, sets: list[Any], rtol: float, atol: float
) -> str:
    """What is wrong with one test, or ""."""
    excluded = why_not(model)
    held = {t.name for t in model.graph.initializer}
    names = [i.name for i in model.graph.input if i.name not in held]
    try:
        graph = import_model(model)
    except UnsupportedError as e:
        if not excluded:
            return f"{name}: {e}"
        if excluded == DATA and (frozen := freeze(model, names, sets)):
            return problem_with(f"{name} (frozen)", *frozen, rtol, atol)
        return ""
    if excluded:
        return f"{name}: passes the importer now, but is excluded: {excluded}"
    for inputs, outputs in sets:
        feed = {n: a for n, v in zip(names, inputs, strict=False) if (a := array_of(v)) is not None}
        got = evaluate(graph, {n: feed[n] for n in names if n in feed})
        for g, w in zip(got, map(array_of, outputs), strict=True):
            if (g.dtype, g.shape) != (w.dtype, w.shape):
                return f"{name}: {g.dtype}{list(g.shape)}, want {w.dtype}{list(w.shape)}"
            if name.startswith(RANDOM) and "zero_ratio" not in name:
                continue
            wide = np.complex128 if w.dtype.kind == "c" else np.float64
            if w.dtype.kind in "biu":
                near = np.array_equal(g, w)
            else:
                tolerance = max(rtol, TWO_ULP.get(w.dtype.name, 0))
                # Where sums of roots of unity cancel, the stored answers hold exact zeros.
                least = 1e-6 * np.abs(w).max() if name.startswith(("test_dft", "test_stft")) else 0
                near = np.allclose(
                    g.astype(wide), w.astype(wide), tolerance, max(atol, least), equal_nan=True
                )
            if near == (name.removesuffix(" (frozen)") in WRONG):
                return f"{name}: {np.asarray(g).reshape(-1)[:6]}, want {w.reshape(-1)[:6]}"
    return ""


def check(part: slice) -> None:
    cases = node_tests()[part]
    assert cases
    found = [problem_with(c.name, c.model, c.data_sets, c.rtol, c.atol) for c in cases]
    assert not any(found), "\n".join(filter(None, found))


def test_a_tenth_of_the_node_tests() -> None:
    check(slice(3, None, 10))


@pytest.mark.slow
@pytest.mark.parametrize("part", [i for i in range(10) if i != 3])
def test_the_other_node_tests(part: int) -> None:
    check(slice(part, None, 10))


def stored_tests() -> list[Path]:
    folder = Path(onnx.backend.test.__file__).parent / "data"
    return sorted(
        p for kind in ("pytorch-*", "simple") for p in folder.glob(f"{kind}/*/model.onnx")
    )


def test_stored_models() -> None:
    """Opset 6 and 9 files that other exporters made."""
    found: list[str] = []
    for path in stored_tests()[::3]:
        model = onnx.load(path, load_external_data=False)
        sets = []
        for folder in sorted(path.parent.glob("test_data_set_*")):
            if why_not(model):
                continue
            sets.append(
                [
                    [
                        onnx.load_tensor(folder / f"{kind}_{i}.pb")
                        for i in range(len(list(folder.glob(f"{kind}_*.pb"))))
                    ]
                    for kind in ("input", "output")
                ]
            )
        found.append(problem_with(path.parent.name, model, sets, 1e-3, 1e-6))
    assert not any(found), "\n".join(filter(None, found))
