"""Formulas over scalar nodes, written as formulas: `Term` has Python's operators.

For rules whose arithmetic is no op of a graph: coordinates of a resampling, weights of its kernel.
"""

from __future__ import annotations

from typing import TypeAlias

from graphwright.compiler.codegen.lower import Lowering
from graphwright.compiler.codegen.scalar import Apply, Index, Node, Number
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.types import BOOL, I64, DType

Operand: TypeAlias = "Term | float"


def apply(
    lowering: Lowering, ops: Registry, name: str, *nodes: Node, dtype: DType | None = None
) -> Node:
    """A pointwise op of the registry on nodes; `dtype` where it is not that of the first."""
    return lowering.node(Apply(ops[name], (), None, nodes, dtype or nodes[0].dtype))


def cast(lowering: Lowering, ops: Registry, node: Node, dtype: DType) -> Node:
    if node.dtype is dtype:
        return node
    definition = ops["cast"]
    attributes = tuple(definition.complete({"dtype": dtype}).items())
    return lowering.node(Apply(definition, attributes, None, (node,), dtype))


class Terms:
    """Makes the terms of one lowering; `ops` has the definitions of pointwise ops by name."""

    def __init__(self, lowering: Lowering, ops: Registry) -> None:
        self.lowering, self.ops = lowering, ops

    def number(self, value: float, dtype: DType) -> Term:
        return Term(self, self.lowering.node(Number(value, dtype)))

    def index(self, dim: Dim, dtype: DType) -> Term:
        """An index expression as a number."""
        return Term(self, self.lowering.node(Index(dim, dtype)))

    def of(self, node: Node) -> Term:
        return Term(self, node)

    def call(self, name: str, *operands: Term, dtype: DType | None = None) -> Term:
        return Term(
            self, apply(self.lowering, self.ops, name, *(o.node for o in operands), dtype=dtype)
        )

    def where(self, test: Term, then: Operand, otherwise: Operand) -> Term:
        one = then if isinstance(then, Term) else otherwise
        assert isinstance(one, Term)
        then, otherwise = one.like(then), one.like(otherwise)
        return self.call("where", test, then, otherwise, dtype=then.dtype)


class Term:
    """A node with arithmetic; plain numbers take its type.  Comparisons give terms of bool."""

    def __init__(self, terms: Terms, node: Node) -> None:
        self.terms, self.node = terms, node

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def like(self, other: Operand) -> Term:
        if isinstance(other, Term):
            return other
        number = float(other) if self.dtype.is_float else int(other)
        return self.terms.number(number, self.dtype)

    def _with(self, name: str, other: Operand, dtype: DType | None = None) -> Term:
        return self.terms.call(name, self, self.like(other), dtype=dtype)

    def __add__(self, other: Operand) -> Term:
        return self._with("add", other)

    def __sub__(self, other: Operand) -> Term:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Term:
        return self.like(other) - self

    def __mul__(self, other: Operand) -> Term:
        return self._with("mul", other)

    def __truediv__(self, other: Operand) -> Term:
        return self._with("div", other)

    def __lt__(self, other: Operand) -> Term:
        return self._with("less", other, BOOL)

    def __le__(self, other: Operand) -> Term:
        return self._with("less_or_equal", other, BOOL)

    def __gt__(self, other: Operand) -> Term:
        return self._with("greater", other, BOOL)

    def __ge__(self, other: Operand) -> Term:
        return self._with("greater_or_equal", other, BOOL)

    def __and__(self, other: Term) -> Term:
        return self._with("logical_and", other, BOOL)

    def __or__(self, other: Term) -> Term:
        return self._with("logical_or", other, BOOL)

    __radd__, __rmul__ = __add__, __mul__

    def floor(self) -> Term:
        return self.terms.call("floor", self)

    def ceil(self) -> Term:
        return self.terms.call("ceil", self)

    def round(self) -> Term:
        """To the nearest whole number, halves to even ones."""
        return self.terms.call("round", self)

    def truncated(self) -> Term:
        return self.terms.call("trunc", self)

    def abs(self) -> Term:
        return self.terms.call("abs", self)

    def within(self, low: Operand, high: Operand) -> Term:
        return self._with("maximum", low)._with("minimum", high)

    def minimum(self, other: Operand) -> Term:
        return self._with("minimum", other)

    def maximum(self, other: Operand) -> Term:
        return self._with("maximum", other)

    def to(self, dtype: DType) -> Term:
        return Term(self.terms, cast(self.terms.lowering, self.terms.ops, self.node, dtype))

    def coordinate(self, extent: Dim, name: str) -> Dim:
        """As a coordinate along an axis; a whole number in [0, extent)."""
        return self.terms.lowering.wrapped(self.to(I64).node, extent, name)
