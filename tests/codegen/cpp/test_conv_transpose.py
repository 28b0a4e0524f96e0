"""Transposed convolutions against a float64 scatter: strides, pads, dilations, groups, 1-D to 3-D."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from harness import Guarded, Library, build, isas, relative_error
from test_conv import SOURCE, Case

from graphwright.compiler.codegen.cpp.packing import pack_conv_transpose_weight, panel_shape


def transposed(size, ci, co, kernel, *, output_padding=(0, 0, 0), **options) -> Case:
    """A case whose `out` is that of a transposed convolution (pads equal on both sides)."""
    case = Case(size, ci, co, kernel, **options)
    axes = zip(size, case.kernel, case.stride, case.dilation, case.pad, output_padding, strict=True)
    out = tuple((i - 1) * s - 2 * p + (k - 1) * d + 1 + extra for i, k, s, d, p, extra in axes)
    object.__setattr__(case, "out", out)
    return case


def reference(x: np.ndarray, w: np.ndarray, case: Case) -> np.ndarray:
    """float64: x [N, D, H, W, C], w [C, O/g, KD, KH, KW] -> [N, OD, OH, OW, O]."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    full = [
        (i - 1) * s + (k - 1) * d + 1 + p
        for i, s, k, d, p in zip(
            case.size, case.stride, case.kernel, case.dilation, case.pad, strict=True
        )
    ]
    full = [max(f, o + 2 * p) for f, o, p in zip(full, case.out, case.pad, strict=True)]
    out = np.zeros((case.n, *full, case.groups, case.co))
    grouped = x.reshape(*x.shape[:4], case.groups, case.ci)
    for position in itertools.product(*[range(k) for k in case.kernel]):
        weights = w[(..., *position)].reshape(case.groups, case.ci, case.co)
        part = np.einsum("ndhwgi,gio->ndhwgo", grouped, weights)
        places = tuple(
            slice(k * d, k * d + (i - 1) * s + 1, s)
            for k, d, i, s in zip(position, case.dilation, case.size, case.stride, strict=True)
        )
        out[(slice(None), *places)] += part
    crop = tuple(slice(p, p + o) for p, o in zip(case.pad, case.out, strict=True))
    return out[(slice(None), *crop)].reshape(case.n, *case.out, case.groups * case.co)


CASES = [
    transposed((1, 5, 7), 16, 24, (1, 2, 2), stride=(1, 2, 2)),
    transposed((1, 5, 7), 3, 33, (1, 3, 3), n=2),
    transposed((1, 6, 5), 17, 5, (1, 3, 3), stride=(1, 2, 2), pad=(0, 1, 1)),
    transposed((1, 6, 30), 8, 8, (1, 4, 4), stride=(1, 2, 2), pad=(0, 1, 1)),
    transposed(
        (1, 4, 4), 8, 12, (1, 3, 3), stride=(1, 2, 2), pad=(0, 1, 1), output_padding=(0, 1, 1)
    ),
    transposed((1, 5, 6), 4, 6, (1, 3, 3), stride=(1, 2, 3), dilation=(1, 2, 2), groups=2),
    transposed((1, 5, 6), 4, 40, (1, 2, 2), stride=(1, 4, 4)),
    transposed((1, 1, 50), 20, 10, (1, 1, 16), stride=(1, 1, 8), pad=(0, 0, 4)),
    transposed((1, 1, 6), 5, 3, (1, 1, 100), stride=(1, 1, 80)),
    transposed((1, 9, 9), 1, 1, (1, 5, 5), stride=(1, 1, 1), pad=(0, 2, 2), groups=6),
    transposed((3, 4, 5), 3, 7, (2, 3, 3), stride=(2, 1, 2), pad=(0, 1, 1), n=2),
]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("case", CASES, ids=str)
def test_conv_transpose_matches_float64(isa, case):
    library, shape = Library(build(SOURCE, isa=isa)), panel_shape(isa)
    rng = np.random.default_rng(case.scalars())
    x = Guarded(rng.standard_normal((case.n, *case.size, case.groups * case.ci)))
    w = rng.standard_normal((case.groups * case.ci, case.co, *case.kernel)).astype(np.float32)
    bias = Guarded(rng.standard_normal(case.groups * case.co))
    packed = Guarded(pack_conv_transpose_weight(w, groups=case.groups, shape=shape))
    expected = reference(x.array, w, case) + bias.array
    for pool in (True, False):
        out = Guarded(shape=expected.shape)
        buffers = [x.array, packed.array, bias.array, out.array]
        library.call("conv_transpose", buffers, case.scalars(), pool=pool)
        assert out.intact()
        assert relative_error(out.array, expected) < 1e-6
    library.close()
