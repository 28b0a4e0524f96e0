"""A listener that keeps what the report says about passes: which ran, how long, what they noted."""

from __future__ import annotations

import time

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.passes.base import Listener, PassResult


class Timeline(Listener):
    """`runs`: (name, seconds, changed) in order; `seconds`: from the first pass to the last."""

    def __init__(self) -> None:
        self.runs: list[tuple[str, float, bool]] = []
        self.notes: dict[str, None] = {}
        self._start: float | None = None
        self._end = 0.0

    @property
    def seconds(self) -> float:
        """Wall time of all passes, verification between them included."""
        return self._end - self._start if self._start is not None else 0.0

    def before_pass(self, name: str, graph: Graph) -> None:
        if self._start is None:
            self._start = time.perf_counter()

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        self.runs.append((name, seconds, result.changed))
        self.notes |= dict.fromkeys(result.notes)
        self._end = time.perf_counter()
