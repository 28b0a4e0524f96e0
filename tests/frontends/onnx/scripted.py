"""A function written with onnxscript, which reads its source: so it lives in a file."""

from __future__ import annotations

import numpy as np
from onnx import numpy_helper
from onnxscript import FLOAT, script
from onnxscript import opset17 as op

ONE_TWO = numpy_helper.from_array(np.array([1.0, 2.0], np.float32))


@script()
def add_and_relu(x: FLOAT[2]) -> FLOAT[2]:
    return op.Relu(op.Add(x, op.Constant(value=ONE_TWO)))
