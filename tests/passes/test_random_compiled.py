"""Random graphs through the whole compiler: what runs from an artifact equals the evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from region_graphs import RandomGraph

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.options import CompileOptions
from graphwright.runtime import load

QUICK, ALL = 3, 60


@pytest.mark.parametrize(
    "seed", [*range(QUICK), *(pytest.param(s, marks=pytest.mark.slow) for s in range(QUICK, ALL))]
)
def test_compiled_graphs_compute_what_they_say(seed: int) -> None:
    graph = RandomGraph(seed, 8 + seed % 20).graph
    graph.set_outputs(graph.outputs, [f"out{i}" for i in range(len(graph.outputs))])
    options = CompileOptions.make(target="cpu:native")
    model = load(compile_graph(graph.clone(), options.target, options).to_bytes())
    for batch in (1, 3):
        rng = np.random.default_rng(seed + batch)
        feed = {
            v.name: rng.standard_normal((batch, *map(int, v.type.shape[1:]))).astype(np.float32)  # type: ignore[arg-type]
            for v in graph.inputs
        }
        exact = evaluate(graph, feed, compute=np.float64)
        rounded = evaluate(graph, feed)
        got = model.run(feed)
        for name, want, reference in zip(graph.output_names, exact, rounded, strict=True):
            norm = max(float(np.linalg.norm(want)), 1e-20)
            own = float(np.linalg.norm(reference - want)) / norm  # how ill-conditioned it is
            error = float(np.linalg.norm(np.asarray(got[name]) - want)) / norm
            assert error <= 1e-5 + 20 * own, f"{name}: {error:.3g}, float32 itself {own:.3g}"
