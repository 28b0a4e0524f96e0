"""Sizes bound in mid-run: segments, outputs, constraints, loops that bind, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tiny_models import (
    COPY,
    COUNT,
    IS_POSITIVE,
    KEEP,
    SCALE_ADD,
    START,
    TWICE,
    make_artifact,
    weight,
)

from graphwright.compiler.codegen.package import Artifact
from graphwright.errors import ArtifactError, InputError
from graphwright.runtime import load
from graphwright.runtime.manifest import (
    Buffer,
    ConstraintSpec,
    Launch,
    Move,
    Pointer,
    SymbolSpec,
    TensorSpec,
)

N = SymbolSpec("N", 0, 4096, 1, 64, None)
X, OUT, COUNT_AT = Pointer("input", 0), Pointer("output", 0), Pointer("arena", 0)
ELEMENTS = SymbolSpec("S", 1, 4096, 1, 64, (0, 0))


def positives(library: bytes, **changes: Any) -> Artifact:
    """x: float32[S] -> 3 * (the positive ones) + (the positive ones): float32[N]."""
    kept, three = Pointer("arena", 1), Pointer("weight", 0)
    launches = [
        Launch(kernel=COUNT, pointers=(X, COUNT_AT), scalars=("S",), writes=(1,)),
        Launch("bind", pointers=(COUNT_AT,), symbols=("N",), origins=("find",)),
        Launch(kernel=KEEP, pointers=(X, kept), scalars=("S",), writes=(1,)),
        Launch(kernel=SCALE_ADD, pointers=(kept, three, kept, OUT), scalars=("N",), writes=(3,)),
    ]
    given: dict[str, Any] = {
        "inputs": [TensorSpec("x", "float32", ("S",))],
        "outputs": [TensorSpec("z", "float32", ("N",))],
        "buffers": [Buffer(8, last=1), Buffer(["*", 4, "N"], first=2, last=3)],
        "symbols": [ELEMENTS, N],
        "weights": [weight("three", np.array([3], np.float32))],
    }
    chosen = given | {"launches": launches} | changes
    return make_artifact(library, chosen.pop("launches"), **chosen)


def test_outputs_and_buffers_are_sized_when_bound(library: bytes) -> None:
    model = load(positives(library).to_bytes())
    rng = np.random.default_rng(0)
    for size in (1, 50, 4096, 3, 50):
        for x in (rng.standard_normal(size).astype(np.float32), -np.ones(size, np.float32)):
            (z,) = model(x)
            want = 4 * x[x > 0]
            assert z.dtype == np.float32 and z.shape == want.shape
            np.testing.assert_allclose(z, want, rtol=1e-6)


def test_out_is_checked_when_the_shape_is_known(library: bytes) -> None:
    model = load(positives(library).to_bytes())
    x = np.array([1, -1, 2], np.float32)
    target = np.empty(2, np.float32)
    (z,) = model(x, out=[target])
    assert z is target and z.tolist() == [4, 8]
    with pytest.raises(InputError, match=r"out\[0\] is float32\[3\], output 'z' is float32\[2\]"):
        model(x, out=[np.empty(3, np.float32)])
    assert model(x)[0].tolist() == [4, 8]


def test_range_and_constraints_of_bound_sizes(library: bytes) -> None:
    few = SymbolSpec("N", 0, 2, 1, 1, None)
    model = load(positives(library, symbols=[ELEMENTS, few]).to_bytes())
    with pytest.raises(InputError, match=r"the data make N = 3 \(find\), want 0 to 2"):
        model(np.ones(3, np.float32))
    assert model(np.ones(2, np.float32))[0].tolist() == [4, 4]
    two = ConstraintSpec("S", "==", ["*", 2, "N"], "half of x is positive")
    model = load(positives(library, constraints=[two]).to_bytes())
    assert model(np.array([1, -1], np.float32))[0].tolist() == [4]
    with pytest.raises(InputError, match=r"want S == 2\*N, got 2 and 4 .*: half of x is positive"):
        model(np.ones(2, np.float32))


def test_one_symbol_is_bound_at_the_end_of_either_branch(library: bytes) -> None:
    """x: float32[S]; x[0] > 0 ? its positive elements : x."""
    flag, count = Pointer("arena", 0), Pointer("arena", 1)
    launches = [
        Launch(kernel=IS_POSITIVE, pointers=(X, flag), writes=(1,)),
        Launch("branch", pointers=(flag,), jump=4),
        Launch(kernel=COUNT, pointers=(X, count), scalars=("S",), writes=(1,)),
        Launch("bind", pointers=(count,), symbols=("N",)),
        Launch(kernel=KEEP, pointers=(X, OUT), scalars=("S",), writes=(1,)),
        Launch("jump", jump=2),
        Launch("bind", scalars=("S",), symbols=("N",)),
        Launch(kernel=COPY, pointers=(X, OUT), scalars=(["*", 4, "N"],), writes=(1,)),
    ]
    buffers = [Buffer(1, last=1), Buffer(8, (0,), first=2, last=3)]
    model = load(positives(library, launches=launches, buffers=buffers).to_bytes())
    assert model(np.array([1, -1, 3], np.float32))[0].tolist() == [1, 3]
    assert model(np.array([-1, 1, 3], np.float32))[0].tolist() == [-1, 1, 3]


def doubling(library: bytes, trips: int) -> Artifact:
    """`trips` times: a = concat(a, a); a starts as x: float32[S] and ends as float32[N]."""
    counter, go, carried, twice = (Pointer("arena", i) for i in range(4))
    grow = [Move(0, 1, ["*", 8, "N"])]
    launches = [
        Launch("bind", pointers=(X, carried), scalars=("S",), symbols=("N",),
               moves=(Move(0, 1, ["*", 4, "S"]),)),
        Launch(kernel=START, pointers=(counter, go), writes=(0, 1)),
        Launch("loop", pointers=(counter, Pointer("weight", 0), go), jump=3),
        Launch(kernel=TWICE, pointers=(carried, twice), scalars=("N",), writes=(1,)),
        Launch("bind", pointers=(twice, carried), scalars=(["*", 2, "N"],), symbols=("N",),
               moves=tuple(grow)),
        Launch("next", pointers=(counter,), jump=-4),
        Launch(kernel=COPY, pointers=(carried, OUT), scalars=(["*", 4, "N"],), writes=(1,)),
    ]  # fmt: skip
    buffers = [Buffer(8), Buffer(1, (0,)), Buffer(["*", 4, "N"]), Buffer(["*", 8, "N"], (2,))]
    count = weight("trips", np.array([trips], np.int64))
    return positives(library, launches=launches, buffers=buffers, weights=[count])


@pytest.mark.parametrize("trips", [0, 1, 2, 7])
def test_a_loop_binds_a_size_again_and_again(library: bytes, trips: int) -> None:
    model = load(doubling(library, trips).to_bytes())
    for size in (1, 5, 3):
        x = np.arange(size, dtype=np.float32)
        assert np.array_equal(model(x)[0], np.tile(x, 2**trips))


def test_checks_inside_a_branch_hold_only_there(library: bytes) -> None:
    flag = Pointer("arena", 0)
    even = ConstraintSpec(["%", "S", 2], "==", 0, "the branch needs an even size")
    launches = [
        Launch(kernel=IS_POSITIVE, pointers=(X, flag), writes=(1,)),
        Launch("branch", pointers=(flag,), jump=1),
        Launch("check", checks=(even,)),
        Launch(kernel=COPY, pointers=(X, OUT), scalars=(["*", 4, "S"],), writes=(1,)),
    ]
    outputs = [TensorSpec("z", "float32", ("S",))]
    model = load(
        positives(
            library, launches=launches, outputs=outputs, symbols=[ELEMENTS], buffers=[Buffer(1)]
        ).to_bytes()
    )
    for values in ([1, 2], [-1, 2], [-1, 2, 3]):
        assert model(np.array(values, np.float32))[0].tolist() == values
    with pytest.raises(InputError, match=r"want S % 2 == 0, got 1 and 0 .*needs an even size"):
        model(np.array([1, 2, 3], np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"launches": [Launch("bind", pointers=(X,), symbols=("S",))]}, "'S' is no symbol that"),
        ({"launches": [Launch("bind", symbols=("N",))]}, "want some, and a size for each"),
        ({"launches": [Launch("loop", pointers=(X,))]}, "a loop has 3"),
        ({"launches": [Launch("next", pointers=(X,), jump=-1)]}, "only a next launch goes back"),
        ({"launches": [Launch("jump", jump=-1)]}, "only a next launch goes back"),
        ({"launches": [Launch("bind", pointers=(X,), symbols=("N",),
                              moves=(Move(0, 1, 4),))]}, "names a pointer that is not there"),
        ({"buffers": [Buffer(8), Buffer("N", (0,))]}, "are of different segments"),
    ],
)  # fmt: skip
def test_malformed_launches(library: bytes, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(positives(library, **changes).to_bytes())


def test_two_symbols_of_one_segment(library: bytes) -> None:
    m = SymbolSpec("M", 0, 9, 1, 1, None)
    launches = [
        Launch("bind", scalars=("S", 1), symbols=("N", "M")),
        Launch("bind", scalars=("S",), symbols=("N",)),
    ]
    with pytest.raises(ArtifactError, match="a launch binds N, others some of them"):
        load(positives(library, launches=launches, symbols=[ELEMENTS, N, m]).to_bytes())
