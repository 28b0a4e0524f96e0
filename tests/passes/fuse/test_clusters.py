"""Clusters stay acyclic under merging, and merging a long graph takes near-linear time."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import F32, TensorType
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.fuse import Fuse
from graphwright.compiler.passes.fuse_clusters import Clusters
from graphwright.compiler.target import Target


def random_dag(rng: np.random.Generator, count: int) -> Graph:
    graph = Graph("dag", registry=REGISTRY)
    values: list[Value] = [graph.add_input("x", TensorType(F32, (4,)))]
    for _ in range(count):
        a, b = (values[-1 - int(rng.integers(0, min(len(values), 8)))] for _ in range(2))
        values.append(graph.create("add", [a, b]).result)
    graph.set_outputs([v for v in values if not v.uses])
    return graph


def quotient(graph: Graph, clusters: Clusters) -> nx.DiGraph:
    out: nx.DiGraph = nx.DiGraph()
    out.add_nodes_from(dict.fromkeys(clusters.of.values()))
    for op in graph.ops:
        for operand in op.operands:
            if operand.op is not None and clusters.of[operand.op] is not clusters.of[op]:
                out.add_edge(clusters.of[operand.op], clusters.of[op])
    return out


@pytest.mark.parametrize("seed", range(15))
def test_merges_are_refused_exactly_where_they_close_a_cycle(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_dag(rng, 40)
    clusters = Clusters(graph)
    ops = list(graph.ops)
    answers: set[bool] = set()
    for _ in range(60):
        chosen = [ops[int(i)] for i in rng.integers(0, len(ops), int(rng.integers(2, 4)))]
        parts = list(dict.fromkeys(clusters.of[op] for op in chosen))
        if len(parts) < 2:
            continue
        whole = quotient(graph, clusters)
        merged = whole
        for part in parts[1:]:
            merged = nx.contracted_nodes(merged, parts[0], part, self_loops=False)
        want = nx.is_directed_acyclic_graph(merged)
        assert (clusters.merge(parts) is not None) == want
        answers.add(want)
        after = quotient(graph, clusters)
        assert nx.is_directed_acyclic_graph(after)
        for a, b in after.edges:
            assert a.place < b.place
            assert b in a.after and a in b.before
    assert answers == {True, False}
    assert {op for c in clusters.ordered() for op in c.ops} == set(ops)


@pytest.mark.parametrize("shape", ["chain", "hub"])
@pytest.mark.parametrize("pairs", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_long_graphs_meet_no_recursion_limit(shape: str, pairs: int) -> None:
    graph = Graph(shape, registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (64,)))
    at = x
    for i in range(pairs):
        other = graph.create("relu", [at if shape == "chain" else x]).result
        at = graph.create("add", [at, x if shape == "chain" else other]).result
        if i % 50 == 49:
            at = graph.create("cumsum", [at], {"axis": 0}).result
    graph.set_outputs([at])
    result = Fuse().run(graph, Target.parse("cpu"))
    verify(graph)
    assert result.statistics["regions"] < pairs / 10
