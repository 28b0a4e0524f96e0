"""Moves pointwise ops above the views that part them from a contraction or reduction.

    reshape(conv(x)) + b         ->  reshape(conv(x) + reshape'(b))
    x - reshape(reduce_max(x))   ->  x - reduce_max(x) {keepdims}

Reshapes and transposes that move no byte would otherwise keep an epilogue out of its region, since
a region ends with movement.  The other operands are seen through the inverse of the views, which is
a view again, or a copy of what is small.
"""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import order_of
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.passes.fuse_region import INVERTIBLE, better_below, is_single_constant
from graphwright.compiler.passes.layout_orders import complete, core, kept_axes, with_order
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import reshape_groups, view_of

# How many users of a reduction are asked whether they put its axes back.
LOOK_AHEAD = 32


def sink_views(rw: Rewriter) -> None:
    """Applies the rewriting to every pointwise op that can join a root through views."""
    for op in rw.graph.ops:
        if op.kind is Kind.REDUCTION and not op.attributes.get("keepdims", True):
            _keep_axes(rw, op)
    near: set[Value] = set()  # results of roots and of pointwise ops on them
    for op in rw.graph.ops:
        if op.kind in (Kind.CONTRACTION, Kind.REDUCTION):
            near.update(op.results)
            continue
        if op.name == "reshape":
            _cancel(rw, op, near)
            continue
        if op.kind is not Kind.POINTWISE or op.definition.effect is not Effect.PURE:
            continue
        shape = op.result.type.shape
        if any(v in near and v.type.shape == shape for v in op.operands):
            near.add(op.result)
            continue
        for index in reversed(range(len(op.operands))):
            chain = _views_above(op.operands[index], near)
            if chain and (better_below(op) or _needs_it_whole(op, chain[-1].operands[0])):
                continue
            if chain and op.operands[index].type.shape == shape:
                moved = _sink(rw, op, index, chain)
                if moved is not None:
                    near.add(moved)
                    break


def _needs_it_whole(op: Op, value: Value) -> bool:
    """Whether another operand of a pointwise op comes from a reduction of the value it works on.

    The root's region could not hold the op; that of the reduction can, below its views.
    """
    pending, seen = list(op.operands), 0
    while pending and seen < LOOK_AHEAD:
        seen += 1
        made = pending.pop().op
        if made is None or made.kind not in (Kind.POINTWISE, Kind.MOVEMENT, Kind.REDUCTION):
            continue
        if made.kind is Kind.REDUCTION:
            above = made.operands[0]
            for _ in range(LOOK_AHEAD):
                if above is value:
                    return True
                if above.op is None or above.op.kind not in (Kind.POINTWISE, Kind.MOVEMENT):
                    break
                above = above.op.operands[0]
            continue
        pending += made.operands if made.kind is Kind.POINTWISE else made.operands[:1]
    return False


def _keep_axes(rw: Rewriter, op: Op) -> None:
    """Keeps the reduced axes, with a view that drops them, where users put them back later."""
    operand, result = op.operands[0].type, op.results[0].type
    kept = kept_axes(op)
    if kept is None:
        return
    shape = tuple(d if a in kept else 1 for a, d in enumerate(operand.shape))
    pending, seen = [op.results[0]], 0
    while pending and seen < LOOK_AHEAD:
        for user in pending.pop().users:
            seen += 1
            if user.name == "reshape" and user.result.type.shape == shape:
                break
            if user.kind is Kind.POINTWISE and user.result.type.shape == result.shape:
                pending.append(user.result)
        else:
            continue
        break
    else:
        return
    with rw.step("keep-axes", op):
        whole = rw.create(op.name, op.operands, dict(op.attributes) | {"keepdims": True}).result
        lying = tuple(kept[a] for a in core(order_of(result.layout, result.rank), result.shape))
        whole.type = with_order(whole.type, complete(lying, shape, ()))
        value = rw.create("reshape", [whole], {"shape": result.shape}).result
        value.type = result
        rw.replace(value)


def _cancel(rw: Rewriter, op: Op, near: set[Value]) -> None:
    """A reshape back to what the reshapes above it started from is nothing."""
    chain = _views_above(op.result, near)
    if len(chain) > 1 and all(view.name == "reshape" for view in chain):
        source = chain[-1].operands[0]
        if source.type == op.result.type:
            with rw.step("cancel-reshapes", op):
                rw.replace(source)


def _views_above(value: Value, near: set[Value]) -> list[Op]:
    """The views between a value near a root and this one, nearest to this one first; or []."""
    chain: list[Op] = []
    while value not in near:
        op = value.op
        if op is None or op.name not in INVERTIBLE or view_of(op) is None:
            return []
        chain.append(op)
        value = op.operands[0]
    return chain


def _sink(rw: Rewriter, op: Op, index: int, chain: list[Op]) -> Value | None:
    """The new result above the views, or None where an operand cannot be seen from there."""
    if op.result.type.layout != op.operands[index].type.layout:
        return None
    source = chain[-1].operands[0]
    with rw.step("sink-view", op):
        operands: list[Value] = []
        for i, operand in enumerate(op.operands):
            seen = source if i == index else _through(rw, operand, chain)
            if seen is None:
                return None  # what was made so far has no users and vanishes
            operands.append(seen)
        lifted = rw.create(op.name, operands, op.attributes).result
        if lifted.type.shape != source.type.shape:
            return None
        lifted.type = lifted.type.with_layout(source.type.layout)
        value = lifted
        for view in reversed(chain):
            value = rw.create(view.name, [value], view.attributes).result
            value.type = view.result.type.with_dtype(lifted.type.dtype)
        rw.replace(value)
    return lifted


def _through(rw: Rewriter, value: Value, chain: list[Op]) -> Value | None:
    """A broadcast operand as it looks above the views: `value` broadcast to a view's result equals
    the answer broadcast to the first view's operand, moved by the views."""
    if is_single_constant(value) and value.op is not None:
        literal: Literal = value.op.attributes["value"]
        scalar = Literal.dense(literal.array().reshape(()))
        return value if value.type.rank == 0 else rw.constant(scalar, value.op.attributes["recipe"])
    for view in chain:
        seen = _through_one(rw, value, view)
        if seen is None:
            return None
        value = seen
    return value


def _through_one(rw: Rewriter, value: Value, view: Op) -> Value | None:
    if value.type.rank == 0 or view.name == "relayout":
        return value
    twin = value.op
    if twin is not None and twin.name == view.name and twin.attributes == view.attributes:
        source = twin.operands[0]
        if source.type.shape == view.operands[0].type.shape:
            return source
    inside, outside = view.operands[0].type.shape, view.result.type.shape
    shape: Shape = (*(1,) * (len(outside) - value.type.rank), *value.type.shape)
    if view.name == "transpose":
        permutation: tuple[int, ...] = view.attributes["permutation"]
        back = tuple(permutation.index(axis) for axis in range(len(permutation)))
        value = _reshaped(rw, value, shape)
        return rw.value("transpose", value, permutation=back)
    groups = reshape_groups(inside, outside)
    if groups is None:
        return None
    new: list[Dim] = [1] * len(inside)
    for left, right in groups:
        if all(shape[a] == outside[a] for a in right):
            for axis in left:
                new[axis] = inside[axis]
        elif not all(shape[a] == 1 for a in right):
            return None
    return _reshaped(rw, value, tuple(new))


def _reshaped(rw: Rewriter, value: Value, shape: Shape) -> Value:
    return value if value.type.shape == shape else rw.value("reshape", value, shape=shape)
