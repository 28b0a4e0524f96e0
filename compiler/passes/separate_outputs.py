"""Gives every output storage of its own: the `separate-outputs` pass."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.symbol_scope import is_sized_by
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.storage import is_whole, owner_of
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class SeparateOutputs:
    """Inserts a copy (a region whose body is its input) before each output that is an input, a
    constant, an in-place update of an input, a part of a value, or an output already.

    Why: a caller owns its outputs, so that each must be fresh memory; and a branch of `if` writes
    its results where the other branch does.  Runs after `fuse`, as the last pass that adds ops.
    Ensures what `storage.assign_storage` requires.

        func(%x) { return %x }   ->   func(%x) { %1 = fused(%x) body(%a) { return %a }; return %1 }
    """

    name: ClassVar[str] = "separate-outputs"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        copies = _separate(graph)
        return PassResult(copies > 0, statistics={"copies": copies})


def _separate(graph: Graph, moved_outputs: Collection[int] = ()) -> int:
    """How many copies a graph needed; `moved_outputs` are copied elsewhere in any case."""
    copies = 0
    for op in graph.ops:
        if op.kind is Kind.CONTROL:
            moved = {i for i, result in enumerate(op.results) if is_sized_by(op, result)}
            if op.name == "loop":  # rows of stacked values are copied
                moved.update(range(1 + op.attribute("carried"), len(op.results)))
            for body in op.bodies:
                copies += _separate(body, moved)
    taken: set[Value] = set()
    outputs = list(graph.outputs)
    for i, value in enumerate(outputs):
        if i in moved_outputs:
            continue
        owner, offset = owner_of(value)
        is_constant = owner.op is not None and owner.op.name == "constant"
        if is_constant or owner in taken or not is_whole(owner, value, offset):
            outputs[i] = owner = _copy(graph, value)
            copies += 1
        taken.add(owner)
    if copies:
        graph.set_outputs(outputs, list(graph.output_names))
    return copies


def _copy(graph: Graph, value: Value) -> Value:
    body = Graph("copy", registry=graph.registry)
    inside = body.add_input(value.name, value.type)
    body.set_outputs([inside])
    op = graph.create(
        "fused",
        [value],
        {"region": "pointwise"},
        bodies=[body],
        origins=value.op.origins if value.op is not None else (),
        names=[value.name],
    )
    return op.result
