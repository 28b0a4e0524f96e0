"""What a pass is, and how a text pipeline of passes runs over a graph.

A pass is a frozen dataclass with options as fields; its name is the module's name with dashes
(`eliminate_dead.py`: `eliminate-dead`: `EliminateDead`).  A pipeline is a string such as
`(canonicalize,fold-constants{limit=1048576})*,eliminate-dead`, parsed by the same code for the
command line and for tests.  Printing, tracing and timing are listeners' work, never a pass's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.target import Target
from graphwright.errors import CompileError, GraphwrightError, InputError


@dataclass(frozen=True, slots=True)
class PassResult:
    """`changed`: the graph was modified; `notes`: what people should know, one line each."""

    changed: bool
    notes: tuple[str, ...] = ()
    statistics: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One step of a pass: what rule, written where, turned which ops (by id) into which, and why."""

    pass_name: str
    rule: str
    where: str  # file:line of the rule
    consumed: tuple[int, ...]
    produced: tuple[int, ...]
    reason: str = ""
    graph: str = ""  # the name of the graph: a body's, when the step was in one
    required: bool = False  # costs no fuel

    def __str__(self) -> str:
        old, new = (",".join(map(str, ids)) or "-" for ids in (self.consumed, self.produced))
        reason = f": {self.reason}" if self.reason else ""
        return f"{self.pass_name}/{self.rule} {old} -> {new} ({self.where}){reason}"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A step that nearly happened: what rule, at which ops (by id), and what stood against it."""

    pass_name: str
    rule: str
    ops: tuple[int, ...]
    reason: str


class Journal:
    """The rewrites of a run, and the fuel that bounds them (None: no bound).

    `misses` counts (rule, reason) of rules that nearly applied; `totals` are sums that a pass keeps
    over all its executions in the run.  `on_rewrite` is told each step, `on_refusal` each miss.
    """

    def __init__(
        self,
        fuel: int | None = None,
        on_rewrite: Callable[[Rewrite], None] | None = None,
        on_refusal: Callable[[Refusal], None] | None = None,
    ) -> None:
        self.fuel, self.on_rewrite, self.on_refusal = fuel, on_rewrite, on_refusal
        self.rewrites: list[Rewrite] = []
        self.misses: dict[tuple[str, str], int] = {}
        self.totals: dict[str, int] = {}

    @property
    def exhausted(self) -> bool:
        return self.fuel is not None and self.fuel <= 0

    def add(self, rewrite: Rewrite, *, free: bool = False) -> None:
        """Records a step and, unless it is free, spends one unit of fuel."""
        if self.fuel is not None and not free:
            self.fuel -= 1
        self.rewrites.append(rewrite)
        if self.on_rewrite is not None:
            self.on_rewrite(rewrite)

    def refuse(self, pass_name: str, rule: str, reason: str, ops: Iterable[int]) -> None:
        """Notes why a rule that nearly applied to these ops did not."""
        key = (f"{pass_name}/{rule}", reason)
        self.misses[key] = self.misses.get(key, 0) + 1
        if self.on_refusal is not None:
            self.on_refusal(Refusal(pass_name, rule, tuple(ops), reason))


class Pass(Protocol):
    """The contract: `run` rewrites the graph in place and leaves it verifiable.

    A pass changes the graph only through a `Rewriter` (rewrite.py), which keeps the journal.
    """

    name: ClassVar[str]

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult: ...


class Listener:
    """Base of what watches a pipeline; every method may be left alone."""

    def before_pass(self, name: str, graph: Graph) -> None:
        """`graph` is about to be rewritten by the pass `name`."""

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        """The pass is done; `seconds` of wall time, verification not counted."""

    def rewrite(self, rewrite: Rewrite) -> None:
        """One step was made."""

    def refusal(self, refusal: Refusal) -> None:
        """One step was considered and not made."""

    def checked(self, name: str, distance: float) -> None:
        """After the pass `name` the outputs lie this far from before, relative to their norm."""

    def stage(self, name: str, done: int, total: int) -> None:
        """A stage outside the passes has come this far: `done` of `total` parts, 0 of 0 unknown."""


@dataclass(frozen=True, slots=True)
class PassRun:
    """One execution of a pass in a pipeline run."""

    name: str
    result: PassResult
    seconds: float


@dataclass(frozen=True, slots=True)
class PipelineRun:
    """What a pipeline did.  `stopped`: by stop_after, before its end."""

    passes: tuple[PassRun, ...]
    journal: Journal
    stopped: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(n for p in self.passes for n in p.result.notes))

    @property
    def seconds(self) -> float:
        return sum(p.seconds for p in self.passes)


@dataclass(frozen=True, slots=True)
class Group:
    """`(a,b)*`: runs its items in turn until none of them changes the graph, at most `limit` times."""

    items: tuple[Pass | Group, ...]
    limit: int = 8

    def __str__(self) -> str:
        from graphwright.compiler.passes.pipeline_text import print_items

        return f"({print_items(self.items)})*" + (str(self.limit) if self.limit != 8 else "")


class _Stop(Exception):
    """The pass named by stop_after has run."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Passes and fixpoint groups in order."""

    items: tuple[Pass | Group, ...]

    @staticmethod
    def parse(text: str) -> Pipeline:
        """Reads `name{option=value,...},(a,b)*`.  Raises InputError naming the nearest known word."""
        from graphwright.compiler.passes.pipeline_text import parse_items

        return Pipeline(parse_items(text))

    def __str__(self) -> str:
        from graphwright.compiler.passes.pipeline_text import print_items

        return print_items(self.items)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the passes, once each, in order."""
        return tuple(dict.fromkeys(p.name for p in _flatten(self.items)))

    def run(
        self,
        graph: Graph,
        target: Target,
        *,
        listeners: Sequence[Listener] = (),
        verify: bool = True,
        stop_after: str | None = None,
        disabled: Collection[str] = frozenset(),
        max_rewrites: int | None = None,
    ) -> PipelineRun:
        """Rewrites the graph in place.

        `verify` checks the graph after each pass that changed it.  `stop_after` ends the run after
        the first execution of that pass; `disabled` passes are skipped; at most `max_rewrites`
        steps are made.  Raises InputError for a pass name that is not in this pipeline, and
        CompileError, naming the pass, when a pass fails or leaves an invalid graph.
        """
        for name in (*disabled, *([stop_after] if stop_after else ())):
            if name not in self.names:
                from graphwright.compiler.passes.pipeline_text import unknown

                raise InputError(unknown("pass", name, self.names))
        runs: list[PassRun] = []

        def tell(rewrite: Rewrite) -> None:
            for listener in listeners:
                listener.rewrite(rewrite)

        def refuse(refusal: Refusal) -> None:
            for listener in listeners:
                listener.refusal(refusal)

        journal = Journal(max_rewrites, tell, refuse if listeners else None)

        def run_pass(p: Pass) -> bool:
            if p.name in disabled:
                return False
            for listener in listeners:
                listener.before_pass(p.name, graph)
            start = time.perf_counter()
            try:
                result = p.run(graph, target, journal)
            except GraphwrightError:
                raise
            except Exception as error:
                raise CompileError(
                    f"pass {p.name} failed on graph {graph.name!r}: {type(error).__name__}: "
                    f"{error}; --disable-pass {p.name} avoids it"
                ) from error
            seconds = time.perf_counter() - start
            runs.append(PassRun(p.name, result, seconds))
            if verify and result.changed:
                _verify_after(p.name, graph, journal)
            for listener in listeners:
                listener.after_pass(p.name, graph, result, seconds)
            if p.name == stop_after:
                raise _Stop
            return result.changed

        def run_items(items: Sequence[Pass | Group]) -> bool:
            changed = False
            for item in items:
                if not isinstance(item, Group):
                    changed |= run_pass(item)
                    continue
                for _ in range(item.limit):
                    if not run_items(item.items):
                        break
                    changed = True
            return changed

        try:
            run_items(self.items)
        except _Stop:
            return PipelineRun(tuple(runs), journal, stopped=True)
        return PipelineRun(tuple(runs), journal)


def _flatten(items: Sequence[Pass | Group]) -> Iterator[Pass]:
    for item in items:
        if isinstance(item, Group):
            yield from _flatten(item.items)
        else:
            yield item


def _verify_after(name: str, graph: Graph, journal: Journal) -> None:
    from graphwright.compiler.ir.verify import VerifyError, verify

    try:
        verify(graph)
    except VerifyError as error:
        last = f"; its last step was {journal.rewrites[-1]}" if journal.rewrites else ""
        raise CompileError(
            f"pass {name} left an invalid graph: {error}{last}; --disable-pass {name} avoids it"
        ) from error
