"""Rows in order: sums that run, the first k, the place of an extreme; and transposed convolutions."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launches_of

from graphwright.compiler.codegen.triton.build import build


def one(op: str, out: str, x: str = "f32[B, 37, 3]") -> str:
    results = [f"%{i}" for i in range(out.count("[") or 1)]
    returned = ", ".join(f'{r} as "y{i}"' for i, r in enumerate(results))
    return f"""graph @g(B in 1..64) {{
  input %x: {x}
  {", ".join(results)} = {op} : {out}
  return {returned}
}}
"""


def transposed(stride: int, groups: int, pad: int, extra: int) -> str:
    out = stride * 4 + extra + 3 - 2 * pad
    attributes = (
        f"strides = [{stride}, {stride}], low = [{pad}, {pad}], high = [{pad}, {pad}], "
        f"dilations = [1, 1], groups = {groups}, output_padding = [{extra}, {extra}]"
    )
    return f"""graph @g(N in 1..8) {{
  input %x: f32[N, 6, 5, 5]
  input %w: f32[6, 4, 3, 3]
  input %b: f32[{4 * groups}]
  %0 = fused(%x, %w, %b) {{region = "contraction"}} : f32[N, {4 * groups}, {out}, {out}]
    body(%a0: f32[N, 6, 5, 5], %a1: f32[6, 4, 3, 3], %a2: f32[{4 * groups}]) {{
      %0 = conv_transpose(%a0, %a1, %a2) {{{attributes}}} : f32[N, {4 * groups}, {out}, {out}]
      %1 = relu(%0) : f32[N, {4 * groups}, {out}, {out}]
      return %1
    }}
  return %0 as "y"
}}
"""


SHAPE = "f32[B, 37, 3]"
CASES = {
    "cumsum": one("cumsum(%x) {axis = 1}", SHAPE),
    "cumsum_exclusive": one("cumsum(%x) {axis = 1, exclusive = true}", SHAPE),
    "cumsum_reverse": one("cumsum(%x) {axis = 1, exclusive = true, reverse = true}", SHAPE),
    "cumprod": one("cumprod(%x) {axis = 1}", SHAPE),
    "top_k": one("top_k(%x) {k = 5, axis = 1}", "f32[B, 5, 3], i64[B, 5, 3]"),
    "least_k": one("top_k(%x) {k = 37, axis = 1, largest = false}", f"{SHAPE}, i64[B, 37, 3]"),
    **{
        f"top_{kind}": one(
            "top_k(%x) {k = 5, axis = 1}", f"{kind}[B, 5, 3], i64[B, 5, 3]", f"{kind}[B, 37, 3]"
        )
        for kind in ("i32", "u8", "u64")
    },
    "top_symbolic": one(
        "top_k(%x) {k = B, axis = 0, largest = false}", "i64[B, 3], i64[B, 3]", "i64[B, 3]"
    ),
    "arg_max": one("arg_max(%x) {axis = 1, keepdims = false}", "i64[B, 3]"),
    "arg_min_last": one("arg_min(%x) {axis = 1, select_last = true}", "i64[B, 1, 3]"),
    "arg_max_long": one("arg_max(%x) {axis = 1, keepdims = false}", "i64[B]", "f32[B, 20000]"),
    "prod": one("reduce_prod(%x) {axes = [1], keepdims = false}", "f32[B, 3]"),
    "pool_all": one(
        "reduce_mean(%x) {axes = [2, 3], keepdims = true}",
        "f16[B, 40, 1, 1]",
        "f16[B, 40, 7, 7]{0,2,3,1}",
    ),
    "pool_much": one(
        "reduce_max(%x) {axes = [2, 3], keepdims = false}",
        "f32[B, 70]",
        "f32[B, 70, 20, 9]{0,2,3,1}",
    ),
    "columns": one("reduce_sum(%x) {axes = [0], keepdims = false}", "f32[100]", "f32[B, 100]"),
    "many_rows": """graph @g(B in 1..64) {
  input %x: f16[B, 401, 96]
  input %s: f16[96]
  input %b: f16[96]
  %0 = fused(%x, %s, %b) {region = "reduction"} : f16[B, 401, 96]
    body(%a0: f16[B, 401, 96], %a1: f16[96], %a2: f16[96]) {
      %0 = layer_norm(%a0, %a1, %a2) {axis = 2, epsilon = 1e-05} : f16[B, 401, 96]
      return %0
    }
  return %0 as "y"
}
""",
    "many_softmax": """graph @g() {
  input %x: f32[3, 1001, 33]
  %0 = softmax(%x) {axis = 2} : f32[3, 1001, 33]
  return %0 as "y"
}
""",
    "many_log_softmax": """graph @g() {
  input %x: f32[3003, 33]
  %0 = log_softmax(%x) {axis = 1} : f32[3003, 33]
  return %0 as "y"
}
""",
    "transposed": transposed(2, 1, 1, 1),
    "transposed_grouped": transposed(3, 2, 0, 0),
    **{
        f"{name}_{kind}": one(
            f"reduce_{name}(%x) {{axes = [1], keepdims = false}}",
            f"{kind}[B, 3]",
            f"{kind}[B, 37, 3]",
        )
        for name in ("max", "min", "mean", "sum")
        for kind in ("i32", "u8", "i64")
    },
    "max_long_i32": one("reduce_max(%x) {axes = [1], keepdims = false}", "i32[B]", "i32[B, 20000]"),
    "gathered_too": """graph @g(B in 1..64) {
  input %x: f32[70, 3]
  input %i: i64[B]
  %0, %1 = fused(%x, %i) {region = "reduction"} : f32[B, 3], f32[]
    body(%a0: f32[70, 3], %a1: i64[B]) {
      %0 = gather(%a0, %a1) {axis = 0} : f32[B, 3]
      %1 = reduce_sum(%0) {axes = [0, 1], keepdims = false} : f32[]
      return %0, %1
    }
  return %0 as "y0", %1 as "y1"
}
""",
    "apart": """graph @g(B in 1..64) {
  input %x: f32[4, 3, B]
  %0, %1 = fused(%x) {region = "reduction"} : f32[3, B], f32[B]
    body(%a0: f32[4, 3, B]) {
      %0 = slice(%a0) {starts = [1, 0, 0], sizes = [1, 3, B], steps = [1, 1, 1]} : f32[1, 3, B]
      %1 = reshape(%0) {shape = [3, B]} : f32[3, B]
      %2 = exp(%1) : f32[3, B]
      %3 = broadcast_to(%2) {shape = [4, 3, B]} : f32[4, 3, B]
      %4 = reduce_sum(%3) {axes = [0, 1], keepdims = false} : f32[B]
      return %2, %4
    }
  return %0 as "y0", %1 as "y1"
}
""",
    "trilu": one("trilu(%x) {upper = false, k = 1}", SHAPE),
}
BINDING = {"B": 3, "N": 2}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    cases = {name: (*launches_of(text), BINDING) for name, text in CASES.items()}
    return interpret(tmp_path_factory.mktemp("axis"), cases)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(interpreted, name):
    outputs, wanted = interpreted[name]
    for got, want in zip(outputs, wanted, strict=True):
        assert got.shape == want.shape
        if got.dtype.kind in "iu":
            np.testing.assert_array_equal(got, want)
        else:
            tolerance = 1e-3 if got.dtype == np.float16 else 1e-6
            assert np.linalg.norm(got - want) < tolerance * np.linalg.norm(want)


@pytest.mark.parametrize("name", CASES)
def test_compiles_without_a_gpu(name, tmp_path):
    for launch in launches_of(CASES[name])[1]:
        assert build(launch.kernel, "sm_90", tmp_path).image.startswith(b"\x7fELF")
