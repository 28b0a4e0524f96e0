"""Dynamic sizes that an op forces to one value: said, and refused unless that is allowed.

An op may need what only one size satisfies, such as a Reshape of `N` images to four rows.  The
constraint would be checked at each call, but the model would serve a single size under the name of
many, which nobody asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Call, Dim, Expr, Symbol, symbols_of
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.op import Constraint
from graphwright.errors import DowngradeError, Problem

ALLOW = "specialise"


@dataclass(frozen=True, slots=True)
class Forced:
    """A size of an input that has one value left."""

    symbol: Symbol
    input: str
    axis: int
    value: int
    constraint: Constraint

    @property
    def node(self) -> str:
        """The node that needs it, as its constraint says."""
        return self.constraint.reason.partition(":")[0]

    @property
    def reason(self) -> str:
        s = self.symbol
        most = "" if s.max >= dims.MAX_EXTENT else s.max
        return (
            f"the dynamic dim {s.name} (input {self.input!r}, axis {self.axis}, declared "
            f"{s.min}..{most}) can only be {self.value}: {self.constraint}"
        )

    @property
    def fix(self) -> str:
        return f"fix it with --shape {self.symbol.name}={self.value}, or --allow {ALLOW}"

    @property
    def problem(self) -> Problem:
        return Problem(self.node, "shape", self.reason, self.fix)


def check_specialisation(graph: Graph, allow: frozenset[str]) -> None:
    """Raises DowngradeError that lists every dynamic dim of an input that only one size can have."""
    found = () if ALLOW in allow else forced_sizes(graph)
    if found:
        lines = [f"  - {f.reason}; {f.fix}" for f in found]
        raise DowngradeError("\n".join([f"{graph.name} would serve one size only:", *lines]))


def forced_sizes(graph: Graph) -> list[Forced]:
    """The inputs' sizes that the graph's constraints leave one value, in order of the inputs."""
    where: dict[Symbol, tuple[str, int]] = {}
    for value in graph.inputs:
        for axis, dim in enumerate(value.type.shape):
            if isinstance(dim, Expr) and dim.symbol is not None:
                where.setdefault(dim.symbol, (value.name, axis))
    span = {s: (s.min, s.max) for s in where}
    last: dict[Symbol, Constraint] = {}
    for constraint in graph.constraints:
        for symbol in symbols_of((constraint.left, constraint.right)):
            narrowed = _narrowed(constraint, symbol, span.get(symbol))
            if narrowed is not None:
                span[symbol], last[symbol] = narrowed, constraint
    return [
        Forced(symbol, *where[symbol], low, last[symbol])
        for symbol, (low, high) in span.items()
        # A list that has to be empty, such as axes that stay the default, is no size of anything.
        if symbol in last and low == high != 0 and symbol.min != symbol.max
    ]


def _narrowed(
    c: Constraint, symbol: Symbol, span: tuple[int, int] | None
) -> tuple[int, int] | None:
    """The part of a symbol's range that a relation with a number leaves, if that is less."""
    if span is None:
        return None
    left, relation, right = c.left, c.relation, c.right
    if isinstance(left, int):
        left, right = right, left
        relation = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(relation, relation)
    if not isinstance(left, Expr) or not isinstance(right, int):
        return None
    if symbols_of(left) != (symbol,) or not _grows(left):
        return None
    low, high = span
    least = {"==": right, ">=": right, ">": right + 1}.get(relation)
    most = {"==": right, "<=": right, "<": right - 1}.get(relation)
    step = symbol.multiple_of
    if least is not None:
        low = _first(lambda n: _at(left, symbol, n) >= least, low, high)
    if most is not None:
        high = _first(lambda n: _at(left, symbol, n) > most, low, high + 1) - 1
    low, high = -(-low // step) * step, high // step * step
    return (low, high) if (low, high) != span and low <= high else None


def _grows(dim: Dim) -> bool:
    """Whether a dim never falls when its symbols grow (False also means unknown)."""
    if not isinstance(dim, Expr):
        return True
    return all(
        (c > 0 or not m) and all(isinstance(a, Symbol) or _call_grows(a) for a in m)
        for m, c in dim.terms
    )


def _call_grows(call: Call) -> bool:
    if call.operator == "floordiv":
        return _grows(call.operands[0]) and isinstance(call.operands[1], int)
    return call.operator != "mod" and all(map(_grows, call.operands))


def _at(dim: Expr, symbol: Symbol, size: int) -> int:
    return dims.evaluate(dim, {symbol.name: size})


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The least number of [low, high) from which on `holds` is true, else `high`."""
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


def problems_of(graph: Graph, allow: frozenset[str]) -> Sequence[Problem]:
    """The same for a report."""
    return [] if ALLOW in allow else [f.problem for f in forced_sizes(graph)]
