"""Passes as text: look at the graph after one, leave one out, write your own and run it.

python examples/custom_pipeline.py
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from small_network import small_network

from graphwright.compilation import import_source
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Journal, Listener, PassResult, Pipeline
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class CountOps:
    """A pass that changes nothing: it notes how many ops there are."""

    name: ClassVar[str] = "count-ops"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        return PassResult(False, notes=(f"{len(graph)} ops",))


class Watch(Listener):
    """Passes never print; whoever wants to see them listens."""

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        notes = f" ({', '.join(result.notes)})" if result.notes else ""
        print(f"{name}: {'changed' if result.changed else 'nothing to do'}{notes}")


def main() -> None:
    options = CompileOptions.make(shapes="pictures:Nx3x8x8")
    graph = import_source(small_network(), options)
    feed = {"pictures": np.random.default_rng(0).standard_normal((2, 3, 8, 8)).astype(np.float32)}
    before = evaluate(graph, feed)

    built_in = Pipeline.parse("(canonicalize,fold-constants,eliminate-dead)*,fuse")
    pipeline = Pipeline((CountOps(), *built_in.items, CountOps()))
    run = pipeline.run(graph, options.target, listeners=[Watch()])
    print(
        f"{len(run.journal.rewrites)} rewrites, the first: {(run.journal.rewrites or ['none'])[0]}"
    )
    print(print_graph(graph))

    # Every pass keeps what the graph means; the evaluator says what that is.
    for a, b in zip(before, evaluate(graph, feed), strict=True):
        assert np.linalg.norm(a - b) <= 1e-5 * np.linalg.norm(a)


if __name__ == "__main__":
    main()
