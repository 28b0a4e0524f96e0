"""A decoding step: rotation, cache write and attention in one kernel, against float64."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton.build import build


def step(
    batch: int, heads: int, groups: int, size: int, length: int, *, last: bool = False,
    dtype: str = "f16",
) -> str:  # fmt: skip
    """The position is the input, or with `last` the last place less the input."""
    wide, half = (heads + 2 * groups) * size, size // 2
    q = f"{dtype}[{batch}, {heads}, 1, {size}]"
    cache, table = f"{dtype}[{batch}, {groups}, {length}, {size}]", f"{dtype}[{length}, {size}]"
    flat, mask = f"{dtype}[{batch}, 1, {wide}]", f"bool[{batch}, 1, 1, {length}]"
    row = f"{dtype}[{batch}, 1, 1, {size}]"

    def part(name: str, start: int, count: int) -> str:
        return f"""
      %{name}s = slice(%x) {{starts = [0, 0, {start}], sizes = [{batch}, 1, {count * size}], steps = [1, 1, 1]}} : {dtype}[{batch}, 1, {count * size}]
      %{name} = reshape(%{name}s) {{shape = [{batch}, {count}, 1, {size}]}} : {dtype}[{batch}, {count}, 1, {size}]"""

    def rotated(name: str, count: int) -> str:
        whole, part = (
            f"{dtype}[{batch}, {count}, 1, {size}]",
            f"{dtype}[{batch}, {count}, 1, {half}]",
        )
        sizes = f"sizes = [{batch}, {count}, 1, {half}], steps = [1, 1, 1, 1]"
        return f"""
      %{name}a = slice(%{name}) {{starts = [0, 0, 0, 0], {sizes}}} : {part}
      %{name}b = slice(%{name}) {{starts = [0, 0, 0, {half}], {sizes}}} : {part}
      %{name}m = neg(%{name}b) : {part}
      %{name}c = concat(%{name}m, %{name}a) {{axis = 3}} : {whole}
      %{name}x = mul(%{name}, %cos) : {whole}
      %{name}y = mul(%{name}c, %sin) : {whole}
      %{name}r = add(%{name}x, %{name}y) : {whole}"""

    place = f"i64[{batch}, 1, 1, 1]"
    position = f"sub(%end, %pos) : {place}" if last else f"add(%none, %pos) : {place}"
    return f"""graph @g() {{
  input %0: {flat}
  input %1: {table}
  input %2: {table}
  input %3: {place}
  input %4: {cache}
  input %5: {cache}
  %6, %7, %8 = fused(%0, %1, %2, %3, %4, %5) {{region = "attention_step"}} : {q}, {cache}, {cache}
    body(%x: {flat}, %cosines: {table}, %sines: {table}, %pos: {place}, %ck: {cache}, %cv: {cache}) {{
      %none = constant {{value = dense(0): i64[]}} : i64[]
      %end = constant {{value = dense({length - 1}): i64[]}} : i64[]
      %at = {position}
      %flat = reshape(%at) {{shape = [{batch}, 1, 1]}} : i64[{batch}, 1, 1]
      %cos = gather(%cosines, %flat) : {row}
      %sin = gather(%sines, %flat) : {row}
      %j = iota {{size = {length}}} : i64[{length}]
      %seen = less_or_equal(%j, %at) : {mask}
      {part("q", 0, heads)}
      {part("k", heads * size, groups)}
      {part("v", (heads + groups) * size, groups)}
      {rotated("q", heads)}
      {rotated("k", groups)}
      %where = broadcast_to(%at) {{shape = [{batch}, {groups}, 1, {size}]}} : i64[{batch}, {groups}, 1, {size}]
      %keys = scatter_elements(%ck, %where, %kr) {{axis = 2}} : {cache}
      %values = scatter_elements(%cv, %where, %v) {{axis = 2}} : {cache}
      %o = attention(%qr, %keys, %values, %seen) {{scale = 0.3}} : {q}
      return %o, %keys, %values
    }}
  return %6 as "y", %7 as "keys", %8 as "values"
}}
"""


CASES = {
    "first": step(1, 4, 2, 16, 40),
    "last": step(1, 4, 2, 16, 40, last=True),
    "split": step(1, 8, 2, 32, 200, last=True),
    "begin_of_split": step(1, 8, 2, 32, 200),
    "one_head_each": step(1, 3, 3, 24, 70, last=True),
    "batch": step(3, 6, 2, 16, 130, last=True),
    "wide_group": step(1, 20, 1, 16, 65, last=True),
    "two_keys": step(1, 2, 1, 16, 2),
    "many_blocks": step(34, 8, 8, 16, 150, last=True),
    "single": step(1, 4, 2, 20, 90, last=True, dtype="f32"),
}


def test_steps_agree_with_float64_and_write_one_row(tmp_path) -> None:
    cases = {}
    for name, text in CASES.items():
        graph, launch = launch_of(text)
        assert len(launch.in_place) == 2  # caches may be written where they are
        cases[name] = (graph, launch, {})
    for name, (made, wanted) in interpret(tmp_path, cases, below=1).items():
        bound = 1e-5 if name == "single" else 2e-3
        for out, want in zip(made, wanted, strict=True):
            out, want = np.asarray(out, np.float64), np.asarray(want, np.float64)
            distance = np.linalg.norm(out - want) / np.linalg.norm(want)
            assert distance < bound, (name, distance)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_cubins(tmp_path, arch: str) -> None:
    for name in ("split", "batch"):
        _, launch = launch_of(CASES[name], f"cuda:{arch}")
        assert build(launch.kernel, arch, tmp_path).image
