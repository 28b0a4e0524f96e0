"""Whether an output is what a backend test wants."""

from __future__ import annotations

from typing import Any

import numpy as np
from backend_cases import Case

# Drawn from a generator that the standard does not fix: only types and shapes can be judged.
RANDOM = ("test_bernoulli", "test_training_dropout")
# Results in these types may be two units in the last place away.
TWO_ULP = {"float16": 2**-9, "bfloat16": 2**-6}


def difference(case: Case, got: Any, want: Any) -> str:
    """What is wrong with an output, or ""."""
    if isinstance(want, list):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return f"{type(got).__name__}, want a sequence of {len(want)}"
        return next(filter(None, map(difference, [case] * len(want), got, want)), "")
    if want is None:
        return "" if got is None else f"{type(got).__name__}, want nothing"
    got, want = np.asarray(got), np.asarray(want)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{list(got.shape)}, want {want.dtype}{list(want.shape)}"
    if case.name.startswith(RANDOM) and "zero_ratio" not in case.name:
        return ""
    if want.dtype.kind in "biuO":
        near = np.array_equal(got, want)
    else:
        wide = np.complex128 if want.dtype.kind == "c" else np.float64
        a, b = got.astype(wide), want.astype(wide)
        rtol, atol = max(case.rtol, TWO_ULP.get(want.dtype.name, 0)), case.atol
        if case.name.startswith(("test_dft", "test_stft")) and b.size:
            # Where sums of roots of unity cancel, the stored answers hold exact zeros.
            atol = max(atol, 1e-6 * np.abs(b).max())
        near = np.allclose(a, b, rtol, atol, equal_nan=True)
    return "" if near else f"{_head(got)}, want {_head(want)}"


def _head(array: np.ndarray) -> str:
    return str(array.reshape(-1)[:6])
