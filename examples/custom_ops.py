"""Ops of your own in a model: a pointwise row, and an op with a C++ function.

python examples/custom_ops.py
graphwright compile model.onnx -o model.gw --custom-ops custom_ops:OPS
"""

from __future__ import annotations

import numpy as np
from onnx import parser

import graphwright as gw
from graphwright.compiler.ir.op import Attribute, Kind, OpDef
from graphwright.compiler.ir.ops.pointwise import Pointwise

# One element from one element: types, fusion, loops and threads follow from the row.
SQUARED_RELU = Pointwise(
    "squared_relu",
    lambda x: np.square(np.maximum(x, 0)),
    cpp="(gw::relu({0}) * gw::relu({0}))",
    imports={"onnx": ("com.acme:SquaredRelu",)},
)


class RunningMax(OpDef):
    """The largest element of each row so far, at least `floor`."""

    name = "running_max"
    kind = Kind.OPAQUE
    operands = ("x",)
    attributes = {"floor": Attribute("float", 0.0)}
    imports = {"onnx": ("com.acme:RunningMax",)}
    cpp_source = """
static void running_max(const float* x, const int64_t* shape, float* y, const int64_t*,
                        double floor, const gw_pool* pool) {
  gw::parallel_for(pool, shape[0], gw::grain(8 * shape[1]), [=](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      float best = static_cast<float>(floor);
      for (int64_t i = 0; i < shape[1]; ++i) {
        best = gw::maximum(best, x[row * shape[1] + i]);
        y[row * shape[1] + i] = best;
      }
    }
  });
}
"""

    def infer(self, types, attributes, inference):
        return [types[0].with_shape(types[0].shape)]

    def reference(self, arrays, attributes, context):
        floor = arrays[0].dtype.type(attributes["floor"])
        return [np.maximum(np.maximum.accumulate(arrays[0], axis=1), floor)]


OPS = (SQUARED_RELU, RunningMax())

MODEL = """<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
g (float[N, 6] x) => (float[N, 6] y) {
  a = com.acme.SquaredRelu(x)
  b = com.acme.RunningMax<floor=0.5>(a)
  y = Sub(b, x)
}"""


def main() -> None:
    model = gw.compile(parser.parse_model(MODEL), custom_ops=OPS)
    x = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    (y,) = model(x)
    want = np.maximum(np.maximum.accumulate(np.square(np.maximum(x, 0)), 1), np.float32(0.5)) - x
    print("largest difference:", np.abs(y - want).max())


if __name__ == "__main__":
    main()
