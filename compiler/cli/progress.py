"""What a compilation says while it runs: stages with counts, and graphs after passes on demand."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType

from graphwright.compiler.cli.console import Console, Stage
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Listener, PassResult


class Progress(Listener):
    """A listener: one stage of the console after the other, and graphs after the named passes.

    A context; `name` is what the model is called in the first line.
    """

    def __init__(self, console: Console, options: CompileOptions, name: str = "the model") -> None:
        self.console, self.options, self.name = console, options, name
        self._passes = 0
        self._stage: Stage | None = None
        self._open: AbstractContextManager[Stage] | None = None

    def __enter__(self) -> Progress:
        self._begin(f"reading {self.name}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open is not None:
            self._open.__exit__(kind, error, trace)
            self._open = self._stage = None

    def _begin(self, text: str) -> Stage:
        """The stage of this text: a new one where it is another than the last."""
        if self._stage is None or self._stage.text != text:
            if self._open is not None:
                self._open.__exit__(None, None, None)
            self._open = self.console.stage(text)
            self._stage = self._open.__enter__()
        return self._stage

    def before_pass(self, name: str, graph: Graph) -> None:
        stage = self._begin("passes")
        self._passes += 1
        stage.note(f"{self._passes} ({name}), {len(graph)} ops")

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        if self._stage is not None and self._stage.text == "passes":
            self._stage.total = self._passes  # fixpoint groups: how many is known at the end only
        wanted = self.options.print_after
        if (name in wanted or "all" in wanted) and name != self.options.stop_after:
            self.console.show(f"# after {name}" + ("" if result.changed else " (nothing changed)"))
            self.print_graph(graph)

    def stage(self, name: str, done: int, total: int) -> None:
        self._begin(name).at(done, total)

    def print_graph(self, graph: Graph) -> None:
        """The graph's text on stdout."""
        self.console.show(print_graph(graph).rstrip("\n"))
