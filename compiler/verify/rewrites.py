"""Which pass, and which rewrite of it, changed what a graph computes.

Passes by evaluating the graph after each, rewrites by fuel: with N rewrites allowed the graph is
right, with N + 1 it is not.  The search costs one run of the passes for each halving.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.passes.base import Listener, PassResult, Pipeline, Rewrite
from graphwright.compiler.target import Target
from graphwright.compiler.verify.difference import Difference, difference

Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True, slots=True)
class PassFault:
    """`execution`: which execution of the passes, counted from 0; `rewrites`: (before it, after it).

    `before`: the graph that it was given.  `rewrite`: the one that did it, once known.
    """

    name: str
    execution: int
    rewrites: tuple[int, int]
    output: str
    difference: Difference
    before: Graph
    rewrite: Rewrite | None = None


class _Watch(Listener):
    """Evaluates after every pass that changed the graph; remembers the first that was wrong."""

    def __init__(self, judge: _Judge, tell: Callable[[str], None] | None) -> None:
        self.judge, self.tell = judge, tell
        self.fault: PassFault | None = None
        self._execution = -1
        self._rewrites = self._start = 0
        self._before: Graph | None = None

    def before_pass(self, name: str, graph: Graph) -> None:
        self._execution += 1
        self._start = self._rewrites
        if self.fault is None:
            self._before = graph.clone()
            if self.tell is not None:
                self.tell(name)

    def rewrite(self, rewrite: Rewrite) -> None:
        self._rewrites += not rewrite.required

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        if self.fault is not None or not result.changed:
            return
        wrong = self.judge.wrong(graph)
        if wrong is not None:
            assert self._before is not None
            self.fault = PassFault(
                name, self._execution, (self._start, self._rewrites), *wrong, self._before
            )


class _Judge:
    """Says whether a graph still computes what it should."""

    def __init__(self, graph: Graph, feed: Feed, tolerance: float, measure: str) -> None:
        self.feed, self.tolerance, self.measure = feed, tolerance, measure
        self.want: Sequence[np.ndarray] = evaluate(graph, feed, compute=np.float64)

    def wrong(self, graph: Graph) -> tuple[str, Difference] | None:
        """The first output beyond the tolerance, or None."""
        try:
            got = evaluate(graph, self.feed, compute=np.float64)
        except Exception as error:
            # A rewrite can leave a graph that no longer evaluates: as wrong as can be.
            inf = float("inf")
            note = f"{type(error).__name__}: {error}"
            return graph.output_names[0], Difference(inf, inf, inf, inf, inf, note=note)
        for name, a, b in zip(graph.output_names, got, self.want, strict=True):
            found = difference(a, b)
            if not found.measure(self.measure) <= self.tolerance:
                return name, found
        return None


def find_pass(
    graph: Graph,
    pipeline: Pipeline,
    target: Target,
    feed: Feed,
    *,
    tolerance: float = 1e-5,
    measure: str = "relative",
    tell: Callable[[str], None] | None = None,
) -> PassFault | None:
    """The first pass after which the graph is wrong, or None.  `graph` itself is left alone."""
    judge = _Judge(graph, feed, tolerance, measure)
    watch = _Watch(judge, tell)
    pipeline.run(graph.clone(), target, listeners=[watch], verify=False)
    return watch.fault


def find_rewrite(
    graph: Graph,
    pipeline: Pipeline,
    target: Target,
    feed: Feed,
    fault: PassFault,
    *,
    tolerance: float = 1e-5,
    measure: str = "relative",
    tell: Callable[[str], None] | None = None,
) -> PassFault:
    """The same fault with the rewrite that made it.  Without one when the pass did it outside of
    its rewrites (a type, the order).
    """
    judge = _Judge(graph, feed, tolerance, measure)

    def wrong_with(fuel: int) -> tuple[bool, list[Rewrite]]:
        stopper = _StopAfter(fault.execution)
        trial = graph.clone()
        rewrites: list[Rewrite] = []
        stopper.rewrites = rewrites
        with suppress(_Stopped):
            pipeline.run(trial, target, listeners=[stopper], verify=False, max_rewrites=fuel)
        return judge.wrong(trial) is not None, rewrites

    low, high = fault.rewrites  # right with `low`, wrong with `high` rewrites
    if low == high or not wrong_with(high)[0] or wrong_with(low)[0]:
        return fault
    while high - low > 1:
        middle = (low + high) // 2
        if tell is not None:
            tell(f"{high - low} rewrites left")
        if wrong_with(middle)[0]:
            high = middle
        else:
            low = middle
    _, rewrites = wrong_with(high)
    culprit = rewrites[high - 1] if high <= len(rewrites) else None
    return PassFault(
        fault.name,
        fault.execution,
        fault.rewrites,
        fault.output,
        fault.difference,
        fault.before,
        culprit,
    )


class _Stopped(Exception):
    """The execution that was asked for is done."""


class _StopAfter(Listener):
    def __init__(self, execution: int) -> None:
        self.execution, self._at = execution, -1
        self.rewrites: list[Rewrite] = []

    def before_pass(self, name: str, graph: Graph) -> None:
        self._at += 1
        if self._at > self.execution:
            raise _Stopped

    def rewrite(self, rewrite: Rewrite) -> None:
        if not rewrite.required:
            self.rewrites.append(rewrite)
