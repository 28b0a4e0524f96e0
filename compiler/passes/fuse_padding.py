"""Padding with zeros goes into the convolution that reads it."""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import order_of
from graphwright.compiler.ir.types import TensorType
from graphwright.compiler.passes.fuse_region import INVERTIBLE
from graphwright.compiler.passes.layout_orders import core
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import reshape_groups

# Contractions with an implicit border of zeros, as attributes `low` and `high` on spatial axes.
PADDED = ("conv",)


def absorb_padding(rw: Rewriter, op: Op) -> bool:
    """conv(pad(x, 0)) -> conv with a larger border, when only spatial axes are padded with zero.

    Invertible movement in between may stay when each padded axis passes through it alone.
    """
    if op.name not in PADDED:
        return False
    chain: list[Op] = []
    pad = op.operands[0].op
    while pad is not None and pad.name in INVERTIBLE:
        chain.insert(0, pad)
        pad = pad.operands[0].op
    if pad is None or pad.name != "pad" or pad.attributes["mode"] != "constant":
        return False
    source, *fill = pad.operands
    if not all(map(_is_zero, fill)):
        return False
    if not _lie_alike(source.type, pad.result.type):
        return False
    pads = [(pad.attributes["low"][a], pad.attributes["high"][a]) for a in range(source.type.rank)]
    shapes: list[Shape] = []
    for view in chain:
        moved = _pads_through(view, pads)
        if moved is None:
            return False
        pads = moved
        extents = zip(view.result.type.shape, pads, strict=True)
        shapes.append(tuple(extent - low - high for extent, (low, high) in extents))
    if any(low != 0 or high != 0 for low, high in pads[:2]):
        return False
    with rw.step("absorb-padding", op):
        value = source
        for view, shape in zip(chain, shapes, strict=True):
            attributes = dict(view.attributes)
            if "shape" in attributes:
                attributes["shape"] = shape
            value = rw.create(view.name, [value], attributes).result
            value.type = value.type.with_layout(view.result.type.layout)
        attributes = dict(op.attributes)
        for side, name in enumerate(("low", "high")):
            given = zip(attributes[name], pads[2:], strict=True)
            attributes[name] = tuple(border + pad[side] for border, pad in given)
        new = rw.create(op.name, [value, *op.operands[1:]], attributes)
        new.result.type = op.result.type
        rw.replace(new.result)
    return True


def _pads_through(view: Op, pads: list[tuple[Dim, Dim]]) -> list[tuple[Dim, Dim]] | None:
    """The borders of a view's result, given those of its operand; None where they mix."""
    if view.name == "relayout":
        return pads
    if view.name == "transpose":
        return [pads[axis] for axis in view.attributes["permutation"]]
    operand, result = view.operands[0].type, view.result.type
    groups = reshape_groups(operand.shape, result.shape)
    if groups is None:
        return None
    out: list[tuple[Dim, Dim]] = [(0, 0)] * result.rank
    moved: set[int] = set()
    for left, right in groups:
        if len(left) == len(right) == 1:
            out[right[0]] = pads[left[0]]
            moved.add(left[0])
    mixed = any(pads[a] != (0, 0) for a in range(operand.rank) if a not in moved)
    return None if mixed else out


def _lie_alike(a: TensorType, b: TensorType) -> bool:
    """Whether the axes of two dense tensors lie in one order, extents of 1 aside."""
    layouts = [t.layout for t in (a, b) if t.layout is not None]
    if any(layout.windows or layout.blocks for layout in layouts):
        return False
    return core(order_of(a.layout, a.rank), a.shape) == core(order_of(b.layout, b.rank), a.shape)


def _is_zero(value: Value) -> bool:
    op = value.op
    if op is None or op.name != "constant":
        return False
    literal = op.attributes["value"]
    return literal.elements == 1 and literal.item() == 0
