"""Index expressions as C++ text."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from graphwright.compiler.codegen.expressions import Variable
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Call, Dim, Expr, Symbol


def index_text(dim: Dim, names: Mapping[Symbol, str] | None = None) -> str:
    """The dim as an int64 expression of C++; symbols by name (dots become underscores)."""
    if not isinstance(dim, Expr):
        return str(dim)
    known = names or {}
    parts: list[str] = []
    for monomial, coefficient in dim.terms:
        factors = [_atom(a, known) for a in monomial]
        size = abs(coefficient)
        if size != 1 or not factors:
            factors.append(str(size))
        text = " * ".join(factors)
        if not parts:
            parts.append(f"-{text}" if coefficient < 0 else text)
        else:
            parts.append(f" {'-' if coefficient < 0 else '+'} {text}")
    return "".join(parts)


def operand_text(dim: Dim, names: Mapping[Symbol, str] | None = None) -> str:
    """The same, in parentheses where an operator may follow."""
    text = index_text(dim, names)
    return f"({text})" if " " in text or text.startswith("-") else text


def symbol_name(symbol: Symbol) -> str:
    """The C++ name of a symbol: a kernel's own variable as it is, a model symbol with a prefix.

    Users name their symbols as they like: `int`, `row`, `pool`, `a.b` beside `a_b`.
    """
    if isinstance(symbol, Variable):
        return symbol.name
    if "." not in symbol.name:
        return f"dim_{symbol.name}"
    return f"dim_{symbol.name.replace('.', '_')}_{zlib.crc32(symbol.name.encode()):08x}"


def _atom(atom: dims.Atom, names: Mapping[Symbol, str]) -> str:
    if isinstance(atom, Symbol):
        return names.get(atom, symbol_name(atom))
    a = [operand_text(o, names) for o in atom.operands]
    if atom.operator in ("max", "min"):
        function = "gw::larger" if atom.operator == "max" else "gw::smaller"
        text = index_text(atom.operands[0], names)
        for operand in atom.operands[1:]:
            text = f"{function}({text}, {index_text(operand, names)})"
        return text
    return _division(atom, a)


def _division(atom: Call, operands: list[str]) -> str:
    a, b = operands
    if dims.bounds(atom.operands[0])[0] >= 0:
        return f"({a} {'/' if atom.operator == 'floordiv' else '%'} {b})"
    function = "floor_divide" if atom.operator == "floordiv" else "floor_modulo"
    return f"gw::{function}({a}, {b})"
