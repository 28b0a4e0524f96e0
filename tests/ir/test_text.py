"""Round trips of the IR text, and rejected texts with their exact messages."""

from pathlib import Path

import numpy as np
import pytest

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import ParseError, parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.verify import VerifyError, verify

TEXT = """graph @main(B in 1..512 by 8 @128, S) {
  input %x: f32[B, 64]
  input %"conv/in:0": f32[S, B]
  %0 = constant {value = splat(1.0): f32[64]} : f32[64]
  %1 = add(%x, %0) : f32[B, 64]
  %2 = fused(%1, %0) {region = "pointwise"} : f32[B, 64]
    body(%a0: f32[B, 64], %a1: f32[64]) {
      %0 = relu(%a0) : f32[B, 64]
      return %0
    }
  %3 = constant {value = dense(0.1, -0.0, inf): f32[3], recipe = recipe(transpose {permutation = [1, 0]} [recipe("w")])} : f32[3]
  require B == 2*S + 1 "conv: channels"
  return %2 as "out", %3 as "k"
}
"""


def test_round_trip_is_a_fix_point():
    graph = parse_graph(TEXT, registry=REGISTRY)
    assert print_graph(graph) == TEXT
    assert print_graph(graph.clone()) == TEXT
    verify(graph)


def test_evaluates():
    graph = parse_graph(TEXT, registry=REGISTRY)
    x = np.random.default_rng(0).standard_normal((8, 64)).astype(np.float32)
    out, k = evaluate(graph, {"x": x, "conv/in:0": np.zeros((3, 8), np.float32)})
    np.testing.assert_array_equal(out, np.maximum(x + 1, 0))
    assert np.signbit(k[1]) and k[2] == np.inf


INVALID = sorted((Path(__file__).parent / "invalid").glob("*.ir"))


@pytest.mark.parametrize("path", INVALID, ids=lambda p: p.stem)
def test_rejects(path: Path):
    """The first line is `# error: MESSAGE`; the rest is the text that must be refused so."""
    first, _, text = path.read_text().partition("\n")
    with pytest.raises((ParseError, VerifyError)) as caught:
        verify(parse_graph(text, registry=REGISTRY))
    assert str(caught.value) == first.removeprefix("# error: ")
