"""What an op costs by the roofline: bytes moved, operations, kernels.  The trace's yardstick.

Estimates at typical sizes, the same for every pass, so that what a rewrite saves can be told from
what it costs; measured times are `bench --profile`'s.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphwright.compiler.ir.dims import DimError
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.profit import Sizes, typical_size
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.precision import multiply_accumulates


@dataclass(frozen=True, slots=True)
class Cost:
    """`bytes` read and written, each operand once; `flops`: two for each multiply-accumulate, one
    for each element of another op; `kernels`: ops that a launch has to compute, views left out.
    """

    bytes: int = 0
    flops: int = 0
    kernels: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.bytes + other.bytes, self.flops + other.flops, self.kernels + other.kernels
        )

    def __sub__(self, other: Cost) -> Cost:
        return Cost(
            self.bytes - other.bytes, self.flops - other.flops, self.kernels - other.kernels
        )

    def to_json(self) -> list[int]:
        return [self.bytes, self.flops, self.kernels]


FREE = Cost()


class CostModel:
    """Costs of ops; keeps the sizes of values, whose types may only change between its uses."""

    def __init__(self) -> None:
        self._sizes = Sizes()

    def op(self, op: Op) -> Cost:
        """An op alone; the body of a loop counts once, both branches of a conditional do."""
        if op.kind is Kind.SOURCE or (op.kind is Kind.MOVEMENT and view_of(op) is not None):
            return FREE
        try:
            if op.kind is Kind.CONTROL:
                return sum((self.graph(body) for body in op.bodies), FREE)
            values: dict[Value, None] = dict.fromkeys((*op.operands, *op.results))
            return Cost(sum(map(self._sizes.bytes, values)), self._flops(op), 1)
        except DimError:  # a size that only the run itself will know
            return Cost(0, 0, 1)

    def graph(self, graph: Graph) -> Cost:
        """All ops of a graph."""
        return sum((self.op(op) for op in graph.ops), FREE)

    def _flops(self, op: Op) -> int:
        if op.bodies:
            return sum(self._flops(inner) for body in op.bodies for inner in body.ops)
        if op.kind in (Kind.SOURCE, Kind.MOVEMENT):
            return 0
        products = typical_size(multiply_accumulates(op))
        if products:
            return 2 * products
        many = op.operands[:1] if op.kind is Kind.REDUCTION else op.results
        return sum(map(self._sizes.elements, many))
