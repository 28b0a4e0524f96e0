"""Ops that read or write where indices say: what an index may be is checked.

ONNX calls an index outside [-n, n) of an axis of n elements an error.  Indices that are known are
checked at import, where the extent is a symbol by a constraint of it; those that certainly lie inside
need nothing; the rest are looked through at run time before the op, whose own access never leaves
the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import MAX_EXTENT, Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import I64
from graphwright.frontends.onnx.direct import import_direct
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

Range = tuple[Dim, Dim]  # the least and the largest number that can occur
SAME = ("reshape", "transpose", "broadcast_to", "slice", "gather", "gather_elements", "gather_nd")


def require_inside(node: Node, indices: Value, extents: Sequence[Dim], what: str) -> None:
    """Every index lies in [-n, n), n being `extents[0]`, or one each along the indices' last axis."""
    known = node.known(indices)
    if known is not None and all(isinstance(i, int | np.integer) for i in known.flat):
        columns = known.reshape(-1, len(extents)) if len(extents) > 1 else known.reshape(-1, 1)
        for column, extent in zip(columns.T, extents, strict=True):
            if column.size:
                _require_known(node, int(column.min()), int(column.max()), extent, what)
        return
    if indices.type.elements == 0:
        return
    found = range_of(node, indices)
    if found is not None and all(_is_inside(found, extent) for extent in extents):
        return
    wide = node.cast(indices, I64)
    if len(extents) == 1:
        extent = extents[0]
        high = node.scalar(extent, I64) if isinstance(extent, int) else node.size(extent)
    else:
        high = node.sizes(extents)
    low = node.emit("greater_or_equal", node.emit("add", wide, high), node.scalar(0, I64))
    inside = node.emit("logical_and", low, node.emit("less", wide, high))
    axes = tuple(range(inside.type.rank))
    every = node.emit("reduce_and", inside, axes=axes, keepdims=False) if axes else inside
    sizes = " x ".join(map(str, extents))
    reason = f"{node.type} {node.origin}: an index lies outside {what} of {sizes}"
    node.emit_all("check", every, reason=reason)


def _require_known(node: Node, low: int, high: int, extent: Dim, what: str) -> None:
    least = max(-low, high + 1)  # as large as the axis has to be
    if isinstance(extent, int) and extent < least:
        bad = high if high >= extent else low
        raise Refusal(f"its index {bad} lies outside {what} of {extent}")
    if dims.prove(extent, ">=", least) is not True:
        node.require(extent, ">=", least, f"{node.type} {node.origin}: an index of {what}")


def _is_inside(found: Range, extent: Dim) -> bool:
    low, high = found
    not_below = dims.prove(low + extent, ">=", 0) if low != 0 else True
    return not_below is True and dims.prove(high, "<", extent) is True


def range_of(node: Node, value: Value, depth: int = 8) -> Range | None:
    """Between which numbers an integer tensor lies, as far as that is easily seen."""
    known = node.known(value)
    if (
        known is not None
        and known.size
        and all(isinstance(i, int | np.integer) for i in known.flat)
    ):
        return int(known.min()), int(known.max())
    counter = node.importer.counter_of(value) if value.type.elements == 1 else None
    if counter is not None and counter[1] is not None:
        return counter[2], counter[1] - 1 + counter[2]
    op = value.op
    if op is None or depth == 0:
        return None
    rule = _RULES.get(op.name)
    return None if rule is None else rule(node, op, value, depth - 1)


def _same(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    return range_of(node, op.operands[0], depth)


def _cast(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    source = op.operands[0].type.dtype
    if not source.is_integer or not value.type.dtype.is_integer:
        return None
    found = range_of(node, op.operands[0], depth)
    if found is None or source.bits > value.type.dtype.bits:
        return None
    return found


def _position(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    """Positions along an axis of the operand."""
    if op.name == "top_k" and value is not op.results[1]:
        return None
    return 0, op.operands[0].type.shape[op.attribute("axis")] - 1


def _iota(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    start, step, size = (op.attribute(n) for n in ("start", "step", "size"))
    if not value.type.dtype.is_integer or not isinstance(step, int):
        return None
    last = start + (size - 1) * step
    return (start, last) if step > 0 else (last, start)


def _from_dims(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    (dim,) = op.attribute("dims") if len(op.attribute("dims")) == 1 else (None,)
    return (0, MAX_EXTENT) if dim is None else (dim, dim)


def _shifted(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    a, b = (range_of(node, v, depth) for v in op.operands)
    if a is None or b is None:
        return None
    return (a[0] + b[0], a[1] + b[1]) if op.name == "add" else (a[0] - b[1], a[1] - b[0])


def _clip(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    low, high = (range_of(node, v, depth) for v in op.operands[1:])
    return None if low is None or high is None else (low[0], high[1])


def _joined(node: Node, op: Op, value: Value, depth: int) -> Range | None:
    parts = [range_of(node, v, depth) for v in op.operands]
    found = [p for p in parts if p is not None]
    if len(found) < len(parts):
        return None
    low, high = found[0]
    for a, b in found[1:]:
        low = low if dims.prove(low, "<=", a) else a if dims.prove(a, "<=", low) else None
        high = high if dims.prove(high, ">=", b) else b if dims.prove(b, ">=", high) else None
        if low is None or high is None:
            return None
    return low, high


_RULES: dict[str, Callable[[Node, Op, Value, int], Range | None]] = {
    **dict.fromkeys(SAME, _same),
    "add": _shifted,
    "arg_max": _position,
    "arg_min": _position,
    "cast": _cast,
    "clip": _clip,
    "concat": _joined,
    "from_dims": _from_dims,
    "iota": _iota,
    "sub": _shifted,
    "top_k": _position,
}


def _along_axis(node: Node) -> Sequence[Value]:
    """Gather, GatherElements, ScatterElements: indices along one axis."""
    x, indices = node.x(0), node.x(1)
    axis = node.axis(int(node.attr("axis", 0)), x.type.rank)
    require_inside(node, indices, (x.type.shape[axis],), f"axis {axis}")
    return import_direct(node, node.importer.direct[node.type])


def _tuples(node: Node) -> Sequence[Value]:
    """GatherND, ScatterND: tuples of indices, for the axes after those of the batch."""
    x, indices = node.x(0), node.x(1)
    batch = int(node.attr("batch_dims", 0)) if node.has("batch_dims") else 0
    count = indices.type.shape[-1] if indices.type.rank else None
    if isinstance(count, int) and 0 < count <= x.type.rank - batch:
        extents = x.type.shape[batch : batch + count]
        require_inside(node, indices, extents, f"axes {batch} to {batch + count - 1}")
    return import_direct(node, node.importer.direct[node.type])


COMPOSE = {
    **dict.fromkeys(("Gather", "GatherElements", "Scatter", "ScatterElements"), _along_axis),
    **dict.fromkeys(("GatherND", "ScatterND"), _tuples),
}
