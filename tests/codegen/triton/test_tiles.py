"""Every kind of tile: streamed, split, walked by taps, few rows; right and compiled without a GPU."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton import convolution, matmul
from graphwright.compiler.codegen.triton.arch import capability, emitting_for
from graphwright.compiler.codegen.triton.build import build
from graphwright.compiler.codegen.triton.choose import Config, Product, candidates, choose
from graphwright.compiler.target import Target

STREAMED = Config(64, 64, 64, 4, 3, streamed=True)
HALVES = Config(64, 64, 64, 4, 3, streamed=True, halves=True)
SPLIT = Config(32, 32, 32, 4, 3, splits=3)
PLAIN = Config(32, 64, 32, 4, 3)


def product(rows: str, weights: str = "[96, 80]", layout: str = "", columns: int = 80) -> str:
    """A matmul of [rows, 96] with bias, gelu and residual; `rows` may have several axes."""
    out = f"f16[{rows}, {columns}]"
    return f"""graph @g(B in 1..128) {{
  input %x: f16[{rows}, 96]
  input %w: f16{weights}
  input %b: f16[{columns}]
  input %r: {out}
  %0 = fused(%x, %w, %b, %r) {{region = "contraction"}} : {out}
    body(%a0: f16[{rows}, 96], %a1: f16{weights}, %a2: f16[{columns}], %a3: {out}) {{
      {layout}
      %1 = matmul(%a0, {"%0" if layout else "%a1"}) : {out}
      %2 = add(%1, %a2) : {out}
      %3 = gelu(%2) : {out}
      %4 = add(%3, %a3) : {out}
      return %4
    }}
  return %0 as "y"
}}
"""


TRANSPOSE = "%0 = transpose(%a1) {permutation = [1, 0]} : f16[96, 80]"


def convolution_text(n: str, c: int, k: int, size: int, stride: int, groups: int = 1) -> str:
    pad = size // 2
    out = f"[{n}, {k}, {(9 + 2 * pad - size) // stride + 1}, {(7 + 2 * pad - size) // stride + 1}]"
    inner = "{0,2,3,1}"
    x, w = f"f16[{n}, {c}, 9, 7]{inner}", f"f16[{k}, {c // groups}, {size}, {size}]{inner}"
    return f"""graph @g(N in 1..16) {{
  input %x: {x}
  input %w: {w}
  input %b: f16[{k}]
  input %r: f16{out}{inner}
  %0 = fused(%x, %w, %b, %r) {{region = "contraction"}} : f16{out}{inner}
    body(%a0: {x}, %a1: {w}, %a2: f16[{k}], %a3: f16{out}{inner}) {{
      %0 = conv(%a0, %a1, %a2) {{strides = [{stride}, {stride}], low = [{pad}, {pad}], high = [{pad}, {pad}], dilations = [1, 1], groups = {groups}}} : f16{out}{inner}
      %1 = add(%0, %a3) : f16{out}{inner}
      %2 = relu(%1) : f16{out}{inner}
      return %2
    }}
  return %0 as "y"
}}
"""


# Positions that are added to every image: the epilogue takes a pixel apart again.
POSITIONS = """graph @g(N in 1..16) {
  input %x: f16[N, 8, 20, 20]{0,2,3,1}
  input %w: f16[32, 8, 4, 4]{0,2,3,1}
  input %p: f16[1, 32, 25]{0,2,1}
  %0 = fused(%x, %w, %p) {region = "contraction"} : f16[N, 32, 5, 5]{0,2,3,1}
    body(%a0: f16[N, 8, 20, 20]{0,2,3,1}, %a1: f16[32, 8, 4, 4]{0,2,3,1}, %a2: f16[1, 32, 25]{0,2,1}) {
      %0 = conv(%a0, %a1) {strides = [4, 4], low = [0, 0], high = [0, 0], dilations = [1, 1]} : f16[N, 32, 5, 5]
      %1 = reshape(%a2) {shape = [1, 32, 5, 5]} : f16[1, 32, 5, 5]
      %2 = add(%0, %1) : f16[N, 32, 5, 5]{0,2,3,1}
      return %2
    }
  return %0 as "y"
}
"""


# name: (text, configuration or None for the cost model's)
CASES = {
    "plain": (product("37"), PLAIN),
    "streamed": (product("130"), STREAMED),
    "streamed_symbolic": (product("B"), STREAMED),
    "streamed_batches": (product("3, 50"), STREAMED),
    "streamed_transposed": (product("130", "[80, 96]", TRANSPOSE), STREAMED),
    "streamed_columns": (product("70", "[96, 72]", columns=72), STREAMED),
    "split": (product("50"), SPLIT),
    "split_batches": (product("2, 25", "[2, 96, 80]"), SPLIT),
    "one_row": (product("1"), None),
    "four_rows": (product("2, 2", "[80, 96]", TRANSPOSE), None),
    "vector_transposed": (product("1", "[80, 96]", TRANSPOSE), None),
    "conv3": (convolution_text("2", 32, 48, 3, 1), None),
    "conv3_split": (convolution_text("2", 32, 48, 3, 2), SPLIT),
    "conv3_symbolic": (convolution_text("N", 64, 40, 3, 1), PLAIN),
    "halves": (product("B"), HALVES),
    "halves_transposed": (product("2, B", "[80, 96]", TRANSPOSE), HALVES),
    "conv1_halves": (convolution_text("N", 64, 72, 1, 1), HALVES),
    "conv1": (convolution_text("N", 64, 72, 1, 1), STREAMED),
    "conv1_strided": (convolution_text("2", 32, 48, 1, 2), PLAIN),
    "conv_first": (convolution_text("1", 3, 32, 7, 2), None),
    "conv_positions": (POSITIONS, None),
    "conv_grouped": (convolution_text("2", 64, 64, 3, 1, groups=2), None),
}
BINDING = {"B": 67, "N": 3}


def emitted(name, monkeypatch):
    text, config = CASES[name]
    if config is not None:
        for module in (matmul, convolution):
            monkeypatch.setattr(module, "choose", lambda product, capability: config)
    return launch_of(text)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    cases = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in CASES:
            cases[name] = (*emitted(name, patch), BINDING)
            patch.undo()
    return interpret(tmp_path_factory.mktemp("tiles"), cases)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(interpreted, name):
    outputs, wanted = interpreted[name]
    for got, want in zip(outputs, wanted, strict=True):
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
        assert got.shape == want.shape
        assert error < 1e-3


@pytest.mark.parametrize("name", CASES)
def test_compiles_without_a_gpu(name, tmp_path, monkeypatch):
    _, launch = emitted(name, monkeypatch)
    cubin = build(launch.kernel, "sm_90", tmp_path)
    assert cubin.kernel.waits
    streamed = CASES[name][1] in (STREAMED, HALVES)
    assert ("for tile in tl.range" in launch.kernel.source) == streamed
    maps = [p for p in cubin.kernel.parameters if p.startswith("map:")]
    assert len(maps) == (3 if CASES[name][1] == HALVES else 2 if streamed else 0)
    assert build(launch.kernel, "sm_90", tmp_path) == cubin  # from the cache


def test_no_descriptors_for_older_devices():
    _, launch = launch_of(product("8192"), "cuda:sm_80,sm_90")
    assert "map" not in {r.partition(":")[0] for r in launch.kernel.roles}


def test_ways_have_texts_of_their_own():
    product = Product(4096, 4096, 4096, can_split=True, can_stream=True, can_halve=True)
    with emitting_for(Target.parse("cuda:sm_90")):
        texts = [str(c) for c in candidates(product, capability())]
    assert len(set(texts)) == len(texts)
    assert any("stored in halves" in t for t in texts)


def test_tiles_fit_every_named_device():
    for target, most in (("cuda:sm_80,sm_89", 99_000), ("cuda:sm_80", 163_000)):
        with emitting_for(Target.parse(target)):
            for config in candidates(Product(4096, 4096, 4096, can_split=True), capability()):
                bytes = (config.block_m + config.block_n) * config.block_k * 2 * config.stages
                assert bytes <= most


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((12288, 4096, 1024), lambda c: c.streamed and c.block_n == 256),
        ((128, 1024, 1024), lambda c: not c.streamed and c.block_n <= 64),
        ((128, 1024, 4096), lambda c: c.splits > 1),
    ],
)
def test_the_choice_fills_the_device(sizes, wanted):
    config = choose(Product(*sizes, can_split=True, can_stream=True), 90)
    assert wanted(config), config
