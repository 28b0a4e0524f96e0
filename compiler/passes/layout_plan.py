"""Which order of axes each value gets: wishes travel up from users, then orders travel down."""

from __future__ import annotations

from collections.abc import Mapping

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.passes.layout_orders import (
    Order,
    backward,
    channels_innermost,
    complete,
    core,
    forward,
    row_major,
    same_bytes,
)
from graphwright.compiler.passes.profit import Sizes
from graphwright.compiler.target import Target

# What a kernel that is bound by an order loses when it does not get it, in multiples of the bytes.
DEMAND_WEIGHT = 4
# Contractions whose kernels walk operands and result by strides.
STRIDED = ("matmul", "matmul_integer", "attention")


def is_flexible(op: Op) -> bool:
    """Whether an op's kernel takes every operand and gives its result in any order of axes."""
    return op.definition.effect is Effect.PURE and (
        op.kind in (Kind.POINTWISE, Kind.MOVEMENT, Kind.REDUCTION)
        or (op.kind is Kind.CONTRACTION and op.name in STRIDED)
    )


def required_order(op: Op, index: int, target: Target) -> Order | None:
    """The one order that operand `index` must have, or None when its kernel takes any."""
    rank = op.operands[index].type.rank
    if op.name in target.channels_innermost:
        return channels_innermost(rank) if index == 0 else row_major(rank)
    return None if is_flexible(op) else row_major(rank)


def weight_order(op: Op, index: int, target: Target) -> Order | None:
    """The order in which a kernel reads operand `index` best when that is a constant, if any.

    On a GPU products are summed along the innermost axis of both operands; a convolution with one
    channel a group runs over channels.  The CPU's kernels pack weights themselves.
    """
    if target.kind != "cuda" or index != 1:
        return None
    shape = op.operands[1].type.shape
    if op.name == "matmul":
        return (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    if op.name == "conv":
        depthwise = shape[1] == 1 and op.attributes["groups"] > 1
        return (*range(2, len(shape)), 1, 0) if depthwise else channels_innermost(len(shape))
    return None


def components_of(graph: Graph) -> dict[Value, Value]:
    """Each value with one that stands for all that flexible ops connect it with.

    Values whose order is settled (graph inputs, results of convolutions) connect nothing.
    """
    above: dict[Value, Value] = {}

    def find(value: Value) -> Value:
        while value in above:
            above[value] = above.get(above[value], above[value])
            value = above[value]
        return value

    for op in graph.ops:
        if is_flexible(op):
            for operand in op.operands:
                if operand.op is None or not is_flexible(operand.op):
                    continue  # its order is settled
                a, b = find(op.results[0]), find(operand)
                if a is not b:
                    above[a] = b
    values = [*graph.inputs, *(r for op in graph.ops for r in op.results)]
    return {v: find(v) for v in values}


def best_plan(graph: Graph, target: Target) -> LayoutPlan:
    """The cheapest choice, made for each connected component by itself.

    What users wish helps most graphs, and misleads some: each component follows its wishes only
    where that moves fewer bytes.
    """
    sizes, component = Sizes(), components_of(graph)
    plans: list[LayoutPlan] = []
    for chosen in ((), component.values()):
        plan = LayoutPlan(graph, target, sizes, component, frozenset(chosen))
        if plan.cost == 0:
            return plan
        plans.insert(0, plan)
    follow, ignore = (plan.costs for plan in plans)
    better = frozenset(c for c in component.values() if follow.get(c, 0) <= ignore.get(c, 0))
    plans.append(LayoutPlan(graph, target, sizes, component, better))
    return min(plans, key=lambda plan: plan.cost)


class LayoutPlan:
    """One choice of orders for all values of a graph: `order`, and what it costs in bytes moved.

    `following`: the components whose values follow what their users need, and not only where their
    operands lie.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        sizes: Sizes,
        component: Mapping[Value, Value],
        following: frozenset[Value],
    ) -> None:
        self.graph, self.target, self.sizes = graph, target, sizes
        self.component, self.following = component, following
        self.wish: dict[Value, dict[Order, float]] = {}
        self.order: dict[Value, Order] = {v: row_major(v.type.rank) for v in graph.inputs}
        self.costs: dict[Value, float] = {}  # by component
        self.ops = list(graph.ops)
        self._wish()
        for op in self.ops:
            self._place(op)
        for value in graph.outputs:
            self._charge(value, row_major(value.type.rank))

    @property
    def cost(self) -> float:
        return sum(self.costs.values())

    def _add_cost(self, value: Value, bytes: float) -> None:
        at = self.component[value]
        self.costs[at] = self.costs.get(at, 0.0) + bytes

    # -- wishes travel up

    def _wish(self) -> None:
        for value in self.graph.outputs:
            self._add_wish(value, row_major(value.type.rank), self.sizes.bytes(value))
        for op in reversed(self.ops):
            for index, operand in enumerate(op.operands):
                need = required_order(op, index, self.target)
                if need is not None:
                    self._add_wish(operand, need, DEMAND_WEIGHT * self.sizes.bytes(operand))
                elif op.kind is Kind.CONTRACTION:
                    if index == 0 and op.name != "attention":
                        # Rows of the first operand are read along the contracted axis.
                        self._add_wish(
                            operand, row_major(operand.type.rank), self.sizes.bytes(operand)
                        )
                else:
                    self._pass_wish_up(op, index, operand)

    def _pass_wish_up(self, op: Op, index: int, operand: Value) -> None:
        wished = self.wished(op.results[0])
        if wished is None:
            return
        lying = backward(op, index, wished)
        if lying is not None and len(lying) > 1:
            order = complete(lying, operand.type.shape, ())
            weight = self.wish[op.results[0]][wished]
            self._add_wish(operand, order, min(weight, self.sizes.bytes(operand)))

    def _add_wish(self, value: Value, order: Order, weight: float) -> None:
        if self.component[value] not in self.following:
            return
        wishes = self.wish.setdefault(value, {})
        shape = value.type.shape
        same = next((o for o in wishes if same_bytes(o, order, shape)), order)
        wishes[same] = wishes.get(same, 0.0) + weight

    def wished(self, value: Value) -> Order | None:
        wishes = self.wish.get(value)
        return max(wishes, key=lambda o: wishes[o]) if wishes else None

    # -- orders travel down

    def _place(self, op: Op) -> None:
        for index, operand in enumerate(op.operands):
            need = required_order(op, index, self.target)
            if need is not None:
                self._charge(operand, need)
        if not is_flexible(op):
            for result in op.results:
                inner = op.name in self.target.channels_innermost
                rank = result.type.rank
                self.order[result] = channels_innermost(rank) if inner else row_major(rank)
            return
        (result,) = op.results[:1]
        for other in op.results[1:]:
            self.order[other] = row_major(other.type.rank)
        if op.kind is Kind.CONTRACTION:
            self.order[result] = self._contraction_order(result)
        elif op.kind is Kind.MOVEMENT and len(op.operands) == 1 and op.name != "broadcast_to":
            self.order[result] = self._moved_order(op, result)
        else:
            self.order[result] = self._joined_order(op, result)

    def _contraction_order(self, result: Value) -> Order:
        """Any order that keeps the innermost axis, if users wish it."""
        wished = self.wished(result)
        if wished is not None:
            lying = core(wished, result.type.shape)
            if not lying or lying[-1] == core(row_major(result.type.rank), result.type.shape)[-1]:
                return wished
        return row_major(result.type.rank)

    def _moved_order(self, op: Op, result: Value) -> Order:
        wished = self.wished(result)
        lying = forward(op, 0, self.order[op.operands[0]])
        if lying is not None:
            return complete(lying, result.type.shape, (wished,))
        self._add_cost(result, 2 * self.sizes.bytes(result))
        return wished or row_major(result.type.rank)

    def _joined_order(self, op: Op, result: Value) -> Order:
        """The order that the fewest bytes of operands, and of the wish, disagree with."""
        shape = result.type.shape
        wished = self.wished(result)
        size = self.sizes.bytes(result)
        lying: list[tuple[Order, float]] = []
        for index, operand in enumerate(op.operands):
            if operand.op is not None and operand.op.kind is Kind.SOURCE:
                continue  # a constant takes the order of its users
            order = forward(op, index, self.order[operand])
            if order is not None and len(order) > 1:
                lying.append((order, self.sizes.bytes(operand)))
        # A full operand can decide; a broadcast one can only agree or not.
        full = len(core(row_major(len(shape)), shape))
        candidates = [o for o, _ in lying if len(o) == full]
        if wished is not None:
            candidates.insert(0, core(wished, shape))
        if not candidates:
            return row_major(len(shape))

        def charge(candidate: Order) -> float:
            against = sum(b for o, b in lying if not _agree(o, candidate))
            if wished is not None and core(wished, shape) != candidate:
                against += size
            return against

        best = min(candidates, key=charge)
        self._add_cost(result, charge(best))
        return complete(best, shape, (wished,))

    def _charge(self, value: Value, need: Order) -> None:
        if not same_bytes(self.order.get(value, need), need, value.type.shape):
            self._add_cost(value, 2 * self.sizes.bytes(value))


def _agree(a: Order, b: Order) -> bool:
    """Whether two orders agree on the axes that both have."""
    return tuple(x for x in a if x in b) == tuple(x for x in b if x in a)
