"""Parser of the text form of dimension expressions (see dims.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, DimError, Symbol

_TOKEN = re.compile(r"\s*(?:(\d+)|([A-Za-z_][A-Za-z0-9_.]*)|(//|[-+*%(),]))")


def parse(text: str, symbols: Mapping[str, Symbol]) -> Dim:
    """Parse the text form.  Raises DimError naming the position and what was expected."""
    tokens: list[tuple[str, int]] = []
    position = 0
    stripped = text.rstrip()
    while position < len(stripped):
        match = _TOKEN.match(stripped, position)
        if not match:
            raise DimError(f"column {position + 1} of {text!r}: unexpected {text[position]!r}")
        tokens.append((match.group(match.lastindex or 0), match.start(match.lastindex or 0)))
        position = match.end()
    tokens.append(("", len(text)))
    at = 0

    def take(expected: str | None = None) -> str:
        nonlocal at
        token, column = tokens[at]
        if expected is not None and token != expected:
            raise DimError(f"column {column + 1} of {text!r}: want {expected!r}, got {token!r}")
        at += 1
        return token

    def atom() -> Dim:
        token, column = tokens[at]
        if token == "(":
            take()
            inner = total()
            take(")")
            return inner
        if token == "-":
            take()
            return dims.multiply(-1, atom())
        if token.isdigit():
            return int(take())
        if token in ("max", "min"):
            take()
            take("(")
            operands = [total()]
            while tokens[at][0] == ",":
                take()
                operands.append(total())
            take(")")
            return dims.APPLY[token](*operands)
        if token in symbols:
            return dims.of(symbols[take()])
        known = ", ".join(symbols) or "none"
        raise DimError(
            f"column {column + 1} of {text!r}: {token or 'the end'!r} is neither a number nor a "
            f"known symbol ({known})"
        )

    def factor() -> Dim:
        left = atom()
        while tokens[at][0] in ("*", "//", "%", "floordiv", "mod"):
            operator = take()
            right = atom()
            if operator == "*":
                left = dims.multiply(left, right)
            else:
                left = (
                    dims.floordiv(left, right)
                    if operator in ("//", "floordiv")
                    else dims.modulo(left, right)
                )
        return left

    def total() -> Dim:
        left = factor()
        while tokens[at][0] in ("+", "-"):
            left = left + factor() if take() == "+" else left - factor()
        return left

    result = total()
    if tokens[at][0]:
        raise DimError(f"column {tokens[at][1] + 1} of {text!r}: unexpected {tokens[at][0]!r}")
    return result
