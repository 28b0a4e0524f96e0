"""The examples run as they are, with what they promise to print."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("compile_onnx", ["pictures: float32 ['N', 3, 'H', 'W']", "scores of the first picture"]),
        ("dynamic_shapes", ["(3, 3, 16, 40) -> (3, 10)", "want N in 1..4", "a multiple of 8"]),
        ("custom_pipeline", ["count-ops", "fuse: changed", 'region = "contraction"']),
        ("custom_ops", ["largest difference: 0.0"]),
        ("decoder", ["equal to eager's: True"]),
        ("read_kernel", ["launch 0", "relu is computed here", 'extern "C"']),
    ],
)
def test_example(name: str, says: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for words in says:
        assert words in done.stdout


def test_every_example_is_tested() -> None:
    needs_network = {"demo", "page_reader"}  # scripts/demo
    shared = {"small_network"}
    tested = {
        "compile_onnx",
        "custom_ops",
        "dynamic_shapes",
        "custom_pipeline",
        "read_kernel",
        "decoder",
    }
    assert {p.stem for p in EXAMPLES.glob("*.py")} == needs_network | shared | tested
