"""Chooses in which order the axes of every tensor lie in memory: the `propagate-layout` pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import Layout, canonical, order_of
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.layout_orders import (
    Order,
    backward,
    channels_innermost,
    complete,
    core,
    forward,
    row_major,
    same_bytes,
    with_order,
)
from graphwright.compiler.passes.layout_windows import join_concatenations
from graphwright.compiler.passes.profit import typical_size
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target

# What a kernel that is bound by an order loses when it does not get it, in multiples of the bytes.
DEMAND_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class PropagateLayout:
    """Gives every value's type a layout and inserts `relayout` where two of them meet.

    Why: convolution kernels want channels innermost, exporters write channels second, and the
    transposes in between are free when layouts are chosen to suit.  The choice starts at the ops
    that the target's table of layouts names (convolutions, pools); graph inputs, outputs and ops
    with one possible layout are row-major; wishes travel up, then layouts travel down, through
    pointwise ops, reductions, transposes, reshapes, concatenations.  Requires that no region has
    been formed.  Ensures that types hold the layouts, and that the logical graph is the same.

        %1 = conv(%x, %w)                     %0 = relayout(%x) : f32[N, 3, H, W]{0,2,3,1}
        %2 = transpose(%1) (0, 2, 3, 1)  ->   %1 = conv(%0, %w) : f32[N, 8, H, W]{0,2,3,1}
                                              %2 = transpose(%1) : f32[N, H, W, 8]   (a view)
    """

    name: ClassVar[str] = "propagate-layout"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        graphs = [graph]
        relayouts = moved = joined = 0
        changed = False
        for at in graphs:
            graphs.extend(b for op in at.ops if op.kind is Kind.CONTROL for b in op.bodies)
            if any(op.kind is Kind.FUSED for op in at.ops):
                continue
            before = {v: v.type for op in at.ops for v in op.results}
            with Rewriter(at, self.name, journal) as rw:
                _drop_relayouts(rw)
                plans = [_Plan(at, target, wishes=w) for w in (True, False)]
                best = min(plans, key=lambda plan: plan.cost)
                made, bytes_moved = best.apply(rw)
                joined += join_concatenations(rw, target)
            relayouts, moved = relayouts + made, moved + bytes_moved
            after = {v: v.type for op in at.ops for v in op.results}
            changed |= before != after
        return PassResult(
            changed,
            statistics={
                "relayouts": relayouts,
                "relayout_bytes": moved,
                "joined_concatenations": joined,
            },
        )


def _drop_relayouts(rw: Rewriter) -> None:
    """Starts afresh: every value row-major, no relayout."""
    for op in rw.graph.ops:
        for result in op.results:
            result.type = result.type.with_layout(None)
    for op in rw.graph.ops:
        if op.name == "relayout":
            with rw.step("drop-relayout", op):
                rw.graph.replace_uses(op.result, op.operands[0])
                rw.erase(op)


class _Plan:
    """One choice of orders for all values of a graph.

    `wishes`: let values follow what their users need, not only where their operands lie.
    """

    def __init__(self, graph: Graph, target: Target, *, wishes: bool) -> None:
        self.graph = graph
        self.windows = target.channels_innermost
        self.wish: dict[Value, dict[Order, float]] = {}
        self.order: dict[Value, Order] = {v: row_major(v.type.rank) for v in graph.inputs}
        self.cost = 0.0
        self.ops = list(graph.ops)
        if wishes:
            self._wish()
        for op in self.ops:
            self._place(op)
        for value in graph.outputs:
            self._charge(value, row_major(value.type.rank))

    # -- what ops need

    def bytes(self, value: Value) -> float:
        total = float(value.type.dtype.bytes)
        for dim in value.type.shape:
            total *= typical_size(dim)
        return total

    def required(self, op: Op, index: int) -> Order | None:
        """The one order that operand `index` must have, or None when its kernel takes any."""
        rank = op.operands[index].type.rank
        if op.name in self.windows:
            return channels_innermost(rank) if index == 0 else row_major(rank)
        if self.is_flexible(op):
            return None
        return row_major(rank)

    @staticmethod
    def is_flexible(op: Op) -> bool:
        """Whether an op's kernel takes every operand and gives its result in any order of axes."""
        return op.definition.effect is Effect.PURE and (
            op.kind in (Kind.POINTWISE, Kind.MOVEMENT, Kind.REDUCTION)
            or (op.kind is Kind.CONTRACTION and op.name == "matmul")
        )

    # -- wishes travel up

    def _wish(self) -> None:
        for value in self.graph.outputs:
            self._add_wish(value, row_major(value.type.rank), self.bytes(value))
        for op in reversed(self.ops):
            for index, operand in enumerate(op.operands):
                need = self.required(op, index)
                if need is not None:
                    self._add_wish(operand, need, DEMAND_WEIGHT * self.bytes(operand))
                elif op.kind is Kind.CONTRACTION:
                    if index == 0:
                        # Rows of the first operand are read along the contracted axis.
                        self._add_wish(operand, row_major(operand.type.rank), self.bytes(operand))
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
            self._add_wish(operand, order, min(weight, self.bytes(operand)))

    def _add_wish(self, value: Value, order: Order, weight: float) -> None:
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
            need = self.required(op, index)
            if need is not None:
                self._charge(operand, need)
        if not self.is_flexible(op):
            for result in op.results:
                windows = op.name in self.windows and op.kind is not Kind.SOURCE
                rank = result.type.rank
                self.order[result] = channels_innermost(rank) if windows else row_major(rank)
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
        self.cost += 2 * self.bytes(result)
        return wished or row_major(result.type.rank)

    def _joined_order(self, op: Op, result: Value) -> Order:
        """The order that the fewest bytes of operands, and of the wish, disagree with."""
        shape = result.type.shape
        wished = self.wished(result)
        size = self.bytes(result)
        lying: list[tuple[Order, float]] = []
        for index, operand in enumerate(op.operands):
            if operand.op is not None and operand.op.kind is Kind.SOURCE:
                continue  # a constant takes the order of its users
            order = forward(op, index, self.order[operand])
            if order is not None and len(order) > 1:
                lying.append((order, self.bytes(operand)))
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
        self.cost += charge(best)
        return complete(best, shape, (wished,))

    def _charge(self, value: Value, need: Order) -> None:
        if not same_bytes(self.order.get(value, need), need, value.type.shape):
            self.cost += 2 * self.bytes(value)

    # -- the choice becomes types

    def apply(self, rw: Rewriter) -> tuple[int, int]:
        """Sets the types and inserts relayouts; how many of them move bytes, and how many bytes."""
        for value, order in self.order.items():
            value.type = with_order(value.type, order)
        known: dict[tuple[Value, Order], Value] = {}
        made: list[Op] = []

        def relayout(value: Value, need: Order, before: Op | None) -> Value:
            found = known.get((value, need))
            if found is None:
                op = rw.graph.create(
                    "relayout",
                    [value],
                    {"layout": canonical(Layout(need))},
                    before=before,
                    origins=value.op.origins if value.op is not None else (),
                    names=[value.name],
                )
                op.result.equals = value.equals
                found = known[value, need] = op.result
                made.append(op)
            return found

        for op in self.ops:
            for index, operand in enumerate(op.operands):
                need = self.required(op, index)
                if need is not None and order_of(operand.type.layout, operand.type.rank) != need:
                    with rw.step("insert-relayout", op):
                        op.set_operand(index, relayout(operand, need, op))
        outputs = list(self.graph.outputs)
        for i, value in enumerate(outputs):
            if value.op is not None and value.type.layout is not None:
                with rw.step("insert-relayout", value.op):
                    outputs[i] = relayout(value, row_major(value.type.rank), None)
                    self.graph.set_outputs(outputs, self.graph.output_names)
        self._lay_constants(rw)
        real = [op for op in made if view_of(op) is None]
        return len(real), int(sum(self.bytes(op.result) for op in real))

    def _lay_constants(self, rw: Rewriter) -> None:
        """Constants that pointwise ops alone use lie as those ops run, where the users agree.

        The constant itself is stored with its axes permuted; a transpose, a view, restores them.
        """
        for op in self.ops:
            if op.name != "constant" or op.is_erased:
                continue
            value = op.result
            if len(core(row_major(value.type.rank), value.type.shape)) < 2 or value.is_output:
                continue
            orders: set[Order | None] = set()
            for user in value.users:
                lying: Order | None = None
                if user.kind is Kind.POINTWISE:
                    result = user.result.type
                    wanted = order_of(result.layout, result.rank)
                    lying = backward(user, user.operands.index(value), wanted)
                orders.add(lying)
            if len(orders) != 1:
                continue
            lying = orders.pop()
            shape = value.type.shape
            if lying is None or lying == core(row_major(len(shape)), shape):
                continue
            self._store_permuted(rw, op, complete(lying, shape, ()))

    @staticmethod
    def _store_permuted(rw: Rewriter, op: Op, order: Order) -> None:
        value, literal = op.result, op.attributes["value"]

        def load() -> np.ndarray:
            return np.ascontiguousarray(literal.array().transpose(order))

        with rw.step("store-permuted", op):
            shape = tuple(literal.shape[axis] for axis in order)
            source = op.attributes["recipe"] or literal
            stored = rw.constant(
                Literal.lazy(load, literal.dtype, shape),
                Recipe("transpose", (("permutation", order),), (source,)),
            )
            back = tuple(order.index(axis) for axis in range(len(order)))
            moved = rw.value("transpose", stored, permutation=back)
            moved.type = with_order(moved.type, order)
            moved.name, moved.equals = value.name, value.equals
            rw.graph.replace_uses(value, moved)
            rw.erase(op)


def _agree(a: Order, b: Order) -> bool:
    """Whether two orders agree on the axes that both have."""
    return tuple(x for x in a if x in b) == tuple(x for x in b if x in a)
