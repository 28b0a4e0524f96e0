"""pad-channels: which convolutions get a fourth channel; their results stay the same bits."""

import numpy as np
import pytest

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.passes.pipeline_text import parse_items
from graphwright.compiler.target import Target

TEXT = """graph @g(N in 1..8) {{
  input %x: f32[N, {c}, 9, 9]
  %0 = constant {{value = splat(0.5): f32[8, {each}, 3, 3]}} : f32[8, {each}, 3, 3]
  %1 = conv(%x, %0) {{strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1], groups = {groups}}} : f32[N, 8, 5, 5]
  return %1 as "y"
}}
"""


@pytest.mark.parametrize(
    ("channels", "groups", "target", "wanted"),
    [(3, 1, "cuda:sm_90", 4), (2, 1, "cuda:sm_90", 4), (3, 1, "cpu", 3), (8, 1, "cuda:sm_90", 8),
     (2, 2, "cuda:sm_90", 2)],
)  # fmt: skip
def test_channels_are_padded_to_four(channels, groups, target, wanted):
    text = TEXT.format(c=channels, each=channels // groups, groups=groups)
    graph = parse_graph(text, registry=REGISTRY)
    x = np.random.default_rng(0).standard_normal((2, channels, 9, 9)).astype(np.float32)
    want = evaluate(graph, [x])
    for item in parse_items("pad-channels,fold-constants"):
        item.run(graph, Target.parse(target))
    (conv,) = (op for op in graph.ops if op.name == "conv")
    assert conv.operands[0].type.shape[1] == wanted
    np.testing.assert_array_equal(evaluate(graph, [x])[0], want[0])
