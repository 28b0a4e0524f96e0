from __future__ import annotations

from pathlib import Path

import pytest
from command_line import Invoke, Result, save_model
from onnx import helper

from graphwright.compiler.cli.command import execute


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command line in this process, in plain text."""
    monkeypatch.setenv("NO_COLOR", "1")

    def invoke(*arguments: object) -> Result:
        capsys.readouterr()
        code = execute([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return invoke


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cli")


@pytest.fixture(scope="session")
def model(folder: Path) -> Path:
    """relu(x @ w), x of N rows."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Relu", ["m"], ["y"], name="positive"),
    ]
    return save_model(folder / "small.onnx", nodes)


@pytest.fixture(scope="session")
def unsupported(folder: Path) -> Path:
    """Two nodes that nobody knows."""
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first", domain="com.example"),
        helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
        helper.make_node("Twist", ["m"], ["b"], name="second", domain="com.example"),
        helper.make_node("Relu", ["m"], ["y"], name="positive"),
    ]
    return save_model(folder / "unsupported.onnx", nodes)


@pytest.fixture(scope="session")
def artifact(folder: Path, model: Path) -> Path:
    path = folder / "small.gw"
    arguments = ["compile", model, "-o", path, "--cache-dir", folder / "cache", "-q"]
    assert execute([str(a) for a in arguments]) == 0
    return path
