"""Ops that equal ours up to names: the declaration in the registry says all that is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.op import OpDef
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.schema import defaults_of


def import_direct(node: Node, declared: OpDef) -> Sequence[Value]:
    """The op that `declared` declares, with the node's attributes renamed and normalised.

    Attributes that the node leaves out take ONNX's defaults for its opset, not ours.
    """
    operands = [node.maybe(i) for i in range(len(node.proto.input))]
    while operands and operands[-1] is None:
        operands.pop()
    values = [o for o in operands if o is not None]
    if len(values) != len(operands):
        raise Refusal(f"its input {operands.index(None)} is missing, which {node.type} needs")
    attributes: dict[str, Any] = {}
    given = {n: node.attr(n) for n in node.attribute_protos if _ours(declared, n)}
    for name, value in (defaults_of(node) | given).items():
        ours = _ours(declared, name)
        if ours is not None:
            attributes[ours] = _convert(node, declared.attributes[ours].type, ours, value, values)
    return node.emit_all(declared.name, *values, **attributes)


def _ours(declared: OpDef, name: str) -> str | None:
    ours = declared.renames.get(name, name)
    return ours if ours in declared.attributes else None


def _convert(node: Node, type: str, name: str, value: Any, operands: Sequence[Value]) -> Any:
    if name == "axis" and operands:
        return node.axis(int(value), operands[0].type.rank)
    if name == "axes" and operands:
        return node.axes(value, operands[0].type.rank)
    if type == "bool":
        return bool(value)
    if type == "dtype":
        return node.dtype(value)
    return tuple(value) if isinstance(value, list) else value
