"""References against ONNX Runtime, on every sample whose types it has a kernel for."""

from __future__ import annotations

import numpy as np
import pytest
from framework_onnx import MAKE, model_of
from samples import Sample, graph_of, samples

from graphwright.compiler.ir.evaluate import evaluate

ort = pytest.importorskip("onnxruntime", reason="needs onnxruntime")

# Where ONNX Runtime means something else, and why ours stays.
NAN = "NaN propagates here"
WRAPS = "integers wrap here; it saturates"
OTHERWISE = {
    "pow-int32": "a negative exponent gives 0 here, its conversion of infinity is undefined",
    "pow-int64": "a negative exponent gives 0 here, its conversion of infinity is undefined",
    "sign-special_f16": NAN,
    "quantize-tensor_i8": "NaN becomes 0 here, its conversion is undefined",
    "quantize-tensor_i16": "NaN becomes 0 here, its conversion is undefined",
    "quantize-half": "NaN becomes 0 here, its conversion is undefined",
    "reduce_sum-i32": WRAPS,
    "reduce_mean-i32": WRAPS,
    "reduce_prod-i32": WRAPS,
    "reduce_mean-nothing": "the mean of nothing is 0 / 0",
    "reduce_max-special": NAN,
    "reduce_min-special": NAN,
    "arg_max-nan": NAN,
    "arg_min-nan": NAN,
    "max_pool-special": NAN,
    "layer_norm-large_mean": "its variance cancels in float32",
    "instance_norm-large_mean": "its variance cancels in float32",
    "resize-kept_axis": "it multiplies infinities by the zero weights of an axis that is kept",
}


def runtime(sample: Sample) -> list[np.ndarray] | None:
    """None where it has no kernel, or ONNX no form, for the sample."""
    (op,) = graph_of(sample).ops
    if op.attributes.get("permutation") == ():
        return None  # its attribute cannot be empty
    node = MAKE[sample.op](list(sample.arrays), op.attributes)
    if node is None:
        return None
    model, feed = model_of(node)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, feed)
    except Exception as e:
        # Its error classes are not exported; what it refuses, it names.
        known = ("NOT_IMPLEMENTED", "INVALID_GRAPH", "FAIL", "Numpy", "does not support double")
        assert any(k in str(e) for k in known), f"{sample}: {e}"
        return None


def differences(sample: Sample, want: list[np.ndarray]) -> str:
    """What differs, "" for nothing."""
    try:
        for g, w in zip(evaluate(graph_of(sample), sample.arrays), want, strict=True):
            if g.dtype.name.startswith("float8"):  # it returns the bytes
                w = w.view(g.dtype)
            assert g.shape == w.shape
            assert g.dtype == w.dtype
            if g.dtype.kind in "fV":
                tolerance = 1e-5 if g.dtype.itemsize >= 4 else 2e-3
                np.testing.assert_allclose(
                    g.astype(np.float64), w.astype(np.float64), rtol=tolerance, atol=1e-5
                )
            else:
                np.testing.assert_array_equal(g, w)
    except AssertionError as e:
        return str(e) or "types differ"
    return ""


@pytest.mark.parametrize("op", MAKE)
def test_op_agrees(op: str) -> None:
    ran = 0
    for sample in samples(op):
        want = runtime(sample)
        if want is None:
            continue
        ran += 1
        found = differences(sample, want)
        if str(sample) in OTHERWISE:
            assert found, f"{sample} agrees now: drop it from OTHERWISE"
        else:
            assert not found, f"{sample}: {found}"
    assert ran, f"no sample of {op} ran"
