"""Every command of docs/debugging.md works, in order, on a small model."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphwright import errors
from graphwright.compiler.cli.command import execute
from graphwright.compiler.cli.explain import ADVICE
from graphwright.errors import GraphwrightError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "debugging.md"


def small_model() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3), np.float32), "k"),
        numpy_helper.from_array(rng.standard_normal((4, 5), np.float32), "w"),
    ]
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], name="/stem/Conv"),
        helper.make_node("Relu", ["c"], ["r"], name="/stem/Relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="/pool/Mean"),
        helper.make_node("Flatten", ["p"], ["f"], name="/head/Flatten"),
        helper.make_node("MatMul", ["f", "w"], ["y"], name="/head/MatMul"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_the_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(small_model(), "model.onnx")
    Path("looks_for.py").write_text(
        "import sys; sys.exit(b'GlobalAveragePool' in open(sys.argv[1], 'rb').read())\n"
    )
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(commands) > 8
    for line in commands:
        program, *arguments = shlex.split(line)
        assert program == "graphwright"
        assert execute(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    assert Path("model.html").stat().st_size > 10_000
    assert "explained" in Path("measured.html").read_text()
    assert [n.op_type for n in onnx.load("small.onnx").graph.node] == ["GlobalAveragePool"]
    capsys.readouterr()


def test_every_error_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in vars(errors).items():
        if isinstance(value, type) and issubclass(value, GraphwrightError):
            if value is GraphwrightError:
                continue
            assert value.exit_code in ADVICE and value.__doc__, name
            assert execute(["explain", name]) == 0
            assert execute(["explain", str(value.exit_code)]) == 0
            assert name in capsys.readouterr().out
    root = PAGE.parents[1]
    families = {
        n for n, v in vars(errors).items() if isinstance(v, type) and issubclass(v, Exception)
    }
    for folder in ("compiler", "runtime", "frontends", "graphwright"):
        for file in (root / folder).rglob("*.py"):
            for name, base in re.findall(r"^class (\w+)\((\w+)\b", file.read_text(), re.MULTILINE):
                if base in families and base != "Exception":
                    families.add(name)
                    assert execute(["explain", name]) == 0, f"{file}: {name} is not explained"
    command = (root / "compiler" / "cli" / "command.py").read_text()
    codes = {int(c) for c in re.findall(r"(?:return|INTERRUPTED =) (\d+)$", command, re.MULTILINE)}
    assert {2, 4, 7, 130} <= codes
    for code in codes | {0, 1}:
        assert execute(["explain", str(code)]) == 0
    assert execute(["explain"]) == 0
    assert execute(["explain", "UnsuportedError"]) == 2
    assert "did you mean 'UnsupportedError'" in capsys.readouterr().err


@pytest.mark.slow
def test_the_walk_on_a_catalogue_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same commands on a real model, but those that compare with another run of a minute."""
    models = Path(os.environ.get("GRAPHWRIGHT_MODELS", PAGE.parents[1] / "models"))
    found = sorted((models / "ppocr-v4-rec").glob("*.onnx"))
    if not found:
        pytest.skip("the catalogue's models are not here: set GRAPHWRIGHT_MODELS")
    monkeypatch.chdir(tmp_path)
    Path("model.onnx").symlink_to(found[0])
    shape = ["--shape", "x:1x3x48x320"]
    for line in (
        "verify model.onnx --bisect node",
        "verify model.onnx --bisect rewrite",
        "compile model.onnx -o model.gw --trace model.trace",
        "bench model.gw --profile --duration 100ms --json profile.json",
        "verify model.onnx --layers --json errors.json",
        "viz model.trace --profile profile.json --errors errors.json -o measured.html",
    ):
        arguments = shlex.split(line)
        if arguments[0] in ("verify", "compile"):
            arguments += shape
        assert execute(arguments) == 0, f"{line}\n{capsys.readouterr().err}"
    assert Path("measured.html").stat().st_size > 100_000
    capsys.readouterr()
