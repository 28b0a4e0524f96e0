"""Dims as numbers, and in the form that manifests store, which needs no expression parser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphwright.compiler.ir.dims import Atom, Dim


def evaluate(dim: Dim, binding: Mapping[str, int]) -> int:
    """The integer value under {symbol name: size}.  Raises DimError for an unbound symbol."""
    from graphwright.compiler.ir.dims import DimError, Expr, substitute, symbols_of

    if not isinstance(dim, Expr):
        return int(dim)
    unbound = [s.name for s in symbols_of(dim) if s.name not in binding]
    if unbound:
        raise DimError(f"the dimension {dim} needs a value for {', '.join(unbound)}")
    value = substitute(dim, {s: int(binding[s.name]) for s in symbols_of(dim)})
    assert isinstance(value, int)
    return value


def to_json(dim: Dim) -> Any:
    """An int, a symbol name, or a prefix list ["+"|"*"|"//"|"%"|"max"|"min", operand, ...]."""
    from graphwright.compiler.ir.dims import Expr, Symbol

    if not isinstance(dim, Expr):
        return int(dim)

    def atom_json(atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return atom.name
        sign = {"floordiv": "//", "mod": "%"}.get(atom.operator, atom.operator)
        return [sign, *map(to_json, atom.operands)]

    terms: list[Any] = []
    for monomial, coefficient in dim.terms:
        factors = [atom_json(a) for a in monomial]
        if coefficient != 1 or not factors:
            factors.insert(0, coefficient)
        terms.append(factors[0] if len(factors) == 1 else ["*", *factors])
    return terms[0] if len(terms) == 1 else ["+", *terms]
