"""What loops become, as text.  `GRAPHWRIGHT_ACCEPT=1 pytest ...` writes the files anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from onnx_models import imported, model_of

from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph

FOLDER = Path(__file__).parent / "golden"

MODELS = {
    "for": """counted (float[B, 3] x, float[3] w, int64 n) => (float[B, 3] y, float[N, B] rows) <bool go = {1}> {
  y, rows = Loop(n, go, x) <body = b (int64 i, bool c, float[B, 3] a) => (bool c2, float[B, 3] a2, float[B] r)
    { a2 = Mul(a, w)  r = ReduceMax<axes = [1], keepdims = 0>(a2)  c2 = Identity(c) }>
}""",
    "while": """until (float[2] x, float limit) => (float[2] y, float[N, 2] rows) <bool go = {1}, int64 most = {100}> {
  y, rows = Loop(most, go, x) <body = b (int64 i, bool c, float[2] a) => (bool c2, float[2] a2, float[2] r)
    { a2 = Add(a, x)  s = ReduceSum<keepdims = 0>(a2)  c2 = Less(s, limit)  r = Identity(a) }>
}""",
    "growing": """grows (float[2, B] x, int64 n) => (float[2, N] y) <bool go = {1}> {
  y = Loop(n, go, x) <body = b (int64 i, bool c, float[2, P] a) => (bool c2, float[2, Q] a2)
    { m = ReduceMax<axes = [1]>(a)  a2 = Concat<axis = 1>(a, m)  c2 = Identity(c) }>
}""",
    "scan": """prefix (float[2] s0, float[2, T] x) => (float[2] s, float[2, T] p) {
  s, p = Scan<num_scan_inputs = 1, scan_input_axes = [1], scan_output_axes = [1],
    body = b (float[2] a, float[2] u) => (float[2] a2, float[2] r) { a2 = Add(a, u)  r = Identity(a2) }>(s0, x)
}""",
    "appended": """list (float[B] x, int64 n) => (float[N, B] y) <bool go = {1}> {
  none = SequenceEmpty()
  seq = Loop(n, go, none) <body = b (int64 i, bool c, seq(float[B]) q) => (bool c2, seq(float[B]) q2)
    { k = Cast<to = 1>(i)  a = Mul(x, k)  q2 = SequenceInsert(q, a)  c2 = Identity(c) }>
  y = ConcatFromSequence<axis = 0, new_axis = 1>(seq)
}""",
}


@pytest.mark.parametrize("name", MODELS)
def test_text(name: str) -> None:
    graph = imported(model_of(MODELS[name]))
    text = print_graph(graph)
    assert print_graph(parse_graph(text, registry=REGISTRY)) == text
    path = FOLDER / f"{name}.ir"
    if os.environ.get("GRAPHWRIGHT_ACCEPT"):
        path.write_text(text)
    assert text == path.read_text()
