"""Published models: one artifact serves three settings of the dynamic dims and agrees with ONNX
Runtime; then it runs where there is neither a compiler, nor onnx, nor a PATH.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from published import model_path
from sample_inputs import MODELS, sample

from graphwright.compilation import build
from graphwright.compiler.options import CompileOptions

QUICK = {"light-squeezenet"}  # comes with the onnx package: no network, little to compile
CASES = [
    pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow, pytest.mark.models])
    for name in MODELS
]
RELATIVE_RMS, ELEMENT = 3e-4, 1e-3
# Of the models with integer weights: ONNX Runtime rounds activations in other places than the text says.
QUANTIZED = {n for n in MODELS if n.endswith("-int8")} | {"ddddocr-common-old"}
# ONNX Runtime with and without its optimisations are 20 % apart on inputs that are no speech.
CHAOTIC = {"smart-turn-int8"}
QUANTIZED_RMS, QUANTIZED_ELEMENT, QUANTIZED_SAME = 3e-2, 5e-2, 0.98

DEPLOYED = """
import sys
for name in ("onnx", "click", "rich", "graphwright.compiler", "graphwright.frontends"):
    sys.modules[name] = None  # an import of these fails
import numpy as np
import graphwright as gw
model = gw.load(sys.argv[1])
for given, wanted in zip(sys.argv[2::2], sys.argv[3::2]):
    want = np.load(wanted)
    got = model.run(dict(np.load(given)))
    for name, value in got.items():
        assert np.array_equal(value, want[name], equal_nan=True), name
"""


@pytest.mark.parametrize("name", CASES)
def test_model(name: str, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    import graphwright as gw

    path = model_path(name)
    artifact = tmp_path / "model.gw"
    build(path, CompileOptions()).artifact.write(artifact)
    model = gw.load(artifact)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    again: list[str] = []
    for size in range(3):
        feed = sample(name, size)
        ours = model.run(feed)
        for output, want in zip(session.get_outputs(), session.run(None, feed), strict=True):
            what = f"{name}, size {size}, {output.name}"
            check(ours[output.name], want, what, quantized=name in QUANTIZED)
        # Inputs that were never seen, for a process that has nothing but the artifact.
        feed = sample(name, size, seed=7)
        np.savez(tmp_path / f"in{size}.npz", **feed)
        np.savez(tmp_path / f"out{size}.npz", **model.run(feed))
        again += [str(tmp_path / f"in{size}.npz"), str(tmp_path / f"out{size}.npz")]
    bare = {k: v for k, v in os.environ.items() if k not in ("PATH", "CXX")} | {"PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", DEPLOYED, str(artifact), *again],
        env=bare, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def check(got: np.ndarray, want: np.ndarray, what: str, *, quantized: bool) -> None:
    """Within RELATIVE_RMS of the root mean square, every element within ELEMENT of the largest."""
    relative_rms = QUANTIZED_RMS if quantized else RELATIVE_RMS
    element = QUANTIZED_ELEMENT if quantized else ELEMENT
    assert got.shape == want.shape and got.dtype == want.dtype, what
    if quantized and want.dtype.kind in "iub":  # a decision
        assert np.mean(got == want) >= QUANTIZED_SAME, what
        return
    wide = want.astype(np.float64)
    error = np.abs(got.astype(np.float64) - wide)
    assert not np.isnan(error).any(), what
    if what.partition(",")[0] in CHAOTIC:
        return
    rms = float(np.linalg.norm(error) / max(np.linalg.norm(wide), 1e-3))
    assert rms <= relative_rms, f"{what}: {rms:.2e} of the RMS value"
    limit = element * (np.abs(wide) + max(float(np.abs(wide).max()), 1e-3))
    assert (error <= limit).all(), f"{what}: an element is {float((error / limit).max()):.1f}x off"
