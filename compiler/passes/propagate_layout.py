"""Chooses in which order the axes of every tensor lie in memory: the `propagate-layout` pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import Layout, canonical, order_of
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.layout_orders import (
    Order,
    backward,
    complete,
    core,
    row_major,
    with_order,
)
from graphwright.compiler.passes.layout_plan import (
    LayoutPlan,
    best_plan,
    required_order,
    weight_order,
)
from graphwright.compiler.passes.layout_windows import join_concatenations
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target


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
                made, bytes_moved = _apply(rw, best_plan(at, target))
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


def _apply(rw: Rewriter, plan: LayoutPlan) -> tuple[int, int]:
    """Sets the types and inserts relayouts; how many of them move bytes, and how many bytes."""
    for value, order in plan.order.items():
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

    for op in plan.ops:
        for index, operand in enumerate(op.operands):
            need = required_order(op, index, plan.target)
            if need is not None and order_of(operand.type.layout, operand.type.rank) != need:
                with rw.step("insert-relayout", op):
                    op.set_operand(index, relayout(operand, need, op))
    outputs = list(rw.graph.outputs)
    for i, value in enumerate(outputs):
        if value.op is not None and value.type.layout is not None:
            with rw.step("insert-relayout", value.op):
                outputs[i] = relayout(value, row_major(value.type.rank), None)
                rw.graph.set_outputs(outputs, rw.graph.output_names)
    _lay_constants(rw, plan.ops, plan.target)
    real = [op for op in made if view_of(op) is None]
    return len(real), int(sum(plan.sizes.bytes(op.result) for op in real))


def _lay_constants(rw: Rewriter, ops: Sequence[Op], target: Target) -> None:
    """Constants lie as the pointwise ops and contractions that use them read them, where they agree.

    The constant itself is stored with its axes permuted; a transpose, a view, restores them.
    """
    for op in ops:
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
            else:
                order = weight_order(user, user.operands.index(value), target)
                lying = None if order is None else core(order, value.type.shape)
            orders.add(lying)
        if len(orders) != 1:
            continue
        lying = orders.pop()
        shape = value.type.shape
        if lying is None or lying == core(row_major(len(shape)), shape):
            continue
        _store_permuted(rw, op, complete(lying, shape, ()))


def _store_permuted(rw: Rewriter, op: Op, order: Order) -> None:
    value, literal = op.result, op.attributes["value"]

    def load() -> np.ndarray:
        return np.ascontiguousarray(literal.array().transpose(order))

    with rw.step("store-permuted", op):
        shape = tuple(literal.shape[axis] for axis in order)
        source = op.attributes["recipe"] or literal
        stored = rw.constant(
            Literal.derived(load, literal.dtype, shape),
            Recipe("transpose", (("permutation", order),), (source,)),
        )
        back = tuple(order.index(axis) for axis in range(len(order)))
        moved = rw.value("transpose", stored, permutation=back)
        moved.type = with_order(moved.type, order)
        moved.name, moved.equals = value.name, value.equals
        rw.graph.replace_uses(value, moved)
        rw.erase(op)
