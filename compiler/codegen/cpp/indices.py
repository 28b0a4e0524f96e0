"""Index expressions as C++ text.

A kernel calculates with its own variables (loop variables, quotients).  What depends on model
symbols alone, a size or a stride, is a scalar that the runtime evaluates once per binding: `size`
turns such a dim into the scalar's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from graphwright.compiler.codegen.expressions import Variable
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Atom, Call, Dim, Expr, Symbol

Size = Callable[[Dim], str]
Names = Mapping[Symbol, str]


def index_text(dim: Dim, size: Size, names: Names | None = None) -> str:
    """The dim as an int64 expression of C++; `names` renames variables."""
    if not isinstance(dim, Expr):
        return str(dim)
    if not _has_variable(dim):
        return size(dim)
    known = names or {}
    parts: list[str] = []
    for variables, coefficient in _by_variables(dim).items():
        negative = _is_negative(coefficient)
        scale = dims.multiply(coefficient, -1) if negative else coefficient
        factors = [_atom(a, size, known) for a in variables]
        if scale != 1 or not factors:
            factors.append(size(scale) if isinstance(scale, Expr) else str(scale))
        text = " * ".join(factors)
        if not parts:
            parts.append(f"-{text}" if negative else text)
        else:
            parts.append(f" {'-' if negative else '+'} {text}")
    return "".join(parts)


def operand_text(dim: Dim, size: Size, names: Names | None = None) -> str:
    """The same, in parentheses where an operator may follow."""
    text = index_text(dim, size, names)
    return f"({text})" if " " in text or text.startswith("-") else text


def _by_variables(dim: Expr) -> dict[tuple[Atom, ...], Dim]:
    """The polynomial's terms by the variables in them; constants last."""
    groups: dict[tuple[Atom, ...], Dim] = {}
    for monomial, coefficient in dim.terms:
        variables = tuple(a for a in monomial if _has_variable(Expr((((a,), 1),))))
        scale: Dim = coefficient
        for atom in monomial:
            if atom not in variables:
                scale = dims.multiply(scale, Expr((((atom,), 1),)))
        groups[variables] = groups.get(variables, 0) + scale
    constant = groups.pop((), None)
    if constant is not None:
        groups[()] = constant
    return groups


def _is_negative(coefficient: Dim) -> bool:
    if isinstance(coefficient, Expr):
        return all(scale < 0 for _, scale in coefficient.terms)
    return coefficient < 0


def _has_variable(dim: Dim) -> bool:
    return any(isinstance(s, Variable) for s in dims.symbols_of(dim))


def _atom(atom: Atom, size: Size, names: Names) -> str:
    if isinstance(atom, Symbol):
        return names.get(atom, atom.name)
    if atom.operator in ("max", "min"):
        function = "gw::larger" if atom.operator == "max" else "gw::smaller"
        text = index_text(atom.operands[0], size, names)
        for operand in atom.operands[1:]:
            text = f"{function}({text}, {index_text(operand, size, names)})"
        return text
    return _division(atom, [operand_text(o, size, names) for o in atom.operands])


def _division(atom: Call, operands: list[str]) -> str:
    a, b = operands
    if dims.bounds(atom.operands[0])[0] >= 0:
        return f"({a} {'/' if atom.operator == 'floordiv' else '%'} {b})"
    function = "floor_divide" if atom.operator == "floordiv" else "floor_modulo"
    return f"gw::{function}({a}, {b})"
