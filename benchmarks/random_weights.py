"""Random weights for the networks of the onnx package that come filled with one constant.

A network whose weights are all 0.02 answers 1/1000 for every class whatever it computes, so it
cannot tell a right compiler from a wrong one.  `with_random_weights` keeps the structure and gives
each weight a value drawn from its name: He-normal for convolutions and matrices, near 1 for scales
and variances, near 0 for shifts.  The last matrix is scaled so that the logits have a standard
deviation of 2, which takes one run in ONNX Runtime.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper

LOGIT_DEVIATION = 2.0
NEAR_ONE, NEAR_ZERO, MATRIX = "near one", "near zero", "matrix"
ROLES: dict[str, tuple[str, ...]] = {
    "Conv": ("", MATRIX, NEAR_ZERO),
    "Gemm": ("", MATRIX, NEAR_ZERO),
    "BatchNormalization": ("", NEAR_ONE, NEAR_ZERO, NEAR_ZERO, NEAR_ONE),
}


def with_random_weights(path: Path) -> Path:
    """The path of the same network with random weights, made beside `path` when it is missing."""
    target = path.with_name(f"{path.stem}.random-weights.onnx")
    if target.exists():
        return target
    model = onnx.load(path)
    last = fill(model)
    scale_logits(model, last)
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    onnx.save(model, part)
    part.replace(target)
    return target


def fill(model: ModelProto) -> str:
    """Replaces constant weights by random initializers; the name of the last matrix."""
    graph = model.graph
    makers = {out: node for node in graph.node for out in node.output}
    stored = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    new: dict[str, np.ndarray] = {}
    dropped: list[NodeProto] = []
    last = ""
    for node in graph.node:
        for role, name in zip(ROLES.get(node.op_type, ()), node.input, strict=False):
            maker = makers.get(name)
            if not role or name in new:
                continue
            if maker is not None and maker.op_type == "Reshape":  # a matrix stored as a vector
                shape = stored[maker.input[1]]
                dropped.append(maker)
            elif maker is not None and maker.op_type == "ConstantOfShape":
                shape = stored[maker.input[0]]
                dropped.append(maker)
            elif name in stored:
                shape = stored[name].shape
            else:
                continue
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            new[name] = draw(name, role, tuple(map(int, shape)), node.op_type, transposed)
            last = name if role == MATRIX else last
    for node in dropped:
        graph.node.remove(node)
    kept = [t for t in graph.initializer if t.name not in new]
    del graph.initializer[:]
    graph.initializer.extend(kept)
    for name, value in new.items():
        graph.initializer.append(numpy_helper.from_array(value, name))
    # Before IR version 4 an initializer must be declared as an input as well.
    declared = {i.name for i in graph.input}
    if model.ir_version < 4:
        for name, value in new.items():
            if name not in declared:
                info = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, value.shape)
                graph.input.append(info)
    return last


def draw(name: str, role: str, shape: tuple[int, ...], op: str, transposed: bool) -> np.ndarray:
    """float32 values that depend on the name alone."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    if role == NEAR_ONE:
        return rng.uniform(0.7, 1.3, shape).astype(np.float32)
    if role == NEAR_ZERO:
        return rng.uniform(-0.1, 0.1, shape).astype(np.float32)
    fan_in = int(np.prod(shape[1:])) if op == "Conv" or transposed else shape[0]
    return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)


def scale_logits(model: ModelProto, last: str) -> None:
    """Scales the initializer `last` until what enters the final softmax spreads as it should."""
    import onnxruntime

    softmax = next(n for n in reversed(model.graph.node) if n.op_type == "Softmax")
    probe = ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    probe.graph.output.append(helper.make_empty_tensor_value_info(softmax.input[0]))
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        probe.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    rng = np.random.default_rng(1)
    feed = {i.name: rng.standard_normal(i.shape).astype(np.float32) for i in session.get_inputs()}
    (logits,) = session.run(None, feed)
    for tensor in model.graph.initializer:
        if tensor.name == last:
            value = numpy_helper.to_array(tensor) * (LOGIT_DEVIATION / logits.std())
            tensor.CopyFrom(numpy_helper.from_array(value.astype(np.float32), last))
