"""Published models: imported and evaluated against ONNX Runtime, three sizes from one graph."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import Feed, models_folder, relative_rms

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.verify import verify
from graphwright.frontends.onnx import check_model, import_model

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from random_weights import with_random_weights
from sample_inputs import MODELS, sample

# Logarithms of near-zero energies, deep normalisations and long recurrences: ONNX Runtime is this
# far from a float64 evaluation of the same graph, which our float32 one meets within 1e-5.
TOLERANCE = {"basic-pitch": 1e-3, "magika": 1e-3, "ppocr-v4-rec": 1e-4}


def model_path(model: str) -> Path:
    found = sorted(p for p in (models_folder() / model).glob("*.onnx") if ".random" not in p.name)
    if not found:
        pytest.skip(f"the model {model} is not in {models_folder()} (scripts/fetch_models.py)")
    return with_random_weights(found[0]) if model.startswith("light-") else found[0]


@pytest.mark.models
@pytest.mark.parametrize("model", MODELS)
def test_model(
    model: str, ort_run: Callable[[onnx.ModelProto | str, Feed], list[np.ndarray]]
) -> None:
    path = model_path(model)
    graph = import_model(path)
    verify(graph)
    shapes = set()
    for size in range(3):
        feed = sample(model, size)
        key = tuple(v.shape for v in feed.values())
        if key in shapes:
            continue
        shapes.add(key)
        for got, want in zip(evaluate(graph, feed), ort_run(str(path), feed), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape)
            assert relative_rms(got, want) < TOLERANCE.get(model, 1e-5)


@pytest.mark.models
def test_a_model_without_problems() -> None:
    path = model_path("ppocr-v4-rec")
    assert check_model(path) == []
