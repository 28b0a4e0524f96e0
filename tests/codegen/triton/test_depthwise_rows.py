"""Depthwise convolutions by rows of pixels: right in the interpreter, compiled, and chosen where they suit."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.choice import choosing
from graphwright.compiler.codegen.triton import depthwise
from graphwright.compiler.codegen.triton.build import build
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph


def text(channels: int, height: int, width: int, size: int, stride: int, images: str = "N") -> str:
    pad, inner = size // 2, "{0,2,3,1}"
    out = [(n + 2 * pad - size) // stride + 1 for n in (height, width)]
    x = f"f16[{images}, {channels}, {height}, {width}]{inner}"
    w = f"f16[{channels}, 1, {size}, {size}]"
    y = f"f16[{images}, {channels}, {out[0]}, {out[1]}]{inner}"
    return f"""graph @g(N in 1..64) {{
  input %x: {x}
  input %w: {w}
  input %b: f16[{channels}]
  input %r: {y}
  %0 = fused(%x, %w, %b, %r) {{region = "contraction"}} : {y}
    body(%a0: {x}, %a1: {w}, %a2: f16[{channels}], %a3: {y}) {{
      %0 = conv(%a0, %a1, %a2) {{strides = [{stride}, {stride}], low = [{pad}, {pad}], high = [{pad}, {pad}], dilations = [1, 1], groups = {channels}}} : {y}
      %1 = relu(%0) : {y}
      %2 = add(%1, %a3) : {y}
      return %2
    }}
  return %0 as "y"
}}
"""


CASES = {
    "seven_rows": (text(40, 14, 9, 7, 1), depthwise.Block(7, 8, 32, 2)),
    "rows_that_do_not_fit": (text(32, 9, 8, 3, 1), depthwise.Block(4, 8, 32, 1)),
    "stride_two": (text(24, 11, 13, 5, 2), depthwise.Block(2, 4, 16, 1)),
}


def emitted(name: str):
    source, block = CASES[name]
    original, depthwise.ways = depthwise.ways, lambda root: [depthwise.FLAT, block]
    try:
        with choosing(lambda ways: len(ways) - 1):
            return launch_of(source)
    finally:
        depthwise.ways = original


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    cases = {name: (*emitted(name), {"N": 2}) for name in CASES}
    return interpret(tmp_path_factory.mktemp("triton"), cases)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(interpreted, name):
    (got,), (want,) = interpreted[name]
    error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
    assert error < 1e-3


@pytest.mark.parametrize("name", CASES)
def test_compiles(name, tmp_path):
    kernel = emitted(name)[1].kernel
    assert "tl.fma" in kernel.source
    assert build(kernel, "sm_90", tmp_path).image.startswith(b"\x7fELF")


def test_ways():
    def ways(source: str):
        (op,) = parse_graph(source, registry=REGISTRY).ops
        return depthwise.ways(next(iter(op.bodies[0].ops)))

    assert ways(text(96, 56, 56, 7, 1, "32"))[0] == depthwise.Block(7, 8, 32, 2)
    assert ways(text(96, 56, 56, 7, 1, "32"))[-1] == depthwise.FLAT
    assert ways(text(96, 8, 8, 7, 1, "1")) == [depthwise.FLAT]  # too few programs
    assert ways(text(96, 56, 56, 7, 1, "32").replace("{0,2,3,1}", "")) == [depthwise.FLAT]
