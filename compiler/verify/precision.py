"""Which ops lose too much by the precision that they calculate in.

The graph is evaluated with its first K ops in their own types and the rest in float64: the
least K beyond the tolerance names an op.  That one is then kept exact and the search goes on,
until what is left is within the tolerance: the ops that would have to stay wider.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphwright.compiler.ir.evaluate import bind_symbols, evaluate, evaluate_op
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.types import DType
from graphwright.compiler.precision import precision_of_op
from graphwright.compiler.verify.difference import Difference, difference

MOST = 12  # culprits that are looked for


@dataclass(frozen=True, slots=True)
class PrecisionFault:
    """`difference`: of `output` when this op and those before it calculate in their own types, the
    earlier culprits excepted.  `precision`: the op's.
    """

    op: Op
    precision: str
    output: str
    difference: Difference


@dataclass(frozen=True, slots=True)
class PrecisionSearch:
    """`before` and `after`: the outputs' largest distance with all ops in their own types, and with
    the culprits exact.  `enough`: whether that is within the tolerance.
    """

    faults: tuple[PrecisionFault, ...]
    before: float
    after: float
    enough: bool


def find_precision(
    graph: Graph,
    feed: Mapping[str, np.ndarray],
    *,
    tolerance: float,
    measure: str = "relative",
    tell: Callable[[str], None] | None = None,
) -> PrecisionSearch:
    """Takes log2(ops) evaluations for each culprit, in the memory of one evaluation."""
    mixed = _Mixed(graph, feed, measure)
    ops = [op for op in graph.ops if any(r.type.dtype.is_float for r in op.results)]
    exact: set[Op] = set()
    faults: list[PrecisionFault] = []
    before = after = mixed.distance(ops, exact)[1].measure(measure)
    while not after <= tolerance and len(faults) < MOST:
        low, high = (
            0,
            len(ops),
        )  # right with the first `low` ops in their own types, not with `high`
        while high - low > 1:
            middle = (low + high) // 2
            if tell is not None:
                tell(f"{len(faults)} found, {high - low} ops left")
            if mixed.distance(ops[:middle], exact)[1].measure(measure) <= tolerance:
                low = middle
            else:
                high = middle
        output, found = mixed.distance(ops[:high], exact)
        culprit = ops[high - 1]
        if culprit in exact:
            break  # errors that cancelled: no single op is to blame
        faults.append(PrecisionFault(culprit, _precision(culprit), output, found))
        exact.add(culprit)
        after = mixed.distance(ops, exact)[1].measure(measure)
    return PrecisionSearch(tuple(faults), before, after, after <= tolerance)


def _precision(op: Op) -> str:
    inner = [o for body in op.bodies for o in body.ops if o.operands]
    return ", ".join(dict.fromkeys(map(precision_of_op, inner or [op])))


class _Mixed:
    """Evaluates with some ops in their own types and the others in float64."""

    def __init__(self, graph: Graph, feed: Mapping[str, np.ndarray], measure: str) -> None:
        self.graph, self.measure = graph, measure
        self.arrays = [np.asarray(feed[v.name]) for v in graph.inputs]
        self.binding = bind_symbols(graph, self.arrays)
        self.want: Sequence[np.ndarray] = evaluate(graph, self.arrays, compute=np.float64)

    def distance(self, rounded: Collection[Op], exact: Collection[Op]) -> tuple[str, Difference]:
        """(output, its distance) of the output that is farthest off."""
        own = set(rounded) - set(exact)
        known: dict[Value, np.ndarray] = dict(zip(self.graph.inputs, self.arrays, strict=True))
        left = {v: len(v.uses) for v in self.graph.inputs}
        for op in self.graph.ops:
            given = [known[v] for v in op.operands]
            if op in own:
                given = [_as(a, v.type.dtype) for a, v in zip(given, op.operands, strict=True)]
                made = evaluate_op(op, given, self.binding)
            else:
                made = evaluate_op(op, given, self.binding, compute=np.float64)
            for value, array in zip(op.results, made, strict=True):
                known[value] = array
                left[value] = len(value.uses)
            for value in op.operands:
                left[value] -= 1
                if not left[value]:
                    known.pop(value, None)
        pairs = zip(self.graph.output_names, self.graph.outputs, self.want, strict=True)
        found = [(name, difference(known[value], want)) for name, value, want in pairs]
        return max(found, key=lambda f: f[1].measure(self.measure))


def _as(array: np.ndarray, dtype: DType) -> np.ndarray:
    with np.errstate(over="ignore"):
        return array.astype(dtype.numpy) if dtype.is_float else array
