"""What published models decide on real inputs, compiled, is what they decide in ONNX Runtime.

The text that is read, the label, where speech is, whether a turn has ended, which way embeddings point;
where the answer is known it is written here.  Models without a real input decide on plausible ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from published import model_path
from real_inputs import REAL, Feed, cosine, ctc, romanized
from sample_inputs import MODELS, sample

import graphwright as gw

pytestmark = [pytest.mark.slow, pytest.mark.models]
KNOWN: dict[str, list[Any]] = {
    "magika": ["python", "toml", "json"],
    "ppocr-v2-cls": [[0], [1]],
    "ppocr-v4-rec": ["Hello 2026 Graph", "Invoice No. 4711", "compile once, run anywhere"],
    "smart-turn-int8": [True, True, True],
}
BOUNDARIES = ("attacut-c", "deepcut", "oskut-deepcut", "basic-pitch")
SURE = 1e-3  # a probability so near to a half is no decision


def both(name: str) -> tuple[Any, Any, Path]:
    """The compiled model and ONNX Runtime's, as functions from a feed to a list of arrays."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = model_path(name)
    compiled = gw.compile(path, target="cpu")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]

    def ours(feed: Feed) -> list[np.ndarray]:
        found = compiled.run(feed)
        return [np.asarray(found[n]) for n in names]

    return ours, lambda feed: session.run(None, feed), path


@pytest.mark.parametrize("name", sorted(REAL))
def test_real_inputs(name: str) -> None:
    pytest.importorskip("PIL")
    ours, theirs, path = both(name)
    feeds, read = REAL[name](path)
    decisions = [read(ours(f)) for f in feeds]
    wanted = [read(theirs(f)) for f in feeds]
    if name == "minilm-int8":
        assert all(cosine(a, b) > 0.9999 for a, b in zip(decisions, wanted, strict=True))
        return
    assert decisions == wanted
    assert decisions == KNOWN.get(name, decisions)
    if name.startswith("silero"):
        assert any(any(d) for d in decisions)  # the word is heard
        assert not all(all(d) for d in decisions)


def test_names_are_romanized() -> None:
    encode, encode_ort, _ = both("arabic-romanizer-encoder")
    step, step_ort, _ = both("arabic-romanizer-decoder")
    names = ("محمد", "فاطمة", "خالد", "عبدالله")
    found = [romanized(n, encode, step) for n in names]
    assert found == [romanized(n, encode_ort, step_ort) for n in names]
    assert found[0] == "Mohamed"


@pytest.mark.parametrize("name", [n for n in MODELS if n not in REAL and "romanizer" not in n])
def test_plausible_inputs(name: str) -> None:
    ours, theirs, _ = both(name)
    feed = sample(name, 0, seed=3)
    got, want = ours(feed)[0], theirs(feed)[0]
    assert got.shape == want.shape
    if name in BOUNDARIES:
        sure = np.abs(want - 0.5) > SURE
        assert sure.mean() > 0.99
        assert np.array_equal((got > 0.5)[sure], (want > 0.5)[sure])
    elif name == "piper-joe":
        assert cosine(got, want) > 0.9999
    else:
        assert np.array_equal(
            got.reshape(len(got), -1).argmax(1), want.reshape(len(want), -1).argmax(1)
        )


def test_reading_leaves_out_blanks_and_repetitions() -> None:
    steps = np.eye(4)[[0, 1, 1, 0, 1, 2, 2, 0, 3]]
    assert ctc(steps) == [1, 1, 2, 3]
