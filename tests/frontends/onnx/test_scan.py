"""Scan of every opset: axes, directions, several inputs and outputs, lengths from one artifact."""

from __future__ import annotations

import numpy as np
import pytest
from compiled_harness import Runner, check
from onnx_models import imported, model_of

from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import import_model

F = np.float32

AXES = """g (float[2, 3] s0, float[2, T] x, float[T, 3] z) => (float[2, 3] s, float[2, A, 3] p, float[B] q, float[C, 2] r) {
  t = Tanh(s0)
  s, p, q, r = Scan<num_scan_inputs = 2, scan_input_axes = [1, -2], scan_input_directions = [0, 1],
                    scan_output_axes = [1, 0, -2], scan_output_directions = [1, 0, 1],
    body = b (float[2, 3] a, float[2] u, float[3] v) => (float[2, 3] a2, float[2, 3] po, float qo, float[2] ro)
    { one = Constant<value_ints = [1]>()  col = Unsqueeze(u, one)  m = Mul(col, v)  n = Add(a, m)
      a2 = Mul(n, t)  po = Identity(a2)  qo = ReduceSum<keepdims = 0>(a2)  ro = ReduceMax<axes = [1], keepdims = 0>(a) }>(s0, x, z)
}"""  # fmt: skip


def test_axes_and_directions(ort_run: Runner) -> None:
    model = model_of(AXES)
    rng = np.random.default_rng(0)
    feeds = [
        {
            "s0": rng.standard_normal((2, 3)).astype(F),
            "x": rng.standard_normal((2, t)).astype(F),
            "z": rng.standard_normal((t, 3)).astype(F),
        }
        for t in (4, 1, 30)
    ]
    check(imported(model), feeds, [ort_run(model, f) for f in feeds])


def test_no_slices_at_all() -> None:
    """ONNX Runtime refuses this; the states are the initial ones, and nothing is stacked."""
    s0 = np.ones((2, 3), F)
    feed = {"s0": s0, "x": np.zeros((2, 0), F), "z": np.zeros((0, 3), F)}
    check(imported(model_of(AXES)), [feed], [[s0, None, None, None]])


def test_inputs_of_different_lengths_end_the_call() -> None:
    graph = imported(model_of(AXES.replace("float[T, 3]", "float[S, 3]")))
    assert any("scan inputs of one length" in c.reason for c in graph.constraints)
    with pytest.raises(UnsupportedError, match="scan inputs of one length"):
        import_model(
            model_of(AXES.replace("float[T, 3]", "float[S, 3]")), shapes={"x": (2, 4), "z": (5, 3)}
        )


BATCHED = """g (LENSfloat[B, 2] s0, float[B, T, 2] x, float[B, T] w) => (float[B, 2] s, float[B, T, 2] p) {
  s, p = Scan<num_scan_inputs = 2DIRECTIONS,
    body = b (float[2] a, float[2] u, float v) => (float[2] a2, float[2] po)
    { m = Mul(u, v)  a2 = Add(a, m)  po = Identity(a2) }>(GIVEN, s0, x, w)
}"""


@pytest.mark.parametrize("form", ["plain", "backward", "lengths"])
def test_a_batch_of_opset_8(form: str) -> None:
    text = BATCHED.replace("GIVEN", "lens" if form == "lengths" else '""')
    text = text.replace("LENS", "int64[B] lens, " if form == "lengths" else "")
    text = text.replace("DIRECTIONS", ", directions = [1, 0]" if form == "backward" else "")
    rng = np.random.default_rng(1)
    feeds, answers = [], []
    for b, t in [(2, 3), (1, 5), (4, 1)]:
        s0, x = rng.standard_normal((b, 2)).astype(F), rng.standard_normal((b, t, 2)).astype(F)
        w = rng.standard_normal((b, t)).astype(F)
        lens = rng.integers(0, t + 1, b) if form == "lengths" else np.full(b, t)
        feeds.append({"s0": s0, "x": x, "w": w} | ({"lens": lens} if form == "lengths" else {}))
        read = x[:, ::-1] if form == "backward" else x
        p = np.zeros_like(x)
        s = s0.copy()
        for k in range(b):
            for i in range(lens[k]):
                s[k] += read[k, i] * w[k, i]
                p[k, i] = s[k]
        answers.append([s, p])
    check(imported(model_of(text, opset=8)), feeds, answers)


def test_an_attribute_of_the_wrong_length() -> None:
    text = AXES.replace("scan_input_axes = [1, -2]", "scan_input_axes = [1]")
    with pytest.raises(UnsupportedError, match="scan_input_axes has 1 elements, want 2"):
        import_model(model_of(text))
