"""The shape of a model file, checked before anything is imported: names, order, cycles, versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import onnx
from onnx import AttributeProto, GraphProto, NodeProto

from graphwright.errors import InvalidModelError


class Names(Protocol):
    """Names that exist already: inputs, initializers, those of enclosing graphs."""

    def __contains__(self, name: str, /) -> bool: ...


def label(node: NodeProto, index: int) -> str:
    """What a node is called in origins and reports: its name, or `Type#index`."""
    return node.name or f"{node.op_type}#{index}"


def domain_of(domain: str) -> str:
    """The canonical spelling of a domain: "" is ai.onnx."""
    return "" if domain == "ai.onnx" else domain


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == AttributeProto.GRAPHS:
            yield from attribute.graphs


def free_names(graph: GraphProto) -> list[str]:
    """Names that the graph or its subgraphs read from outside, in order of first use."""
    made = {i.name for i in graph.input} | {i.name for i in graph.initializer}
    made |= {i.values.name for i in graph.sparse_initializer}
    for node in graph.node:
        made.update(node.output)
    found: dict[str, None] = {}
    for node in graph.node:
        for name in reads(node):
            if name not in made:
                found[name] = None
    for output in graph.output:
        if output.name not in made:
            found[output.name] = None
    return list(found)


def reads(node: NodeProto) -> list[str]:
    """Every name that the node needs, captures of its subgraphs included."""
    names = [n for n in node.input if n]
    for graph in subgraphs(node):
        names += free_names(graph)
    return names


def order_nodes(
    nodes: Sequence[NodeProto], available: Names, where: str
) -> list[tuple[int, NodeProto]]:
    """(position in the file, node) so that each node follows what it reads.

    Raises InvalidModelError for a value made twice, a value that nothing makes, and a cycle.
    """
    maker: dict[str, int] = {}
    for i, node in enumerate(nodes):
        check_text(where, node.op_type, node.name, node.domain, *node.input, *node.output)
        check_text(where, *(a.name for a in node.attribute))
        for name in node.output:
            if not name:
                continue
            if name in maker or name in available:
                first = label(nodes[maker[name]], maker[name]) if name in maker else "an input"
                raise InvalidModelError(
                    f"{where}: the value {name!r} is made twice, by {first} and by {label(node, i)}"
                )
            maker[name] = i
    waits: list[int] = [0] * len(nodes)
    users: dict[str, list[int]] = {}
    is_sorted = True
    for i, node in enumerate(nodes):
        for name in dict.fromkeys(reads(node)):
            if name in available:
                continue
            source = maker.get(name)
            if source is None:
                raise InvalidModelError(
                    f"{where}: node {label(node, i)} ({node.op_type}) reads {name!r}, which no "
                    "input, initializer or node makes"
                )
            is_sorted = is_sorted and source < i
            waits[i] += 1
            users.setdefault(name, []).append(i)
    if is_sorted:
        return list(enumerate(nodes))
    ready = [i for i, n in enumerate(waits) if not n]
    order: list[int] = []
    at = 0
    while at < len(ready):
        order.append(current := ready[at])
        at += 1
        for name in nodes[current].output:
            for user in users.get(name, ()):
                waits[user] -= 1
                if not waits[user]:
                    ready.append(user)
    if len(order) < len(nodes):
        stuck = [i for i, n in enumerate(waits) if n]
        names = ", ".join(
            f"{label(nodes[i], i)} (makes {list(nodes[i].output)})" for i in stuck[:4]
        )
        raise InvalidModelError(
            f"{where}: the graph is cyclic, so that its nodes cannot be sorted topologically; "
            f"among those that depend on themselves: {names}"
        )
    return [(i, nodes[i]) for i in order]


def check_model_header(model: onnx.ModelProto, name: str) -> dict[str, int]:
    """{domain: opset version} of a model.  Raises InvalidModelError when it is malformed."""
    if model.ir_version < 1:
        raise InvalidModelError(f"{name}: ir_version is {model.ir_version}, want 1 or more")
    opsets: dict[str, int] = {}
    for entry in model.opset_import:
        check_text(name, entry.domain)
        domain = domain_of(entry.domain)
        if entry.version < 1:
            raise InvalidModelError(
                f"{name}: the domain {domain or 'ai.onnx'!r} is imported at version {entry.version}"
            )
        if opsets.setdefault(domain, entry.version) != entry.version:
            raise InvalidModelError(
                f"{name}: the domain {domain or 'ai.onnx'!r} is imported at versions "
                f"{opsets[domain]} and {entry.version}"
            )
    if not opsets and model.ir_version >= 3:
        raise InvalidModelError(f"{name}: opset_import is missing, so that no op has a version")
    if not opsets:
        opsets[""] = 1
    return opsets


def check_text(where: str, *texts: str | bytes) -> None:
    """Raises InvalidModelError for a string that is no UTF-8: protobuf hands it out as bytes."""
    for text in texts:
        if not isinstance(text, str):
            raise InvalidModelError(f"{where}: the name {text!r} is not UTF-8; the file is damaged")


def check_graph_names(graph: GraphProto, where: str) -> None:
    """Raises InvalidModelError for repeated or missing names of inputs, initializers, outputs."""
    check_text(where, graph.name)
    for value in graph.input:
        tensor = value.type.tensor_type
        check_text(where, value.name, *(d.dim_param for d in tensor.shape.dim))
    for what, names in (
        ("input", [i.name for i in graph.input]),
        ("initializer", [i.name for i in graph.initializer]),
        ("output", [i.name for i in graph.output]),
    ):
        seen: set[str] = set()
        for n in names:
            check_text(where, n)
            if not n:
                raise InvalidModelError(f"{where}: an {what} has no name")
            if n in seen:
                raise InvalidModelError(f"{where}: the {what} {n!r} is declared twice")
            seen.add(n)
