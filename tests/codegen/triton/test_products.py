"""Products of few rows: odd sizes, several rows, two products, a norm before them, tails of the depth."""

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton.build import build
from graphwright.compiler.codegen.triton.products import shape_of


def products(rows: int, columns: int, depth: int, *, dtype: str = "f16", gated: bool = False,
             norm: bool = False, residual: bool = False) -> str:  # fmt: skip
    x, w = f"{dtype}[1, {rows}, {depth}]", f"{dtype}[{depth}, {columns}]{{1,0}}"
    out = f"{dtype}[1, {rows}, {columns}]"
    body, source = "", "%a0"
    if norm:
        body = f"""
      %c = cast(%a0) {{dtype = !f32}} : f32[1, {rows}, {depth}]
      %n = rms_norm(%c) {{axis = 2, epsilon = 0.00001}} : f32[1, {rows}, {depth}]
      %h = cast(%n) {{dtype = !{dtype}}} : {x}
      %y = mul(%h, %a1) : {x}"""
        source = "%y"
    body += f"\n      %p = matmul({source}, %a2) : {out}"
    last = "%p"
    if gated:
        body += f"""
      %s = silu(%p) : {out}
      %q = matmul({source}, %a3) : {out}
      %g = mul(%s, %q) : {out}"""
        last = "%g"
    if residual:
        body += f"\n      %t = add(%a4, {last}) : {out}"
        last = "%t"
    types = [x, f"{dtype}[{depth}]", w, w, out]
    inputs = "\n".join(f"  input %i{n}: {t}" for n, t in enumerate(types))
    names = ", ".join(f"%i{n}" for n in range(len(types)))
    inner = ", ".join(f"%a{n}: {t}" for n, t in enumerate(types))
    return f"""graph @g() {{
{inputs}
  %r = fused({names}) {{region = "products"}} : {out}
    body({inner}) {{{body}
      return {last}
    }}
  return %r as "y"
}}
"""


CASES = {
    "row": products(1, 48, 256),
    "odd": products(1, 37, 130, residual=True),
    "rows": products(3, 21, 300, norm=True),
    "gated": products(2, 19, 96, gated=True, norm=True),
    "deep": products(1, 9, 9000, residual=True),
    "many_columns": products(1, 1700, 40, gated=True),
    "long_tail": products(4, 6, 2500, norm=True, gated=True, residual=True),
    "single": products(1, 11, 1000, dtype="f32", norm=True),
}


def test_products_agree_with_float64(tmp_path) -> None:
    cases = {name: (*launch_of(text), {}) for name, text in CASES.items()}
    for name, (made, wanted) in interpret(tmp_path, cases).items():
        for out, want in zip(made, wanted, strict=True):
            out, want = np.asarray(out, np.float64), np.asarray(want, np.float64)
            distance = np.linalg.norm(out - want) / np.linalg.norm(want)
            assert distance < (2e-6 if name == "single" else 1.5e-3), (name, distance)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_cubins(tmp_path, arch: str) -> None:
    _, launch = launch_of(CASES["gated"], f"cuda:{arch}")
    assert build(launch.kernel, arch, tmp_path).image


def test_a_thread_never_holds_more_weights_than_registers() -> None:
    for columns in (1, 100, 2048, 14336, 128256):
        for depth in (1, 64, 2048, 4096, 14336, 16384):
            for count in (1, 2):
                tile = shape_of(columns, depth, count, 16)
                held = tile.columns * tile.chunk * count * tile.ahead / (32 * tile.warps)
                assert held <= 128, (columns, depth, count, tile)
