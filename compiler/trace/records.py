"""Ops, values and graphs as plain JSON data: what one line of a trace says of them.

A value is named by where it comes from: `i2` is the third input of its graph, `17` the first
result of op 17, `17.1` the second.  Contents of constants of more than `INLINE` elements are left
out: a number stands for each, the same one wherever the same constant is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.printer import print_attribute, print_literal, print_symbol
from graphwright.compiler.ir.types import TensorType

INLINE = 16

Record = dict[str, Any]


class Recorder:
    """Makes records; keeps the numbers of large constants, so that equal numbers mean one constant."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._kept: list[Literal] = []  # an id() is only good while its object lives

    def op(self, op: Op) -> Record:
        """{id, op, in, attributes, out: [[type, name]], from, bodies}; empty fields are left out."""
        record: Record = {"id": op.id, "op": op.name}
        if op.operands:
            record["in"] = [reference(v) for v in op.operands]
        declared = op.definition.attributes
        shown = {
            name: self.attribute(value)
            for name, value in op.attributes.items()
            if name not in declared or not _is_default(value, declared[name].default)
        }
        if shown:
            record["attributes"] = shown
        if op.results:
            record["out"] = [[str(r.type), r.name] if r.name else [str(r.type)] for r in op.results]
        if op.origins:
            record["from"] = list(op.origins)
        if op.bodies:
            labels = op.definition.bodies
            record["bodies"] = [
                self.graph(body) | {"name": label}
                for label, body in zip(labels, op.bodies, strict=True)
            ]
        return record

    def graph(self, graph: Graph) -> Record:
        """{name, inputs: [[name, type]], ops, outputs: [reference], symbols, constraints}."""
        record: Record = {
            "name": graph.name,
            "inputs": [[v.name, str(v.type)] for v in graph.inputs],
            "ops": [self.op(op) for op in graph.ops],
            **border(graph),
        }
        return record

    def attribute(self, value: Any) -> str:
        """An attribute in the IR's text form, but for large constants."""
        if isinstance(value, Literal):
            if value.is_splat or value.elements <= INLINE:
                return print_literal(value)
            number = self._numbers.get(id(value))
            if number is None:
                number = self._numbers[id(value)] = len(self._kept)
                self._kept.append(value)
            return f"dense<#{number}>: {TensorType(value.dtype, value.shape)}"
        if isinstance(value, Recipe):
            sources = ", ".join(value.sources())
            return f"recipe({sources})" if value.source else f"recipe({value.op} of {sources})"
        if isinstance(value, tuple):
            return f"[{', '.join(self.attribute(v) for v in value)}]"
        return print_attribute(value)


def border(graph: Graph) -> Record:
    """What of a graph is no op: {outputs, output_names, symbols, constraints}."""
    record: Record = {"outputs": [reference(v) for v in graph.outputs]}
    if graph.output_names:
        record["output_names"] = list(graph.output_names)
    if graph.symbols:
        record["symbols"] = [print_symbol(s) for s in graph.symbols.values()]
    if graph.constraints:
        record["constraints"] = [
            f"{c.left} {c.relation} {c.right}: {c.reason}" for c in graph.constraints
        ]
    return record


def reference(value: Value) -> str:
    """How records name a value; see the module."""
    if value.op is None:
        return f"i{value.index}"
    return f"{value.op.id}.{value.index}" if value.index else str(value.op.id)


def producer_of(reference: str) -> int | None:
    """The id of the op that a reference names a result of; None for a graph input."""
    return None if reference.startswith("i") else int(reference.partition(".")[0])


def changed_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> Record:
    """The fields of an op's record that differ, with their new values (None: gone)."""
    keys = dict.fromkeys((*old, *new))
    return {k: new.get(k) for k in keys if old.get(k) != new.get(k)}


def _is_default(value: Any, default: Any) -> bool:
    return type(value) is type(default) and repr(value) == repr(default)
