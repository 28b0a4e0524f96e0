"""16-bit networks on a real GPU: descriptors, split depths, attention, channels innermost; repeated."""

import numpy as np
import pytest
from test_cuda_executor import device_arch

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.runtime import load

pytestmark = pytest.mark.gpu


def block(batch: int, steps: int, width: int = 256) -> str:
    """A transformer block without norms: fused query, key and value, attention, two products."""
    x, wide = f"f16[{batch}, {steps}, {width}]", f"f16[{batch}, {steps}, {4 * width}]"
    heads = f"f16[{batch}, {steps}, 4, {width // 4}]"
    moved = f"f16[{batch}, 4, {steps}, {width // 4}]"
    lines, names = [], []
    for i, start in enumerate((0, width, 2 * width)):
        part = f"%s{i}"
        lines += [
            f"{part} = slice(%qkv) {{starts = [0, 0, {start}], sizes = [{batch}, {steps}, {width}], "
            f"steps = [1, 1, 1]}} : {x}",
            f"%r{i} = reshape({part}) {{shape = [{batch}, {steps}, 4, {width // 4}]}} : {heads}",
            f"%t{i} = transpose(%r{i}) {{permutation = [0, 2, 1, 3]}} : {moved}",
        ]
        names.append(f"%t{i}")
    body = "\n  ".join(lines)
    return f"""graph @g() {{
  input %x: {x}
  input %w: f16[{width}, {3 * width}]
  input %u: f16[{width}, {4 * width}]
  input %d: f16[{4 * width}, {width}]
  %qkv = matmul(%x, %w) : f16[{batch}, {steps}, {3 * width}]
  {body}
  %a = attention({", ".join(names)}) {{scale = 0.125}} : {moved}
  %b = transpose(%a) {{permutation = [0, 2, 1, 3]}} : {heads}
  %c = reshape(%b) {{shape = [{batch}, {steps}, {width}]}} : {x}
  %e = add(%c, %x) : {x}
  %f = matmul(%e, %u) : {wide}
  %g = gelu(%f) : {wide}
  %h = matmul(%g, %d) : {x}
  %i = add(%h, %e) : {x}
  return %i as "y"
}}
"""


CONV = """graph @g() {
  input %x: f16[2, 3, 64, 64]
  input %w: f16[64, 3, 7, 7]
  input %v: f16[64, 64, 3, 3]
  input %u: f16[256, 64, 1, 1]
  %0 = conv(%x, %w) {strides = [2, 2], low = [3, 3], high = [3, 3], dilations = [1, 1]} : f16[2, 64, 32, 32]
  %1 = relu(%0) : f16[2, 64, 32, 32]
  %2 = max_pool(%1) {kernel = [3, 3], strides = [2, 2], low = [1, 1], high = [1, 1], dilations = [1, 1]} : f16[2, 64, 16, 16]
  %3 = conv(%2, %v) {strides = [1, 1], low = [1, 1], high = [1, 1], dilations = [1, 1]} : f16[2, 64, 16, 16]
  %4 = add(%3, %2) : f16[2, 64, 16, 16]
  %5 = conv(%4, %u) {strides = [1, 1], low = [0, 0], high = [0, 0], dilations = [1, 1]} : f16[2, 256, 16, 16]
  %6 = reduce_mean(%5) {axes = [2, 3], keepdims = false} : f16[2, 256]
  return %6 as "y"
}
"""


@pytest.mark.parametrize("name", ["short", "long", "convolutions"])
def test_equals_the_reference_and_repeats(name):
    arch = device_arch()
    if arch is None:
        pytest.skip("no CUDA device, or no driver")
    text = {"short": block(1, 70), "long": block(32, 256), "convolutions": CONV}[name]
    graph = parse_graph(text, registry=REGISTRY)
    options = CompileOptions.make(target=f"cuda:{arch}")
    model = load(compile_graph(graph.clone(), options.target, options).to_bytes(), device="cuda:0")
    rng = np.random.default_rng(5)
    arrays = []
    for v in graph.inputs:
        shape = [int(d) for d in v.type.shape]
        scale = 1.0 if v.name == "x" else float(np.prod(shape[1:])) ** -0.5
        arrays.append((rng.standard_normal(shape) * scale).astype(np.float16))
    (want,) = evaluate(graph, arrays, compute=np.float64)
    first = model(*arrays)[0]
    assert np.linalg.norm(first - want) < 3e-3 * np.linalg.norm(want)
    for _ in range(50):
        np.testing.assert_array_equal(model(*arrays)[0], first)
