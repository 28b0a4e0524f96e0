"""Batched products of activations: transposed views, broadcast batches, skinny sizes."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
from harness import Guarded, Library, build, isas, relative_error

from graphwright.compiler.codegen.cpp.packing import pack_gemm_b, panel_shape

SOURCE = Path(__file__).parent / "sequence_kernels.cpp"
SIZES = [
    (1, 64, 80), (2, 33, 64), (3, 100, 7), (4, 16, 130), (5, 40, 33), (12, 32, 64), (37, 65, 19),
    (100, 10, 5), (64, 64, 64), (1, 1, 1), (20, 48, 1), (30, 3, 200),
]  # fmt: skip


@pytest.fixture(scope="module", params=isas())
def library(request):
    made = Library(build(SOURCE, isa=request.param))
    made.shape = panel_shape(request.param)
    made.lib.matmul_workspace.restype = ctypes.c_int64
    made.lib.matmul_workspace.argtypes = [ctypes.c_int64] * 2
    yield made
    made.close()


def run(library, a: np.ndarray, b: np.ndarray, packed: np.ndarray | None = None) -> np.ndarray:
    """0.5 * a @ b for numpy views of float32, passed by pointer and strides."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a = np.broadcast_to(a, (*batch, m, k))
    b = np.broadcast_to(b, (*batch, *b.shape[-2:]))
    lead = 4 - len(batch)
    a_strides, b_strides = ([s // 4 for s in t.strides] for t in (a, b))
    workspace = Guarded(shape=(library.lib.matmul_workspace(k, 2),))
    scalars = [m, n, k, *a_strides[-2:], *b_strides[-2:], packed is not None]
    for values, fill in ((batch, 1), (a_strides[:-2], 0), (b_strides[:-2], 0)):
        scalars += [fill] * lead + list(values)
    results = []
    for pool in (True, False):
        out = Guarded(shape=(*batch, m, n))
        right = b if packed is None else packed
        library.call("matmul", [a, right, workspace.array, out.array], scalars, pool=pool)
        assert out.intact() and workspace.intact()
        results.append(out.array)
    assert np.array_equal(*results), "the result depends on the number of threads"
    expected = 0.5 * (a.astype(np.float64) @ b.astype(np.float64))
    assert relative_error(results[0], expected) < 1e-6
    return results[0]


def array(*shape, seed=0) -> np.ndarray:
    """A fresh array whose surroundings are NaN."""
    rng = np.random.default_rng([seed, *shape])
    return Guarded(rng.standard_normal(shape)).array


@pytest.mark.parametrize("m,n,k", SIZES)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_every_layout(library, m, n, k, transpose_a, transpose_b):
    a = array(3, k, m).swapaxes(1, 2) if transpose_a else array(3, m, k)
    b = array(3, n, k, seed=1).swapaxes(1, 2) if transpose_b else array(3, k, n, seed=1)
    run(library, a, b)


def test_attention_heads_and_broadcast(library):
    qkv = array(2, 50, 3, 4, 24)  # batch, time, (q, k, v), head, channel
    q, k, v = (qkv[:, :, i].transpose(0, 2, 1, 3) for i in range(3))
    scores = run(library, q, k.swapaxes(2, 3))
    run(library, scores, v)
    run(library, array(5, 1, 20, 30), array(3, 30, 40, seed=2))
    run(library, array(20, 30), array(2, 3, 2, 2, 30, 40, seed=3)[0, 0])
    run(library, array(40, 9, 16)[::2, :, ::2], array(20, 8, 70, seed=4)[:, :, ::3])


@pytest.mark.parametrize("m", [1, 3, 30])
def test_constant_right_operand_with_transposed_left(library, m):
    a, b = array(45, m).T, array(45, 70, seed=5)
    run(library, a, b, packed=pack_gemm_b(b, shape=library.shape))
