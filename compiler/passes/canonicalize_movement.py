"""Canonicalize, index maps without gaps: reshape, transpose, broadcast_to, relayout.

Values only move, so every rule is exact.  Shapes are symbolic: a rule fires when extents are equal
as expressions, never because they might be.
"""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim, Shape, modulo
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.match import (
    infers,
    is_constant,
    op_named,
    uniform_of,
    uniform_value,
)
from graphwright.compiler.passes.rewrite import Rewriter, rule


@rule("reshape", "broadcast_to")
def same_shape(op: Op, rw: Rewriter) -> bool | None:
    """reshape(x: T) to T => x, broadcast_to(x: T) to T => x."""
    x = op.operands[0]
    return rw.replace(x) if x.type == op.result.type else None


@rule("reshape")
def reshape_of_reshape(op: Op, rw: Rewriter) -> bool | None:
    """reshape(reshape(x)) => reshape(x)."""
    inner = op_named(op.operands[0], "reshape")
    if inner is None:
        return None
    return rw.replace_by("reshape", inner.operands[0], shape=op.attribute("shape"))


@rule("transpose")
def transpose_of_transpose(op: Op, rw: Rewriter) -> bool | None:
    """transpose(transpose(x) by p) by q => transpose(x) by p[q], or x when that is the identity."""
    permutation: tuple[int, ...] = op.attribute("permutation")
    x = op.operands[0]
    inner = op_named(x, "transpose")
    if inner is not None:
        first: tuple[int, ...] = inner.attribute("permutation")
        x, permutation = inner.operands[0], tuple(first[p] for p in permutation)
    if permutation == tuple(range(len(permutation))):
        return rw.replace(x)
    return None if inner is None else rw.replace_by("transpose", x, permutation=permutation)


@rule("transpose")
def transpose_of_unit_axes(op: Op, rw: Rewriter) -> bool | None:
    """A transpose that moves only axes of extent 1 => reshape, which costs nothing."""
    x, permutation = op.operands[0], op.attribute("permutation")
    moving = [p for p in permutation if x.type.shape[p] != 1]
    if moving != sorted(moving):
        return None
    return rw.replace_by("reshape", x, shape=op.result.type.shape)


def axis_groups(inner: Shape, outer: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Runs of axes of `inner` and of `outer` with equal products, in order; None when unclear."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(inner) or j < len(outer):
        a: list[int] = []
        b: list[int] = []
        left: Dim = 1
        right: Dim = 1
        while True:
            if a and b and left == right:
                break
            small = _smaller(left, right)
            if i < len(inner) and (not a or small):
                a.append(i)
                left, i = left * inner[i], i + 1
            elif j < len(outer):
                b.append(j)
                right, j = right * outer[j], j + 1
            elif i < len(inner):
                a.append(i)
                left, i = left * inner[i], i + 1
            else:
                break
        if left != right:
            return None
        groups.append((a, b))
    return groups


def _smaller(left: Dim, right: Dim) -> bool:
    """Whether the left product should grow first: only a matter of finding the split."""
    if isinstance(left, int) and isinstance(right, int):
        return left < right
    return left != 0 and left != right and modulo(right, left) == 0


@rule("transpose")
def transpose_of_reshape(op: Op, rw: Rewriter) -> bool | None:
    """transpose(reshape(transpose(x))) where the reshape keeps runs of axes together, so that one
    of the transposes can pass it and both become one (or none)."""
    reshape = op_named(op.operands[0], "reshape")
    first = op_named(reshape.operands[0], "transpose") if reshape is not None else None
    if reshape is None or first is None:
        return None
    x, p, q = first.operands[0], first.attribute("permutation"), op.attribute("permutation")
    groups = axis_groups(first.result.type.shape, reshape.result.type.shape)
    if groups is None:
        return rw.fail("the reshape between two transposes mixes axes")
    # The second transpose must move whole groups; unit axes may go anywhere.
    member = {axis: g for g, (_, outs) in enumerate(groups) for axis in outs}
    order: list[int] = []
    inside: dict[int, list[int]] = {}
    for axis in q:
        g = member[axis]
        if not order or order[-1] != g:
            if g in inside:
                return rw.fail("the second transpose splits what the reshape joined")
            order.append(g)
        inside.setdefault(g, []).append(axis)
    if any(inside[g] != groups[g][1] for g in inside):
        return rw.fail("the second transpose reorders inside what the reshape made")
    order += [g for g, (_, outs) in enumerate(groups) if not outs]  # unit axes that vanished
    permutation = tuple(p[axis] for g in order for axis in groups[g][0])
    moved = rw.value("transpose", x, permutation=permutation)
    return rw.replace_by("reshape", moved, shape=op.result.type.shape)


@rule("reshape")
def unit_reshape_of_transpose(op: Op, rw: Rewriter) -> bool | None:
    """reshape(transpose(x)) that only moves axes of extent 1 => one transpose of x."""
    inner = op_named(op.operands[0], "transpose")
    if inner is None:
        return None
    x, shape = inner.operands[0], op.result.type.shape
    if len(shape) != x.type.rank:
        return None
    longer = [a for a in inner.attribute("permutation") if x.type.shape[a] != 1]
    units = [a for a in range(x.type.rank) if x.type.shape[a] == 1]
    if [d for d in shape if d != 1] != [x.type.shape[a] for a in longer]:
        return None
    left, ones = iter(longer), iter(units)
    permutation = tuple(next(ones) if d == 1 else next(left) for d in shape)
    return rw.replace_by("transpose", x, permutation=permutation)


@rule("broadcast_to")
def broadcast_of_broadcast(op: Op, rw: Rewriter) -> bool | None:
    """broadcast_to(broadcast_to(x)) => broadcast_to(x)."""
    inner = op_named(op.operands[0], "broadcast_to")
    if inner is None:
        return None
    return rw.replace_by("broadcast_to", inner.operands[0], shape=op.attribute("shape"))


@rule("broadcast_to")
def broadcast_of_unit_reshape(op: Op, rw: Rewriter) -> bool | None:
    """broadcast_to(reshape(x)) that only added leading unit axes => broadcast_to(x)."""
    inner = op_named(op.operands[0], "reshape")
    if inner is None:
        return None
    x = inner.operands[0]
    new = len(inner.result.type.shape) - x.type.rank
    if new <= 0 or inner.result.type.shape != (1,) * new + x.type.shape:
        return None
    return rw.replace_by("broadcast_to", x, shape=op.attribute("shape"))


@rule("broadcast_to", "reshape", "transpose", "slice", "gather")
def move_repeated_value(op: Op, rw: Rewriter) -> bool | None:
    """A rearrangement of one repeated value => that value in the result's shape."""
    x = op.operands[0]
    if op.name != "broadcast_to" and not is_constant(x):
        return None
    source = x.op
    if source is None or not is_constant(x):
        return None
    if source.name == "constant" and source.attribute("recipe") is not None:
        return None
    if source.name == "constant" and op.result.type.is_static:
        return None  # fold-constants does it
    number = uniform_of(x)
    return None if number is None else rw.replace(uniform_value(rw, number, op.result.type))


@rule(kinds=[Kind.POINTWISE])
def broadcast_before_pointwise(op: Op, rw: Rewriter) -> bool | None:
    """add(broadcast_to(x), y) => add(x, y) where add repeats x itself."""
    for i, value in enumerate(op.operands):
        inner = op_named(value, "broadcast_to")
        if inner is None:
            continue
        operands = [inner.operands[0] if j == i else v for j, v in enumerate(op.operands)]
        if infers(op, operands):
            return rw.replace(rw.create(op.name, operands, op.attributes).result)
    return None


@rule(kinds=[Kind.POINTWISE])
def unit_reshape_before_pointwise(op: Op, rw: Rewriter) -> bool | None:
    """add(reshape(x) that added leading unit axes, y) => add(x, y): broadcasting adds them."""
    if len(op.operands) < 2:
        return None
    for i, value in enumerate(op.operands):
        inner = op_named(value, "reshape")
        if inner is None:
            continue
        x, shape = inner.operands[0], inner.result.type.shape
        new = len(shape) - x.type.rank
        if new <= 0 or shape != (1,) * new + x.type.shape:
            continue
        operands = [x if j == i else v for j, v in enumerate(op.operands)]
        if infers(op, operands):
            return rw.replace(rw.create(op.name, operands, op.attributes).result)
    return None


@rule("relayout")
def relayout_of_relayout(op: Op, rw: Rewriter) -> bool | None:
    """relayout(relayout(x)) => relayout(x), or x when it has that layout already."""
    inner = op_named(op.operands[0], "relayout")
    x: Value = inner.operands[0] if inner is not None else op.operands[0]
    if x.type == op.result.type:
        return rw.replace(x)
    return rw.replace_by("relayout", x, layout=op.attribute("layout")) if inner else None
