"""Graphs as text: compiled and run, compared with the evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.runtime import load
from graphwright.runtime.model import CompiledModel

CPU = Target.parse("cpu")


def graph_of(text: str) -> Graph:
    """A verified graph, whose text is a fix point of printing and parsing."""
    graph = parse_graph(text, registry=REGISTRY)
    verify(graph)
    again = parse_graph(print_graph(graph), registry=REGISTRY)
    assert print_graph(again) == print_graph(graph)
    return graph


def compiled(graph: Graph, **options: Any) -> CompiledModel:
    artifact = compile_graph(graph.clone(), CPU, CompileOptions.make(**options))
    return load(artifact.to_bytes(), threads=2)


def check(
    source: str | Graph,
    feeds: Sequence[Mapping[str, Any]],
    *,
    tolerance: float = 1e-6,
    **options: Any,
) -> CompiledModel:
    """One artifact gives for every feed what the evaluator gives, twice."""
    graph = graph_of(source) if isinstance(source, str) else source
    model = compiled(graph, **options)
    for feed in feeds:
        want = evaluate(graph, feed)
        for _ in range(2):
            got = model.run({n: np.array(a) for n, a in feed.items()})
            for name, a, b in zip(graph.output_names, got.values(), want, strict=True):
                assert a.dtype == b.dtype and a.shape == b.shape, (
                    f"{name}: {a.shape}, want {b.shape}"
                )
                if a.dtype.kind in "biu":
                    assert np.array_equal(a, b), f"{name}: {a} is not {b}"
                    continue
                np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
                error = np.linalg.norm(np.nan_to_num(a - b))
                norm = np.linalg.norm(np.nan_to_num(b))
                assert error <= tolerance * max(float(norm), 1e-30), f"{name}: {error} of {norm}"
    return model
