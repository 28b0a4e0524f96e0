"""Conditionals made of two bodies, or of one body for each choice that the data may make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.symbol_scope import binders
from graphwright.compiler.ir.types import I64
from graphwright.frontends.onnx.bodies import Body, captured, operands_of
from graphwright.frontends.onnx.containers import Entry
from graphwright.frontends.onnx.late import Undecided, assume_choice, choice_of
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.scope import Scope, sweep
from graphwright.frontends.onnx.structure import reads

if TYPE_CHECKING:
    from graphwright.frontends.onnx.node import Node


def misfit_of(bodies: Sequence[Graph]) -> str | None:
    """What keeps two bodies from being branches of one conditional."""
    for index, (a, b) in enumerate(zip(bodies[0].outputs, bodies[1].outputs, strict=False)):
        if a.type.dtype is not b.type.dtype or a.type.rank != b.type.rank:
            return f"{a.type} and {b.type} for output {index}"
    if len(bodies[0].outputs) != len(bodies[1].outputs):
        return f"{len(bodies[0].outputs)} and {len(bodies[1].outputs)} values"
    return None


def conditional(
    node: Node, condition: Value, captures: Sequence[Value], bodies: Sequence[Graph]
) -> Sequence[Value]:
    """The `if` op; extents in which the branches may differ are bound when one has run."""
    bound: dict[tuple[Dim, Dim], Dim] = {}
    shapes: list[Shape] = []
    late = {s for b in bodies for s in binders(b)}
    for a, b in zip(bodies[0].outputs, bodies[1].outputs, strict=True):
        shape: list[Dim] = []
        for x, y in zip(a.type.shape, b.type.shape, strict=True):
            if x == y and late.isdisjoint(dims.symbols_of(x)):
                shape.append(x)
                continue
            if (x, y) not in bound:
                (low, high), (least, most) = dims.bounds(x), dims.bounds(y)
                low, high = max(min(low, least), 0), min(max(high, most), dims.MAX_EXTENT)
                symbol = node.importer.fresh_symbol(node.origin, low=low, high=high)
                bound[x, y] = dims.of(symbol)
            shape.append(bound[x, y])
        shapes.append(tuple(shape))
    attributes = {"binds": tuple(bound.values()), "shapes": tuple(shapes)} if bound else {}
    made = node.graph.create(
        "if", (condition, *captures), attributes, bodies=bodies, origins=(node.origin,)
    )
    return made.results


def decide(node: Node, undecided: Undecided) -> Sequence[Entry | None]:
    """The node's results, imported once for each choice, in the branches of nested conditionals."""
    choice = choice_of(node, undecided)
    return _choose(node, undecided, choice, 0)


def _choose(node: Node, undecided: Undecided, choice: Dim, first: int) -> Sequence[Entry | None]:
    """For a choice that is at least `first` (counted from 0; the symbol counts from 1)."""
    if first + 1 == len(undecided.choices):
        return _assuming(
            node, Scope(node.graph, node.scope.opsets, parent=node.scope), undecided, first
        )
    captures = captured(node, reads(node.proto))
    bodies: list[Graph] = []
    for taken in (True, False):
        name = f"{first}{'' if taken else '_else'}"
        made = Body(node, name, node.scope.prefix)
        made.add_captures(captures)
        body = made.graph
        if taken:
            results = _assuming(node, made.scope, undecided, first)
        else:
            results = _choose(made.node, undecided, choice, first + 1)
        kept = [r for r in results if isinstance(r, Value)]
        if any(r is not None and not isinstance(r, Value) for r in results):
            raise Refusal("what it yields depends on data, and is a sequence or optional")
        body.set_outputs(kept, [str(i) for i in range(len(kept))])
        sweep(body)
        bodies.append(body)
    misfit = misfit_of(bodies)
    if misfit is not None:
        raise Refusal(f"what it yields depends on data: {misfit}")
    number = node.emit("from_dims", dims=(choice,), scalar=True)
    condition = node.emit("equal", number, node.scalar(first + 1, I64))
    return conditional(node, condition, operands_of(captures), bodies)


def _assuming(
    node: Node, scope: Scope, undecided: Undecided, choice: int
) -> Sequence[Entry | None]:
    """The node's results in a scope of its own, for one choice."""
    scope.attributes, scope.prefix = node.scope.attributes, node.scope.prefix
    inside = type(node)(node.importer, scope, node.proto, node.origin)
    assume_choice(inside, undecided, choice)
    results = node.importer.lower_or_decide(inside)
    node.importer.check_attributes(inside)
    return results
