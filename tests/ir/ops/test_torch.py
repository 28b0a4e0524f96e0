"""References against torch in float64 (integers exactly), on every sample that torch can run."""

from __future__ import annotations

import numpy as np
import pytest
from samples import Sample, graph_of, samples

from graphwright.compiler.ir.evaluate import evaluate

torch = pytest.importorskip("torch", reason="needs torch")
framework = pytest.importorskip("framework_torch")

ALL = [s for s in samples() if s.op in framework.RUN]


def close(got: np.ndarray, want: np.ndarray, text: str) -> None:
    assert got.shape == want.shape, text
    if got.dtype.kind == "f":
        assert want.dtype == np.float64, text
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=text)
    else:
        assert got.dtype == want.dtype, text
        np.testing.assert_array_equal(got, want, err_msg=text)


@pytest.mark.parametrize("op", framework.RUN)
def test_op_agrees(op: str) -> None:
    ran = 0
    for sample in (s for s in ALL if s.op == op):
        ran += _agrees(sample)
    assert ran, f"no sample of {op} ran in torch"


def _agrees(sample: Sample) -> bool:
    tensors = [framework.tensor(a) for a in sample.arrays]
    if any(t is None for t in tensors):
        return False
    graph = graph_of(sample)
    (op,) = graph.ops
    want = framework.RUN[sample.op](tensors, op.attributes)
    if want is None:
        return False
    got = evaluate(graph, sample.arrays, compute=np.float64)
    wants = want if isinstance(want, list) else [want]
    for g, w in zip(got, wants, strict=True):
        if w.is_floating_point():
            w = w.double()
        close(g, w.numpy(), str(sample))
    return True
