"""Every sample: inferred types are the reference's, symbols change nothing, text goes round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ml_dtypes
import numpy as np
import pytest
from samples import Sample, graph_of, samples

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph

ALL = list(samples())
# No results, or bodies: tested with the graph text, and where they are compiled.
BODIES = ("fused", "if", "constant", "bind", "check", "loop")
OPS = [n for n in REGISTRY if n not in BODIES]


@contextmanager
def named(sample: Sample) -> Iterator[None]:
    """A failure inside says which sample it was."""
    try:
        yield
    except Exception as e:
        e.add_note(f"sample {sample}")
        raise


def for_each_sample(check: Callable[[Sample], None]) -> Callable[[str], None]:
    """One test an op, since thousands of tests would cost more than what they do."""

    @pytest.mark.parametrize("op", OPS)
    def test(op: str) -> None:
        for sample in ALL:
            if sample.op == op:
                with named(sample):
                    check(sample)

    return test


def same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    assert a.shape == b.shape
    assert a.tobytes() == b.tobytes()


@for_each_sample
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


@for_each_sample
def test_wider_calculation_agrees(sample: Sample) -> None:
    graph = graph_of(sample)
    narrow, wide = (
        evaluate(graph, sample.arrays),
        evaluate(graph, sample.arrays, compute=np.float64),
    )
    for a, b, value in zip(narrow, wide, graph.outputs, strict=True):
        if not value.type.dtype.is_float:
            np.testing.assert_array_equal(a, b)
            continue
        assert b.dtype == np.float64
        a, step = a.astype(np.float64), float(ml_dtypes.finfo(a.dtype).eps)
        largest = float(ml_dtypes.finfo(value.type.dtype.numpy).max)
        fits = ~(np.abs(b) > largest)  # beyond it the narrow result is infinite
        tiny = float(ml_dtypes.finfo(value.type.dtype.numpy).smallest_normal)
        np.testing.assert_allclose(a[fits], b[fits], rtol=4 * step, atol=max(tiny, 1e-30))


@for_each_sample
def test_text_goes_round(sample: Sample) -> None:
    for dynamic in (False, True):
        text = print_graph(graph_of(sample, dynamic=dynamic))
        assert print_graph(parse_graph(text, registry=REGISTRY)) == text


def test_every_op_has_samples_with_distinct_names() -> None:
    count = Counter(s.op for s in ALL)
    few = [n for n in REGISTRY if n not in BODIES and count[n] < 2]
    assert not few, "ops with fewer than two samples"
    twice = [n for n, c in Counter(map(str, ALL)).items() if c > 1]
    assert not twice
