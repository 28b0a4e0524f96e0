"""Every pass keeps the meaning of random graphs, on inputs with NaN, infinities and zeros."""

from __future__ import annotations

import numpy as np
import pytest
from golden import bindings, sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_graphs import random_graph

from graphwright.compiler.ir.dims import evaluate as evaluate_dim
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.target import Target

TARGET = Target.parse("cpu")
PIPELINES = (
    "eliminate-dead",
    "eliminate-common",
    "fold-constants",
    "canonicalize",
    "raise-patterns",
    "fold-batch-norm",
    "decompose",
    default_pipeline(TARGET, 1),
    default_pipeline(TARGET, 2),
)
STEPS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 400), st.integers(0, 2000)), max_size=14
)


def check(before, after, rng):
    """Calculated in float64, both graphs give the same numbers up to the rounding of constants."""
    for binding in bindings(before, rng):
        feed = {}
        for value in before.inputs:
            shape = tuple(evaluate_dim(d, binding) for d in value.type.shape)
            feed[value.name] = sample(value.type.dtype, shape, rng, special=bool(rng.integers(2)))
        want = evaluate(before, feed, compute=np.float64)
        got = evaluate(after, feed, compute=np.float64)
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            assert (w.dtype, w.shape) == (g.dtype, g.shape)
            if w.dtype.kind != "f":
                np.testing.assert_array_equal(g, w)
                continue
            finite = np.isfinite(w)
            scale = float(np.abs(w[finite]).max(initial=1.0))
            message = f"output {i} under {binding}"
            np.testing.assert_array_equal(np.isnan(g), np.isnan(w), err_msg=message)
            np.testing.assert_array_equal(g[np.isinf(w)], w[np.isinf(w)], err_msg=message)
            np.testing.assert_allclose(
                g[finite], w[finite], rtol=1e-4, atol=1e-5 * scale, err_msg=message
            )


@pytest.mark.parametrize(
    "pipeline", PIPELINES, ids=lambda p: p if len(p) < 20 else f"opt{p.count('fuse')}{len(p)}"
)
@settings(max_examples=60, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip
@given(steps=STEPS, seed=st.integers(0, 2**16))
def test_pass_keeps_meaning(pipeline, steps, seed):
    before = random_graph(steps)
    verify(before)
    after = before.clone()
    Pipeline.parse(pipeline).run(after, TARGET)
    text = print_graph(after)
    if 'dense<"' not in text:
        assert print_graph(parse_graph(text, registry=REGISTRY)) == text
    check(before, after, np.random.default_rng(seed))
