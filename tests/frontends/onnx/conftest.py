"""ONNX Runtime as the judge of imported models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest

Feed = Mapping[str, np.ndarray]


@pytest.fixture(scope="session")
def ort_run() -> Callable[[onnx.ModelProto, Feed], list[np.ndarray]]:
    """The outputs that ONNX Runtime computes without optimisations."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    def run(model: onnx.ModelProto | str, feed: Feed) -> list[np.ndarray]:
        plain = model if isinstance(model, str) else model.SerializeToString()
        session = ort.InferenceSession(plain, options, providers=["CPUExecutionProvider"])
        return session.run(None, dict(feed))

    return run
