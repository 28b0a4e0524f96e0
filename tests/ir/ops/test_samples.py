"""Every sample: inferred types are the reference's, symbols change nothing, text goes round."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from samples import Sample, graph_of, samples

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY

ALL = list(samples())
BODIES = ("fused", "if", "constant")  # tested with the graph text, not alone


def same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("sample", ALL, ids=str)
def test_reference_has_the_inferred_types(sample: Sample) -> None:
    graph = graph_of(sample)
    assert not graph.constraints, "a static graph leaves nothing open"
    plain = evaluate(graph, sample.arrays)
    for out, value in zip(plain, graph.outputs, strict=True):
        assert out.dtype == value.type.dtype.numpy
        assert out.shape == value.type.shape
    dynamic = graph_of(sample, dynamic=True)
    for a, b in zip(plain, evaluate(dynamic, sample.arrays), strict=True):
        same(a, b)


def test_every_op_has_samples_with_distinct_names() -> None:
    count = Counter(s.op for s in ALL)
    few = [n for n in REGISTRY if n not in BODIES and count[n] < 2]
    assert not few, "ops with fewer than two samples"
    twice = [n for n, c in Counter(map(str, ALL)).items() if c > 1]
    assert not twice
