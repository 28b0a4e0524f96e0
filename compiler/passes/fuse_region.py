"""What a region may hold: the legality of fusion, apart from its profit.

`describe_region` is the definition (docs/ir.md gives it in words): it takes ops in topological
order and the values that others need, and answers with a `Region` or with the reason why these ops
cannot be one.  It knows kinds, never ops, except for the movement ops whose index maps invert.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from graphwright.compiler.ir.dims import Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.passes.layout_orders import kept_axes
from graphwright.compiler.passes.views import affine_view, is_joined

FUSABLE = (Kind.POINTWISE, Kind.MOVEMENT, Kind.REDUCTION, Kind.CONTRACTION)

# Movement whose index map goes both ways: every result element is exactly one operand element.
INVERTIBLE = ("reshape", "transpose", "relayout")

RegionKind = Literal["pointwise", "reduction", "contraction"]


@dataclass(frozen=True, slots=True)
class Region:
    """A legal region: its kind, its root (None for pointwise) and its outputs in order."""

    kind: RegionKind
    root: Op | None
    outputs: tuple[Value, ...]


def is_fusable(op: Op) -> bool:
    """Whether an op may be in any region at all."""
    return op.kind in FUSABLE and op.definition.effect is Effect.PURE and not op.bodies


def better_below(op: Op) -> bool:
    """Whether a pointwise op that widens a value, or makes a second one of it, only feeds reductions.

    They can compute it as they read, while in the region above it would be more bytes to write.
    """
    if not op.result.users or op.result.is_output:
        return False
    if any(u.kind is not Kind.REDUCTION or not is_fusable(u) for u in op.result.users):
        return False
    large = [v for v in op.operands if v.type.shape == op.result.type.shape]
    if len(large) != 1:
        return False
    (value,) = large
    needed = value.is_output or len(value.users) > 1
    return needed or value.type.dtype.bits < op.result.type.dtype.bits


def is_single_constant(value: Value) -> bool:
    """Whether a value is a constant of one element, which regions hold a copy of."""
    op = value.op
    return op is not None and op.name == "constant" and op.attributes["value"].elements == 1


def is_generated(value: Value) -> bool:
    """Whether a value is a function of its coordinates that regions calculate instead of reading."""
    op = value.op
    if op is None or op.name not in ("full", "iota"):
        return False
    return op.name == "full" or not any(
        isinstance(op.attributes[n], float) for n in ("start", "step")
    )


def outputs_of(ops: Sequence[Op]) -> tuple[Value, ...]:
    """The results that something outside these ops uses, graph outputs included, in order."""
    inside = set(ops)
    return tuple(r for op in ops for r in op.results if any(u.user not in inside for u in r.uses))


def describe_region(ops: Sequence[Op], outputs: tuple[Value, ...] | None = None) -> Region | str:
    """The region that the ops form, or why they cannot form one.  `ops` are in graph order.

    `outputs`: the results to count as needed outside; None: those that are.
    """
    for op in ops:
        if not is_fusable(op):
            return f"{op.name} cannot be in a region"
        if is_joined(op):
            return "operands that lie side by side already need no kernel"
    roots = [op for op in ops if op.kind in (Kind.REDUCTION, Kind.CONTRACTION)]
    if outputs is None:
        outputs = outputs_of(ops)
    if len(roots) > 1:
        return "two contractions or reductions"
    if not roots:
        shapes = {v.type.shape for v in outputs}
        if len(shapes) > 1:
            return "outputs of several shapes"
        return Region("pointwise", None, outputs)
    (root,) = roots
    above, below = _above(root, ops), _below(root, ops)
    if root.kind is Kind.CONTRACTION:
        reason = _check_contraction(root, ops, above, outputs)
        shapes = (root.results[0].type.shape,)
    else:
        reason = _check_broadcast(root, ops, below)
        shapes = domain_shapes(root)
    reason = reason or _check_epilogue(ops, below, shapes) or _check_outputs(below, shapes, outputs)
    kind = "contraction" if root.kind is Kind.CONTRACTION else "reduction"
    return reason or Region(kind, root, outputs)


def _above(root: Op, ops: Sequence[Op]) -> set[Op]:
    """The ops whose results the root needs."""
    inside, found, pending = set(ops), set[Op](), [root]
    while pending:
        for operand in pending.pop().operands:
            if operand.op is not None and operand.op in inside and operand.op not in found:
                found.add(operand.op)
                pending.append(operand.op)
    return found


def _below(root: Op, ops: Iterable[Op]) -> set[Op]:
    """The ops that need the root's results, and the root."""
    found = {root}
    for op in ops:
        if any(v.op in found for v in op.operands):
            found.add(op)
    return found


def _check_contraction(
    root: Op, ops: Iterable[Op], above: set[Op], outputs: Iterable[Value]
) -> str | None:
    inside = set(ops)
    for op in above:
        if op.kind is not Kind.MOVEMENT:
            return "only movement goes before a contraction"
        if any(v in outputs for v in op.results):
            return "a moved operand is needed elsewhere"
    for operand in root.operands:
        if operand.op in above and affine_view(operand, stop=lambda v: v.op not in inside) is None:
            return "a moved operand is no affine view"
    return None


def _check_broadcast(root: Op, ops: Iterable[Op], below: set[Op]) -> str | None:
    """A reduced value is read over a row only where broadcasting puts it on the axes that it kept.

    Shapes alone do not say so: x[8, 4, 4] summed over axes 0 and 2 is broadcast along axis 2.
    """
    kept = kept_axes(root)
    if kept is None:
        return None
    rank = root.operands[0].type.rank
    if kept == tuple(range(rank - len(kept), rank)):
        return None
    for op in ops:
        if op in below and op is not root and op.kind is Kind.POINTWISE:
            reduced = (v for v in op.operands if v.op in below)
            if any(v.type.rank < op.result.type.rank for v in reduced):
                return "a reduced value is broadcast along other axes than it kept"
    return None


def _check_epilogue(ops: Iterable[Op], below: set[Op], shapes: Sequence[Shape]) -> str | None:
    """Below the root: pointwise ops on its loops, then movement that can be undone, and no more."""
    final: set[Value] = set()
    for op in ops:
        if op not in below or op.kind in (Kind.CONTRACTION, Kind.REDUCTION):
            continue
        if op.kind is Kind.MOVEMENT:
            if op.name not in INVERTIBLE:
                return f"{op.name} of a result has no inverse"
            final.add(op.result)
        elif any(v in final for v in op.operands):
            return "pointwise after the final movement"
        elif op.result.type.shape not in shapes:
            return "an epilogue of another shape"
    return None


def _check_outputs(below: set[Op], shapes: Sequence[Shape], outputs: Iterable[Value]) -> str | None:
    for value in outputs:
        op = value.op
        moved = op is not None and op in below and op.kind is Kind.MOVEMENT
        if not moved and value.type.shape not in shapes:
            return "what is needed elsewhere has another shape"
    return None


def domain_shapes(root: Op) -> tuple[Shape, ...]:
    """The shapes of a reduction's loops: of its operand, and of its result where that differs."""
    return tuple(dict.fromkeys((root.operands[0].type.shape, root.results[0].type.shape)))
