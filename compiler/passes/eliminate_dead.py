"""eliminate-dead: removes ops whose results nobody uses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.dims import Symbol, symbols_of
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.symbol_scope import binders, bound_by, mentioned
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.rewrite import Rewriter, is_dead
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class EliminateDead:
    """Removes every op, also inside bodies, that writes nothing and whose results are unused.

    One walk from last to first, so that a whole dead chain goes; an op that binds a symbol goes when
    nothing after it mentions the symbol.  Graph inputs stay, used or not: they are the signature.
    Ensures that what is left is used or writes.

        %0 = exp(%x)         =>   %0 = relu(%x)
        %1 = relu(%x)             return %0
        return %1
    """

    name: ClassVar[str] = "eliminate-dead"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in the number of ops."""
        removed = 0
        for current in graphs_of(graph):
            late = binders(current)
            used: set[Symbol] = set()
            with Rewriter(current, self.name, journal) as rw:
                for op in current.ops_reversed:
                    if rw.exhausted:
                        break
                    unbound = op.name == "bind" and used.isdisjoint(bound_by(op))
                    unchecked = op.name == "check" and target.kind == "cuda"
                    if is_dead(op) or unbound or unchecked:
                        with rw.step("unused", op):
                            rw.erase(op)
                            _forget(current, bound_by(op))
                    elif late:
                        used.update(mentioned(op))
                removed += rw.steps
        return PassResult(removed > 0, statistics={"unused": removed} if removed else {})


def _forget(graph: Graph, symbols: Iterable[Symbol]) -> None:
    """What ops that are gone needed of symbols that nothing binds any more."""
    gone = set(symbols)
    if gone:
        graph.constraints = [
            c for c in graph.constraints if gone.isdisjoint(symbols_of((c.left, c.right)))
        ]
        for symbol in gone:
            graph.symbols.pop(symbol.name, None)


def graphs_of(graph: Graph) -> Iterator[Graph]:
    """The graph and, depth first, the bodies inside it."""
    pending = [graph]
    while pending:
        current = pending.pop()
        yield current
        for op in current.ops:
            pending.extend(op.bodies)
