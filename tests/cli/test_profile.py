"""bench --profile: every launch is timed once a run, bytes and FLOPs are those of its ops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphwright import compilation
from graphwright.compiler.cli.command import execute
from graphwright.compiler.machine import Machine
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.profile import LaunchProfile


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    weights = [numpy_helper.from_array(np.ones((16, 32), np.float32), "w")]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Softmax", ["a"], ["y"], name="softmax"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 32])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path_factory.mktemp("profile") / "small.gw"
    compilation.build(model, CompileOptions.make()).artifact.write(path)
    onnx.save(model, path.with_suffix(".onnx"))
    return path


def test_profile(artifact: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chrome = tmp_path / "chrome.json"
    arguments = ["bench", str(artifact), "--profile", "--duration", "50ms", "--shape", "N=8"]
    assert execute([*arguments, "--json", "-", "--chrome-trace", str(chrome)]) == 0
    facts = json.loads(capsys.readouterr().out)
    by_flops = {row["flops"]: row for row in facts["launches"]}
    assert set(by_flops) == {0, 2 * 8 * 16 * 32}
    product = by_flops[2 * 8 * 16 * 32]
    assert product["bytes"] == 4 * (8 * 16 + 16 * 32 + 8 * 32)
    assert by_flops[0]["bytes"] == 2 * 4 * 8 * 32
    assert "product" in product["layers"] and product["runs"] == 1
    assert all(row["seconds"] > 0 and row["roofline"] > 0 for row in facts["launches"])
    assert facts["explained"] == pytest.approx(sum(r["seconds"] for r in facts["launches"]))
    events = json.loads(chrome.read_text())["traceEvents"]
    assert [e["name"] for e in events] == [r["kernel"] for r in facts["launches"]]


def test_table(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(artifact.with_suffix(".onnx"))
    assert execute(["bench", model, "--profile", "--duration", "50ms"]) == 0
    out = capsys.readouterr().out
    assert "GB/s" in out and "softmax" in out and "between them; medians of" in out


def test_roofline_is_the_larger_bound() -> None:
    launch = LaunchProfile(0, "k", (), (), 1.0, 1, 500, 100)
    assert launch.roofline(Machine(flops=1000, bandwidth=1000)) == 0.5
    assert launch.roofline(Machine(flops=125, bandwidth=1000)) == 0.8


@pytest.mark.parametrize("more", [["--baseline", "ort"], ["--chrome-trace", "x.json"]])
def test_what_is_refused(artifact: Path, more: list[str]) -> None:
    profile = ["--profile"] if more[0] == "--baseline" else []
    assert execute(["bench", str(artifact), *profile, *more]) == 2
