"""eliminate-common: one op instead of several that calculate the same."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.structure import op_key
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.eliminate_dead import graphs_of
from graphwright.compiler.passes.match import facts_of
from graphwright.compiler.passes.rewrite import Rewriter, is_pure
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class EliminateCommon:
    """Merges pure ops of one name with the same operands, attributes and bodies.

    Operands of commutative ops match in either order.  Constants merge when they have the same
    bits and the same recipe: a weight that is swapped later must not drag another one along.  Results
    that lie in a window of a concatenation stay, each in its own.  One
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
                    if not op.results or not is_pure(op) or _has_place(op):
                        continue
                    first = seen.setdefault(_key(op), op)
                    if first is op:
                        continue
                    with rw.step("same", op):
                        rw.replace(*first.results)
                        rw.merge_origins(first, op)
                merged += rw.steps
        return PassResult(merged > 0, statistics={"same": merged} if merged else {})


def _has_place(op: Op) -> bool:
    """Whether a result is written into a window of one concatenation, and would miss in another."""
    layouts = [r.type.layout for r in op.results]
    return any(layout is not None and bool(layout.windows) for layout in layouts)


def _key(op: Op) -> Hashable:
    operands = [id(v) for v in op.operands]
    if "commutative" in facts_of(op):
        operands.sort()
    return (tuple(operands), op_key(op))
