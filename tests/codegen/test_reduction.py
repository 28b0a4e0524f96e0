"""Reductions, softmax and norms in C++, along rows and across columns, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_graphs import one, region
from codegen_harness import Compiled, check

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.types import BOOL, F16, F32, F64, I32, I64, TensorType

N = dims.of(Symbol("N", 1, 64))
S = dims.of(Symbol("S", 1, 3000))
NHWC = Layout((0, 2, 3, 1))


def t(*shape, dtype=F32, layout=None):
    return TensorType(dtype, shape, layout)


def op(name, count=1, **attributes):
    return lambda g, v: [one(g, name, v[:count], **attributes)]


def scaled_mean(g, v):
    y = one(g, "mul", [v[0], v[1]])
    m = one(g, "reduce_mean", [y], axes=(1, 2), keepdims=False)
    return [one(g, "relu", [m]), m]


def centred(g, v):
    m = one(g, "reduce_mean", [v[0]], axes=(1,), keepdims=True)
    return [one(g, "sub", [v[0], m])]


def masked_softmax(g, v):
    x = one(g, "add", [one(g, "mul", [v[0], v[1]]), v[2]])
    return [one(g, "softmax", [x], axis=3)]


def normed(g, v):
    x = one(g, "add", [v[0], v[1]])
    y = one(g, "layer_norm", [x, v[2], v[3]], axis=2)
    return [x, y]


def normed_remainders(g, v):
    """Coordinates that are quotients and remainders of a row's own loop variable."""
    wide = one(g, "broadcast_to", [v[0]], shape=(2, S, 3, N, 8))
    rows = one(g, "reshape", [wide], shape=(6, S * N, 8))
    return [one(g, "layer_norm", [rows], axis=2)]


def pooled_rows(g, v):
    m = one(g, "reduce_mean", [v[0]], axes=(2, 3), keepdims=True)
    return [one(g, "reshape", [m], shape=(N, 70))]


def range_of_sums(g, v):
    """Elements that are stored in the pass, then one value of all of them."""
    y = one(g, "tanh", [one(g, "add", [v[0], v[1]])])
    low = one(g, "reduce_min", [y], axes=(0, 1, 2), keepdims=False)
    return [y, one(g, "relu", [low])]


def mean_of_rows(g, v):
    y = one(g, "mul", [v[0], v[0]])
    return [y, one(g, "reduce_mean", [y], axes=(1,), keepdims=False)]


IMAGE, IMAGE_NHWC = t(N, 70, 7, 7), t(N, 70, 7, 7, layout=NHWC)
CASES = {
    "remainders": ([t(1, S, 1, N, 8)], normed_remainders, []),
    "sum-last": ([t(N, S)], op("reduce_sum", axes=(1,)), []),
    "sum-first": ([t(S, 70)], op("reduce_sum", axes=(0,)), []),
    "sum-all": ([t(N, S)], op("reduce_sum", axes=(0, 1)), []),
    "sum-all-long": ([t(N, S, 33)], op("reduce_sum", axes=(0, 1, 2)), []),
    "mean-all": ([t(N, S, 33)], op("reduce_mean", axes=(0, 1, 2)), []),
    "and-all": ([t(N, S, dtype=BOOL)], op("reduce_and", axes=(0, 1)), []),
    "min-all-kept": ([t(N, S, 1), t(N, 1, 70)], range_of_sums, []),
    "mean-kept": ([t(N, S)], mean_of_rows, []),
    "mean-kept-columns": ([t(S, N, 70)], mean_of_rows, []),
    "max-all": ([t(N, S)], op("reduce_max", axes=(0, 1)), []),
    "sum-none": ([t(N, 5)], op("reduce_sum", axes=()), []),
    "sum-one": ([t(N, 1, 5)], op("reduce_sum", axes=(1,)), []),
    "sum-f64": ([t(N, S, dtype=F64)], op("reduce_sum", axes=(1,)), []),
    "sum-f16": ([t(N, 9, 20, dtype=F16)], op("reduce_sum", axes=(1,)), []),
    "sum-i64": ([t(N, 37, dtype=I64)], op("reduce_sum", axes=(1,)), []),
    "prod": ([t(N, 9, 20)], op("reduce_prod", axes=(0, 2), keepdims=True), []),
    "max": ([t(N, S)], op("reduce_max", axes=(1,)), []),
    "min-i32": ([t(N, 37, 4, dtype=I32)], op("reduce_min", axes=(1,)), []),
    "and": ([t(N, 5, dtype=BOOL)], op("reduce_and", axes=(1,)), []),
    "or-first": ([t(N, 50, dtype=BOOL)], op("reduce_or", axes=(0,)), []),
    "mean-middle": ([t(N, 9, 20)], op("reduce_mean", axes=(1,)), []),
    "mean-image": ([IMAGE], op("reduce_mean", axes=(2, 3), keepdims=True), []),
    "mean-image-nhwc": ([IMAGE_NHWC], op("reduce_mean", axes=(2, 3), keepdims=True), []),
    "mean-rows": ([IMAGE_NHWC], pooled_rows, []),
    "prologue-epilogue": ([t(N, 9, 20), t(20)], scaled_mean, []),
    "centred": ([t(N, 50, 3)], centred, []),
    "argmax": ([t(N, S)], op("arg_max", axis=1), []),
    "argmax-last": ([t(N, 100, dtype=I32)], op("arg_max", axis=1, select_last=True), []),
    "argmin-first": ([t(40, N, 3)], op("arg_min", axis=0, keepdims=False), []),
    "softmax": ([t(N, S)], op("softmax", axis=1), []),
    "softmax-short": ([t(N, 3, 2)], op("softmax", axis=2), []),
    "softmax-channels": ([IMAGE], op("softmax", axis=1), []),
    "softmax-nhwc": ([IMAGE_NHWC], op("softmax", axis=1), [NHWC]),
    "softmax-masked": ([t(N, 2, 5, S), t(1), t(N, 1, 1, S)], masked_softmax, []),
    "log-softmax": ([t(N, S)], op("log_softmax", axis=1), []),
    "layer-norm": ([t(N, 5, 48), t(N, 5, 48), t(48), t(48)], normed, []),
    "layer-norm-long": ([t(2, N, S), t(1), t(S), t(1)], normed, []),
    "layer-norm-axes": ([t(N, 5, 48), t(5, 48)], op("layer_norm", 2, axis=1), []),
    "rms-norm": ([t(N, 5, 48), t(48)], op("rms_norm", 2, axis=2, epsilon=1e-3), []),
    "instance-norm": ([IMAGE, t(70), t(70)], op("instance_norm", 3), []),
    "instance-norm-nhwc": ([IMAGE_NHWC, t(70), t(70)], op("instance_norm", 3), [NHWC]),
    "group-norm": ([IMAGE, t(70), t(70)], op("group_norm", 3, groups=7), []),
    "group-norm-nhwc": ([IMAGE_NHWC, t(70), t(70)], op("group_norm", 3, groups=7), [NHWC]),
    "lp-1": ([t(N, 33)], op("lp_normalize", axis=1, p=1), []),
    "lp-2": ([t(33, N)], op("lp_normalize", axis=0, p=2), []),
}


def make(type, binding, rng):
    shape = [dims.evaluate(d, binding) for d in type.shape]
    if type.dtype.is_integer:
        return rng.integers(-9, 9, shape).astype(type.dtype.numpy)
    if type.dtype is BOOL:
        return rng.random(shape) > 0.2
    return rng.standard_normal(shape).astype(type.dtype.numpy) + type.dtype.numpy.type(0.5)


@pytest.fixture(scope="module")
def compiled():
    return Compiled([
        region("reduction", types, build, layouts=layouts) for types, build, layouts in CASES.values()
    ])  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(3, 40), (1, 2500)])
def test_matches_the_evaluator(compiled, name, sizes):
    index = list(CASES).index(name)
    binding = dict(zip("NS", sizes, strict=True))
    rng = np.random.default_rng(sizes[0])
    arrays = [make(v.type, binding, rng) for v in compiled.graphs[index].inputs]
    small = any(v.type.dtype is F16 for v in compiled.graphs[index].inputs)
    check(compiled, index, arrays, 2e-3 if small else 2e-6)


@pytest.mark.parametrize("name", ["max", "max-all", "argmax", "softmax", "sum-last"])
def test_nan_and_infinity_spread_as_they_should(compiled, name):
    index = list(CASES).index(name)
    x = np.random.default_rng(0).standard_normal((6, 100)).astype(np.float32)
    x[0, 50] = np.nan
    x[1, 99] = -np.inf
    x[2] = -np.inf
    x[3, 7] = np.inf
    x[4, [3, 80]] = np.nan
    check(compiled, index, [x], 2e-6)


def test_equal_elements_choose_the_first_or_the_last(compiled):
    x = np.zeros((2, 100), np.int32)
    x[1, 40:60] = 3
    check(compiled, list(CASES).index("argmax-last"), [x], 0)
    check(compiled, list(CASES).index("argmax"), [x.astype(np.float32)], 0)
