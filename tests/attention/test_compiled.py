"""Every sample of attention, compiled whole: fused or written out, static and with symbols."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.runtime import load

sys.path.insert(0, str(Path(__file__).parents[1] / "ir"))
from samples import Sample, graph_of, samples

ALL = list(samples("attention"))
TOLERANCE = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-13}


def failures(chosen: list[Sample], *, dynamic: bool) -> Iterator[str]:
    """What is wrong with the samples' results, compiled together as one model."""
    graph = graph_of(*chosen, dynamic=dynamic)
    feed = [a for s in chosen for a in s.arrays]
    model = load(
        compile_graph(graph.clone(), Target.parse("cpu:native"), CompileOptions.make()).to_bytes()
    )
    want = evaluate(graph, feed)
    got = model.run(dict(zip((i.name for i in model.inputs), feed, strict=True)))
    for sample, a, b in zip(chosen, got.values(), want, strict=True):
        a, b = a.astype(np.float64), np.asarray(b, np.float64)
        finite = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), finite):
            yield f"{sample}: other elements are finite"
            continue
        a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        error = np.linalg.norm(a - b) / max(float(np.linalg.norm(b)), 1e-30)
        allowed = TOLERANCE[sample.arrays[0].dtype.name]
        if not error <= allowed:
            yield f"{sample}: error {error:.3g}"


@pytest.mark.parametrize("dynamic", [False, True])
def test_samples(dynamic: bool) -> None:
    found = list(failures(ALL, dynamic=dynamic))
    assert not found, "\n".join(found)
