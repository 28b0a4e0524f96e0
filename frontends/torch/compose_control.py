"""torch's higher-order ops: cond, while_loop and scan become `if` and `loop`, other calls are inlined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal

ENDLESS = 2**62  # more iterations than will ever be


def _module(node: Node, raw: Any) -> torch.fx.GraphModule:
    found = node.importer.value_of(raw) if isinstance(raw, torch.fx.Node) else raw
    if not isinstance(found, torch.fx.GraphModule):
        raise Refusal(f"{raw} is no graph")
    return found


def _tensors(operands: Sequence[Any]) -> list[Value]:
    return [o for o in operands if isinstance(o, Value)]


def _arguments(node: Node, raw: Sequence[Any]) -> list[Any]:
    return [node.resolve(r) for r in raw]


class _Body:
    """A body being filled: its graph has an input for each tensor among the operands."""

    def __init__(self, node: Node, name: str, operands: Sequence[Any], *, counted: bool) -> None:
        self.node, self.graph = node, Graph(name, registry=node.graph.registry)
        i64 = node.scalar(0, I64).type
        self.counter = self.graph.add_input("iteration", i64) if counted else None
        self.inside = [
            self.graph.add_input(o.name, o.type) if isinstance(o, Value) else o for o in operands
        ]

    def call(self, module: torch.fx.GraphModule, operands: Sequence[Any]) -> list[Any]:
        return self.node.importer.import_inner(module, operands, self.graph)

    def emit(self, op: str, *operands: Value, **attributes: Any) -> Value:
        made = self.graph.create(op, operands, attributes, origins=(self.node.origin,))
        return made.result


def _predicate(node: Node, raw: Any) -> Value:
    found = node.resolve(raw)
    value = found if isinstance(found, Value) else node.number(raw, BOOL)
    return node.reshape(node.cast(value, BOOL), [])


def cond(node: Node) -> Sequence[Any]:
    """Both branches take the operands and yield values of the same types."""
    raw_predicate, first, second, raw_operands = node.fx.args
    operands = _arguments(node, raw_operands)  # type: ignore[arg-type]
    if isinstance(raw_predicate, bool):
        taken = _module(node, first if raw_predicate else second)
        return node.importer.import_inner(taken, operands, node.graph)
    predicate = _predicate(node, raw_predicate)
    bodies: list[Graph] = []
    for name, raw in (("then", first), ("else", second)):
        body = _Body(node, name, operands, counted=False)
        body.graph.set_outputs(_tensors(body.call(_module(node, raw), body.inside)))
        bodies.append(body.graph)
    made = node.graph.create(
        "if", (predicate, *_tensors(operands)), {}, bodies=bodies, origins=(node.origin,)
    )
    return made.results


def while_loop(node: Node) -> Sequence[Any]:
    """The condition is asked before the first iteration and after each."""
    condition, step, raw_carried, raw_more = node.fx.args
    carried = _arguments(node, raw_carried)  # type: ignore[arg-type]
    more = _arguments(node, raw_more)  # type: ignore[arg-type]
    if len(_tensors(carried)) != len(carried):
        raise Refusal("it carries numbers that are no tensors", "carry tensors")
    test, work = _module(node, condition), _module(node, step)
    (start,) = node.importer.import_inner(test, [*carried, *more], node.graph)
    body = _Body(node, "body", [*carried, *more], counted=True)
    rest = body.inside[len(carried) :]
    after = _tensors(body.call(work, body.inside))
    (go,) = body.call(test, [*after, *rest])
    body.graph.set_outputs([body.emit("reshape", go, shape=()), *after])
    made = node.graph.create(
        "loop",
        (node.scalar(ENDLESS, I64), node.reshape(start, []), *carried, *_tensors(more)),
        {"carried": len(carried), "extent": 0},
        bodies=(body.graph,),
        origins=(node.origin,),
    )
    return made.results[1:]


def scan(node: Node) -> Sequence[Any]:
    """One iteration a row of the inputs; what an iteration yields beside the carried values is stacked."""
    combine, raw_first, raw_rows, raw_more = node.fx.args
    carried = _arguments(node, raw_first)  # type: ignore[arg-type]
    rows = _arguments(node, raw_rows)  # type: ignore[arg-type]
    more = _arguments(node, raw_more)  # type: ignore[arg-type]
    if not rows:
        raise Refusal("it scans nothing")
    extent = rows[0].type.shape[0]
    body = _Body(node, "body", [*carried, *rows, *more], counted=True)
    assert body.counter is not None
    a, b = len(carried), len(carried) + len(rows)
    row = [body.emit("gather", r, body.counter, axis=0) for r in body.inside[a:b]]
    results = _tensors(
        body.call(_module(node, combine), [*body.inside[:a], *row, *body.inside[b:]])
    )
    go = body.emit("full", value=True, dtype=BOOL, shape=())
    body.graph.set_outputs([go, *results])
    made = node.graph.create(
        "loop",
        (node.size(extent), node.scalar(True, BOOL), *carried, *rows, *_tensors(more)),
        {"carried": len(carried), "extent": extent},
        bodies=(body.graph,),
        origins=(node.origin,),
    )
    return made.results[1:]


def inlined(position: int) -> Compose:
    """A call of a graph whose context changes nothing here: no_grad, autocast, checkpoints."""

    def compose(node: Node) -> Sequence[Any]:
        module = _module(node, node.fx.args[position])
        operands = _arguments(node, node.fx.args[position + 1 :])
        return node.importer.import_inner(module, operands, node.graph)

    return compose


COMPOSE: dict[str, Compose] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": scan,
    "wrap_with_set_grad_enabled": inlined(1),
    "wrap_with_autocast": inlined(4),
    "tag_activation_checkpoint": inlined(0),
    "wrap": inlined(0),
    "invoke_subgraph": inlined(0),
}
