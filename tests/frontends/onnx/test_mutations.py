"""Damaged models: thousands of mutations of valid ones are imported or refused, never a crash."""

from __future__ import annotations

import random
import warnings

import onnx
import pytest

from graphwright.errors import CompileError, GraphwrightError
from graphwright.frontends.onnx import import_model

WHOLE_NUMBERS = (-5, -1, 0, 1, 2, 7, 100, 2**31, 2**40, -(2**63), 2**63 - 1)


def mutate_attribute(rng: random.Random, node: onnx.NodeProto) -> None:
    if not node.attribute:
        return
    attribute = rng.choice(node.attribute)
    attribute.i = rng.choice(WHOLE_NUMBERS)
    attribute.f = rng.choice([attribute.f, float("nan"), 0.0, -1.0, 1e30])
    attribute.s = rng.choice([attribute.s, b"", b"foo", b"\xff\xfe"])
    if attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(WHOLE_NUMBERS)
        if rng.random() < 0.3:
            attribute.ints.append(1)
    if rng.random() < 0.2:
        attribute.type = rng.choice([1, 2, 3, 6, 7, 8])
    if rng.random() < 0.3:
        node.attribute.remove(attribute)


def mutate_edges(rng: random.Random, node: onnx.NodeProto, names: list[str]) -> None:
    if node.input and rng.random() < 0.5:
        node.input[rng.randrange(len(node.input))] = rng.choice([*names, ""])
    elif node.input and rng.random() < 0.5:
        del node.input[rng.randrange(len(node.input))]
    else:
        node.input.append(rng.choice([*names, "", "ghost"]))


def mutate_input(rng: random.Random, graph: onnx.GraphProto) -> None:
    tensor = rng.choice(graph.input).type.tensor_type
    if rng.random() < 0.4:
        tensor.elem_type = rng.choice([0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 14, 16, 22, 99])
    elif tensor.shape.dim and rng.random() < 0.8:
        dim = rng.choice(tensor.shape.dim)
        if rng.random() < 0.5:
            dim.dim_value = rng.choice([0, 1, 2, 3, 5, -1, 2**31, 2**62])
        else:
            dim.dim_param = rng.choice(["N", "M", "", "?"])
    else:
        del tensor.shape.dim[:]


def mutated(rng: random.Random, model: onnx.ModelProto, ops: list[str]) -> onnx.ModelProto | bytes:
    model = onnx.ModelProto.FromString(model.SerializeToString())
    names = [i.name for i in model.graph.input] + [o for n in model.graph.node for o in n.output]
    for _ in range(rng.randint(1, 3)):
        kind = rng.random()
        if not model.graph.node or kind < 0.15:
            data = bytearray(model.SerializeToString())
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            return bytes(data)
        node = rng.choice(model.graph.node)
        if kind < 0.45:
            mutate_attribute(rng, node)
        elif kind < 0.65:
            mutate_edges(rng, node, names)
        elif kind < 0.75:
            node.op_type = rng.choice(ops)
        elif kind < 0.9 and model.graph.input:
            mutate_input(rng, model.graph)
        elif node.output:
            node.output[0] = rng.choice(names)
        model.opset_import[0].version = rng.choice(
            [model.opset_import[0].version] * 9 + [1, 7, 12, -1]
        )
    return model


def count_faults(seed: int, count: int) -> list[str]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [c.model for c in collect_testcases(None) if c.model.ByteSize() < 20_000]
    models.sort(key=lambda m: m.graph.name)
    ops = sorted({n.op_type for m in models for n in m.graph.node})
    rng = random.Random(seed)
    faults: list[str] = []
    for i in range(count):
        try:
            import_model(mutated(rng, rng.choice(models), ops))
        except CompileError as e:
            faults.append(f"mutation {i}: {e}")
        except GraphwrightError as e:
            assert str(e)
    return faults


def test_mutated_models_are_imported_or_refused() -> None:
    assert count_faults(seed=20, count=1000) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", [21, 22, 23, 24])
def test_more_mutated_models(seed: int) -> None:
    assert count_faults(seed, 10_000) == []
