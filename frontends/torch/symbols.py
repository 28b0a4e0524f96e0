"""torch's symbolic integers as our dims: expressions, ranges, names.

torch keeps sizes as sympy expressions over symbols of a ShapeEnv.  Every symbol becomes one of ours
with the range that torch knows; what it wrote as a float quotient of sizes and rounded (a scale
factor) becomes an exact division.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

import sympy
import torch
from torch.utils._sympy import functions
from torch.utils._sympy.value_ranges import ValueRanges

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import MAX_EXTENT, Dim, Symbol
from graphwright.frontends.torch.refusal import Refusal

MAX_DENOMINATOR = 2**24  # of a scale factor: what float32 holds exactly


def expression_of(value: Any) -> sympy.Basic:
    """The sympy expression of a SymInt, SymFloat or SymBool, or of a number."""
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return value.node.expr
    return sympy.sympify(value)


class Symbols:
    """The symbols of one import.  `ranges`: of an exported program, by sympy symbol.

    `names`: names that the author of the model gave to symbols.
    """

    def __init__(
        self, ranges: Mapping[sympy.Symbol, Any] | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._ranges = dict(ranges or {})
        self._names = dict(names or {})
        self._known: dict[str, Symbol] = {}
        # Symbols of which inputs have only multiples, by what stands for them.
        self._scaled: dict[sympy.Symbol, sympy.Basic] = {}
        self._multiples: dict[sympy.Symbol, int] = {}
        self.environment: Any = None  # the ShapeEnv, when a value brought one along
        self.on_unbacked: Callable[[sympy.Symbol], None] = lambda symbol: None

    def dim(self, value: Any) -> Dim:
        """The dim that an int or a SymInt is.  Raises Refusal for a form that dims do not have."""
        if isinstance(value, int):
            return value
        if isinstance(value, torch.SymInt):
            if self.environment is None:
                self.environment = getattr(value.node, "shape_env", None)
            return self.of(value.node.expr)
        raise Refusal(f"a size is {value!r}, want an integer")

    def of(self, e: sympy.Basic) -> Dim:
        """The dim of a sympy expression."""
        if self._scaled and any(s in self._scaled for s in e.free_symbols):
            e = e.xreplace(self._scaled)
            e = e.doit() if hasattr(e, "doit") else e
        if isinstance(e, sympy.Symbol):
            self.on_unbacked(e)
            return dims.of(self.symbol(e))
        if e.is_Integer:
            return int(e)  # type: ignore[call-overload]
        if isinstance(e, sympy.Add):
            total: Dim = 0
            for term in e.args:
                total = total + self.of(term)
            return total
        if isinstance(e, sympy.Mul):
            number = e.as_coeff_Mul()[0]
            if number.is_Rational and not number.is_Integer:  # of a size that divides: see `scale`
                top = self.of(sympy.Mul(e, number.q))
                return dims.floordiv(top, int(number.q))
            return dims.product(self.of(a) for a in e.args)
        if isinstance(e, sympy.Pow | functions.PowByNatural):
            base, power = e.args
            if power.is_Integer and int(power) > 0:  # type: ignore[call-overload]
                return dims.product([self.of(base)] * int(power))  # type: ignore[call-overload]
        if isinstance(e, functions.FloorDiv):
            return dims.floordiv(*map(self.of, e.args))
        if isinstance(e, functions.CeilToInt):
            top, bottom = self.ratio(e.args[0])
            return dims.ceildiv(top, bottom)
        if isinstance(e, functions.TruncToInt | functions.FloorToInt):
            top, bottom = self.ratio(e.args[0])
            return dims.floordiv(top, bottom)
        if isinstance(e, functions.ModularIndexing):
            base, divisor, modulus = map(self.of, e.args)
            return dims.modulo(dims.floordiv(base, divisor), modulus)
        if isinstance(e, functions.Mod | functions.PythonMod | sympy.Mod):
            return dims.modulo(*map(self.of, e.args))
        if isinstance(e, functions.Max | sympy.Max):
            return dims.maximum(*map(self.of, e.args))
        if isinstance(e, functions.Min | sympy.Min):
            return dims.minimum(*map(self.of, e.args))
        if isinstance(e, functions.Identity):
            return self.of(e.args[0])
        raise Refusal(f"the size {e} is not of a form that sizes may have here")

    def ratio(self, e: sympy.Basic) -> tuple[Dim, int]:
        """A float expression over sizes as an exact quotient."""
        if isinstance(e, functions.ToFloat):
            return self.of(e.args[0]), 1
        if isinstance(e, functions.IntTrueDiv | functions.FloatTrueDiv):
            top, bottom = (self.ratio(a) for a in e.args)
            if isinstance(bottom[0], int) and bottom[0]:
                quotient = Fraction(bottom[1], top[1] * bottom[0])
                return dims.multiply(top[0], quotient.numerator), quotient.denominator
        if isinstance(e, sympy.Float):
            exact = Fraction(float(e))
            if exact.denominator <= MAX_DENOMINATOR:
                return exact.numerator, exact.denominator
        if isinstance(e, sympy.Mul):
            top: Dim = 1
            bottom = 1
            for part in e.args:
                t, b = self.ratio(part)
                top, bottom = dims.multiply(top, t), bottom * b
            return top, bottom
        if e.is_Integer or isinstance(e, sympy.Symbol):
            return self.of(e), 1
        raise Refusal(f"the size {e} is a rounded float, which sizes cannot be here")

    def scale(self, e: sympy.Symbol, by: int) -> None:
        """Says that inputs show a symbol only times a number: the product becomes the symbol."""
        whole = sympy.Symbol(f"{e.name}_{by}", integer=True, positive=True)
        low, high = self.range_of(e)
        self._ranges[whole] = ValueRanges(low * by, min(high * by, MAX_EXTENT))
        self._multiples[whole] = by
        self._scaled[e] = whole / by

    def symbol(self, e: sympy.Symbol) -> Symbol:
        """Our symbol for one of torch's."""
        name = self._names.get(e.name, e.name)
        found = self._known.get(name)
        if found is None:
            low, high = self.range_of(e)
            found = self._known[name] = Symbol(name, low, high, self._multiples.get(e, 1))
        return found

    def range_of(self, e: sympy.Symbol) -> tuple[int, int]:
        """The least and largest size, cut to what a size can be."""
        span = self._ranges.get(e)
        if span is None and self.environment is not None:
            span = self.environment.var_to_range.get(e)
        if span is None:
            return 0, MAX_EXTENT
        low, high = span.lower, span.upper
        least = max(int(low), 0) if low.is_Integer else 0
        most = min(int(high), MAX_EXTENT) if high.is_Integer else MAX_EXTENT
        return least, max(most, least)
