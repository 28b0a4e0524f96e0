"""What `inspect` says of the precision that a quantized model runs in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from command_line import Invoke
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(4)


def quantized_model(path: Path) -> Path:
    """x [N, 8] (u8) times quantized 8x4 weights, then float 4x3 weights."""
    weights = {
        "s": np.float32(0.1), "z": np.uint8(3), "t": np.float32(0.2), "zw": np.int8(0),
        "w": RNG.integers(-128, 128, (8, 4)).astype(np.int8),
        "v": RNG.standard_normal((4, 3)).astype(np.float32),
    }  # fmt: skip
    graph = helper.make_graph(
        [
            helper.make_node("DequantizeLinear", ["x", "s", "z"], ["a"]),
            helper.make_node("DequantizeLinear", ["w", "t", "zw"], ["b"]),
            helper.make_node("MatMul", ["a", "b"], ["c"]),
            helper.make_node("MatMul", ["c", "v"], ["y"]),
        ],
        "quantized",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, path)
    return path


def test_multiply_accumulates_by_precision(cli: Invoke, folder: Path) -> None:
    model, out = quantized_model(folder / "quantized.onnx"), folder / "quantized.gw"
    made = cli("compile", model, "-o", out, "--target", "cpu:x86-64-v3")
    assert made.code == 0, made.err
    facts = cli("inspect", out, "precision", "--shape", "x:10x8", "--json", "-").json
    macs = facts["multiply_accumulates"]
    assert macs["by_precision"] == {"f32": 10 * 4 * 3, "u8*i8": 10 * 8 * 4}
    assert (macs["integer"], macs["float"]) == (320, 120)
    assert {"precision": "u8*i8", "op": "matmul_integer", "count": 1} in facts["ops"]
    shown = cli("inspect", out, "precision").out
    assert "u8*i8" in shown and "integer" in shown
    assert "in integers" in cli("inspect", out).out
