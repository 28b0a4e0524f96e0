"""merge-siblings: what is merged, what is not, and that the values stay the same."""

import numpy as np
import pytest

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.pipeline_text import parse_items
from graphwright.compiler.target import Target

TEXT = """graph @g(B in 1..64) {{
  input %x: f32[B, 8]
  %2 = constant {{value = splat(0.125): f32[8, 4]}} : f32[8, 4]
  %3 = constant {{value = splat(0.5): f32[8, 6]}} : f32[8, 6]
  %4 = constant {{value = splat(0.25): f32[4]}} : f32[4]
  %5 = constant {{value = splat(0.75): f32[6]}} : f32[6]
  %6 = matmul(%x, %2) : f32[B, 4]
  %7 = add(%6, %4) : f32[B, 4]
  %8 = matmul(%x, %3) : f32[B, 6]
  %9 = add(%8, %5) : f32[B, 6]
  {end}
}}
"""
VIEWS = """%10 = reshape(%7) {shape = [B, 2, 2]} : f32[B, 2, 2]
  %11 = transpose(%9) {permutation = [1, 0]} : f32[6, B]
  return %10 as "a", %11 as "b\""""
POINTWISE = """%10 = relu(%7) : f32[B, 4]
  %11 = relu(%9) : f32[B, 6]
  return %10 as "a", %11 as "b\""""


@pytest.mark.parametrize(
    ("end", "target", "products"),
    [(VIEWS, "cuda:sm_90", 1), (POINTWISE, "cuda:sm_90", 2), (VIEWS, "cpu", 2)],
)
def test_products_whose_results_are_only_moved_become_one(end, target, products):
    graph = parse_graph(TEXT.format(end=end), registry=REGISTRY)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    want = evaluate(graph, [x])
    for item in parse_items("fold-constants,merge-siblings,fold-constants,eliminate-dead"):
        item.run(graph, Target.parse(target))
    assert sum(op.name == "matmul" for op in graph.ops) == products
    for a, b in zip(evaluate(graph, [x]), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


TWICE = """graph @g() {
  input %x: f32[3, 8]
  %1 = constant {value = splat(0.125): f32[8, 8]} : f32[8, 8]
  %2 = constant {value = splat(0.5): f32[8, 8]} : f32[8, 8]
  %3 = matmul(%x, %1) : f32[3, 8]
  %4 = matmul(%x, %2) : f32[3, 8]
  %5 = transpose(%4) {permutation = [1, 0]} : f32[8, 3]
  %6 = matmul(%3, %5) : f32[3, 3]
  %7 = matmul(%6, %x) : f32[3, 8]
  %8 = matmul(%7, %1) : f32[3, 8]
  %9 = matmul(%7, %2) : f32[3, 8]
  %10 = transpose(%9) {permutation = [1, 0]} : f32[8, 3]
  %11 = matmul(%8, %10) : f32[3, 3]
  return %11 as "y"
}
"""


def test_weights_that_layers_share_stay_before_their_first_user():
    graph = parse_graph(TWICE, registry=REGISTRY)
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    want = evaluate(graph, [x])
    for item in parse_items("merge-siblings"):
        item.run(graph, Target.parse("cuda:sm_90"))
    verify(graph)
    assert sum(op.name == "concat" for op in graph.ops) == 2
    np.testing.assert_allclose(evaluate(graph, [x])[0], want[0], rtol=1e-6)
