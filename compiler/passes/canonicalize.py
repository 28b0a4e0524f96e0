"""canonicalize: one form for what can be written in several, and nothing that does nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.passes import (
    canonicalize_algebra,
    canonicalize_cast,
    canonicalize_clip,
    canonicalize_control,
    canonicalize_movement,
    canonicalize_quantize,
    canonicalize_reduce,
    canonicalize_reshape,
    canonicalize_slice,
    canonicalize_transpose,
)
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.rewrite import Rule, apply_rules, rules_of
from graphwright.compiler.target import Target

_FAMILIES = (
    canonicalize_algebra,
    canonicalize_cast,
    canonicalize_clip,
    canonicalize_control,
    canonicalize_movement,
    canonicalize_quantize,
    canonicalize_slice,
    canonicalize_reduce,
    canonicalize_reshape,
    canonicalize_transpose,
)
RULES: tuple[Rule, ...] = tuple(r for family in _FAMILIES for r in rules_of(family))


@dataclass(frozen=True, slots=True)
class Canonicalize:
    """Applies the rules of the canonicalize_*.py families until none applies.

    Identities vanish, chains of reshapes, transposes, slices, casts and limits become one op,
    constants stand on the right, transposes sink toward the outputs.  Every rule keeps the result:
    bit by bit, or to within the rounding that its docstring names.  Requires row-major values; ops
    with a chosen layout are left alone.

        %0 = transpose(%x) {permutation = [1, 0]}     =>   %0 = relu(%x)
        %1 = relu(%0)                                      return %0
        %2 = transpose(%1) {permutation = [1, 0]}
        return %2
    """

    name: ClassVar[str] = "canonicalize"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in ops and rewrites."""
        del target
        return apply_rules(graph, RULES, self.name, journal)
