"""Products and convolutions of integers in Triton's interpreter, bit for bit as the reference."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed")
pytest.importorskip("torch", reason="the interpreter needs torch")

from triton_runs import interpret, launch_of

from graphwright.compiler.codegen.triton.build import build


def product(a: str, b: str, a_zero: str, b_zero: str, out: str) -> str:
    return f"""graph @g(B in 1..64) {{
  input %a: {a}
  input %b: {b}
  input %az: {a_zero}
  input %bz: {b_zero}
  %0 = fused(%a, %b, %az, %bz) {{region = "contraction"}} : {out}
    body(%a0: {a}, %a1: {b}, %a2: {a_zero}, %a3: {b_zero}) {{
      %0 = matmul_integer(%a0, %a1, %a2, %a3) : {out}
      %1 = add(%0, %0) : {out}
      return %1
    }}
  return %0 as "y"
}}
"""


def convolution(x: str, w: str, w_zero: str, out: str, groups: int, pad: int, stride: int) -> str:
    attributes = (
        f"strides = [{stride}, {stride}], low = [{pad}, {pad}], high = [{pad}, {pad}], "
        f"dilations = [1, 1], groups = {groups}"
    )
    zero, kind = x.split("[")[0] + "[]", w_zero
    return f"""graph @g(N in 1..8) {{
  input %x: {x}
  input %w: {w}
  input %xz: {zero}
  input %wz: {kind}
  %0 = fused(%x, %w, %xz, %wz) {{region = "contraction"}} : f32{out}
    body(%a0: {x}, %a1: {w}, %a2: {zero}, %a3: {kind}) {{
      %0 = conv_integer(%a0, %a1, %a2, %a3) {{{attributes}}} : i32{out}
      %1 = cast(%0) {{dtype = !f32}} : f32{out}
      return %1
    }}
  return %0 as "y"
}}
"""


def plain(kind: str) -> str:
    return f"""graph @g(B in 1..64) {{
  input %a: {kind}[B, 5, 37]
  input %b: {kind}[B, 37, 21]
  %0 = fused(%a, %b) {{region = "contraction"}} : {kind}[B, 5, 21]
    body(%a0: {kind}[B, 5, 37], %a1: {kind}[B, 37, 21]) {{
      %0 = matmul(%a0, %a1) : {kind}[B, 5, 21]
      return %0
    }}
  return %0 as "y"
}}
"""


QUANTIZED = """graph @g(B in 1..64) {
  input %x: f32[B, 7]
  input %s: f32[7]
  %0 = quantize(%x, %s, %z) {dtype = !KIND} : KIND[B, 7]
  return %0 as "y"
}
""".replace("  %0 =", "  input %z: KIND[]\n  %0 =")

PADDED = """graph @g(B in 1..64) {
  input %x: f32[B, 7]
  input %v: f32[]
  %0 = pad(%x, %v) {low = [1, 2], high = [0, 1]} : f32[B + 1, 10]
  return %0 as "y"
}
"""


def packed(bits: int, block: int, depth: int, zeros: str = "", rows: str = "B") -> str:
    blocks = -(-depth // block)
    more = f"  input %z: {zeros}\n" if zeros else ""
    return f"""graph @g(B in 1..64) {{
  input %a: f32[{rows}, {depth}]
  input %b: u8[21, {blocks}, {block * bits // 8}]
  input %s: f32[21, {blocks}]
{more}  %0 = matmul_packed(%a, %b, %s{", %z" if zeros else ""}) {{bits = {bits}, block = {block}}} : f32[{rows}, 21]
  return %0 as "y"
}}
"""


PACKED = {
    "packed_4": packed(4, 16, 64),
    "packed_4_ragged": packed(4, 32, 50, "u8[21, 1]", "2, B"),
    "packed_8": packed(8, 16, 40, "f32[21, 3]", "1"),
    "packed_2": packed(2, 16, 40, "u8[21, 1]"),
}
CASES = {
    "quantize_u8": QUANTIZED.replace("KIND", "u8"),
    "quantize_i8": QUANTIZED.replace("KIND", "i8"),
    "quantize_i16": QUANTIZED.replace("KIND", "i16"),
    "padded_by_a_value": PADDED,
    "u8_i8": product("u8[B, 40]", "i8[40, 33]", "u8[]", "i8[]", "i32[B, 33]"),
    "i8_u8_ragged": product("i8[B, 37]", "u8[37, 5]", "i8[]", "u8[1, 5]", "i32[B, 5]"),
    "u8_u8_rows": product("u8[2, B, 64]", "u8[2, 64, 16]", "u8[2, B, 1]", "u8[2, 1, 16]",
                          "i32[2, B, 16]"),
    "i16_i8": product("i16[B, 70]", "i8[70, 20]", "i16[]", "i8[1, 20]", "i32[B, 20]"),
    "one_row": product("i8[1, 100]", "i8[100, 300]", "i8[]", "i8[]", "i32[1, 300]"),
    "conv": convolution("u8[N, 3, 7, 9]", "i8[10, 3, 3, 3]", "i8[10]", "[N, 10, 7, 9]", 1, 1, 1),
    "conv_grouped": convolution(
        "i8[N, 6, 8, 8]", "u8[4, 3, 2, 2]", "u8[]", "[N, 4, 4, 4]", 2, 0, 2
    ),
    "conv_depthwise": convolution(
        "u8[N, 5, 6, 6]", "u8[5, 1, 3, 3]", "u8[5]", "[N, 5, 6, 6]", 5, 1, 1
    ),
    "plain_i64": plain("i64"),
    "plain_u8": plain("u8"),
    "plain_f64": plain("f64"),
}  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory):
    cases = {}
    for name, text in {**CASES, **PACKED}.items():
        graph, launch = launch_of(text)
        cases[name] = (graph, launch, {"B": 19, "N": 2})
    return interpret(tmp_path_factory.mktemp("integer"), cases)


@pytest.mark.parametrize("name", CASES)
def test_every_bit_is_the_references(name: str, results) -> None:
    (got,), (want,) = results[name]
    if got.dtype.kind == "f" and name == "plain_f64":
        np.testing.assert_allclose(got, want, rtol=1e-12)
    else:
        np.testing.assert_array_equal(got, want.astype(got.dtype))
    assert np.count_nonzero(got) > got.size // 2


@pytest.mark.parametrize("name", PACKED)
def test_packed_weights_agree(name: str, results) -> None:
    (got,), (want,) = results[name]
    assert np.linalg.norm(got - want) < 1e-6 * np.linalg.norm(want)


@pytest.mark.parametrize(
    "name", ["u8_i8", "i16_i8", "conv", "plain_i64", "plain_f64", "quantize_u8", "packed_4"]
)
def test_they_compile_for_hopper(name: str, tmp_path: Path) -> None:
    _, launch = launch_of({**CASES, **PACKED}[name])
    assert build(launch.kernel, "sm_90", tmp_path).image
