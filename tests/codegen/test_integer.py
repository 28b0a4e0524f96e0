"""Integer contractions with epilogues: bit for bit the evaluator, on every ISA level that runs here.

Inputs end where a page that may not be read begins, so that a read past the last element crashes.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap

import codegen_harness
import numpy as np
import pytest
from codegen_graphs import one, region
from codegen_harness import Compiled, storage

from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.types import F32, I8, I16, I32, U8, TensorType
from graphwright.compiler.target import CPU_LEVELS, Target
from graphwright.runtime.cpu import LEVELS, cpu_features

M, N, K = (dims.of(Symbol(n, 1, 4096)) for n in "MNK")
NHWC = Layout((0, 2, 3, 1))
RNG = np.random.default_rng(11)
libc = ctypes.CDLL(None, use_errno=True)
_KEPT: list[mmap.mmap] = []


def at_page_end(array: np.ndarray) -> np.ndarray:
    """A copy whose last byte is the last one before a page without access."""
    pages = -(-max(array.nbytes, 1) // mmap.PAGESIZE)
    memory = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
    _KEPT.append(memory)
    whole = np.frombuffer(memory, np.uint8)
    end = pages * mmap.PAGESIZE
    assert libc.mprotect(ctypes.c_void_p(whole.ctypes.data + end), mmap.PAGESIZE, 0) == 0
    copy = whole[end - array.nbytes : end].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def octets(dtype, *shape):
    info = np.iinfo(dtype.numpy)
    return RNG.integers(info.min, info.max + 1, shape).astype(dtype.numpy)


def constant(dtype, *shape):
    return Literal.dense(octets(dtype, *shape))


def scalar(dtype):
    return TensorType(dtype, ())


def requantized(g, total, scale, bias, dtype):
    """round(total * scale) + 7 with an integer bias added first."""
    total = one(g, "add", [total, bias])
    real = one(g, "mul", [one(g, "cast", [total], dtype=F32, saturate=True), scale])
    unit, zero = (
        one(g, "constant", [], value=Literal.dense(np.asarray(v, t.numpy)))
        for v, t in ((1.0, F32), (7, dtype))
    )
    return one(g, "quantize", [real, unit, zero], dtype=dtype)


def weights(left, right, k, n, dtype=U8):
    """a [M, k] times constants [k, n], requantized."""
    types = [
        TensorType(left, (M, k)), TensorType(right, (k, n)), scalar(left), TensorType(right, (1, n)),
        TensorType(F32, (n,)), TensorType(I32, (n,)),
    ]  # fmt: skip

    def build(g, v):
        return [requantized(g, one(g, "matmul_integer", v[:4]), v[4], v[5], dtype)]

    scales = Literal.dense(RNG.uniform(1e-5, 1e-3, n).astype(np.float32))
    return region(
        "contraction", types, build,
        constants={1: constant(right, k, n), 3: constant(right, 1, n), 4: scales},
    )  # fmt: skip


def activations(left, right, transposed):
    """[2, M, K] times [2, K, N], perhaps as a view of [2, N, K]."""
    shape = (2, N, K) if transposed else (2, K, N)
    types = [TensorType(left, (2, M, K)), TensorType(right, shape), scalar(left), scalar(right)]

    def build(g, v):
        b = one(g, "transpose", [v[1]], permutation=(0, 2, 1)) if transposed else v[1]
        return [one(g, "matmul_integer", [v[0], b, v[2], v[3]])]

    return region("contraction", types, build)


def conv(left, right, channels, filters, kernel, **given):
    groups = given.get("groups", 1)
    types = [
        TensorType(left, (1, channels, M, N), NHWC),
        TensorType(right, (filters, channels // groups, *kernel)), scalar(left),
        TensorType(right, (filters,)), scalar(F32), TensorType(I32, (filters, 1, 1)),
    ]  # fmt: skip
    attributes = {
        "strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1), "groups": 1, **given,
    }  # fmt: skip

    def build(g, v):
        total = one(g, "conv_integer", v[:4], **attributes)
        return [requantized(g, total, v[4], v[5], I8)]

    return region(
        "contraction", types, build, layouts=[NHWC],
        constants={1: constant(right, *types[1].shape), 3: constant(right, filters)},
    )  # fmt: skip


GRAPHS = {
    **{f"weights-{a}-{b}": weights(a, b, 70, 75) for a, b in itertools.product((U8, I8), (U8, I8))},
    "weights-i16": weights(I16, I8, 71, 40),
    "weights-deep": weights(U8, I8, 512, 64, I8),
    "activations-u8-u8": activations(U8, U8, True),
    "activations-u8-i8": activations(U8, I8, False),
    "activations-i8-u8": activations(I8, U8, False),
    "activations-i8-i8": activations(I8, I8, True),
    "conv-u8-i8": conv(U8, I8, 24, 40, (3, 3)),
    "conv-u8-u8-few": conv(U8, U8, 3, 24, (3, 3), strides=(2, 2)),
    "conv-i8-i8-grouped": conv(I8, I8, 16, 10, (3, 3), groups=2),
    "conv-pointwise": conv(U8, U8, 20, 33, (1, 1), low=(0, 0), high=(0, 0)),
    "conv-dilated": conv(I8, U8, 8, 16, (3, 2), dilations=(2, 1)),
    "depthwise": conv(U8, I8, 40, 40, (3, 3), groups=40),
}  # fmt: skip
# M, N, K
SIZES = [
    (1, 5, 3),
    (3, 33, 64),
    (4, 16, 70),
    (13, 40, 130),
    (31, 7, 4),
    (33, 65, 67),
    (70, 20, 200),
]


def levels():
    """(level, whether tiles may be used) of this machine; the quick run takes the widest alone."""
    found = [
        n
        for n, needs in LEVELS.items()
        if n in CPU_LEVELS and n[:4] == "x86-" and needs <= cpu_features()
    ]
    if not found:
        return [("native", True)]
    all = [(n, t) for n in found for t in ((False, True) if n.endswith("vnni") else (False,))]
    return [*(pytest.param(p, marks=pytest.mark.slow) for p in all[:-1]), all[-1]]


@pytest.fixture(scope="module", params=levels(), ids=str)
def compiled(request):
    level, tiles = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHWRIGHT_AMX", str(int(tiles)))  # asked at the first call
        patch.setattr(codegen_harness, "storage", lambda a, v: at_page_end(storage(a, v)))
        yield Compiled(list(GRAPHS.values()), level)
    _KEPT.clear()


@pytest.mark.parametrize("name", GRAPHS)
def test_equals_the_evaluator(compiled, name):
    index = list(GRAPHS).index(name)
    graph = compiled.graphs[index]
    for sizes in SIZES:
        at_least = 3 if name.startswith("conv") else 1  # a window fits
        binding = {n: max(size, at_least) for n, size in zip("MNK", sizes, strict=True)}
        arrays = []
        for value in graph.inputs:
            shape = [dims.evaluate(d, binding) for d in value.type.shape]
            if value.type.dtype is F32:
                arrays.append(np.float32(RNG.uniform(1e-5, 1e-3, shape)))
            elif value.type.dtype is I32:
                arrays.append(RNG.integers(-1000, 1000, shape, dtype=np.int32))
            else:
                arrays.append(octets(value.type.dtype, *shape))
        got = compiled.run(index, arrays)
        for a, b in zip(got, evaluate(graph, arrays), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=f"{name} {sizes}")


def test_templates_and_not_loops_do_it():
    for name, graph in GRAPHS.items():
        (launch,) = emit_graph(graph, Target.parse("cpu:native"))
        assert isinstance(launch, EmittedLaunch)
        assert any(header.startswith("gw/integer_") for header in launch.includes), name
