"""Subgraphs as bodies of IR ops: what they read from outside, and their import into graphs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import onnx

from graphwright.compiler.ir.graph import Graph, Value
from graphwright.frontends.onnx.containers import Entry, flatten, rebuilt
from graphwright.frontends.onnx.refusal import Refusal, Tainted
from graphwright.frontends.onnx.scope import ABSENT, TAINTED, Scope, Weight
from graphwright.frontends.onnx.structure import free_names
from graphwright.frontends.onnx.symbols import identifier

if TYPE_CHECKING:
    from graphwright.frontends.onnx.node import Node

Captures = Mapping[str, Entry]


def captures_of(node: Node, graphs: Iterable[onnx.GraphProto]) -> dict[str, Entry]:
    """What the graphs read of the names around the node, initializers excepted.

    Raises Tainted when some of it was refused.
    """
    return captured(node, [name for graph in graphs for name in free_names(graph)])


def captured(node: Node, names: Iterable[str]) -> dict[str, Entry]:
    """What names around the node stand for, those of initializers left out."""
    found: dict[str, Entry] = {}
    for name in names:
        if name not in node.scope:
            raise Refusal(f"its body reads {name!r}, which nothing makes")
        entry = node.scope.find(name)
        if isinstance(entry, Weight) or entry is ABSENT or name in found:
            continue
        if entry is TAINTED:
            raise Tainted
        found[name] = node.scope.entry(name)
    return found


def is_constant(value: Value) -> bool:
    return value.op is not None and value.op.name == "constant"


def operands_of(captures: Captures) -> list[Value]:
    """The values that captures are as operands: constants are made anew inside."""
    parts = (value for entry in captures.values() for value in flatten(entry))
    return [value for value in parts if not is_constant(value)]


class Body:
    """A graph that a body is imported into, and the scope and node for it."""

    def __init__(self, node: Node, name: str, path: str | None = None) -> None:
        """`name` is the body's own, `path` what origins inside begin with."""
        self.outer = node
        self.graph = Graph(identifier(f"{node.origin}.{name}"), registry=node.graph.registry)
        self.scope = inner_scope(
            node, self.graph, f"{node.origin}/{name}/" if path is None else path
        )
        self.node = type(node)(node.importer, self.scope, node.proto, node.origin)

    def add_input(self, name: str, like: Value, *, is_same: bool = False) -> Value:
        """An input of a value's type; `is_same`: it always is that value."""
        made = self.graph.add_input(name, like.type)
        if is_same:
            importer = self.node.importer
            importer.contents.assume(made, self.outer.known(like))
            counter = importer.counter_of(like) if like.type.elements == 1 else None
            if counter is not None:
                importer.counters[made] = counter
        return made

    def add_captures(self, captures: Captures) -> None:
        """Inputs for captures, in the order of `operands_of`, under the names outside."""
        for name, entry in captures.items():
            parts = [self._capture(name, value) for value in flatten(entry)]
            self.scope.names[name] = rebuilt(entry, parts)

    def _capture(self, name: str, value: Value) -> Value:
        if not is_constant(value):
            return self.add_input(name, value, is_same=True)
        assert value.op is not None
        return self.graph.create(
            "constant", (), value.op.attributes, origins=value.op.origins, names=(value.name,)
        ).result


def inner_scope(node: Node, graph: Graph, prefix: str) -> Scope:
    """A scope inside that of the node, whose names fill `graph`."""
    return Scope(
        graph,
        node.scope.opsets,
        parent=node.scope,
        attributes=node.scope.attributes,
        prefix=prefix,
    )


def fill(node: Node, scope: Scope, graph: onnx.GraphProto, name: str) -> list[Entry | None]:
    """Imports a subgraph's nodes into a scope that holds its inputs; its outputs in order, None for
    those that were refused.
    """
    add_initializers(node, scope, graph, name)
    node.importer.import_nodes(graph.node, scope, f"{name} of {node.origin}")
    return [_output(scope, output.name) for output in graph.output]


def _output(scope: Scope, name: str) -> Entry | None:
    try:
        return scope.entry(name)
    except Tainted:
        return None


def add_initializers(node: Node, scope: Scope, graph: onnx.GraphProto, name: str) -> None:
    for tensor in graph.initializer:
        literal = node.importer.tensors.literal(tensor, f"the initializer {tensor.name!r}")
        scope.names[tensor.name] = Weight(literal, scope.prefix + tensor.name)
    if graph.sparse_initializer:
        raise Refusal(f"its {name} has sparse initializers, which are not supported")


def complete(entries: Sequence[Entry | None]) -> list[Entry]:
    """The entries.  Raises Tainted when one was refused."""
    found = [e for e in entries if e is not None]
    if len(found) < len(entries):
        raise Tainted
    return found


def weight_of(graph: onnx.GraphProto) -> int:
    """How many nodes a subgraph has, those of its own subgraphs included."""
    count = 0
    for node in graph.node:
        count += 1
        for attribute in node.attribute:
            if attribute.HasField("g"):
                count += weight_of(attribute.g)
    return count
