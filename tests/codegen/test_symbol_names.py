"""Users name their symbols as they like: C++ words, names that kernels use, dots beside underscores."""

import numpy as np
import pytest

from graphwright.compiler.codegen.emit import emit
from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.runtime import load

TEXT = """graph @names(int, row, batch, col, pool, s, a.b, a_b, tile in 1..64, B) {
  input %x: f32[batch, row, col]
  input %y: f32[batch, col, int]
  input %m: f32[batch, 1, int]
  input %p: f32[pool, s]
  input %q: f32[a.b, a_b, tile]
  %0 = matmul(%x, %y) : f32[batch, row, int]
  %1 = add(%0, %m) : f32[batch, row, int]
  %2 = softmax(%p) {axis = 1} : f32[pool, s]
  %3 = transpose(%q) {permutation = [1, 0, 2]} : f32[a_b, a.b, tile]
  %4 = reduce_sum(%3) {axes = [0], keepdims = false} : f32[a.b, tile]
  return %1 as "product", %2 as "rows", %4 as "sums"
}
"""
SIZES = {"int": 3, "row": 5, "batch": 2, "col": 7, "pool": 4, "s": 9, "a.b": 6, "a_b": 2, "tile": 8}


def test_a_kernel_keeps_its_own_names():
    graph = parse_graph(TEXT, registry=REGISTRY)
    options = CompileOptions.make(target="cpu:x86-64-v3")
    model = load(compile_graph(graph.clone(), options.target, options).to_bytes())
    rng = np.random.default_rng(3)
    shapes = [
        [d if isinstance(d, int) else SIZES[str(d)] for d in v.type.shape] for v in graph.inputs
    ]
    feed = [rng.standard_normal(s).astype(np.float32) for s in shapes]
    for got, want in zip(model(*feed), evaluate(graph, feed, compute=np.float64), strict=True):
        assert np.linalg.norm(got - want) < 1e-6 * np.linalg.norm(want)


@pytest.mark.parametrize("name", ["m", "n", "k", "row", "column", "i", "tl", "for"])
def test_triton_names_too(name: str):
    text = f"""graph @g({name}) {{
  input %x: f32[{name}, 8]
  input %w: f32[8, 4]
  %0 = fused(%x, %w) {{region = "contraction"}} : f32[{name}, 4]
    body(%a0: f32[{name}, 8], %a1: f32[8, 4]) {{
      %0 = matmul(%a0, %a1) : f32[{name}, 4]
      return %0
    }}
  return %0 as "y"
}}
"""
    (op,) = parse_graph(text, registry=REGISTRY).ops
    (step,) = emit(op, Target.parse("cuda:sm_90"))
    compile(step.kernel.source, "kernel", "exec")  # no keyword where a name is wanted
    head = step.kernel.source.split(f"def {step.kernel.name}(", 1)[1]
    parameters = head.split(")", 1)[0].split(", ")
    assert f"dim0_{name}" in parameters
