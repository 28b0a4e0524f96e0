"""Max and average pooling against numpy: pads, ceil mode, dilation, global, NaN."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from harness import Guarded, Library, build, isas, relative_error
from test_conv import SOURCE, Case


def pool(size, channels, kernel, *, extra=(0, 0, 0), **options) -> tuple[Case, tuple]:
    """A case and the number of output positions ceil mode adds on each axis."""
    case = Case(size, 1, 1, kernel, groups=channels, **options)
    out = tuple(o + e for o, e in zip(case.out, extra, strict=True))
    object.__setattr__(case, "out", out)
    return case


def reference(x: np.ndarray, case: Case, *, mean: bool, include_pad: bool) -> np.ndarray:
    """float64 pooling of x [N, D, H, W, C]; windows are cut at the image, the divisor at the pads."""
    ends = case.pad if case.pad_end is None else case.pad_end
    out = np.zeros((case.n, *case.out, case.groups))
    for place in itertools.product(*[range(o) for o in case.out]):
        inside, padded = [], 1
        for axis in range(3):
            start = place[axis] * case.stride[axis] - case.pad[axis]
            positions = [start + k * case.dilation[axis] for k in range(case.kernel[axis])]
            inside.append([p for p in positions if 0 <= p < case.size[axis]])
            padded *= sum(p < case.size[axis] + ends[axis] for p in positions)
        window = x.astype(np.float64)[:, inside[0]][:, :, inside[1]][:, :, :, inside[2]]
        if mean:
            count = padded if include_pad else np.prod([len(i) for i in inside])
            value = window.sum(axis=(1, 2, 3)) / count
        else:
            value = window.max(axis=(1, 2, 3))
        out[(slice(None), *place)] = value
    return out


CASES = [
    pool((1, 8, 9), 16, (1, 2, 2), stride=(1, 2, 2)),
    pool((1, 9, 21), 17, (1, 3, 3), stride=(1, 2, 2), pad=(0, 1, 1), n=2),
    pool((1, 8, 8), 3, (1, 3, 3), stride=(1, 2, 2), extra=(0, 1, 1)),
    pool((1, 7, 7), 130, (1, 7, 7)),
    pool((1, 10, 12), 65, (1, 3, 2), dilation=(1, 2, 3), pad=(0, 1, 1)),
    pool((1, 6, 7), 1, (1, 5, 5), pad=(0, 2, 2)),
    pool((1, 1, 30), 40, (1, 1, 4), stride=(1, 1, 3), pad=(0, 0, 1), extra=(0, 0, 1)),
    pool((4, 5, 6), 24, (2, 3, 2), stride=(2, 1, 2), pad=(1, 1, 0)),
    pool((1, 60, 80), 8, (1, 60, 80)),
]


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("mean,include_pad", [(False, False), (True, False), (True, True)])
def test_pooling_matches_numpy(isa, case, mean, include_pad):
    library = Library(build(SOURCE, isa=isa))
    rng = np.random.default_rng(case.scalars())
    x = Guarded(rng.standard_normal((case.n, *case.size, case.groups)))
    expected = reference(x.array, case, mean=mean, include_pad=include_pad)
    ends = case.pad if case.pad_end is None else case.pad_end
    zero = np.zeros(case.groups, np.float32)
    for pool_used in (True, False):
        out = Guarded(shape=expected.shape)
        scalars = [*case.scalars(), mean, include_pad, *ends]
        library.call("pooling", [x.array, None, zero, out.array], scalars, pool=pool_used)
        assert out.intact()
        assert relative_error(out.array, expected) < 1e-6
    library.close()


def test_max_pooling_keeps_nan():
    library = Library(build(SOURCE, isa=isas()[-1]))
    case = CASES[1]
    x = np.random.default_rng(0).standard_normal((case.n, *case.size, case.groups))
    x = x.astype(np.float32)
    x[0, 0, 4, 5, 3] = x[1, 0, 0, 0, 16] = np.nan
    expected = reference(x, case, mean=False, include_pad=False)
    out = np.zeros(expected.shape, np.float32)
    zero = np.zeros(case.groups, np.float32)
    library.call("pooling", [x, None, zero, out], [*case.scalars(), 0, 0, 0, 1, 1])
    assert np.isnan(expected).any()
    assert np.array_equal(out, expected.astype(np.float32), equal_nan=True)
    library.close()
