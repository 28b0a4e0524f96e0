"""The shape grammar and its merge with what a model declares."""

from __future__ import annotations

import pytest

from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.shape_resolution import resolve
from graphwright.compiler.ir.shapes import ShapeError, ShapeSpec

DECLARED = {"ids": ["B", "S"], "mask": ["B", "S"], "z": [3, None]}


@pytest.mark.parametrize(
    ("text", "dims"),
    [
        ("x:1x3x224x224", (1, 3, 224, 224)),
        ("ids:Bx[1..512@128]", (Symbol("B"), Symbol("_", 1, 512, 1, 128))),
        ("x:N[1..8]x3", (Symbol("N", 1, 8), 3)),
        ("x:[32..1024@320%32]", (Symbol("_", 32, 1024, 32, 320),)),
        ("x:?x3", (None, 3)),
        ("in:0:4x4", (4, 4)),
        ("x:1x'max_len'", (1, Symbol("max_len"))),
        ("x: 1 x 3 ", (1, 3)),
        ("s:()", ()),
    ],
)
def test_inputs(text: str, dims: tuple[object, ...]) -> None:
    spec = ShapeSpec.make(text)
    (parsed,) = spec.inputs.values()
    assert parsed == dims
    assert ShapeSpec.make(str(spec)) == spec  # the text form reads back


@pytest.mark.parametrize(
    ("text", "extent"),
    [("N=1..8@4", Symbol("N", 1, 8, 1, 4)), ("N=4", 4), ("p2o.D.0=32..64%32", Symbol("p2o.D.0", 32, 64, 32))],
)  # fmt: skip
def test_symbols(text: str, extent: object) -> None:
    spec = ShapeSpec.make(text)
    assert list(spec.symbols.values()) == [extent]
    assert ShapeSpec.make(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x", "INPUT:DIMS"),
        ("x:1x3x", "column 7: want a size"),
        ("x:[1..", "column 7: want the largest size, got the end"),
        ("x:1x3x1..4", "column 8: want brackets"),
        ("x:1xmax_len", "quoted if it has an x"),
        ("x:Bx[5..3]", "column 5: the range 5..3 is empty"),
        ("x:N[1..99999999999999999999]", "beyond 9223372036854775807"),
        ("x:3x99999999999999999999", "beyond 9223372036854775807"),
        ("x:[1..8@9]", "9, is not in 1..8"),
        ("x:[1..64%32]", "begin and end with a multiple of 32"),
        ("N=a", "want a size"),
        ("N=4@3", "belong to a range"),
    ],
)
def test_errors_name_the_column(text: str, message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        ShapeSpec.make(text)
    assert message in str(caught.value)


def test_from_a_mapping() -> None:
    spec = ShapeSpec.make({"x": (1, None, "[1..8@2]"), "y": "2x3", "N": "1..4", "M": 7})
    assert spec.inputs == {"x": (1, None, Symbol("_", 1, 8, 1, 2)), "y": (2, 3)}
    assert spec.symbols == {"N": Symbol("N", 1, 4), "M": 7}


def test_profiles() -> None:
    spec = ShapeSpec.from_profiles(["x:1x3x32,y:1"], ["x:2x3x64,y:1"], ["x:4x3x128,y:1"])
    assert spec == ShapeSpec.make(["x:[1..4@2]x3x[32..128@64]", "y:1"])
    assert ShapeSpec.from_profiles(opt=["x:1x3"]) == ShapeSpec.make("x:1x3")
    with pytest.raises(ShapeError, match="come together"):
        ShapeSpec.from_profiles(["x:1"])
    with pytest.raises(ShapeError, match="no max shape"):
        ShapeSpec.from_profiles(["x:1,y:2"], [], ["x:2"])
    with pytest.raises(ShapeError, match="empty"):
        ShapeSpec.from_profiles(["x:4"], [], ["x:2"])


def test_a_range_bounds_the_models_symbol_everywhere() -> None:
    shapes = resolve(ShapeSpec.make("ids:Nx[1..512@128]"), DECLARED)
    length = Symbol("S", 1, 512, 1, 128)
    assert shapes["ids"] == shapes["mask"] == (Symbol("N"), length)
    assert shapes["z"] == (3, Symbol("z_1"))


def test_a_fixed_size_replaces_the_symbol_everywhere() -> None:
    shapes = resolve(ShapeSpec.make(["B=2", "ids:?x128"]), DECLARED)
    assert shapes["mask"] == (2, 128)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["idz:2"], "did you mean 'ids'"),
        (["C=3"], "no dim is named 'C'"),
        (["ids:2x3x4"], "has rank 2"),
        (["z:4x2"], "axis 0 is 3 in the model"),
        (["ids:2x3", "mask:3x3"], "the model's dim B cannot be 3 here and 2"),
        (["ids:Bx[1..4]", "mask:Bx[1..5]"], "1..5 here and 1..4 elsewhere"),
        (["ids:1x2", "ids:1x3"], "given twice"),
    ],
)
def test_contradictions(texts: list[str], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        resolve(ShapeSpec.make(texts), DECLARED)
    assert message in str(caught.value)


def test_unknown_rank_comes_from_the_caller() -> None:
    assert resolve(ShapeSpec.make("x:2x3"), {"x": None, "y": None}) == {"x": (2, 3), "y": None}
