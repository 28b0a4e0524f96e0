"""Symbolic numbers as data: torch's expressions over sizes and read elements, calculated by ops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sympy
from torch.utils._sympy import functions

from graphwright.compiler.ir.dims import DimError
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F64, I64, DType
from graphwright.frontends.torch.refusal import Refusal

if TYPE_CHECKING:
    from graphwright.frontends.torch.node import Node

_COMPARISONS: dict[Any, str] = {
    sympy.Eq: "equal", sympy.Ne: "not_equal", sympy.Lt: "less", sympy.Le: "less_or_equal",
    sympy.Gt: "greater", sympy.Ge: "greater_or_equal",
}  # fmt: skip


def scalar_value(node: Node, e: sympy.Basic) -> Value:
    """The number as a rank-0 tensor: i64 for integers, f64 for floats, bool for relations."""
    if not any(s in node.importer.items for s in e.free_symbols):
        size = _size(node, e)
        if size is not None:
            return size
    if isinstance(e, sympy.Symbol) and e in node.importer.items:
        found = node.importer.items[e]
        if found.type.dtype is BOOL:
            return found
        return node.cast(found, F64 if found.type.dtype.is_float else I64)
    if e is sympy.true or e is sympy.false:
        return node.scalar(bool(e), BOOL)
    if e.is_Integer:
        return node.scalar(int(e), I64)  # type: ignore[call-overload]
    if e.is_Float or e.is_Rational:
        return node.scalar(float(e), F64)  # type: ignore[arg-type]
    parts = [scalar_value(node, a) for a in e.args]
    if isinstance(e, sympy.Add):
        return _chain(node, "add", parts)
    if isinstance(e, sympy.Mul):
        return _chain(node, "mul", parts)
    if isinstance(e, sympy.Pow | functions.PowByNatural | functions.FloatPow):
        return _binary(node, "pow", *parts)
    if isinstance(e, functions.ToFloat):
        return node.cast(parts[0], F64)
    if isinstance(e, functions.IntTrueDiv | functions.FloatTrueDiv):
        return node.emit("div", *(node.cast(p, F64) for p in parts))
    if isinstance(e, functions.FloorDiv):
        return _floor_divide(node, *parts)
    if isinstance(e, functions.Mod | functions.PythonMod | sympy.Mod):
        return node.emit("mod", *_alike(node, parts), fmod=False)
    if isinstance(e, functions.TruncToInt):
        return node.cast(node.emit("trunc", parts[0]), I64)
    if isinstance(e, functions.FloorToInt):
        return node.cast(node.emit("floor", parts[0]), I64)
    if isinstance(e, functions.CeilToInt):
        return node.cast(node.emit("ceil", parts[0]), I64)
    if isinstance(e, functions.RoundToInt):
        return node.cast(node.emit("round", parts[0]), I64)
    if isinstance(e, functions.Max | sympy.Max):
        return _chain(node, "maximum", parts)
    if isinstance(e, functions.Min | sympy.Min):
        return _chain(node, "minimum", parts)
    if isinstance(e, sympy.Not):
        return node.emit("logical_not", parts[0])
    if isinstance(e, sympy.And):
        return _chain(node, "logical_and", parts)
    if isinstance(e, sympy.Or):
        return _chain(node, "logical_or", parts)
    for relation, op in _COMPARISONS.items():
        if isinstance(e, relation):
            return node.emit(op, *_alike(node, parts))
    name = type(e).__name__.removeprefix("OpaqueUnaryFn_")
    if name in ("sqrt", "exp", "log", "sin", "cos", "tanh", "floor"):
        return node.emit(name, node.cast(parts[0], F64))
    raise Refusal(f"the number {e} is not of a form that is supported")


def _size(node: Node, e: sympy.Basic) -> Value | None:
    try:
        return node.size(node.importer.symbols.of(e))
    except (Refusal, DimError, TypeError):
        return None


def _alike(node: Node, parts: list[Value]) -> list[Value]:
    dtypes: set[DType] = {p.type.dtype for p in parts}
    wide = F64 if F64 in dtypes else I64 if I64 in dtypes else BOOL
    return [node.cast(p, wide) for p in parts]


def _chain(node: Node, op: str, parts: list[Value]) -> Value:
    first, *rest = _alike(node, parts)
    for part in rest:
        first = node.emit(op, first, part)
    return first


def _binary(node: Node, op: str, a: Value, b: Value) -> Value:
    return node.emit(op, *_alike(node, [a, b]))


def _floor_divide(node: Node, a: Value, b: Value) -> Value:
    rest = node.emit("mod", a, b, fmod=False)
    return node.emit("div", node.emit("sub", a, rest), b)
