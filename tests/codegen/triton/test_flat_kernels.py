"""Random numbers and bits as another type, in Triton's interpreter."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launches_of

from graphwright.compiler.codegen.triton.build import build


def drawn(kind: str, dtype: str, attributes: str = "seed = 3.25") -> str:
    return f"""graph @g(N in 1..8) {{
  input %x: i8[N]
  %0 = random_{kind}() {{shape = [N, 333], dtype = !{dtype}, {attributes}}} : {dtype}[N, 333]
  return %0 as "y"
}}
"""


def bits(source: str, dtype: str) -> str:
    return f"""graph @g(N in 1..8) {{
  input %x: {source}[N, 77]
  %0 = bitcast(%x) {{source = !{source}, dtype = !{dtype}}} : {dtype}[N, 77]
  return %0 as "y"
}}
"""


CASES = {
    "uniform": drawn("uniform", "f32", "seed = 3.25, low = -2.0, high = 5.0"),
    "uniform_f16": drawn("uniform", "f16"),
    "uniform_f64": drawn("uniform", "f64"),
    "normal": drawn("normal", "f32", "seed = 7.0, mean = 2.0, scale = 0.5"),
    "normal_f16": drawn("normal", "f16"),
    "bits_f32": bits("f32", "i32"),
    "bits_i16": bits("i16", "f16"),
    "bits_bool": bits("bool", "u8"),
}
SMALL = {
    **{
        f"{kind}_{saturate}": """graph @g(N in 1..8) {
  input %x: f32[N, 77]
  %0 = OP
  return %0 as "y"
}
""".replace("OP", f"cast(%x) {{dtype = !{kind}, saturate = {saturate}}} : {kind}[N, 77]")
        for kind in ("f8e4m3fn", "f8e5m2")
        for saturate in ("true", "false")
    },
}
UNSEEDED = drawn("uniform", "f32", "low = 0.0")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    cases = {name: (*launches_of(text), {"N": 3}) for name, text in CASES.items()}
    cases["unseeded"] = (*launches_of(UNSEEDED), {"N": 3})
    return interpret(tmp_path_factory.mktemp("flat"), cases)


@pytest.mark.parametrize("name", CASES)
def test_they_are_the_references(name: str, results) -> None:
    (got,), (want,) = results[name]
    if name.startswith("normal"):
        np.testing.assert_allclose(got.astype(np.float64), want, rtol=2e-3, atol=1e-3)
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype))


def test_without_a_seed_numbers_are_others(results) -> None:
    (got,), _ = results["unseeded"]
    assert 0 <= got.min() < 0.02 and 0.98 < got.max() < 1
    assert abs(got.mean() - 0.5) < 0.05 and len(np.unique(got)) > 990


@pytest.mark.parametrize("name", ["uniform_f64", "normal", "bits_i16", "bits_bool", *SMALL])
def test_they_compile_for_hopper(name: str, tmp_path: Path) -> None:
    _, launches = launches_of((CASES | SMALL)[name])
    assert all(build(launch.kernel, "sm_90", tmp_path).image for launch in launches)


def test_the_unseeded_one_compiles_for_hopper(tmp_path: Path) -> None:
    _, (launch,) = launches_of(UNSEEDED)
    assert build(launch.kernel, "sm_90", tmp_path).image


def test_long_sums_are_split_and_views_are_aligned_by_themselves(tmp_path: Path) -> None:
    extents = ", ".join(f"{d}*D{i} + {i + 1}" for i, d in enumerate((2, 3, 1, 5, 1)))
    symbols = ", ".join(f"D{i} in 1..9" for i in range(5))
    _, (launch,) = launches_of(
        f"""graph @g({symbols}) {{
  input %x: f32[{extents}]
  %0 = neg(%x) : f32[{extents}]
  return %0 as "y"
}}
"""
    )
    assert all(line.count(" + ") <= 32 for line in launch.kernel.source.splitlines())
    _, launches = launches_of(
        """graph @g() {
  input %x: f32[6]
  %0 = slice(%x) {starts = [2], sizes = [4], steps = [1]} : f32[4]
  %1 = fused(%0) {region = "pointwise"} : f32[4]
    body(%a0: f32[4]) {
      return %a0
    }
  return %1 as "y"
}
"""
    )
    assert launches[-1].kernel.aligned == (1,)
