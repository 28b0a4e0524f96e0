"""Equal layers are emitted once, and what is repeated is what would have been emitted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphwright.compilation import import_source
from graphwright.compiler.codegen.emit import emit, emit_graph
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.driver import optimise
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.views import view_of

OPTIONS = CompileOptions.make(target="cpu")


def final_graph(model: onnx.ModelProto) -> Graph:
    graph = import_source(model, OPTIONS)
    optimise(graph, OPTIONS.target, OPTIONS)
    return graph


def both_ways(graph: Graph) -> tuple[list[EmittedLaunch], list[EmittedLaunch]]:
    """The launches as compiled, and those of every op emitted by itself."""
    together = emit_graph(graph, OPTIONS.target, skip=lambda op: view_of(op) is not None)
    alone: list[EmittedLaunch] = []
    for op in graph.ops:
        if op.name != "constant" and view_of(op) is None:
            alone += emit(op, OPTIONS.target)  # type: ignore[arg-type]
    return together, alone  # type: ignore[return-value]


def fields(step: EmittedLaunch) -> tuple[object, ...]:
    return (
        step.kernel.name, step.arguments, step.writes, step.scalars, step.ops, step.origins,
        step.in_place, step.grid, step.includes, step.is_copy,
    )  # fmt: skip


def layers(count: int, *, zero_point: bool = False) -> onnx.ModelProto:
    random = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"

    def weight(array: np.ndarray) -> str:
        weights.append(numpy_helper.from_array(array, f"w{len(weights)}"))
        return weights[-1].name

    for i in range(count):
        b = weight(random.standard_normal((8, 8)).astype(np.float32))
        if zero_point:
            point = weight(np.array(0 if i % 2 else 7, np.uint8))
            a_scale, scale = weight(np.float32(0.1 + i)), weight(np.float32(0.05))
            quantized = weight(random.integers(0, 255, (8, 8)).astype(np.uint8))
            zero = weight(np.array(3, np.uint8))
            nodes.append(helper.make_node(
                "QLinearMatMul", [x, a_scale, zero, quantized, scale, point, a_scale, zero],
                [f"h{i}"], name=f"product{i}",
            ))  # fmt: skip
            x = f"h{i}"
            continue
        nodes.append(helper.make_node("MatMul", [x, b], [f"m{i}"], name=f"product{i}"))
        nodes.append(helper.make_node("Add", [f"m{i}", x], [f"a{i}"], name=f"sum{i}"))
        nodes.append(helper.make_node("Softmax", [f"a{i}"], [f"h{i}"], name=f"softmax{i}"))
        x = f"h{i}"
    kind = TensorProto.UINT8 if zero_point else TensorProto.FLOAT
    graph = helper.make_graph(
        nodes, "layers",
        [helper.make_tensor_value_info("x", kind, ["N", 8])],
        [helper.make_tensor_value_info(x, kind, None)], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize("zero_point", [False, True])
def test_repeated_launches_are_those_of_the_op(zero_point: bool) -> None:
    together, alone = both_ways(final_graph(layers(6, zero_point=zero_point)))
    assert [fields(s) for s in together] == [fields(s) for s in alone]


def quantized_layers(count: int) -> onnx.ModelProto:
    """Equal but for the integers of their weights."""
    model = layers(count, zero_point=True)
    first = model.graph.node[0].input
    for node in model.graph.node:  # scales and zero points of the first, weights of their own
        node.input[:] = [node.input[0], *first[1:3], node.input[3], *first[4:]]
    return model


@pytest.mark.parametrize(
    ("make", "steps_each", "kinds"), [(layers, 2, 2), (quantized_layers, 1, 1)]
)
def test_equal_layers_are_emitted_once(
    make: Callable[[int], onnx.ModelProto],
    steps_each: int,
    kinds: int,
) -> None:
    from graphwright.compiler.codegen import emit as module

    asked: list[str] = []

    def counted(op: object, target: object) -> object:
        asked.append(str(op))
        return emit(op, target)  # type: ignore[arg-type]

    graph = final_graph(make(20))
    steps = module.emit_graph(
        graph, OPTIONS.target, skip=lambda op: view_of(op) is not None, emitter=counted
    )
    assert len(steps) == 20 * steps_each
    assert len(asked) == kinds


def test_origins_are_each_layers_own() -> None:
    graph = final_graph(layers(3))
    steps = emit_graph(graph, OPTIONS.target, skip=lambda op: view_of(op) is not None)
    assert [s.origins[0] for s in steps][::2] == ["product0", "product1", "product2"]  # type: ignore[union-attr]
