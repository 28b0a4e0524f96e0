"""Contractions in C++ with generated epilogues, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_graphs import one, region
from codegen_harness import Compiled, check

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.types import F32, TensorType

N = dims.of(Symbol("N", 1, 64))
W = dims.of(Symbol("W", 1, 64))
NHWC = Layout((0, 2, 3, 1))
NWC = Layout((0, 2, 1))
RNG = np.random.default_rng(7)


def t(*shape, layout=None):
    return TensorType(F32, shape, layout)


def c(*shape):
    return Literal.dense(RNG.standard_normal(shape).astype(np.float32))


def conv(epilogue=None, **given):
    rank = given.pop("rank", 2)

    def build(g, v):
        attributes = {
            "strides": (1,) * rank, "low": (0,) * rank, "high": (0,) * rank,
            "dilations": (1,) * rank, **given,
        }  # fmt: skip
        y = one(g, "conv", v[:3], **attributes)
        return [y] if epilogue is None else epilogue(g, y, v[3:])

    return build


def relu(g, y, rest):
    return [one(g, "relu", [y])]


def residual(g, y, rest):
    return [one(g, "relu", [one(g, "add", [y, rest[0]])])]


def both(g, y, rest):
    return [y, one(g, "relu", [y])]


def scaled(g, y, rest):
    return [one(g, "mul", [y, rest[0]])]


def to_rows(g, y, rest):
    y = one(g, "transpose", [one(g, "relu", [y])], permutation=(0, 2, 3, 1))
    return [one(g, "reshape", [y], shape=(N, 36, 20))]


def shuffled(g, y, rest):
    """The channels dealt out anew, as between the grouped convolutions of ShuffleNet."""
    y = one(g, "relu", [y])
    shape = y.type.shape
    y = one(g, "reshape", [y], shape=(shape[0], 4, shape[1] // 4, *shape[2:]))
    y = one(g, "transpose", [y], permutation=(0, 2, 1, 3, 4))
    return [one(g, "reshape", [y], shape=shape)]


def shuffled_and_plain(g, y, rest):
    return [*shuffled(g, one(g, "add", [y, rest[0]]), rest), y]


def product(epilogue=None):
    def build(g, v):
        y = one(g, "matmul", v[:2])
        return [y] if epilogue is None else epilogue(g, y, v[2:])

    return build


def added(g, y, rest):
    return [one(g, "relu", [one(g, "add", [y, rest[0]])])]


def turned(g, v):
    w = one(g, "transpose", [v[1]], permutation=(1, 0))
    return [one(g, "matmul", [v[0], w])]


def heads(g, v):
    x = one(g, "transpose", [v[0]], permutation=(0, 2, 1, 3))
    x = one(g, "reshape", [x], shape=(N, 5, 24))
    return [one(g, "matmul", [x, v[1]])]


def scores(g, v):
    k = one(g, "transpose", [v[1]], permutation=(0, 2, 3, 1))
    q = one(g, "transpose", [v[0]], permutation=(0, 2, 1, 3))
    return [one(g, "mul", [one(g, "matmul", [q, k]), v[2]])]


def context(g, v):
    values = one(g, "transpose", [v[1]], permutation=(0, 2, 1, 3))
    y = one(g, "transpose", [one(g, "matmul", [v[0], values])], permutation=(0, 2, 1, 3))
    return [one(g, "reshape", [y], shape=(N, W, 32))]


def pool(name, **given):
    def build(g, v):
        attributes = {
            "kernel": (3, 3), "strides": (2, 2), "low": (1, 1), "high": (1, 1),
            "dilations": (1, 1), **given,
        }  # fmt: skip
        return [one(g, name, [v[0]], **attributes)]

    return build


X = t(N, 12, 6, 6, layout=NHWC)
SAME = {"low": (1, 1), "high": (1, 1)}
# name: operand types, builder, constants by operand, layouts of the outputs
CASES = {
    "pointwise": ([X, t(20, 12, 1, 1), t(20)], conv(relu), (1, 2), [NHWC]),
    "nchw": ([t(N, 12, 6, 6), t(20, 12, 1, 1), t(20)], conv(relu), (1, 2), [None]),
    "3x3": ([X, t(20, 12, 3, 3), t(20)], conv(relu, **SAME), (1, 2), [NHWC]),
    "3x3-nchw-out": ([X, t(20, 12, 3, 3), t(20)], conv(relu, **SAME), (1, 2), [None]),
    "stride": ([X, t(20, 12, 3, 3), t(20)], conv(strides=(2, 2), low=(0, 1), high=(1, 1)), (1, 2),
               [NHWC]),
    "dilated": ([X, t(20, 12, 3, 3), t(20)], conv(dilations=(2, 2)), (1, 2), [NHWC]),
    "groups": ([X, t(20, 3, 3, 3), t(20)], conv(groups=4, **SAME), (1, 2), [NHWC]),
    "shuffle": ([X, t(136, 3, 1, 1), t(136)], conv(shuffled, groups=4), (1, 2), [NHWC]),
    "shuffle-nchw": ([X, t(20, 12, 3, 3), t(20)], conv(shuffled, **SAME), (1, 2), [None]),
    "shuffle-depthwise": ([X, t(12, 1, 3, 3), t(12), t(N, 12, 6, 6, layout=NHWC)],
                          conv(shuffled_and_plain, groups=12, **SAME), (1, 2), [NHWC, NHWC]),
    "depthwise": ([X, t(12, 1, 3, 3), t(12)], conv(relu, groups=12, **SAME), (1, 2), [NHWC]),
    "depthwise2": ([X, t(24, 1, 3, 3), t(24)], conv(relu, groups=12, **SAME), (1, 2), [NHWC]),
    "residual": ([X, t(20, 12, 1, 1), t(20), t(N, 20, 6, 6, layout=NHWC)], conv(residual), (1, 2),
                 [NHWC]),
    "two-outputs": ([X, t(20, 12, 1, 1), t(20)], conv(both), (1, 2), [NHWC, None]),
    "channel-scale": ([X, t(20, 12, 1, 1), t(20), t(N, 20, 1, 1)], conv(scaled), (1, 2), [NHWC]),
    "moved-result": ([X, t(20, 12, 1, 1), t(20)], conv(to_rows), (1, 2), [None]),
    "one-channel": ([t(N, 1, 9, W), t(8, 1, 3, 3), t(8)], conv(relu, **SAME), (1, 2), [NHWC]),
    "wide": ([t(1, 3, 8, W), t(16, 3, 3, 3), t(16)], conv(relu, strides=(2, 2), **SAME), (1, 2),
             [NHWC]),
    "1d": ([t(N, 5, W, layout=NWC), t(7, 5, 3), t(7)], conv(relu, rank=1, low=(1,), high=(1,)),
           (1, 2), [NWC]),
    "matmul": ([t(N, 5, 24), t(24, 40), t(40)], product(added), (1, 2), [None]),
    "matmul-vector": ([t(24), t(24, 40), t(40)], product(added), (1, 2), [None]),
    "matmul-turned": ([t(N, 24), t(40, 24)], turned, (1,), [None]),
    "matmul-heads": ([t(N, 4, 5, 6), t(24, 10)], heads, (1,), [None]),
    "scores": ([t(N, W, 4, 8), t(N, W, 4, 8), t(1)], scores, (), [None]),
    "context": ([t(N, 4, W, W), t(N, W, 4, 8)], context, (), [None]),
    "matmul-activations": ([t(N, 5, W), t(W, 20)], product(), (), [None]),
    "matmul-broadcast": ([t(2, 1, N, 6), t(3, 6, W)], product(), (), [None]),
    "matmul-vectors": ([t(N, W), t(W)], product(), (), [None]),
    "matmul-constant-left": ([t(20, 12), t(N, 12, W)], product(), (0,), [None]),
    "max-pool": ([X], pool("max_pool"), (), [NHWC]),
    "max-pool-nchw": ([t(N, 12, 9, W)], pool("max_pool", kernel=(2, 3)), (), [None]),
    "average-pool": ([X], pool("average_pool", ceil_mode=True), (), [NHWC]),
    "average-pool-all": ([X], pool("average_pool", count_include_pad=True), (), [NHWC]),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    return Compiled([
        region("lone" if "pool" in name else "contraction", types, build, layouts=layouts,
               constants={i: c(*types[i].shape) for i in constants})
        for name, (types, build, constants, layouts) in CASES.items()
    ])  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("sizes", [(3, 40), (1, 7)])
def test_matches_the_evaluator(compiled, name, sizes):
    index = list(CASES).index(name)
    binding = dict(zip("NW", sizes, strict=True))
    rng = np.random.default_rng(sizes[0])
    arrays = [
        rng.standard_normal([dims.evaluate(d, binding) for d in v.type.shape]).astype(np.float32)
        for v in compiled.graphs[index].inputs
    ]
    check(compiled, index, arrays, 1e-6)


def test_layers_of_other_sizes_share_a_kernel():
    def layer(n):
        return region(
            "contraction", [t(1, n, 8, 8, layout=NHWC), t(2 * n, n, 3, 3), t(2 * n)],
            conv(relu, **SAME), layouts=[NHWC], constants={1: c(2 * n, n, 3, 3), 2: c(2 * n)},
        )  # fmt: skip

    both = Compiled([layer(8), layer(24)])
    assert both.steps[0][0].kernel.name == both.steps[1][0].kernel.name
