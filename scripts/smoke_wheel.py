"""Builds the wheel, installs it into a fresh environment and uses it there.

What it shows: the wheel holds every package, the console script works, a model compiles and runs,
and an artifact runs where neither onnx nor the compiler nor a PATH is to be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

MODEL = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
rng = np.random.default_rng(0)
weight = rng.standard_normal((8, 4)).astype(np.float32)
graph = helper.make_graph(
    [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Relu", ["m"], ["y"])],
    "smoke",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 4])],
    [numpy_helper.from_array(weight, "w")],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "smoke.onnx")
x = rng.standard_normal((3, 8)).astype(np.float32)
np.savez("in.npz", x=x)
np.save("want.npy", np.maximum(x.astype(np.float64) @ weight, 0))
"""

DEPLOYED = """
import sys
for name in ("onnx", "click", "rich", "graphwright.compiler", "graphwright.frontends"):
    sys.modules[name] = None  # an import of these fails
import numpy as np
import graphwright as gw
model = gw.load("smoke.gw")
(y,) = model(np.load("in.npz")["x"])
want = np.load("want.npy")
assert np.linalg.norm(y - want) <= 1e-6 * np.linalg.norm(want), (y, want)
(y,) = model(np.zeros((5, 8), np.float32))
assert y.shape == (5, 4) and not y.any()
"""


def run(command: list[str | Path], folder: Path, env: dict[str, str] | None = None) -> str:
    """Runs a command; its stdout.  Ends the process with all it said when it fails."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        # From a copy: a build folder of earlier builds could lend files that the tree no longer has.
        source = folder / "source"
        names = ("compiler", "runtime", "frontends", "graphwright")
        for name in names:
            shutil.copytree(
                ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        pip: list[str | Path] = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
        run([*pip, "wheel", "-q", "--no-deps", "-w", folder, source], folder)
        (wheel,) = folder.glob("graphwright-*.whl")
        clean = folder / "clean"
        venv.create(clean, with_pip=True)
        python = clean / "bin" / "python"
        pip = [python, "-m", "pip", "--disable-pip-version-check"]
        compilers = ["ziglang>=0.13"] if not shutil.which("c++") and not shutil.which("g++") else []
        run([*pip, "install", "-q", wheel, *compilers], folder)
        run([*pip, "check"], folder)
        use(clean, folder)
        print(f"{wheel.name} ({wheel.stat().st_size / 1024:.0f} KiB) installs, compiles and runs")


def use(clean: Path, folder: Path) -> None:
    """The installed package as a user has it."""
    python, graphwright = clean / "bin" / "python", clean / "bin" / "graphwright"
    said = run([graphwright, "--version"], folder)
    assert said.startswith("graphwright "), said
    run([python, "-c", MODEL], folder)
    run([graphwright, "check", "smoke.onnx"], folder)
    run([graphwright, "compile", "smoke.onnx", "-o", "smoke.gw", "-q"], folder)
    run([graphwright, "run", "smoke.gw", "--inputs", "in.npz", "--outputs", "out.npz"], folder)
    bare = {k: v for k, v in os.environ.items() if k not in ("PATH", "CXX", "PYTHONPATH")}
    run([python, "-c", DEPLOYED], folder, bare | {"PATH": ""})


if __name__ == "__main__":
    main()
