"""Which symbols an op mentions, and which op of a graph gives a symbol its size.

A symbol that no input's shape binds is bound by an op (`OpDef.binds`).  Ops that mention it need
that op before them though no operand says so; whoever orders ops asks here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, cast

from graphwright.compiler.ir.dims import Expr, Symbol, symbols_of

if TYPE_CHECKING:
    from graphwright.compiler.ir.graph import Graph, Op, Value


def dims_in(attributes: Iterable[object]) -> list[Expr]:
    """The symbolic dims among attribute values, tuples looked through."""
    found: list[Expr] = []
    for a in attributes:
        if isinstance(a, Expr):
            found.append(a)
        elif isinstance(a, tuple):
            found += dims_in(cast("tuple[object, ...]", a))
    return found


def bound_by(op: Op) -> tuple[Symbol, ...]:
    """The symbols that an op binds."""
    return op.definition.binds(op.attributes)


def binders(graph: Graph) -> dict[Symbol, Op]:
    """The ops of a graph (not of its bodies) that bind symbols, by symbol."""
    return {symbol: op for op in graph.ops for symbol in bound_by(op)}


def is_sized_by(op: Op, value: Value) -> bool:
    """Whether a value's extents mention a symbol that the op binds."""
    bound = bound_by(op)
    return bool(bound) and any(s in bound for s in symbols_of(value.type.shape))


def mentioned(op: Op) -> Iterator[Symbol]:
    """The symbols in an op's attributes and result types and in its bodies, perhaps repeatedly."""
    yield from symbols_of(dims_in(op.attributes.values()))
    for result in op.results:
        yield from symbols_of(result.type.shape)
    for body in op.bodies:
        for value in body.inputs:
            yield from symbols_of(value.type.shape)
        for inner in body.ops:
            yield from mentioned(inner)
        for constraint in body.constraints:
            yield from symbols_of((constraint.left, constraint.right))


def needed_before(op: Op, bound: dict[Symbol, Op]) -> list[Op]:
    """The ops among `binders` that must come before an op because it mentions their symbols."""
    if not bound:
        return []
    found = dict.fromkeys(bound[s] for s in mentioned(op) if s in bound)
    return [binder for binder in found if binder is not op]
