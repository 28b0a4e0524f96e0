"""Random numbers: the generator's published answers, kernels equal to the reference, distributions."""

from __future__ import annotations

import numpy as np
import pytest
from codegen_harness import Compiled

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.ops.random import key_of, philox_words
from graphwright.compiler.ir.types import BF16, F16, F32, F64, DType

COUNT = 100_003


def graph_of(op: str, dtype: DType, **attributes: object) -> Graph:
    graph = Graph("g", registry=REGISTRY)
    made = graph.create(op, (), {"shape": (COUNT,), "dtype": dtype, **attributes})
    graph.set_outputs([made.result], ["y"])
    return graph


def drawn(graph: Graph) -> Op:
    return next(iter(graph.ops))


@pytest.fixture(scope="module")
def compiled() -> tuple[list[Graph], Compiled]:
    graphs = [
        graph_of(op, dtype, seed=seed)
        for op in ("random_uniform", "random_normal")
        for dtype in (F32, F64, F16, BF16)
        for seed in (2.5, None)
    ]
    return graphs, Compiled(graphs)


def test_philox_known_answers() -> None:
    """The first two blocks of key 0 and stream 0, and the words of a key: from the method's authors."""
    first = philox_words(4, (0, 0), 0)
    assert [hex(w) for w in first] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    words = philox_words(8, key_of(1.5), 0)
    assert len(set(words.tolist())) == 8


def test_seeded_numbers_are_those_of_the_reference(compiled: tuple[list[Graph], Compiled]) -> None:
    graphs, library = compiled
    for i, graph in enumerate(graphs):
        if drawn(graph).attribute("seed") is None:
            continue
        (got,), (want,) = library.run(i, []), evaluate(graph, [])
        assert got.dtype == want.dtype
        wide, expected = got.astype(np.float64), want.astype(np.float64)
        if drawn(graph).name == "random_uniform":
            assert np.array_equal(wide, expected)
        else:
            assert np.allclose(wide, expected, rtol=1e-2 if got.dtype.itemsize == 2 else 1e-6)
        (again,) = library.run(i, [])
        assert np.array_equal(got, again)


def test_unseeded_numbers_differ_and_are_distributed(
    compiled: tuple[list[Graph], Compiled],
) -> None:
    graphs, library = compiled
    for i, graph in enumerate(graphs):
        if drawn(graph).attribute("seed") is not None:
            continue
        (a,), (b,) = (library.run(i, []) for _ in range(2))
        assert np.mean(a == b) < 0.1
        x = a.astype(np.float64)
        if drawn(graph).name == "random_uniform":
            assert x.min() >= 0 and x.max() < 1
            wanted = [0.5, 1 / 3, 0.25, 0.2]
        else:
            assert 3.5 < np.abs(x).max() < 7
            wanted = [0.0, 1.0, 0.0, 3.0]
        moments = [np.mean(x**k) for k in range(1, 5)]
        assert np.allclose(moments, wanted, atol=0.1)
        assert abs(np.mean((x[1:] - wanted[0]) * (x[:-1] - wanted[0]))) < 0.02
