"""Pointwise regions in C++: index maps of movement, splits, broadcasts, layouts, symbols."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_graphs import one, region
from codegen_harness import Compiled, check

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.types import BF16, BOOL, F16, F32, I8, I64, TensorType

N = dims.of(Symbol("N", 1, 64))
S = dims.of(Symbol("S", 1, 64))
NHWC = Layout((0, 2, 3, 1))


def t(*shape, dtype=F32, layout=None):
    return TensorType(dtype, shape, layout)


def chain(g, v):
    a = one(g, "add", [v[0], v[1]])
    return [one(g, "mul", [a, a]), one(g, "relu", [a])]


def attention_heads(g, v):
    x = one(g, "reshape", [v[0]], shape=(2, S, 4, 8))
    x = one(g, "transpose", [x], permutation=(0, 2, 1, 3))
    return [one(g, "relu", [x])]


def merge_heads(g, v):
    x = one(g, "transpose", [v[0]], permutation=(0, 2, 1, 3))
    return [one(g, "reshape", [x], shape=(2, S, 32))]


def shuffle(g, v):
    x = one(g, "reshape", [v[0]], shape=(2, 3, 4, 5, 5))
    x = one(g, "transpose", [x], permutation=(0, 2, 1, 3, 4))
    return [one(g, "reshape", [x], shape=(2, 12, 5, 5))]


def crossed(g, v):
    x = one(g, "transpose", [v[0]], permutation=(1, 0))
    return [one(g, "reshape", [x], shape=(6, 4))]


def joined(g, v):
    c = one(g, "concat", [v[0], v[1]], axis=1)
    return [one(g, "relu", [one(g, "add", [c, v[2]])])]


def joined_rows(g, v):
    return [one(g, "concat", [v[0], v[1], v[0]], axis=0)]


def padded(mode):
    def build(g, v):
        attributes = {"low": (0, 1, 2), "high": (0, 2, 1), "mode": mode}
        return [one(g, "pad", [one(g, "add", [v[0], v[0]])], **attributes)]

    return build


def backwards(g, v):
    return [one(g, "slice", [v[0]], starts=(1, N - 1), sizes=(3, N), steps=(2, -1))]


def gathered(g, v):
    rows = one(g, "gather", [v[0], v[1]], axis=1)
    return [one(g, "add", [rows, rows])]


def compared(g, v):
    return [one(g, "less", [v[0], v[1]])]


CASES = {
    "chain": ([t(4, 33), t(33)], chain, {}),
    "chain-symbolic": ([t(N, 16), t(N, 16)], chain, {}),
    "chain-nhwc": ([t(2, 8, 5, 5, layout=NHWC), t(8, 1, 1)], chain, {"layouts": [NHWC, NHWC]}),
    "chain-mixed": ([t(2, 8, 5, 5), t(2, 8, 5, 5, layout=NHWC)], chain, {"layouts": [NHWC, None]}),
    "chain-f16": ([t(5, 40, dtype=F16), t(40, dtype=F16)], chain, {}),
    "chain-bf16": ([t(5, 40, dtype=BF16), t(1, dtype=BF16)], chain, {}),
    "chain-i8": ([t(5, 40, dtype=I8), t(40, dtype=I8)], chain, {}),
    "blocked": ([t(2, 10, 3, 3, layout=Layout((0, 1, 2, 3), ((1, 8),))), t(1)], chain, {}),
    "heads": ([t(2, S, 32)], attention_heads, {}),
    "merge-heads": ([t(2, 4, S, 8)], merge_heads, {}),
    "shuffle": ([t(2, 12, 5, 5)], shuffle, {}),
    "shuffle-nhwc": ([t(2, 12, 5, 5, layout=NHWC)], shuffle, {"layouts": [NHWC]}),
    "crossed": ([t(4, 6)], crossed, {}),
    "concat": ([t(3, 5, 7), t(3, 6, 7), t(7)], joined, {}),
    "concat-symbolic": ([t(3, N, 7), t(3, S, 7), t(7)], joined, {}),
    "concat-rows": ([t(2, 9), t(4, 9)], joined_rows, {}),
    "pad-constant": ([t(3, 5, 6)], padded("constant"), {}),
    "pad-edge": ([t(3, 5, 6)], padded("edge"), {}),
    "pad-reflect": ([t(3, 5, 6)], padded("reflect"), {}),
    "pad-wrap": ([t(3, 5, 6)], padded("wrap"), {}),
    "pad-symbolic": ([t(3, N, S)], padded("constant"), {}),
    "slice": ([t(9, N)], backwards, {}),
    "gather": ([t(3, 7, 4), t(2, 3, dtype=I64)], gathered, {}),
    "less": ([t(6, 20), t(6, 1)], compared, {}),
}


def make(type, binding, rng):
    shape = [dims.evaluate(d, binding) for d in type.shape]
    if type.dtype is I64:
        return rng.integers(-4, 4, shape)
    if type.dtype.kind in ("int", "uint"):
        return rng.integers(0, 100, shape).astype(type.dtype.numpy)
    if type.dtype is BOOL:
        return rng.integers(0, 2, shape).astype(bool)
    return rng.standard_normal(shape).astype(type.dtype.numpy)


@pytest.fixture(scope="module")
def compiled():
    graphs = [region("pointwise", types, build, **more) for types, build, more in CASES.values()]
    return Compiled(graphs)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(5, 7), (1, 33), (64, 3)])
def test_matches_the_evaluator(compiled, name, sizes):
    index = list(CASES).index(name)
    binding = dict(zip("NS", sizes, strict=True))
    rng = np.random.default_rng(sizes[0])
    arrays = [make(v.type, binding, rng) for v in compiled.graphs[index].inputs]
    small = any(v.type.dtype in (F16, BF16) for v in compiled.graphs[index].inputs)
    check(compiled, index, arrays, 1e-2 if small else 1e-6)


def source(compiled, name):
    return compiled.steps[list(CASES).index(name)][0].kernel.source


def test_reshapes_of_heads_need_no_division(compiled):
    for name in ("heads", "merge-heads", "shuffle", "shuffle-nhwc"):
        lines = source(compiled, name).splitlines()
        code = [x for x in lines if not x.startswith("//") and "begin" not in x]
        assert not [x for x in code if "%" in x or " / " in x]


def test_concat_asks_nothing_inside_its_loops(compiled):
    for name in ("concat", "concat-rows", "concat-symbolic"):
        assert "?" not in source(compiled, name)


def test_equal_kernels_have_one_name():
    a, b = (region("pointwise", [t(n, 8), t(n, 8)], chain) for n in (3, 5))
    both = Compiled([a, b])
    assert both.steps[0][0].kernel.name == both.steps[1][0].kernel.name
