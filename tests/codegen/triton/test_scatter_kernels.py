"""scatter_elements and scatter_nd in Triton's interpreter: the updates in their order."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launches_of

from graphwright.compiler.codegen.triton.build import build


def elements(axis: int, reduction: str, kind: str = "f32", x: str = "70, 6, 5") -> str:
    extents = x.split(", ")
    extents[axis] = "B"
    shape = ", ".join(extents)
    return f"""graph @g(B in 1..64) {{
  input %x: {kind}[{x}]
  input %i: i64[{shape}]
  input %u: {kind}[{shape}]
  %0 = scatter_elements(%x, %i, %u) {{axis = {axis}, reduction = "{reduction}"}} : {kind}[{x}]
  return %0 as "y"
}}
"""


def slices(x: str, indices: str, updates: str, reduction: str, kind: str = "f32") -> str:
    return f"""graph @g(B in 1..64) {{
  input %x: {kind}[{x}]
  input %i: i64[{indices}]
  input %u: {kind}[{updates}]
  %0 = scatter_nd(%x, %i, %u) {{reduction = "{reduction}"}} : {kind}[{x}]
  return %0 as "y"
}}
"""


REDUCTIONS = ("none", "add", "mul", "max", "min")
CASES = {
    **{f"elements_{r}": elements(0, r) for r in REDUCTIONS},
    "elements_inner": elements(2, "add", x="3, 4, 70"),
    "elements_line": elements(0, "add", x="70"),
    "elements_f16": elements(1, "add", "f16", "3, 70, 4"),
    "elements_i32": elements(1, "max", "i32", "3, 70, 4"),
    **{f"slices_{r}": slices("70, 9, 4", "B, 1", "B, 9, 4", r) for r in REDUCTIONS},
    "points": slices("70, 70, 71", "2, B, 3", "2, B", "add"),
    "pairs": slices("70, 70, 5", "B, 2", "B, 5", "none", "i64"),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    # (the indices are below 70, and 19 of them in 70 places are repeated now and then)
    cases = {name: (*launches_of(text), {"B": 19}) for name, text in CASES.items()}
    return interpret(tmp_path_factory.mktemp("scatter"), cases)


@pytest.mark.parametrize("name", CASES)
def test_they_agree_with_the_reference(name: str, results) -> None:
    (got,), (want,) = results[name]
    if got.dtype.kind == "f":
        error = np.linalg.norm(got.astype(np.float64) - want) / np.linalg.norm(want)
        assert error <= (2e-3 if got.dtype == np.float16 else 1e-6)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["elements_add", "slices_none"])
def test_they_compile_for_hopper(name: str, tmp_path: Path) -> None:
    _, launches = launches_of(CASES[name])
    assert all(build(launch.kernel, "sm_90", tmp_path).image for launch in launches)
