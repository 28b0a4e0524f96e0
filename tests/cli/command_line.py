"""What the tests of the command line share: a result, and a small model to make."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WEIGHT = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)


class Result(NamedTuple):
    """What a command line ended with and printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Invoke = Callable[..., Result]


def save_model(path: Path, nodes: list[onnx.NodeProto]) -> Path:
    """x [N, 8] and the 8x4 matrix w to y."""
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets), path)
    return path


def expected(x: np.ndarray) -> np.ndarray:
    """What the small model computes, in float64."""
    return np.maximum(x.astype(np.float64) @ WEIGHT, 0)
