"""Builds small graphs for kernel tests: `region` wraps ops in one fused op."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import TensorType

Build = Callable[[Graph, Sequence[Value]], Sequence[Value]]


def region(
    kind: str,
    types: Sequence[TensorType],
    build: Build,
    *,
    layouts: Sequence[Layout | None] = (),
    constants: dict[int, object] | None = None,
) -> Graph:
    """A graph with one fused op.  `layouts` are those of the outputs (default row-major).

    `constants` makes operands of these positions constants of the top level instead of inputs.
    Kind "lone" puts the ops on the top level, without a region.
    """
    graph = Graph("test", registry=REGISTRY)
    body = Graph("body", registry=REGISTRY)
    operands: list[Value] = []
    for i, type in enumerate(types):
        if constants and i in constants:
            op = graph.create("constant", [], {"value": constants[i]}, types=[type])
            operands.append(op.result)
        else:
            operands.append(graph.add_input(f"x{i}", type))
        body.add_input(f"a{i}", type)
    if kind == "lone":
        outputs = list(build(graph, operands))
        for value, layout in zip(outputs, layouts, strict=False):
            value.type = value.type.with_layout(layout)
        graph.set_outputs(outputs)
        return graph
    outputs = list(build(body, body.inputs))
    for value, layout in zip(outputs, layouts, strict=False):
        value.type = value.type.with_layout(layout)
    body.set_outputs(outputs)
    fused = graph.create("fused", operands, {"region": kind}, bodies=[body], origins=["test"])
    graph.set_outputs(fused.results)
    return graph


def one(graph: Graph, name: str, operands: Sequence[Value], **attributes: object) -> Value:
    """The result of a new op."""
    return graph.create(name, operands, attributes).result
