"""Resampling in Triton's interpreter: resize by every rule, grid_sample, roi_align."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton.build import build


def resize(sizes: str, attributes: str, x: str = "f32[N, 2, 5, 7]") -> str:
    symbols = "N in 1..8, S in 1..64" if "S" in sizes else "N in 1..8"
    more = "  input %s: i8[S]\n" if "S" in sizes else ""
    return f"""graph @g({symbols}) {{
  input %x: {x}
{more}  %0 = resize(%x) {{sizes = [{sizes}], {attributes}}} : {x.split("[")[0]}[{sizes}]
  return %0 as "y"
}}
"""


def grid(attributes: str) -> str:
    return f"""graph @g(N in 1..8) {{
  input %x: f32[N, 3, 5, 7]
  input %g: f32[N, 4, 6, 2]
  %0 = grid_sample(%x, %g) {{{attributes}}} : f32[N, 3, 4, 6]
  return %0 as "y"
}}
"""


def regions(attributes: str) -> str:
    return f"""graph @g(R in 1..8) {{
  input %x: f32[70, 3, 9, 9]
  input %r: f32[R, 4]
  input %i: i64[R]
  %0 = roi_align(%x, %r, %i) {{height = 2, width = 3, {attributes}}} : f32[R, 3, 2, 3]
  return %0 as "y"
}}
"""


UP, DOWN = "N, 2, 10, 11", "N, 2, 3, 4"
CASES = {
    "nearest_whole": resize("N, 2, 10, 14", 'mode = "nearest", nearest = "floor", coordinates = "asymmetric"'),
    **{
        f"nearest_{rule}": resize(UP, f'mode = "nearest", nearest = "{rule}"')
        for rule in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    },
    "nearest_f16": resize(UP, 'mode = "nearest"', "f16[N, 2, 5, 7]"),
    "nearest_u8": resize(UP, 'mode = "nearest"', "u8[N, 2, 5, 7]"),
    **{
        f"linear_{rule}": resize(UP, f'mode = "linear", coordinates = "{rule}"')
        for rule in ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
                     "asymmetric", "tf_half_pixel_for_nn")
    },
    "linear_down": resize(DOWN, 'mode = "linear"'),
    "linear_f16": resize(UP, 'mode = "linear"', "f16[N, 2, 5, 7]"),
    "to_one": resize("N, 2, 1, 1", 'mode = "linear", coordinates = "pytorch_half_pixel"'),
    "symbolic": resize("N, 2, S, 7", 'mode = "linear", coordinates = "pytorch_half_pixel"'),
    "cubic": resize(UP, 'mode = "cubic"'),
    "cubic_inside": resize(DOWN, 'mode = "cubic", exclude_outside = true, cubic_a = -0.5'),
    "antialias": resize(DOWN, 'mode = "linear", antialias = true'),
    "antialias_cubic": resize("N, 2, 3, 7", 'mode = "cubic", antialias = true, exclude_outside = true'),
    "scales": resize("N, 2, 10, 11", 'mode = "linear", scales = [1.0, 1.0, 2.1, 1.7]'),
    "crop": resize(UP, 'mode = "linear", coordinates = "tf_crop_and_resize", extrapolation = 10.0, '
                       "roi = [0.0, 0.0, 0.4, -0.2, 1.0, 1.0, 0.9, 1.3]"),
    **{
        f"grid_{mode}_{padding}": grid(f'mode = "{mode}", padding = "{padding}"')
        for mode in ("nearest", "linear", "cubic")
        for padding in ("zeros", "border", "reflection")
    },
    "grid_aligned": grid('mode = "linear", padding = "reflection", align_corners = true'),
    "regions": regions("sampling = 2, scale = 2.0"),
    "regions_old": regions('sampling = 3, half_pixel = false, mode = "max"'),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    cases = {}
    for name, text in CASES.items():
        graph, launch = launch_of(text)
        cases[name] = (graph, launch, {"N": 2, "S": 1, "R": 5})
    return interpret(tmp_path_factory.mktemp("sampling"), cases)


@pytest.mark.parametrize("name", CASES)
def test_they_agree_with_the_reference(name: str, results) -> None:
    (got,), (want,) = results[name]
    scale = np.linalg.norm(want.astype(np.float64))
    assert (
        np.linalg.norm(got.astype(np.float64) - want) <= (1e-3 if "f16" in name else 1e-5) * scale
    )
    assert scale > 0


@pytest.mark.parametrize(
    "name", ["linear_half_pixel", "cubic_inside", "crop", "grid_cubic_reflection", "regions"]
)
def test_they_compile_for_hopper(name: str, tmp_path: Path) -> None:
    _, launch = launch_of(CASES[name])
    assert build(launch.kernel, "sm_90", tmp_path).image
