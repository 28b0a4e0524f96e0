"""The attention kernel: every form of mask, shared heads, strided operands, moved results."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton.build import build


def attention(q: str, k: str, v: str, out: str, attributes: str = "", more: str = "") -> str:
    types = [q, k, v, *(more.split("; ") if more else [])]
    inputs = "\n".join(f"  input %i{n}: {t}" for n, t in enumerate(types))
    given = ", ".join(f"%i{n}" for n in range(len(types)))
    inner = ", ".join(f"%a{n}: {t}" for n, t in enumerate(types))
    names = ", ".join(f"%a{n}" for n in range(len(types)))
    return f"""graph @g(B in 1..8, S in 1..200, T in 1..200) {{
{inputs}
  %0 = fused({given}) {{region = "contraction"}} : {out}
    body({inner}) {{
      %0 = attention({names}) {{scale = 0.3{attributes}}} : {out}
      return %0
    }}
  return %0 as "y"
}}
"""


Q, K = "f32[B, 4, S, 24]", "f32[B, 4, T, 24]"
HALF = "f16[B, 4, S, 32]"
CASES = {
    "plain": attention(Q, K, "f32[B, 4, T, 40]", "f32[B, 4, S, 40]"),
    "half": attention(HALF, HALF, HALF, HALF),
    "shared": attention(Q, "f32[B, 2, T, 24]", "f32[B, 2, T, 24]", Q),
    "causal": attention(Q, K, K, Q, ", causal = true"),
    "causal_end": attention(Q, K, K, Q, ', causal = true, align = "end"'),
    "window": attention(Q, K, K, Q, ", window = [5, 9]"),
    "capped": attention(Q, K, K, Q, ", softcap = 2.0", "f32[S, T]"),
    "hidden": attention(Q, K, K, Q, ", fill = -10000.0", "bool[B, 1, 1, T]"),
    "lengths": attention(Q, K, K, Q, ', causal = true, align = "end"', "bool[]; i64[B]"),
    "empty": attention(Q, K, K, Q, ', empty = "nan"', "bool[B, 1, 1, T]"),
    "merged": """graph @g(B in 1..8, S in 1..200) {
  input %x: f16[B, S, 192]
  %0 = fused(%x, %x, %x) {region = "contraction"} : f16[B, S, 64]
    body(%a0: f16[B, S, 192], %a1: f16[B, S, 192], %a2: f16[B, S, 192]) {
      %0 = slice(%a0) {starts = [0, 0, 0], sizes = [B, S, 64], steps = [1, 1, 1]} : f16[B, S, 64]
      %1 = slice(%a1) {starts = [0, 0, 64], sizes = [B, S, 64], steps = [1, 1, 1]} : f16[B, S, 64]
      %2 = slice(%a2) {starts = [0, 0, 128], sizes = [B, S, 64], steps = [1, 1, 1]} : f16[B, S, 64]
      %3 = reshape(%0) {shape = [B, S, 4, 16]} : f16[B, S, 4, 16]
      %4 = reshape(%1) {shape = [B, S, 4, 16]} : f16[B, S, 4, 16]
      %5 = reshape(%2) {shape = [B, S, 4, 16]} : f16[B, S, 4, 16]
      %6 = transpose(%3) {permutation = [0, 2, 1, 3]} : f16[B, 4, S, 16]
      %7 = transpose(%4) {permutation = [0, 2, 1, 3]} : f16[B, 4, S, 16]
      %8 = transpose(%5) {permutation = [0, 2, 1, 3]} : f16[B, 4, S, 16]
      %9 = attention(%6, %7, %8) {scale = 0.25} : f16[B, 4, S, 16]
      %10 = transpose(%9) {permutation = [0, 2, 1, 3]} : f16[B, S, 4, 16]
      %11 = reshape(%10) {shape = [B, S, 64]} : f16[B, S, 64]
      return %11
    }
  return %0 as "y"
}
""",
}
BINDING = {"B": 2, "S": 70, "T": 70}


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory):
    cases = {name: (*launch_of(text), BINDING) for name, text in CASES.items()}
    return interpret(tmp_path_factory.mktemp("attention"), cases)


@pytest.mark.parametrize("name", CASES)
def test_equals_the_reference(interpreted, name):
    (got,), (want,) = interpreted[name]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    kept = ~np.isnan(want)
    error = np.linalg.norm((got - want)[kept]) / np.linalg.norm(want[kept])
    assert error < (2e-3 if got.dtype == np.float16 else 2e-6)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("name", CASES)
def test_compiles_without_a_gpu(name, arch, tmp_path):
    _, launch = launch_of(CASES[name])
    assert build(launch.kernel, arch, tmp_path).image.startswith(b"\x7fELF")
