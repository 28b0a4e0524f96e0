"""Axis orders through ops: in which order a result lies when its operand lies in a given one.

An order lists logical axes, outermost in memory first, as in `Layout`.  Axes of extent 1 may stand
anywhere in it: two orders are the same bytes when they agree on the other axes (`core`).
`forward` and `backward` say what costs no byte moved; None means that there is no such order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.layout import Layout, canonical
from graphwright.compiler.ir.types import TensorType
from graphwright.compiler.passes.views import reshape_groups

Order: TypeAlias = tuple[int, ...]


def row_major(rank: int) -> Order:
    return tuple(range(rank))


def channels_innermost(rank: int) -> Order:
    """N, spatial axes, C for the logical axes N, C, spatial axes; row-major below rank 3."""
    return (0, *range(2, rank), 1) if rank > 2 else row_major(rank)


def with_order(type: TensorType, order: Order) -> TensorType:
    return type.with_layout(canonical(Layout(order)))


def core(order: Iterable[int], shape: Sequence[Dim]) -> Order:
    """The order of the axes whose extent is not 1."""
    if 1 not in shape:
        return tuple(order)
    return tuple([axis for axis in order if shape[axis] != 1])


def same_bytes(a: Order, b: Order, shape: Sequence[Dim]) -> bool:
    """Whether two orders put every element at the same place."""
    return core(a, shape) == core(b, shape)


def complete(lying: Order, shape: Sequence[Dim], preferred: Iterable[Order | None]) -> Order:
    """A whole order whose axes of extent other than 1 lie as given.

    Takes the first preferred order that does; then row-major, channels innermost, or any.
    """
    rank = len(shape)
    for order in (*preferred, row_major(rank), channels_innermost(rank)):
        if order is not None and core(order, shape) == lying:
            return order
    found = list(lying)
    for axis in range(rank):
        if axis not in lying:
            found.insert(axis, axis)
    return tuple(found)


def through_reshape(order: Order, old: Sequence[Dim], new: Sequence[Dim]) -> Order | None:
    """The core order of a reshape's result that leaves all bytes where they are, or None."""
    groups = reshape_groups(old, new)
    if groups is None:
        return core(row_major(len(new)), new)
    lying = core(order, old)
    starts = {left[0]: (left, right) for left, right in groups if left}
    result: list[int] = []
    at = 0
    while at < len(lying):
        left, right = starts.get(lying[at], ((), ()))
        if not left or lying[at : at + len(left)] != left:
            return None  # axes that the reshape merges are not adjacent in memory
        result += right
        at += len(left)
    return tuple(result) if len(result) == len(core(row_major(len(new)), new)) else None


def kept_axes(op: Op) -> tuple[int, ...] | None:
    """The operand's axes that a reduction without keepdims keeps; None when the rank stays."""
    operand, result = op.operands[0].type, op.results[0].type
    if operand.rank == result.rank:
        return None
    attributes = op.attributes
    gone = attributes["axes"] if "axes" in attributes else (attributes["axis"],)
    return tuple(a for a in range(operand.rank) if a not in gone)


def forward(op: Op, index: int, order: Order) -> Order | None:
    """The core order of the result when operand `index` lies in `order` and no byte need move.

    For ops that calculate, the order in which the result comes out without a strided access; an
    operand that broadcasts leaves out the axes it has not.
    """
    operand, result = op.operands[index].type, op.results[0].type
    if op.name == "reshape":
        return through_reshape(order, operand.shape, result.shape)
    if op.name == "transpose":
        permutation: tuple[int, ...] = op.attributes["permutation"]
        return core((permutation.index(axis) for axis in order), result.shape)
    if op.name in ("gather", "gather_nd", "gather_elements"):
        if op.name != "gather" or index != 0:
            return None
        axis, many = op.attributes["axis"], op.operands[1].type.rank
        placed: list[int] = []
        for a in order:
            new = range(axis, axis + many) if a == axis else (a if a < axis else a + many - 1,)
            placed += new
        return core(placed, result.shape)
    if index == 0 and op.kind == "reduction":
        kept = kept_axes(op)
        if kept is not None:
            return core((kept.index(a) for a in order if a in kept), result.shape)
    if operand.rank > result.rank:
        return None
    lead = result.rank - operand.rank
    return tuple(lead + axis for axis in core(order, operand.shape))


def backward(op: Op, index: int, order: Order) -> Order | None:
    """The core order that operand `index` should have for the result to lie in `order` for free."""
    operand, result = op.operands[index].type, op.results[0].type
    if op.name == "reshape":
        return through_reshape(order, result.shape, operand.shape)
    if op.name == "transpose":
        permutation: tuple[int, ...] = op.attributes["permutation"]
        return core((permutation[axis] for axis in order), operand.shape)
    if op.name.startswith("gather"):
        return None
    if operand.rank > result.rank or (op.kind == "reduction" and index > 0):
        return None
    lead = result.rank - operand.rank
    return core((axis - lead for axis in order if axis >= lead), operand.shape)
