"""How far one array lies from another, in the measures that people judge by."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

MEASURES = ("relative", "max", "mean", "p99", "cosine")


@dataclass(frozen=True, slots=True)
class Difference:
    """`relative`: ||a - b|| / ||b||; `max`, `mean`, `p99`: of |a - b|; `cosine`: 1 minus the cosine
    of the angle between them.  Only elements that are finite in both count; `strange` is the number
    of elements that are NaN or infinite in one of them and not equally so in the other, `nan` and
    `infinite` how many the first has.  Everything is infinite where shapes differ.
    """

    relative: float
    max: float
    mean: float
    p99: float
    cosine: float
    nan: int = 0
    infinite: int = 0
    strange: int = 0
    note: str = ""

    def measure(self, name: str) -> float:
        """One of MEASURES; infinite when there are strange elements."""
        return float("inf") if self.strange or self.note else float(getattr(self, name))

    def to_json(self) -> dict[str, Any]:
        """Plain data; infinities as text, which JSON lacks."""
        plain = asdict(self)
        return {k: v if not isinstance(v, float) or np.isfinite(v) else str(v)
                for k, v in plain.items()}  # fmt: skip


def difference(got: np.ndarray, want: np.ndarray) -> Difference:
    """`got` judged by `want`, both calculated with in float64 (complex numbers by their parts)."""
    inf = float("inf")
    if got.shape != want.shape:
        shapes = " and ".join("x".join(map(str, a.shape)) or "scalar" for a in (got, want))
        return Difference(inf, inf, inf, inf, inf, note=f"shapes {shapes}")
    a, b = _wide(got), _wide(want)
    nan, infinite = int(np.isnan(a).sum()), int(np.isinf(a).sum())
    finite = np.isfinite(a) & np.isfinite(b)
    alike = finite | (np.isnan(a) & np.isnan(b)) | (a == b)
    strange = int(a.size - alike.sum())
    a, b = a[finite], b[finite]
    if not a.size:
        return Difference(0.0, 0.0, 0.0, 0.0, 0.0, nan, infinite, strange)
    gap = np.abs(a - b)
    norm_a, norm_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    error = float(np.linalg.norm(a - b))
    cosine = 0.0
    if norm_a and norm_b:
        # 1 - cos from the distance of the unit vectors: exact where the cosine itself rounds to 1.
        cosine = float(np.sum((a / norm_a - b / norm_b) ** 2)) / 2
    elif norm_a or norm_b:
        cosine = 1.0
    return Difference(
        error / norm_b if norm_b else error,
        float(gap.max()),
        float(gap.mean()),
        float(np.quantile(gap, 0.99)),
        cosine,
        nan,
        infinite,
        strange,
    )


def _wide(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "c":
        return array.astype(np.complex128).reshape(-1).view(np.float64)
    return array.astype(np.float64).reshape(-1)
