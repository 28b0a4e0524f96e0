"""Symbolic dimensions: integers or canonical integer expressions over symbols with ranges.

A `Dim` is an `int` or an `Expr`.  An `Expr` is a polynomial with integer coefficients over atoms;
an atom is a `Symbol` or one of the non-polynomial operators (floor division, modulo, max, min) of
canonical operands.  Equal expressions are equal Python objects, so `==` on shapes is exact for
everything that the canonical form sees; `prove` decides comparisons by interval arithmetic and
answers None when it does not know.  An expression without symbols is always a plain `int`.

Text form (parsed by dim_parser.py): `B*S + 3*H - 1`, `(H + 1) floordiv 2`, `W mod 8`, `max(B, 4)`.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeAlias

from graphwright.compiler.ir.dim_values import evaluate as evaluate
from graphwright.compiler.ir.dim_values import to_json as to_json
from graphwright.compiler.ir.symbol import MAX_EXTENT as MAX_EXTENT
from graphwright.compiler.ir.symbol import DimError as DimError
from graphwright.compiler.ir.symbol import Symbol as Symbol

Operator: TypeAlias = Literal["floordiv", "mod", "max", "min"]


MAX_NESTING = 64  # operators inside each other: artifacts store dims as nested lists


@dataclass(frozen=True)
class Call:
    """An atom that is not a symbol: `operator` applied to canonical operands."""

    operator: Operator
    operands: tuple[Dim, ...]

    @cached_property
    def depth(self) -> int:
        """How many operators are inside each other, this one included."""
        return 1 + max(depth_of(o) for o in self.operands)

    @cached_property
    def text(self) -> str:
        if self.operator in ("max", "min"):
            return f"{self.operator}({', '.join(map(str, self.operands))})"
        left, right = (
            f"({o})" if isinstance(o, Expr) and not o.is_atom else str(o) for o in self.operands
        )
        return f"({left} {self.operator} {right})"

    def __str__(self) -> str:
        return self.text


Atom: TypeAlias = Symbol | Call
Monomial: TypeAlias = tuple[Atom, ...]  # sorted by text; a repeated atom is a power


class Expr:
    """A canonical polynomial: sorted (monomial, coefficient) pairs, no zero coefficient.

    Build with operators on dims (`h + 2 * p`, `n // 4`, `n % 8`), `maximum` and `minimum`.
    """

    __slots__ = ("__dict__", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms

    @cached_property
    def _hash(self) -> int:
        return hash(self.terms)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self.terms == other.terms

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The symbols in order of first appearance."""
        seen: dict[Symbol, None] = {}
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Symbol):
                    seen[atom] = None
                else:
                    seen.update(dict.fromkeys(symbols_of(atom.operands)))
        return tuple(seen)

    @property
    def is_atom(self) -> bool:
        return len(self.terms) == 1 and len(self.terms[0][0]) == 1 and self.terms[0][1] == 1

    @property
    def symbol(self) -> Symbol | None:
        """The symbol when this expression is just one."""
        atom = self.terms[0][0][0] if self.is_atom else None
        return atom if isinstance(atom, Symbol) else None

    def __str__(self) -> str:
        return self.text

    @cached_property
    def text(self) -> str:
        parts: list[str] = []
        for monomial, coefficient in self.terms:
            body = "*".join(map(str, monomial))
            size = abs(coefficient)
            text = str(size) if not body else body if size == 1 else f"{size}*{body}"
            if not parts:
                parts.append(f"-{text}" if coefficient < 0 else text)
            else:
                parts.append(f"{'-' if coefficient < 0 else '+'} {text}")
        return " ".join(parts)

    def __repr__(self) -> str:
        return f"Expr({self})"

    def __bool__(self) -> bool:
        raise DimError(f"the truth of the symbolic dimension {self} is unknown; use prove()")

    def __add__(self, other: Dim) -> Dim:
        return _combine(self, other, 1)

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _combine(self, other, -1)

    def __rsub__(self, other: Dim) -> Dim:
        return _combine(other, self, -1)

    def __neg__(self) -> Dim:
        return _combine(0, self, -1)

    def __mul__(self, other: Dim) -> Dim:
        return multiply(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return modulo(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return modulo(other, self)


Dim: TypeAlias = int | Expr
Shape: TypeAlias = tuple[Dim, ...]


def of(symbol: Symbol) -> Expr:
    """The dimension that is exactly this symbol."""
    return Expr((((symbol,), 1),))


def _key(monomial: Monomial) -> tuple[int, tuple[str, ...]]:
    # Higher degrees first, the constant last: `B*S + B + 1` reads as people write it.
    return (-len(monomial), tuple(map(str, monomial)))


def _terms(dim: Dim) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(dim, Expr):
        return dim.terms
    return (((), int(dim)),) if dim else ()


def _make(terms: Mapping[Monomial, int]) -> Dim:
    kept = [(m, c) for m, c in terms.items() if c]
    if not kept:
        return 0
    if len(kept) == 1 and not kept[0][0]:
        return kept[0][1]
    return Expr(tuple(sorted(kept, key=lambda t: _key(t[0]))))


def _combine(a: Dim, b: Dim, sign: int) -> Dim:
    if type(a) is int and type(b) is int:
        return a + sign * b
    total = dict(_terms(a))
    for monomial, coefficient in _terms(b):
        total[monomial] = total.get(monomial, 0) + sign * coefficient
    return _make(total)


def multiply(a: Dim, b: Dim) -> Dim:
    """The product of two dims."""
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    total: dict[Monomial, int] = {}
    for m, c in _terms(a):
        for n, d in _terms(b):
            key = tuple(sorted(m + n, key=str))
            total[key] = total.get(key, 0) + c * d
    return _make(total)


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dims, 1 for none: the number of elements of a shape."""
    total: Dim = 1
    for d in dims:
        total = multiply(total, d)
    return total


def depth_of(dim: Dim) -> int:
    """How many operators (divisions, maxima, ...) are inside each other at most."""
    if not isinstance(dim, Expr):
        return 0
    return max((a.depth for m, _ in dim.terms for a in m if isinstance(a, Call)), default=0)


def _atom(operator: Operator, *operands: Dim) -> Expr:
    call = Call(operator, operands)
    if call.depth > MAX_NESTING:
        names = ", ".join(s.name for s in symbols_of(operands))
        raise DimError(
            f"a dimension of {names} has more than {MAX_NESTING} divisions, maxima and minima inside "
            "each other; give the sizes with --shape"
        )
    return Expr((((call,), 1),))


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b when every term of a is a multiple of the single term b, else None."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return 1 if a == b else None
    (monomial, coefficient), out = divisor[0], {}
    for m, c in _terms(a):
        rest = list(m)
        for atom in monomial:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        out[tuple(rest)] = c // coefficient
    return _make(out)


def _known_multiple(monomial: Monomial, coefficient: int) -> int:
    """A number that certainly divides coefficient * monomial."""
    n = abs(coefficient)
    for atom in monomial:
        if isinstance(atom, Symbol):
            n *= atom.multiple_of
    return n


def is_multiple(dim: Dim, n: int) -> bool:
    """Whether n certainly divides dim (False also means unknown)."""
    return all(_known_multiple(m, c) % n == 0 for m, c in _terms(dim))


def _nested_floordiv(dim: Dim) -> tuple[Dim, int, int] | None:
    """(x, m, c) when the dim is x // m + c with a positive int m."""
    terms = dict(_terms(dim))
    constant = terms.pop((), 0)
    found = _floordiv_term(*next(iter(terms.items()))) if len(terms) == 1 else None
    return (found[2], found[3], constant) if found is not None and found[1] == 1 else None


def _floordiv_term(monomial: Monomial, coefficient: int) -> tuple[Monomial, int, Dim, int] | None:
    """(monomial, coefficient, x, m) when the term is coefficient * (x // m) with a positive int m."""
    atom = monomial[0] if len(monomial) == 1 else None
    if not isinstance(atom, Call) or atom.operator != "floordiv":
        return None
    x, m = atom.operands
    return (monomial, coefficient, x, m) if isinstance(m, int) and m > 0 else None


def floordiv(a: Dim, b: Dim) -> Dim:
    """Floor division.  A symbolic divisor is taken to be positive (its zero case is an error)."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if b == 0:
        raise DimError(f"division of the dimension {a} by zero")
    exact = _divide_exactly(a, b)
    if exact is not None:
        return exact
    if isinstance(b, int) and b > 0 and isinstance(a, Expr):
        # (b*q + r) // b = q + r // b
        whole = {m: c // b for m, c in a.terms if c % b == 0}
        rest = _make({m: c for m, c in a.terms if c % b})
        if isinstance(rest, int):  # a constant rest: split off its whole part
            whole[()] = whole.get((), 0) + rest // b
            rest = 0
        elif any(m == () for m, _ in rest.terms):
            constant = dict(rest.terms)[()]
            if constant // b:
                whole[()] = constant // b
                rest = rest - constant // b * b
        low, high = bounds(rest)
        if low >= 0 and high < b:
            return _make(whole)
        nested = _nested_floordiv(rest)
        if nested is not None:  # (x // m + c) // n = (x + c*m) // (m*n)
            inner, by, constant = nested
            return _combine(_make(whole), floordiv(inner + constant * by, by * b), 1)
        return _combine(_make(whole), _atom("floordiv", rest, b), 1)
    return _atom("floordiv", a, b)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """Division rounded up, for a positive divisor."""
    if isinstance(b, int) and is_multiple(a, b):
        return floordiv(a, b)
    return floordiv(_combine(_combine(a, b, 1), 1, -1), b)


def modulo(a: Dim, b: Dim) -> Dim:
    """a - b * (a // b)."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if isinstance(b, int) and b > 0:
        if is_multiple(a, b):
            return 0
        low, high = bounds(a)
        if low >= 0 and high < b:
            return a
        rest = _make({m: c % b for m, c in _terms(a)})
        if isinstance(rest, int):
            return rest % b
        return _atom("mod", rest, b)
    if _divide_exactly(a, b) is not None:
        return 0
    return _atom("mod", a, b)


def _extreme(operator: Literal["max", "min"], dims: Sequence[Dim]) -> Dim:
    kept: list[Dim] = []
    for d in dims:
        flat: tuple[Dim, ...] = (d,)
        if isinstance(d, Expr) and d.is_atom:
            atom = d.terms[0][0][0]
            if isinstance(atom, Call) and atom.operator == operator:
                flat = atom.operands
        kept += [f for f in flat if f not in kept]
    better: Callable[[Dim, Dim], bool | None] = (
        (lambda x, y: prove(x, ">=", y)) if operator == "max" else (lambda x, y: prove(x, "<=", y))
    )
    out: list[Dim] = []
    for i, d in enumerate(kept):
        dominated = any(
            better(other, d) and not (better(d, other) and j > i)
            for j, other in enumerate(kept)
            if j != i
        )
        if not dominated:
            out.append(d)
    if len(out) == 1:
        return out[0]
    return _atom(operator, *sorted(out, key=str))


def maximum(*dims: Dim) -> Dim:
    """The largest of the dims."""
    return _extreme("max", dims)


def minimum(*dims: Dim) -> Dim:
    """The smallest of the dims."""
    return _extreme("min", dims)


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Symbol):
        return atom.min, atom.max
    spans = [bounds(o) for o in atom.operands]
    if atom.operator == "max":
        return max(s[0] for s in spans), max(s[1] for s in spans)
    if atom.operator == "min":
        return min(s[0] for s in spans), min(s[1] for s in spans)
    (low, high), (divisor_low, divisor_high) = spans
    divisor_low, divisor_high = max(divisor_low, 1), max(divisor_high, 1)
    if atom.operator == "mod":
        return 0, divisor_high - 1
    ends = [n // d for n in (low, high) for d in (divisor_low, divisor_high)]
    return min(ends), max(ends)


def bounds(dim: Dim) -> tuple[int, int]:
    """An interval [low, high] that certainly holds the dim (not always the tightest)."""
    if not isinstance(dim, Expr):
        return int(dim), int(dim)
    low = high = 0
    for monomial, coefficient in dim.terms:
        a, b = coefficient, coefficient
        for atom in monomial:
            c, d = _atom_bounds(atom)
            ends = (a * c, a * d, b * c, b * d)
            a, b = min(ends), max(ends)
        low, high = low + a, high + b
    return low, high


Comparison: TypeAlias = Literal["==", "!=", "<", "<=", ">", ">="]
_COMPARE: Mapping[Comparison, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def _never_negative(dim: Dim) -> bool:
    """Whether the dim is certainly >= 0 (False also means unknown).

    Where intervals do not tell, floor divisions are relaxed, (x - m + 1) / m <= x // m <= x / m,
    and the whole is multiplied by m, so that S - S // 2 becomes S.
    """
    for _ in range(8):
        if bounds(dim)[0] >= 0:
            return True
        if not isinstance(dim, Expr):
            return False
        found = next(filter(None, (_floordiv_term(m, c) for m, c in dim.terms)), None)
        if found is None:
            return False
        monomial, coefficient, x, m = found
        rest = _make({k: c for k, c in dim.terms if k != monomial})
        least = x if coefficient < 0 else x - (m - 1)
        dim = multiply(rest, m) + multiply(least, coefficient)
    return False


def prove(a: Dim, comparison: Comparison, b: Dim) -> bool | None:
    """True or False when the comparison holds or fails for every binding, None when unknown."""
    difference = 0 if a is b else _combine(a, b, -1)
    if not isinstance(difference, Expr):
        return _COMPARE[comparison](difference, 0)
    low, high = bounds(difference)
    at_least, at_most, more, less = low >= 0, high <= 0, low > 0, high < 0
    if low < 0 < high:
        at_least = _never_negative(difference)
        more = at_least and _never_negative(difference - 1)
        at_most = not at_least and _never_negative(-difference)
        less = at_most and _never_negative(-difference - 1)
    answers: dict[str, tuple[bool, bool]] = {  # (certainly true, certainly false)
        "==": (at_least and at_most, more or less),
        "!=": (more or less, at_least and at_most),
        "<": (less, at_least),
        "<=": (at_most, more),
        ">": (more, at_most),
        ">=": (at_least, less),
    }
    true, false = answers[comparison]
    return True if true else False if false else None


def equal(a: Dim, b: Dim) -> bool:
    """Whether the dims are certainly equal."""
    return prove(a, "==", b) is True


def symbols_of(dims: Dim | Iterable[Dim]) -> tuple[Symbol, ...]:
    """The symbols in order of first appearance."""
    if isinstance(dims, int | Expr):
        return dims.symbols if isinstance(dims, Expr) else ()
    found = (d.symbols for d in dims if isinstance(d, Expr))
    return tuple(dict.fromkeys(itertools.chain.from_iterable(found)))


APPLY: dict[str, Callable[..., Dim]] = {
    "floordiv": floordiv,
    "mod": modulo,
    "max": maximum,
    "min": minimum,
}


def substitute(dim: Dim, values: Mapping[Symbol, Dim]) -> Dim:
    """The dim with symbols replaced (by ints or other dims), canonical again."""
    if not isinstance(dim, Expr):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for atom in monomial:
            factor: Dim
            if isinstance(atom, Symbol):
                factor = values.get(atom, of(atom))
            else:
                factor = APPLY[atom.operator](*(substitute(o, values) for o in atom.operands))
            term = multiply(term, factor)
        total = _combine(total, term, 1)
    return total
