"""Quantize kernels divide by the scale exactly: next to ties, for tiny and huge scales, for what is not finite."""

from __future__ import annotations

import numpy as np
import pytest

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import F32, I8, I16, U8, DType, TensorType
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.runtime import load

COUNT = 1 << 16
SCALES = (0.1, 0.003921569, 1.7, 3.3e-5, 1e-20, 2.0**-90, 1e20, 2.0**-7)


@pytest.mark.parametrize("dtype", [U8, I8, I16], ids=str)
def test_quotients_are_correctly_rounded(dtype: DType) -> None:
    rng = np.random.default_rng(3)
    g = Graph("quantize", registry=REGISTRY)
    types = [TensorType(F32, (COUNT,)), TensorType(F32, ()), TensorType(dtype, ())]
    operands = [g.add_input(n, t) for n, t in zip("xsz", types, strict=True)]
    g.set_outputs([g.create("quantize", operands, {"dtype": dtype}).result], ["y"])
    level = "cpu:x86-64-v3"
    artifact = compile_graph(g.clone(), Target.parse(level), CompileOptions.make(target=level))
    model = load(artifact.to_bytes(), threads=1)
    info = np.iinfo(dtype.numpy)
    for number in SCALES:
        scale = np.float32(number)
        x = (scale * (rng.integers(-400, 400, COUNT) + 0.5)).astype(np.float32)
        x[::2] = np.nextafter(x[::2], np.float32(np.inf))
        x[::3] = rng.standard_normal(len(x[::3])) * 100 * scale
        x[:6] = [np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0]
        zero = np.asarray(rng.integers(info.min, info.max + 1), dtype.numpy)
        feed = {"x": x, "s": scale, "z": zero}
        np.testing.assert_array_equal(
            model.run(feed)["y"], evaluate(g, feed)[0], err_msg=str(number)
        )
