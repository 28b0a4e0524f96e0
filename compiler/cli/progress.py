"""What a compilation says while it runs: the stage on a terminal, graphs after passes on demand."""

from __future__ import annotations

from types import TracebackType
from typing import Any

from graphwright.compiler.cli.console import Console
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Listener, PassResult


class Progress(Listener):
    """A listener: shows the stage (on a terminal) and prints graphs after the named passes."""

    def __init__(self, console: Console, options: CompileOptions) -> None:
        self.console, self.options = console, options
        self._status: Any = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal and self.console.verbosity >= 0:
            self._status = self.console.words.status("reading")
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def before_pass(self, name: str, graph: Graph) -> None:
        if self._status is not None:
            self._status.update(f"passes: {name}")

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        wanted = self.options.print_after
        if (name in wanted or "all" in wanted) and name != self.options.stop_after:
            self.console.show(f"# after {name}" + ("" if result.changed else " (nothing changed)"))
            self.print_graph(graph)

    def stage(self, name: str, done: int, total: int) -> None:
        if self._status is not None:
            self._status.update(f"{name} {done} of {total}" if total else name)

    def print_graph(self, graph: Graph) -> None:
        """The graph's text on stdout."""
        self.console.show(print_graph(graph).rstrip("\n"))
