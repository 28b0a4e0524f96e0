"""Index arithmetic of kernels: dims over loop variables, simplified with what their ranges prove.

A loop variable is a `dims.Symbol`; a `Domain` knows its extent (a dim over model symbols), so that
`(64*h + d) // 64` becomes `h` also where extents are symbolic.  A quotient or remainder that does
not simplify becomes a *derived* variable with a definition: expressions stay polynomials, a common
subexpression has one name, and `q*(x // q) + x % q` folds back to `x`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr, Symbol


class Variable(Symbol):
    """A name that a kernel declares: a loop variable, a quotient, a stride.

    Its text differs from that of any model symbol, whatever users call those, so that expressions
    over both stay canonical; kernels print it as it is, and model symbols with a prefix.
    """

    __slots__ = ()

    def __str__(self) -> str:
        return f"%{self.name}"


@dataclass(frozen=True, slots=True)
class Definition:
    """How a derived variable is computed: dividend / divisor or dividend % divisor, both >= 0.

    operator "data": an integer that the kernel loads; `node` is its scalar (see scalar.py).
    """

    operator: Literal["quotient", "remainder", "data"]
    dividend: Dim
    divisor: Dim
    node: object = None


class Domain:
    """Loop variables with extents, outermost first, and the variables derived from them."""

    def __init__(self) -> None:
        self.extents: dict[Symbol, Dim] = {}  # every variable: 0 <= v < extent
        self.loops: list[Symbol] = []
        self.definitions: dict[Symbol, Definition] = {}
        self._derived: dict[tuple[str, Dim, Dim], Symbol] = {}
        self._taken: set[str] = set()

    def reserve(self, names: Iterable[str]) -> None:
        """Names that no variable may have (model symbols)."""
        self._taken.update(names)

    def loop(self, name: str, extent: Dim) -> Expr:
        """A new innermost loop variable."""
        variable = self._variable(name, extent)
        self.loops.append(variable)
        return dims.of(variable)

    def data(self, name: str, extent: Dim, node: object) -> Expr:
        """A variable whose value the kernel loads, certainly in [0, extent)."""
        key = ("data", id(node), 0)
        if key not in self._derived:
            variable = self._variable(name, extent)
            self.definitions[variable] = Definition("data", 0, 0, node)
            self._derived[key] = variable
        return dims.of(self._derived[key])

    def _variable(self, name: str, extent: Dim) -> Symbol:
        unique, n = name, 1
        while unique in self._taken:
            n += 1
            unique = f"{name}_{n}"
        self._taken.add(unique)
        variable = Variable(unique, 0, max(dims.bounds(extent)[1] - 1, 0))
        self.extents[variable] = extent
        return variable

    # -- proofs

    def lowest(self, dim: Dim) -> Dim:
        """A dim over model symbols that is <= dim everywhere in the domain."""
        return self._extreme(dim, -1)

    def highest(self, dim: Dim) -> Dim:
        """A dim over model symbols that is >= dim everywhere in the domain."""
        return self._extreme(dim, 1)

    def _extreme(self, dim: Dim, sign: int) -> Dim:
        # Latest variables first: the extent of a derived one never holds another variable.
        for variable in reversed(self.extents):
            if variable not in dims.symbols_of(dim):
                continue
            coefficient, rest = split_linear(dim, variable)
            if coefficient is None:
                continue
            low, high = dims.bounds(coefficient)
            if low < 0 < high:
                continue  # unknown sign: left to interval arithmetic
            top = (low >= 0) == (sign > 0)
            value = self.extents[variable] - 1 if top else 0
            dim = rest + dims.multiply(coefficient, value)
        return dim

    def at_least(self, a: Dim, b: Dim) -> bool:
        """Whether a >= b is certain everywhere in the domain."""
        return dims.prove(self.lowest(a - b), ">=", 0) is True

    def below(self, a: Dim, b: Dim) -> bool | None:
        """a < b: certainly (True), certainly not (False), or unknown."""
        difference = b - a
        if dims.prove(self.lowest(difference), ">", 0):
            return True
        if dims.prove(self.highest(difference), "<=", 0):
            return False
        return None

    # -- arithmetic

    def quotient(self, a: Dim, b: Dim) -> Dim:
        """a // b for b > 0."""
        return self._divide(a, b)[0]

    def remainder(self, a: Dim, b: Dim) -> Dim:
        """a % b, in [0, b), for b > 0."""
        return self._divide(a, b)[1]

    def _divide(self, a: Dim, b: Dim) -> tuple[Dim, Dim]:
        a = self.recombine(a)
        if b == 1:
            return a, 0
        if a == b:
            return 1, 0
        if b == 0:
            return 0, 0  # of an axis without elements: no loop gets here
        if not isinstance(a, Expr) and not isinstance(b, Expr):
            return a // b, a % b
        whole: Dim = 0
        rest: Dim = 0
        for monomial, coefficient in dims_terms(a):
            term = dims_from({monomial: coefficient})
            exact = exact_quotient(term, b)
            if exact is not None:
                whole = whole + exact
            elif isinstance(b, int) and abs(coefficient) > b:
                # (b*q + r) * m: the whole part leaves, so that the rest is as small as it can be
                whole = whole + dims_from({monomial: coefficient // b})
                rest = rest + dims_from({monomial: coefficient % b})
            else:
                rest = rest + term
        if self.at_least(rest, 0) and self.below(rest, b):
            return whole, rest
        if not self.variables_of(rest):
            return whole + dims.floordiv(rest, b), dims.modulo(rest, b)
        if self.at_least(rest, 0):
            return whole + self._derive("quotient", rest, b), self._derive("remainder", rest, b)
        if isinstance(rest, Expr) and self.at_least(a, 0):
            # The rest alone may be negative; the dividend is not.
            return self._derive("quotient", a, b), self._derive("remainder", a, b)
        return whole + dims.floordiv(rest, b), dims.modulo(rest, b)

    def _derive(self, operator: Literal["quotient", "remainder"], a: Dim, b: Dim) -> Expr:
        key = (operator, a, b)
        if key not in self._derived:
            extent = self.highest(dims.floordiv(self.highest(a), b)) + 1
            variable = self._variable(
                "q" if operator == "quotient" else "r", extent if operator == "quotient" else b
            )
            self.definitions[variable] = Definition(operator, a, b)
            self._derived[key] = variable
        return dims.of(self._derived[key])

    def recombine(self, dim: Dim) -> Dim:
        """`q*(x // q) + x % q` as `x`, also scaled."""
        changed = isinstance(dim, Expr)
        while changed:
            changed = False
            present = dims.symbols_of(dim)
            for variable in present:
                definition = self.definitions.get(variable)
                if definition is None or definition.operator != "remainder":
                    continue
                pair = self._derived.get(("quotient", definition.dividend, definition.divisor))
                if pair is None or pair not in present:
                    continue
                r_scale, rest = split_linear(dim, variable)
                if r_scale is None or r_scale == 0:
                    continue
                q_scale, rest = split_linear(rest, pair)
                if q_scale == dims.multiply(r_scale, definition.divisor):
                    dim = rest + dims.multiply(r_scale, definition.dividend)
                    changed = True
                    break
        return dim

    # -- dependence

    def variables_of(self, dim: Dim) -> tuple[Symbol, ...]:
        """The loop and derived variables (not model symbols) that the dim mentions."""
        return tuple(s for s in dims.symbols_of(dim) if s in self.extents)

    def model_symbols_of(self, dim: Dim) -> tuple[Symbol, ...]:
        """The model symbols that the dim and the definitions under it mention."""
        found: dict[Symbol, None] = {}
        for s in dims.symbols_of(dim):
            if s not in self.extents:
                found[s] = None
            elif s in self.definitions:
                d = self.definitions[s]
                for part in (d.dividend, d.divisor):
                    found.update(dict.fromkeys(self.model_symbols_of(part)))
        return tuple(found)


def dims_terms(dim: Dim) -> tuple[tuple[dims.Monomial, int], ...]:
    """The (monomial, coefficient) pairs of a dim."""
    if isinstance(dim, Expr):
        return dim.terms
    return (((), dim),) if dim else ()


def dims_from(terms: dict[dims.Monomial, int]) -> Dim:
    """The dim that is the sum of coefficient * monomial."""
    total: Dim = 0
    for monomial, coefficient in terms.items():
        term: Dim = coefficient
        for atom in monomial:
            term = dims.multiply(term, Expr((((atom,), 1),)))
        total = total + term
    return total


def exact_quotient(term: Dim, b: Dim) -> Dim | None:
    """term / b when the single term is certainly a multiple of b, else None."""
    if term == b:
        return 1
    divisor, dividend = dims_terms(b), dims_terms(term)
    if len(divisor) != 1 or len(dividend) != 1:
        return None
    (by, scale), (monomial, coefficient) = divisor[0], dividend[0]
    rest = list(monomial)
    for atom in by:
        if atom not in rest:
            return None
        rest.remove(atom)
    return None if coefficient % scale else dims_from({tuple(rest): coefficient // scale})


def split_linear(dim: Dim, variable: Symbol) -> tuple[Dim | None, Dim]:
    """(c, rest) with dim = c * variable + rest; c is None when dim is not linear in it."""
    coefficient: Dim = 0
    rest: Dim = 0
    for monomial, scale in dims_terms(dim):
        count = monomial.count(variable)
        others = tuple(a for a in monomial if a != variable)
        if any(
            isinstance(a, dims.Call) and variable in dims.symbols_of(list(a.operands))
            for a in others
        ):
            return None, dim
        if count == 0:
            rest = rest + dims_from({monomial: scale})
        elif count == 1:
            coefficient = coefficient + dims_from({others: scale})
        else:
            return None, dim
    return coefficient, rest
