"""`graphwright check`: all problems at once, as a table and as JSON, of the import and of kernels."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import Invoke
from onnx import TensorProto, helper, numpy_helper

import graphwright as gw

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from scaling_models import MODELS


def bad_model() -> onnx.ModelProto:
    """Two problems of the import, and two ops that only code generation refuses."""
    weight = np.random.default_rng(0).random((2, 3, 2, 1, 1, 1)).astype(np.float32)
    double = [
        numpy_helper.from_array(np.zeros((1, 16, n), np.float64), name)
        for n, name in ((3, "w"), (4, "r"))
    ]
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="foo"),
        helper.make_node("Relu", ["a"], ["b"], name="after_foo"),
        helper.make_node("Elu", ["x"], ["d"], name="elu", speed=9.0),
        helper.make_node("Conv", ["images", "weight"], ["c"], name="conv"),
        helper.make_node("LSTM", ["s", "w", "r"], ["l"], name="lstm", hidden_size=4),
        helper.make_node("Relu", ["x"], ["fine"], name="relu"),
    ]
    graph = helper.make_graph(
        nodes,
        "bad",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
            helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 4, 4, 4, 4]),
            helper.make_tensor_value_info("s", TensorProto.DOUBLE, [5, 1, 3]),
        ],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "bdc"]
        + [
            helper.make_tensor_value_info("l", TensorProto.DOUBLE, None),
            helper.make_tensor_value_info("fine", TensorProto.FLOAT, None),
        ],
        [numpy_helper.from_array(weight, "weight"), *double],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def test_problems_of_import_and_kernels_come_together(tmp_path: Path, cli: Invoke) -> None:
    path = tmp_path / "bad.onnx"
    onnx.save(bad_model(), path)
    ended = cli("check", path, "--json", tmp_path / "report.json")
    assert ended.code == 3
    report = json.loads((tmp_path / "report.json").read_text())
    found = {p["node"]: p for p in report["problems"]}
    assert set(found) == {"foo", "elu", "conv", "lstm"}
    assert not report["ok"]
    assert found["elu"]["attribute"] == "speed"
    assert all(p["version"] == 17 and p["reason"] for p in found.values())
    assert found["foo"]["fix"].startswith("replace it")
    assert "spatial axes" in found["conv"]["reason"]
    assert all(word in ended.out for word in ("foo", "Foo-17", "speed", "lstm"))


def test_check_agrees_with_compile() -> None:
    """What only code generation refuses is in the report, word for word."""
    model = bad_model()
    del model.graph.node[:3]
    del model.graph.output[:2]
    with pytest.raises(gw.UnsupportedError) as refused:
        gw.compile(model)
    told = [(p.node, p.reason) for p in gw.check(model).problems]
    assert told == [(p.node, p.reason) for p in refused.value.problems] != []


@pytest.mark.parametrize("kind", ["layers", "shapes", "convolutions", "quantized"])
def test_check_of_three_thousand_nodes_is_quick(kind: str) -> None:
    data = MODELS[kind](3000).SerializeToString()
    gw.check(MODELS[kind](50))  # imports
    start = time.process_time()
    assert gw.check(data).ok
    # Two seconds on an idle machine; what other processes do to a core's speed is not ours.
    assert time.process_time() - start < 6
