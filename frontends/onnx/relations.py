"""What a condition says about sizes: relations between dims that hold when it is true, or false."""

from __future__ import annotations

from typing import NamedTuple

from graphwright.compiler.ir.dims import Comparison, Dim, Expr
from graphwright.compiler.ir.graph import Value
from graphwright.frontends.onnx.contents import Contents

_NEGATED: dict[Comparison, Comparison] = {
    "==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">",
}  # fmt: skip
_OPS: dict[str, Comparison] = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_or_equal": "<=", "greater": ">",
    "greater_or_equal": ">=",
}  # fmt: skip


class Relation(NamedTuple):
    """left relation right."""

    left: Dim
    comparison: Comparison
    right: Dim

    def __str__(self) -> str:
        return f"{self.left} {self.comparison} {self.right}"


def relations_of(contents: Contents, condition: Value, outcome: bool) -> list[Relation] | None:
    """Relations that all hold exactly when the condition (one bool) has this outcome, or None."""
    op = condition.op
    if op is None or condition.type.elements != 1:
        return None
    if op.name in ("reshape", "cast", "logical_not"):
        if op.name == "cast" and op.operands[0].type.dtype.kind != "bool":
            return None
        return relations_of(contents, op.operands[0], outcome ^ (op.name == "logical_not"))
    if (op.name, outcome) in (("logical_and", True), ("logical_or", False)):
        found = [relations_of(contents, v, outcome) for v in op.operands]
        return None if None in found else [r for part in found for r in part or ()]
    comparison = _OPS.get(op.name)
    sides = [_size(contents, v) for v in op.operands]
    if comparison is None or None in sides:
        return None
    left, right = sides
    assert left is not None and right is not None
    return [Relation(left, comparison if outcome else _NEGATED[comparison], right)]


def _size(contents: Contents, value: Value) -> Dim | None:
    array = contents.of(value)
    if array is None or array.size != 1:
        return None
    element = array.reshape(-1)[0]
    if isinstance(element, Expr):
        return element
    return int(element) if array.dtype.kind in "iu" or type(element) is int else None
