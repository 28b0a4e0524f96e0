"""The manifest's round trip, expressions against the compiler's dims, and the choice of a variant."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import two_step

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.errors import ArtifactError
from graphwright.runtime import cpu
from graphwright.runtime.artifact import ArtifactFile
from graphwright.runtime.expressions import (
    check_expression,
    evaluate_expression,
    format_expression,
    symbols_in,
)
from graphwright.runtime.manifest import Plan, Variant, write_manifest
from graphwright.runtime.read_manifest import read_manifest


def test_round_trip(library: bytes) -> None:
    manifest = ArtifactFile(two_step(library).to_bytes()).manifest
    text = write_manifest(manifest)
    assert read_manifest(text) == manifest
    assert write_manifest(read_manifest(text)) == text
    assert text.startswith(b'{\n "format":[1,1]')


SYMBOLS = tuple(Symbol(n, 1, 100, 1) for n in "ABC")


@st.composite
def random_dims(draw: st.DrawFn) -> Dim:
    out: Dim = dims.of(draw(st.sampled_from(SYMBOLS)))
    for _ in range(draw(st.integers(0, 6))):
        other: Dim = (
            draw(st.integers(-3, 9))
            if draw(st.booleans())
            else dims.of(draw(st.sampled_from(SYMBOLS)))
        )
        match draw(st.sampled_from("+-*/%Mm")):
            case "+":
                out = out + other
            case "-":
                out = out - other
            case "*":
                out = dims.multiply(out, other)
            case "/" | "%" as operator:
                positive = dims.maximum(other, 1)
                out = (dims.floordiv if operator == "/" else dims.modulo)(out, positive)
            case "M":
                out = dims.maximum(out, other)
            case _:
                out = dims.minimum(out, other)
    return out


@settings(max_examples=200, deadline=None)
@given(random_dims(), *[st.integers(1, 100)] * 3)
def test_expressions_mean_what_dims_mean(dim: Dim, a: int, b: int, c: int) -> None:
    binding = {"A": a, "B": b, "C": c}
    expression = check_expression(dims.to_json(dim), binding)
    assert evaluate_expression(expression, binding) == dims.evaluate(dim, binding)
    assert symbols_in(expression) == {s.name for s in dims.symbols_of(dim)}
    assert "+ -" not in format_expression(expression)


def test_division_by_zero_and_overflow() -> None:
    with pytest.raises(ArtifactError, match="divides by zero for S = 0"):
        evaluate_expression(("//", 4, "S"), {"S": 0})
    with pytest.raises(ArtifactError, match="overflows 64 bits"):
        evaluate_expression(("*", "S", "S", "S"), {"S": 2**31})


def variant(target: str, *needs: str) -> Variant:
    return Variant(target, "", (), (), Plan(), needs)


def test_the_variant_that_needs_most_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = [
        variant("cpu:x86-64-v3", "x86-64-v3"), variant("cpu:x86-64-v4"), variant("cpu:x86-64-v4", "avx512_vnni"),
        variant("cpu:x86-64"), variant("cuda:sm_90"), variant("cpu:aarch64"),
    ]  # fmt: skip
    v3 = frozenset({"x86_64", *cpu.LEVELS["x86-64-v3"]})
    v4 = v3 | cpu.LEVELS["x86-64-v4"]
    monkeypatch.delenv(cpu.LEVEL_VARIABLE, raising=False)
    for features, want in [
        (frozenset({"x86_64"}), 3), (v3, 0), (v4, 1), (v4 | {"avx512_vnni"}, 2),
        (frozenset({"aarch64", "asimd"}), 5),
    ]:  # fmt: skip
        monkeypatch.setattr(cpu, "cpu_features", lambda f=features: f)
        assert cpu.choose_variant(variants)[0] == want
    monkeypatch.setattr(cpu, "cpu_features", lambda: v4)
    monkeypatch.setenv(cpu.LEVEL_VARIABLE, "x86-64-v3")
    assert cpu.choose_variant(variants)[0] == 0
    with pytest.raises(ArtifactError, match=r"cpu:x86-64-v4 is ruled out by .*=x86-64-v3"):
        cpu.choose_variant(variants[1:2])
    monkeypatch.delenv(cpu.LEVEL_VARIABLE)
    with pytest.raises(ArtifactError, match="cpu:x86-64-v4 needs avx512_vnni"):
        cpu.choose_variant([replace(variants[2])])
    with pytest.raises(ArtifactError, match="it has none"):
        cpu.choose_variant([])


def test_native_needs_are_met_here_and_name_instruction_sets() -> None:
    needs = cpu.native_needs()
    assert cpu.missing_features(variant("cpu:native", *needs)) == ()
    assert "tsc" not in needs and "fpu" not in needs
