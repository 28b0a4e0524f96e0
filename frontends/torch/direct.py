"""Ops that equal ours up to names: the declaration in the registry says all that is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.op import Kind, OpDef
from graphwright.compiler.ir.ops.pointwise import Pointwise
from graphwright.compiler.ir.types import BOOL
from graphwright.frontends.torch.node import Node


def import_direct(node: Node, declared: OpDef) -> Sequence[Value]:
    """The op that `declared` declares, its operands promoted as torch does for pointwise ops."""
    target: Any = node.fx.target
    names = [a.name for a in target._schema.arguments]
    tensors = [n for n in names if _is_tensor(node, n)]
    attributes = {
        declared.renames.get(n, n): _plain(node.arg(n))
        for n in names
        if n not in tensors and declared.renames.get(n, n) in declared.attributes
    }
    if isinstance(declared, Pointwise):
        return [pointwise(node, declared, tensors, attributes)]
    assert declared.kind is not Kind.POINTWISE
    if "permutation" in attributes:
        rank = node.x(tensors[0]).type.rank
        attributes["permutation"] = node.axes(attributes["permutation"], rank)
    return node.emit_all(declared.name, *(node.x(n) for n in tensors), **attributes)


def pointwise(
    node: Node, declared: Pointwise, names: Sequence[str], attributes: dict[str, Any]
) -> Value:
    """A row of the pointwise table on arguments of the node."""
    kind = promotion_of(declared)
    given = [n for i, n in enumerate(names) if i not in declared.conditions]
    operands = iter(node.promoted(*given, kind=kind))
    values = [
        node.cast(node.x(n), BOOL) if i in declared.conditions else next(operands)
        for i, n in enumerate(names)
    ]
    if declared.accepts == "float" and not values[-1].type.dtype.is_float:
        return on_integers(node, declared, values)
    result = node.emit(declared.name, *values, **attributes)
    return result if declared.result == "bool" else node.cast(result, node.out_dtype)


def on_integers(node: Node, declared: Pointwise, values: Sequence[Value]) -> Value:
    """Functions of floats that torch also has for integers: rounding does nothing, none is NaN."""
    if declared.result == "bool":
        return node.full(False, BOOL, node.out_shape)
    return values[0]


def promotion_of(declared: Pointwise) -> PROMOTION:
    """torch's rule for the op: functions of floats make floats of integers, comparisons bools."""
    if declared.result == "bool":
        return PROMOTION.ALWAYS_BOOL
    if declared.accepts == "float" and "idempotent" not in declared.facts:
        return PROMOTION.INT_TO_FLOAT
    return PROMOTION.DEFAULT


def _is_tensor(node: Node, name: str) -> bool:
    return isinstance(node.resolve(node.raw(name)), Value)


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
