"""What the ONNX frontend's tests share: models from text, evaluated; how far results are apart."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import parser

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.verify import verify
from graphwright.frontends.onnx import import_model

Feed = Mapping[str, np.ndarray]


def model_of(text: str, opset: int = 17, ir_version: int = 8) -> onnx.ModelProto:
    """`agraph (float[2] x) => (float[2] y) { y = Relu(x) }` as a model."""
    header = f'<ir_version: {ir_version}, opset_import: ["" : {opset}]>\n'
    return parser.parse_model(header + text)


def imported(model: onnx.ModelProto, **options: object) -> Graph:
    graph = import_model(model, **options)
    verify(graph)
    return graph


def run(model: onnx.ModelProto, feed: Feed) -> list[np.ndarray]:
    return evaluate(imported(model), feed)


def relative_rms(got: np.ndarray, want: np.ndarray) -> float:
    """||got - want|| / ||want||; NaN in either makes it NaN, which no comparison passes."""
    difference = np.asarray(got, np.float64) - np.asarray(want, np.float64)
    return float(
        np.sqrt((difference**2).sum()) / (np.sqrt((want.astype(np.float64) ** 2).sum()) + 1e-30)
    )


def models_folder() -> Path:
    return Path(os.environ.get("GRAPHWRIGHT_MODELS", Path(__file__).parents[3] / "models"))
