"""Size expressions of a manifest: validation, and evaluation of many of them at once.

An expression is an int, a symbol's name, or [operator, operand, ...] (see manifest.py).  Division
and remainder round toward minus infinity, as in Python.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from graphwright.errors import ArtifactError
from graphwright.runtime.manifest import Expression

MAX_INT = 2**63 - 1
_MAX_DEPTH = 64
_ARITY = {
    "+": (1, 4096),
    "*": (1, 64),
    "//": (2, 2),
    "%": (2, 2),
    "max": (1, 4096),
    "min": (1, 4096),
}


class FieldError(ArtifactError):
    """What is wrong with a value of the manifest; `within` adds where it stands, inside out."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message, self.path = message, ""

    def within(self, part: str | int) -> FieldError:
        """The same error, in field `part` of an object or item `part` of a list."""
        step = f"[{part}]" if isinstance(part, int) else part
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = step + dot + self.path
        self.args = (f"manifest: {self.path}: {self.message}",)
        return self


def check_expression(expression: Any, symbols: Collection[str], depth: int = 0) -> Expression:
    """The expression with tuples for lists.  Raises FieldError when it is not well formed."""
    if type(expression) is int:
        if -MAX_INT <= expression <= MAX_INT:
            return expression
        raise FieldError(f"{expression} does not fit 64 bits")
    if isinstance(expression, str):
        if expression in symbols:
            return expression
        raise FieldError(f"{expression!r} is not a declared symbol")
    if not isinstance(expression, list | tuple) or not expression:
        kind = type(expression).__name__
        raise FieldError(f"want an int, a symbol or [operator, operands], got {kind}")
    operator, *operands = expression
    arity = _ARITY.get(operator) if isinstance(operator, str) else None
    if arity is None:
        raise FieldError(f"unknown operator {str(operator)[:40]!r}")
    if not arity[0] <= len(operands) <= arity[1]:
        raise FieldError(f"{operator!r} with {len(operands)} operands")
    if depth >= _MAX_DEPTH:
        raise FieldError(f"nested deeper than {_MAX_DEPTH}")
    return (operator, *[check_expression(o, symbols, depth + 1) for o in operands])


def format_expression(expression: Expression) -> str:
    """The expression as people write it: `2*S + 1`, `max(A, B)`."""
    if not isinstance(expression, list | tuple):
        return str(expression)
    operator, *operands = expression
    parts = [format_expression(o) for o in operands]
    if operator in ("max", "min"):
        return f"{operator}({', '.join(parts)})"
    if operator == "+":
        return " + ".join(parts).replace(" + -", " - ")
    inside = [f"({p})" if " " in p else p for p in parts]
    return "*".join(inside) if operator == "*" else f" {operator} ".join(inside)


class ExpressionTable:
    """Distinct expressions by number; `evaluate` computes all of them for one binding.

    Numbers are given by `add` in an order in which operands come first.  `segments` says in which
    segment of the program a symbol is bound (0: by the call); an expression's is the latest of its
    symbols'.
    """

    def __init__(self, segments: Mapping[str, int] | None = None) -> None:
        self._numbers: dict[Any, int] = {}
        self._nodes: list[tuple[str, Any]] = []  # ("int", value), ("symbol", name), (op, numbers)
        self._segments = segments or {}
        self.segment: list[int] = []  # by number
        self._members: dict[int, list[int]] = {}  # segment -> numbers

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def symbols(self) -> list[str]:
        """The names of the symbols that occur."""
        return [data for kind, data in self._nodes if kind == "symbol"]

    def add(self, expression: Expression) -> int:
        """The number of an expression that has been checked (lists have become tuples)."""
        number = self._numbers.get(expression)
        if number is not None:
            return number
        segment = 0
        if isinstance(expression, int):
            node: tuple[str, Any] = ("int", expression)
        elif isinstance(expression, str):
            node = ("symbol", expression)
            segment = self._segments.get(expression, 0)
        else:
            operands = tuple(self.add(o) for o in expression[1:])
            node = (expression[0], operands)
            segment = max(self.segment[i] for i in operands)
        number = len(self._nodes)
        self._nodes.append(node)
        self._numbers[expression] = number
        self.segment.append(segment)
        self._members.setdefault(segment, []).append(number)
        return number

    def evaluate(self, binding: Mapping[str, int]) -> list[int]:
        """The values by number; 0 for those of later segments.  Raises ArtifactError for a division
        by zero or an overflow.
        """
        values = [0] * len(self._nodes)
        self.evaluate_segment(0, binding, values)
        return values

    def evaluate_segment(self, segment: int, binding: Mapping[str, int], values: list[int]) -> None:
        """Computes the expressions of one segment into `values`, which holds those of earlier ones."""
        for number in self._members.get(segment, ()):
            kind, data = self._nodes[number]
            if kind == "int":
                value = data
            elif kind == "symbol":
                value = binding[data]
            elif kind == "+":
                value = sum(values[i] for i in data)
            elif kind == "*":
                value = 1
                for i in data:
                    value *= values[i]
            elif kind == "max":
                value = max(values[i] for i in data)
            elif kind == "min":
                value = min(values[i] for i in data)
            else:
                left, right = values[data[0]], values[data[1]]
                if right == 0:
                    raise ArtifactError(f"a size divides by zero for {_show(binding)}")
                value = left // right if kind == "//" else left % right
            if not -MAX_INT <= value <= MAX_INT:
                raise ArtifactError(f"a size overflows 64 bits for {_show(binding)}")
            values[number] = value


def evaluate_expression(expression: Expression, binding: Mapping[str, int]) -> int:
    """The value of one expression; see `ExpressionTable.evaluate`."""
    table = ExpressionTable()
    number = table.add(expression)
    return table.evaluate(binding)[number]


def symbols_in(expression: Expression) -> set[str]:
    """The names of the symbols in an expression."""
    if isinstance(expression, str):
        return {expression}
    if isinstance(expression, list | tuple):
        return set[str]().union(*(symbols_in(o) for o in expression[1:]))
    return set()


def _show(binding: Mapping[str, int]) -> str:
    return ", ".join(f"{k} = {v}" for k, v in binding.items()) or "constant sizes"
