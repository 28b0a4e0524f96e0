"""Symbolic dims: canonical form, proofs, evaluation; hypothesis compares with plain integers."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphwright.compiler.ir import dim_parser, dims
from graphwright.compiler.ir.dims import DimError, Symbol

B, S = Symbol("B", 1, 512), Symbol("S", 1, 4096, 8)
b, s = dims.of(B), dims.of(S)
SYMBOLS = {"B": B, "S": S}


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (b * s + 3 * b - 1, "B*S + 3*B - 1"),
        (2 * b * s // b, "2*S"),
        ((s + 1) // 2 // 2, "((S + 1) floordiv 4)"),
        (s % 8, "0"),
        ((b + 5) % 3, "((B + 2) mod 3)"),
        (dims.maximum(b, 1), "B"),
        (dims.maximum(b, 4), "max(4, B)"),
        (dims.minimum(b, 1000), "B"),
        (b - b, "0"),
        (dims.ceildiv(s, 8), "(S floordiv 8)"),
    ],
)
def test_canonical_form(made, text):
    assert str(made) == text
    assert dim_parser.parse(text, SYMBOLS) == made


def test_prove_knows_ranges_and_admits_ignorance():
    assert dims.prove(b, ">=", 1) is True
    assert dims.prove(b, ">", 512) is False
    assert dims.prove(b, "==", s) is None
    assert dims.prove(b * 2, "==", b + b) is True


def test_a_symbolic_truth_is_an_error():
    with pytest.raises(DimError, match="use prove"):
        bool(b)


@pytest.mark.parametrize(
    ("text", "message"),
    [("B +", "neither a number nor a known symbol"), ("B $ 2", "unexpected"), ("(B", "want '\\)'")],
)
def test_parse_errors_have_columns(text, message):
    with pytest.raises(DimError, match=f"column .*{message}"):
        dim_parser.parse(text, SYMBOLS)


LEAF = st.one_of(
    st.integers(-20, 20).map(lambda n: (n, lambda e, n=n: n)),
    st.just((b, lambda e: e["B"])),
    st.just((s, lambda e: e["S"])),
)


def _binary(children):
    operations = [
        (lambda x, y: x + y, lambda x, y: x + y),
        (lambda x, y: x - y, lambda x, y: x - y),
        (lambda x, y: x * y, lambda x, y: x * y),
        (dims.maximum, max),
        (dims.minimum, min),
    ]
    combined = st.tuples(st.sampled_from(operations), children, children).map(
        lambda t: (t[0][0](t[1][0], t[2][0]), lambda e, t=t: t[0][1](t[1][1](e), t[2][1](e)))
    )
    divided = st.tuples(st.booleans(), children, st.integers(1, 9)).map(
        lambda t: (
            dims.floordiv(t[1][0], t[2]) if t[0] else dims.modulo(t[1][0], t[2]),
            lambda e, t=t: t[1][1](e) // t[2] if t[0] else t[1][1](e) % t[2],
        )
    )
    return st.one_of(combined, divided)


@settings(max_examples=300, deadline=None)
@given(
    st.recursive(LEAF, _binary, max_leaves=8),
    st.integers(1, 512),
    st.integers(1, 512).map(lambda n: 8 * n),
)
def test_agrees_with_integers(pair, batch, length):
    dim, plain = pair
    binding = {"B": batch, "S": length}
    want = plain(binding)
    assert dims.evaluate(dim, binding) == want
    low, high = dims.bounds(dim)
    assert low <= want <= high
    assert dim_parser.parse(str(dim), SYMBOLS) == dim
