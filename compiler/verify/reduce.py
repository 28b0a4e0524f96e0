"""Makes a failing model smaller while it still fails: delta debugging over its ops.

After Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input" (2002): parts of the
model are tried alone, then the model without them, in ever smaller parts, until no single op can
go.  Whoever calls says what a part is and whether it still fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Reduction:
    """`kept`: the items that are left, in order.  `minimal`: none of them can go alone; else time
    ran out.  `tests`: how many candidates were tried.
    """

    kept: tuple[int, ...]
    minimal: bool
    tests: int


class OutOfTime(Exception):
    """The time that was allowed is over."""


def minimise(
    items: Sequence[int],
    fails: Callable[[Sequence[int]], bool],
    *,
    seconds: float = float("inf"),
    tell: Callable[[int, int], None] | None = None,
) -> Reduction:
    """A small subsequence of `items` for which `fails` is true, as it is for all of them.

    `tell` is told (items left, tests so far) before each test.  No test begins after `seconds`.
    """
    end = time.monotonic() + seconds
    current = list(items)
    known: dict[tuple[int, ...], bool] = {}
    tests = 0

    def test(candidate: Sequence[int]) -> bool:
        nonlocal tests
        key = tuple(candidate)
        if key not in known:
            if time.monotonic() > end:
                raise OutOfTime
            if tell is not None:
                tell(len(current), tests)
            tests += 1
            known[key] = bool(key) and fails(key)
        return known[key]

    parts = 2
    try:
        while len(current) > 1:
            chunks = _split(current, parts)
            smaller = next((c for c in chunks if len(c) < len(current) and test(c)), None)
            if smaller is not None:
                current, parts = smaller, 2
                continue
            rests = ([i for c in chunks if c is not gone for i in c] for gone in chunks)
            smaller = next((r for r in rests if test(r)), None) if parts > 2 else None
            if smaller is not None:
                current, parts = smaller, max(parts - 1, 2)
                continue
            if parts >= len(current):
                break
            parts = min(2 * parts, len(current))
    except OutOfTime:
        return Reduction(tuple(current), False, tests)
    return Reduction(tuple(current), True, tests)


def _split(items: list[int], parts: int) -> list[list[int]]:
    """Consecutive parts of nearly equal length."""
    edges = [len(items) * n // parts for n in range(parts + 1)]
    return [items[a:b] for a, b in pairwise(edges) if a < b]
