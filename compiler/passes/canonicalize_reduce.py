"""Canonicalize, reductions and windows: what reduces nothing, reduces twice, or reduces everything."""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.passes.match import op_named, static
from graphwright.compiler.passes.rewrite import Rewriter, rule

_KEEPING = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod")
_LOGICAL = ("reduce_and", "reduce_or")


@rule(*_KEEPING, *_LOGICAL)
def reduce_unit_axes(op: Op, rw: Rewriter) -> bool | None:
    """A reduction over axes of extent 1 => reshape; other axes stay reduced."""
    x, axes = op.operands[0], op.attribute("axes")
    left = tuple(a for a in axes if x.type.shape[a] != 1)
    if len(left) == len(axes) and axes:
        return None
    if not left:
        value = (
            x if x.type == op.result.type else rw.value("reshape", x, shape=op.result.type.shape)
        )
        return rw.replace(value) if value.type == op.result.type else None
    reduced = rw.create(op.name, [x], {**op.attributes, "axes": left}).result
    return rw.replace_by("reshape", reduced, shape=op.result.type.shape)


@rule(*_KEEPING, *_LOGICAL)
def reduce_twice(op: Op, rw: Rewriter) -> bool | None:
    """reduce_max(reduce_max(x)) => reduce_max(x); sums and products of integers too.

    Sums of floats and means round differently when regrouped: left alone.
    """
    inner = op_named(op.operands[0], op.name)
    if inner is None:
        return None
    exact = op.name in ("reduce_max", "reduce_min", *_LOGICAL)
    if not exact and not (
        op.name in ("reduce_sum", "reduce_prod") and op.result.type.dtype.is_integer
    ):
        return rw.fail("regrouping a sum of floats rounds differently")
    x = inner.operands[0]
    first: tuple[int, ...] = inner.attribute("axes")
    left = list(range(x.type.rank))
    if not inner.attribute("keepdims"):
        left = [a for a in left if a not in first]
    axes = tuple(sorted({*first, *(left[a] for a in op.attribute("axes"))}))
    keep = op.attribute("keepdims")
    reduced = rw.create(op.name, [x], {**op.attributes, "axes": axes, "keepdims": keep}).result
    if reduced.type != op.result.type:
        reduced = rw.value("reshape", reduced, shape=op.result.type.shape)
    return rw.replace(reduced)


@rule("reshape")
def reshape_of_reduction(op: Op, rw: Rewriter) -> bool | None:
    """reshape(reduce(x)) that drops the reduced axes, or brings them back => reduce(x)."""
    inner = op.operands[0].op
    if inner is None or inner.name not in (*_KEEPING, *_LOGICAL) or len(inner.result.uses) != 1:
        return None
    keepdims = not inner.attribute("keepdims")
    new = rw.create(inner.name, inner.operands, {**inner.attributes, "keepdims": keepdims}).result
    return rw.replace(new) if new.type == op.result.type else None


@rule("average_pool", "max_pool")
def pool_of_everything(op: Op, rw: Rewriter) -> bool | None:
    """A pool whose window is the whole plane => reduce_mean or reduce_max."""
    x = op.operands[0]
    spatial = static(x.type.shape[2:])
    if len(op.results) != 1 or spatial is None or tuple(op.attribute("kernel")) != spatial:
        return None
    pads = (*op.attribute("low"), *op.attribute("high"))
    if any(pads) or op.attribute("ceil_mode") or any(d != 1 for d in op.attribute("dilations")):
        return None
    name = "reduce_mean" if op.name == "average_pool" else "reduce_max"
    axes = tuple(range(2, x.type.rank))
    new = rw.value(name, x, axes=axes, keepdims=True)
    return rw.replace(new) if new.type == op.result.type else None


@rule("average_pool", "max_pool")
def pool_of_one(op: Op, rw: Rewriter) -> bool | None:
    """A pool with a window of one element and stride 1 => x."""
    x = op.operands[0]
    ones = (*op.attribute("kernel"), *op.attribute("strides"))
    pads: tuple[Dim, ...] = (*op.attribute("low"), *op.attribute("high"))
    if len(op.results) != 1 or any(d != 1 for d in ones) or any(d != 0 for d in pads):
        return None
    return rw.replace(x) if x.type == op.result.type else None


@rule("resize")
def resize_to_same(op: Op, rw: Rewriter) -> bool | None:
    """A nearest-neighbour resize to the size that x has => x, where its coordinates say so."""
    x, *scales = op.operands
    if scales:
        return None  # its scales are in the data
    if x.type != op.result.type or op.attribute("mode") != "nearest":
        return None
    if op.attribute("coordinates") not in ("half_pixel", "asymmetric", "align_corners"):
        return None
    if any(scale != 1 for scale in op.attribute("scales")):
        return rw.fail("the size is kept but the scale is not 1")
    return rw.replace(x)
