"""Ops of a user's own: declared, imported, evaluated, compiled; refused where something lacks."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import parser, save

import graphwright as gw
from graphwright.compiler.custom_ops import load_custom_ops
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.errors import InputError, UnsupportedError
from graphwright.frontends.onnx import import_model

EXAMPLES = str(Path(__file__).parents[2] / "examples")
sys.path.insert(0, EXAMPLES)
example = importlib.import_module("custom_ops")


def model():
    return parser.parse_model(example.MODEL)


def test_compiled_is_the_reference() -> None:
    compiled = gw.compile(model(), custom_ops=example.OPS)
    graph = import_model(model(), registry=REGISTRY.extended(example.OPS))
    for rows in (1, 5):
        x = np.random.default_rng(rows).standard_normal((rows, 6)).astype(np.float32)
        (got,) = compiled(x)
        np.testing.assert_array_equal(got, evaluate(graph, [x])[0])


def test_only_the_compilation_that_declares_them_knows_them() -> None:
    with pytest.raises(UnsupportedError, match=r"com\.acme:SquaredRelu"):
        gw.compile(model())
    assert "squared_relu" not in REGISTRY
    assert gw.check(model(), custom_ops=example.OPS).ok
    assert len(gw.check(model()).problems) == 2


def test_an_op_without_a_kernel_is_named() -> None:
    class Silent(example.RunningMax):
        cpp_source = ""

    ops = (example.SQUARED_RELU, Silent())
    (problem,) = gw.check(model(), custom_ops=ops).problems
    assert problem.op == "running_max"
    with pytest.raises(UnsupportedError, match="running_max"):
        gw.compile(model(), custom_ops=ops)


def test_names_of_modules() -> None:
    assert load_custom_ops("custom_ops:OPS") == example.OPS
    assert load_custom_ops(["custom_ops:SQUARED_RELU"]) == (example.SQUARED_RELU,)
    for text, message in (
        ("custom_ops", "want MODULE:NAME"),
        ("no_such_module:OPS", "cannot be imported"),
        ("custom_ops:NONE", "has no 'NONE'"),
        ("custom_ops:MODEL", "want op declarations"),
    ):
        with pytest.raises(InputError, match=message):
            load_custom_ops(text)


def test_command_line(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save(model(), path)
    command = [sys.executable, "-m", "graphwright", "check", str(path)]

    def exit_code(*more: str) -> int:
        done = subprocess.run([*command, *more], cwd=EXAMPLES, capture_output=True, check=False)
        return done.returncode

    assert exit_code() == 3
    assert exit_code("--custom-ops", "custom_ops:OPS") == 0
