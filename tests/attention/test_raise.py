"""How exporters write attention, and what only looks like it: spellings become the op and keep their
results, counterexamples stay."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.target import Target

CLEAN = "(canonicalize,fold-constants,eliminate-common,eliminate-dead)*"
PIPELINE = f"{CLEAN},(raise-patterns,canonicalize,fold-constants,eliminate-common,eliminate-dead)*"
B, H, S, T, D, E = 2, 4, 3, 5, 8, 6
SCORES = f"f32[{B}, {H}, {S}, {T}]"
TYPES = {
    "q": f"f32[{B}, {H}, {S}, {D}]", "k": f"f32[{B}, {H}, {T}, {D}]", "v": f"f32[{B}, {H}, {T}, {E}]",
    "mask": f"bool[{B}, 1, {S}, {T}]", "keys": f"bool[{T}]", "bias": f"f32[1, {H}, {S}, {T}]",
    "row": f"f32[{B}, 1, 1, {T}]", "few_k": f"f32[{B}, 2, {T}, {D}]", "few_v": f"f32[{B}, 2, {T}, {E}]",
}  # fmt: skip
TURN = f"%t = transpose(%k) {{permutation = [0, 1, 3, 2]}} : f32[{B}, {H}, {D}, {T}]\n"
PRODUCT = f"{TURN}%s = matmul(%q, %t) : {SCORES}\n"
PLAIN = f"%p = softmax(%m) {{axis = 3}} : {SCORES}\n"
OUT = f"%out = matmul(%p, %v) : f32[{B}, {H}, {S}, {E}]\n"


def number(name: str, value: str, dtype: str = "f32") -> str:
    return f"%{name} = constant {{value = splat({value}): {dtype}[]}} : {dtype}[]\n"


HALF = number("c", "0.5")
SCALED = f"{PRODUCT}{HALF}%m = mul(%s, %c) : {SCORES}\n"


def between(*lines: str) -> str:
    """Statements from the scaled scores %m0 to %m."""
    return SCALED.replace("%m =", "%m0 =") + "".join(f"{line}\n" for line in lines) + PLAIN + OUT


REPEATED = "".join(
    f"%{x}5 = reshape(%few_{x}) {{shape = [{B}, 2, 1, {T}, {n}]}} : f32[{B}, 2, 1, {T}, {n}]\n"
    f"%{x}6 = broadcast_to(%{x}5) {{shape = [{B}, 2, 2, {T}, {n}]}} : f32[{B}, 2, 2, {T}, {n}]\n"
    f"%{x} = reshape(%{x}6) {{shape = [{B}, {H}, {T}, {n}]}} : f32[{B}, {H}, {T}, {n}]\n"
    for x, n in (("k", D), ("v", E))
)

# name: (statements, what the op must say)
SPELLINGS: dict[str, tuple[str, str]] = {
    "no_scale": (PRODUCT.replace("%s =", "%m =") + PLAIN + OUT, "scale = 1.0"),
    "scaled": (SCALED + PLAIN + OUT, "scale = 0.5"),
    "divided": (
        PRODUCT + number("c", "4.0") + f"%m = div(%s, %c) : {SCORES}\n" + PLAIN + OUT, "scale = 0.25",
    ),
    "on_q_and_k": (
        HALF + f"%q2 = mul(%q, %c) : {TYPES['q']}\n%k2 = mul(%k, %c) : {TYPES['k']}\n"
        + PRODUCT.replace("%q,", "%q2,").replace("(%k)", "(%k2)").replace("%s =", "%m =") + PLAIN + OUT,
        "scale = 0.25",
    ),
    "on_q_by_division": (
        number("c", "2.0") + f"%q2 = div(%q, %c) : {TYPES['q']}\n"
        + PRODUCT.replace("%q,", "%q2,").replace("%s =", "%m =") + PLAIN + OUT, "scale = 0.5",
    ),
    "bias": (between(f"%m = add(%m0, %bias) : {SCORES}"), "attention(%q, %k, %v, %bias)"),
    "bias_first": (between(f"%m = add(%row, %m0) : {SCORES}"), "attention(%q, %k, %v, %row)"),
    "mask": (
        between(number("low", "-inf").strip(), f"%m = where(%mask, %m0, %low) : {SCORES}"), "%mask)",
    ),
    "mask_inverted": (
        between(number("low", "-10000.0").strip(), f"%m = where(%keys, %low, %m0) : {SCORES}"),
        "fill = -10000.0",
    ),
    "mask_and_bias": (
        between(number("low", "-inf").strip(), f"%b = add(%m0, %bias) : {SCORES}",
                f"%m = where(%mask, %b, %low) : {SCORES}"), "scale = 0.5",
    ),
    "nan_to_zero": (
        between(f"%m = add(%m0, %bias) : {SCORES}").replace("%p =", "%p0 =").replace(
            OUT, f"%n = is_nan(%p0) : bool[{B}, {H}, {S}, {T}]\n" + number("z", "0.0")
            + f"%p = where(%n, %z, %p0) : {SCORES}\n" + OUT), "attention(%q, %k, %v, %bias)",
    ),
    "capped": (
        between(number("cap", "3.0").strip(), f"%d = div(%m0, %cap) : {SCORES}",
                f"%h = tanh(%d) : {SCORES}", f"%m = mul(%h, %cap) : {SCORES}"), "softcap = 3.0",
    ),
    "shared_heads": (REPEATED + SCALED + PLAIN + OUT, "scale = 0.5"),
    "three_axes": (
        "".join(f"%{x}3 = reshape(%{x}) {{shape = [{B * H}, {n}, {m}]}} : f32[{B * H}, {n}, {m}]\n"
                for x, n, m in (("q", S, D), ("k", T, D), ("v", T, E)))
        + f"%t = transpose(%k3) {{permutation = [0, 2, 1]}} : f32[{B * H}, {D}, {T}]\n"
        + f"%s = matmul(%q3, %t) : f32[{B * H}, {S}, {T}]\n"
        + f"%p = softmax(%s) {{axis = 2}} : f32[{B * H}, {S}, {T}]\n"
        + f"%out = matmul(%p, %v3) : f32[{B * H}, {S}, {E}]\n", "scale = 1.0",
    ),
}  # fmt: skip

# name: statements that must stay as they are
COUNTEREXAMPLES: dict[str, str] = {
    "scaled_after_bias": f"{PRODUCT}{HALF}%b = add(%s, %bias) : {SCORES}\n"
    f"%m = mul(%b, %c) : {SCORES}\n{PLAIN}{OUT}",
    "scaled_after_mask": f"{PRODUCT}{HALF}{number('low', '-inf')}"
    f"%b = where(%mask, %s, %low) : {SCORES}\n%m = mul(%b, %c) : {SCORES}\n{PLAIN}{OUT}",
    "two_biases": between(f"%b = add(%m0, %bias) : {SCORES}", f"%m = add(%b, %row) : {SCORES}"),
    "masked_to_a_finite_number_over_a_bias": between(
        number("low", "-9.0").strip(),
        f"%b = add(%m0, %bias) : {SCORES}",
        f"%m = where(%mask, %b, %low) : {SCORES}",
    ),
    "other_axis": (SCALED + PLAIN + OUT).replace("axis = 3", "axis = 2"),
    "cap_of_another_number": between(
        number("cap", "3.0").strip(), number("other", "2.0").strip(),
        f"%d = div(%m0, %cap) : {SCORES}", f"%h = tanh(%d) : {SCORES}",
        f"%m = mul(%h, %other) : {SCORES}",
    ),
    "other_work_on_the_scores": between(f"%m = relu(%m0) : {SCORES}"),
    "nan_to_one": between(f"%m = add(%m0, %bias) : {SCORES}").replace("%p =", "%p0 =").replace(
        OUT, f"%n = is_nan(%p0) : bool[{B}, {H}, {S}, {T}]\n" + number("z", "1.0")
        + f"%p = where(%n, %z, %p0) : {SCORES}\n" + OUT),
    "scores_needed": SCALED + PLAIN + OUT + 'return %out as "out", %s as "scores"',
    "weights_needed": SCALED + PLAIN + OUT + 'return %out as "out", %p as "weights"',
}  # fmt: skip


def graph_of(statements: str) -> Graph:
    used = [n for n in TYPES if re.search(rf"%{n}\b", statements)]
    made = set(re.findall(r"^%(\w+) =", statements, flags=re.MULTILINE))
    inputs = "".join(f"input %{n}: {TYPES[n]}\n" for n in used if n not in made)
    last = "" if "return" in statements else 'return %out as "out"'
    return parse_graph(f"graph @main() {{\n{inputs}{statements}{last}\n}}", registry=REGISTRY)


def raised(graph: Graph, target: str = "cpu") -> list[str]:
    """The attention ops, as text, that the passes find; results are compared on the way."""
    from graphwright.compiler.ir.printer import print_op

    after = graph.clone()
    Pipeline.parse(PIPELINE).run(after, Target.parse(target))
    rng = np.random.default_rng(3)
    feed = [
        rng.random(tuple(map(int, v.type.shape))) > 0.3  # type: ignore[arg-type]
        if v.type.dtype.name == "bool"
        else rng.standard_normal(tuple(map(int, v.type.shape))).astype(np.float32)  # type: ignore[arg-type]
        for v in graph.inputs
    ]
    for want, got in zip(evaluate(graph, feed), evaluate(after, feed), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return [print_op(o) for o in after.ops if o.name == "attention"]


@pytest.mark.parametrize("name", SPELLINGS)
def test_spelling(name: str) -> None:
    statements, says = SPELLINGS[name]
    found = raised(graph_of(statements))
    assert len(found) == 1 and says in found[0], found
    assert ('empty = "nan"' in found[0]) == (name != "nan_to_zero")


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_counterexample(name: str) -> None:
    assert raised(graph_of(COUNTEREXAMPLES[name])) == []


def test_heads_are_not_repeated() -> None:
    (found,) = raised(graph_of(SPELLINGS["shared_heads"][0]))
    assert "(%q, %few_k, %few_v)" in found


def test_quantized_products_stay() -> None:
    """Products of numbers that are dequantized run in integers."""
    zero = number("z", "0", "i8")
    eight = TYPES["q"].replace("f32", "i8")
    text = f"{HALF}{zero}%i = quantize(%q, %c, %z) {{dtype = !i8}} : {eight}\n"
    text += f"%q2 = dequantize(%i, %c, %z) {{dtype = !f32}} : {TYPES['q']}\n"
    text += PRODUCT.replace("%q,", "%q2,").replace("%s =", "%m =") + PLAIN + OUT
    assert raised(graph_of(text)) == []


def test_only_where_there_is_a_kernel() -> None:
    """A GPU's kernel holds whole heads; raising others would be undone by decompose for ever."""
    assert len(raised(graph_of(SPELLINGS["scaled"][0]), "cuda:sm_90")) == 1
    wide = """graph @main() {
  input %q: f32[1, 2, 3, 300]
  input %t: f32[1, 2, 300, 4]
  input %v: f32[1, 2, 4, 16]
  %s = matmul(%q, %t) : f32[1, 2, 3, 4]
  %p = softmax(%s) {axis = 3} : f32[1, 2, 3, 4]
  %out = matmul(%p, %v) : f32[1, 2, 3, 16]
  return %out as "out"
}"""
    graph = parse_graph(wide, registry=REGISTRY)
    assert raised(graph, "cuda:sm_90") == []
    assert len(raised(graph, "cpu")) == 1
