"""Packed GEMM against float64 over odd sizes, strides, thread counts and compilers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from harness import Guarded, Library, build, isas, relative_error

from graphwright.compiler.codegen.cpp.packing import pack_gemm_b, packed_size, panel_shape

SOURCE = Path(__file__).parent / "gemm_kernels.cpp"
SIZES = [
    (1, 1, 1), (1, 1000, 512), (2, 17, 3), (3, 33, 64), (4, 64, 129), (5, 31, 7), (7, 100, 16),
    (12, 32, 8), (13, 96, 147), (49, 48, 300), (64, 15, 65), (100, 130, 64), (240, 24, 32),
    (196, 65, 576), (6, 16, 0), (33, 700, 600),
]  # fmt: skip


@pytest.fixture(scope="module", params=isas())
def kernels(request):
    library = Library(build(SOURCE, isa=request.param))
    yield library, panel_shape(request.param)
    library.close()


def test_panel_shape_agrees_with_the_headers(kernels):
    library, shape = kernels
    assert library.lib.panel_columns() == shape.columns


@pytest.mark.parametrize("m,n,k", SIZES)
def test_gemm_matches_float64(kernels, m, n, k):
    library, shape = kernels
    rng = np.random.default_rng([m, n, k])
    a = Guarded(rng.standard_normal((m, k)))
    b = rng.standard_normal((k, n)).astype(np.float32)
    bias = Guarded(rng.standard_normal(n))
    packed = Guarded(pack_gemm_b(b, shape=shape))
    assert packed.array.size == packed_size(k, n, shape=shape)
    reference = a.array.astype(np.float64) @ b.astype(np.float64)
    results = []
    for pool in (True, False):
        out = Guarded(shape=(m, n))
        library.call(
            "gemm_store", [a.array, packed.array, out.array], [m, n, k, k, n, 1], pool=pool
        )
        assert out.intact()
        assert relative_error(out.array, reference) < 1e-6
        results.append(out.array)
    assert np.array_equal(*results), "the result depends on the number of threads"
    out = Guarded(shape=(m, n))
    library.call(
        "gemm_bias_relu", [a.array, packed.array, bias.array, out.array], [m, n, k], pool=True
    )
    assert relative_error(out.array, np.maximum(reference + bias.array, 0)) < 1e-6


def test_rows_apart_and_transposed_store(kernels):
    library, shape = kernels
    rng = np.random.default_rng(0)
    m, n, k, stride = 29, 50, 37, 45
    a = Guarded(rng.standard_normal((m, stride)))
    b = rng.standard_normal((k, n)).astype(np.float32)
    packed = Guarded(pack_gemm_b(b, shape=shape))
    out = Guarded(shape=(n, m))
    library.call("gemm_store", [a.array, packed.array, out.array], [m, n, k, stride, 1, m])
    assert out.intact()
    reference = a.array[:, :k].astype(np.float64) @ b.astype(np.float64)
    assert relative_error(out.array.T, reference) < 1e-6


def test_not_finite_values_stay_in_their_row_and_column(kernels):
    library, shape = kernels
    m, n, k = 26, 40, 12
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    a[20, 3], b[5, 39] = np.nan, np.inf
    out = Guarded(shape=(m, n))
    packed = pack_gemm_b(b, shape=shape)
    library.call("gemm_store", [a, packed, out.array], [m, n, k, k, n, 1])
    with np.errstate(invalid="ignore"):
        assert np.array_equal(out.array, a @ b, equal_nan=True)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="ziglang not installed")
@pytest.mark.parametrize("isa", isas())
def test_clang_build_agrees(isa):
    library = Library(build(SOURCE, isa=isa, compiler="zig"))
    shape = panel_shape(isa)
    rng = np.random.default_rng(1)
    for m, n, k in SIZES:
        a = rng.standard_normal((m, k)).astype(np.float32)
        b = rng.standard_normal((k, n)).astype(np.float32)
        out = Guarded(shape=(m, n))
        library.call("gemm_store", [a, pack_gemm_b(b, shape=shape), out.array], [m, n, k, k, n, 1])
        assert out.intact()
        assert relative_error(out.array, a.astype(np.float64) @ b) < 1e-6
    library.close()
