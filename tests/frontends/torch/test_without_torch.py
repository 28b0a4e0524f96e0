"""Who compiles ONNX models needs no torch; who brings a torch program without it is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx
from onnx import TensorProto, helper

HIDE = """
import sys
for name in ("torch", "sympy", "triton"):
    sys.modules[name] = None
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", HIDE + code], cwd=folder, capture_output=True, text=True
    )


def test_onnx_models_compile_without_torch(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    done = run(
        "from graphwright.compiler.cli.command import execute\n"
        "for command in (['check', 'm.onnx'], ['compile', 'm.onnx', '-o', 'm.gw'],\n"
        "                ['verify', 'm.onnx'], ['viz', 'm.gw']):\n"
        "    assert execute(command) == 0, command\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def test_a_torch_program_without_torch(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"PK")
    done = run(
        "from graphwright.compiler.cli.command import execute\n"
        "assert execute(['compile', 'm.pt2']) == 2\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "pip install 'graphwright[torch]'" in done.stderr
