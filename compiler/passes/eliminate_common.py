"""eliminate-common: one op instead of several that calculate the same."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.eliminate_dead import graphs_of
from graphwright.compiler.passes.match import facts_of
from graphwright.compiler.passes.rewrite import Rewriter, is_pure
from graphwright.compiler.target import Target

# Of a larger constant only so many elements go into its key; equality then compares all of it.
_SAMPLES = 64


@dataclass(frozen=True, slots=True)
class EliminateCommon:
    """Merges pure ops of one name with the same operands, attributes and bodies.

    Operands of commutative ops match in either order.  Constants merge when they have the same
    bits and the same recipe: a weight that is swapped later must not drag another one along.  One
    walk in order with a hash table; each body has a table of its own.

        %0 = exp(%x)              =>   %0 = exp(%x)
        %1 = exp(%x)                   %1 = add(%0, %0)
        %2 = add(%0, %1)
    """

    name: ClassVar[str] = "eliminate-common"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in the number of ops (and in the bytes of constants that look alike)."""
        del target
        merged = 0
        for current in graphs_of(graph):
            seen: dict[Hashable, Op] = {}
            with Rewriter(current, self.name, journal) as rw:
                for op in current.ops:
                    if rw.exhausted:
                        break
                    if not op.results or not is_pure(op):
                        continue
                    first = seen.setdefault(_key(op), op)
                    if first is op:
                        continue
                    with rw.step("same", op):
                        rw.replace(*first.results)
                        rw.merge_origins(first, op)
                merged += rw.steps
        return PassResult(merged > 0, statistics={"same": merged} if merged else {})


class _Sampled:
    """A large literal: hashed by samples, compared by content."""

    __slots__ = ("literal", "samples")

    def __init__(self, literal: Literal) -> None:
        self.literal = literal
        flat = literal.array().reshape(-1)
        self.samples = np.ascontiguousarray(flat[:: max(flat.size // _SAMPLES, 1)]).tobytes()

    def __hash__(self) -> int:
        return hash((self.literal.dtype.name, self.literal.shape, self.samples))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Sampled)
            and self.samples == other.samples
            and self.literal == other.literal
        )


def _key(op: Op) -> Hashable:
    operands = [id(v) for v in op.operands]
    if "commutative" in facts_of(op):
        operands.sort()
    return (
        op.name,
        tuple(operands),
        tuple((n, attribute_key(v)) for n, v in op.attributes.items()),
        tuple(print_graph(b) for b in op.bodies),
        tuple(r.type for r in op.results),
    )


def attribute_key(value: Any) -> Hashable:
    """A hashable stand-in that keeps apart what Python calls equal: 1, 1.0, True; 0.0 and -0.0."""
    if isinstance(value, float | np.floating):
        return ("float", repr(float(value)))
    if isinstance(value, tuple):
        return tuple(attribute_key(v) for v in value)
    if isinstance(value, Literal):
        if value.is_splat:
            # A dense literal of the same bits prints another key: canonicalize makes it a splat.
            number = np.asarray(value.splat_value)
            return ("splat", value.dtype.name, value.shape, number.tobytes())
        if value.elements <= _SAMPLES:
            return ("dense", value.dtype.name, value.shape, value.array().tobytes())
        return _Sampled(value)
    return (type(value).__name__, value)
