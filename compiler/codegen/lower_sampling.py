"""Resampling as scalar code: an element of resize, grid_sample or roi_align from the taps around it.

Coordinates are calculated in float64 where they come from sizes, as the IR's references do
(compiler/ir/ops/resize.py, sampling.py).  For targets without kernels of their own for these ops.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from graphwright.compiler.codegen.expressions import exact_quotient
from graphwright.compiler.codegen.lower import Coordinates, Lowering, Rule, problem
from graphwright.compiler.codegen.scalar import Node
from graphwright.compiler.codegen.terms import Operand, Term, Terms
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.ops.resize import antialias_reach
from graphwright.compiler.ir.types import F64

MOST_TAPS = 256  # terms of one element that are written out
KEYS = -0.75  # of the cubic kernel of grid_sample, as torch and ONNX have it


def is_kept(op: Op, axis: int) -> bool:
    """Whether element i of a resize's result is element i of its operand along the axis."""
    extent, size = op.operands[0].type.shape[axis], op.attribute("sizes")[axis]
    scales = op.attribute("scales")
    special = ("tf_crop_and_resize", "tf_half_pixel_for_nn")
    return (
        dims.equal(extent, size)
        and (not scales or scales[axis] == 1)
        and op.attribute("coordinates") not in special
    )


def whole_factor(op: Op, axis: int) -> int | None:
    """s when element i of a resize's result is exactly operand element i // s."""
    if op.attribute("mode") != "nearest":
        return None
    extent, size = op.operands[0].type.shape[axis], op.attribute("sizes")[axis]
    factor = exact_quotient(size, extent) if extent != 0 else None
    scales = op.attribute("scales")
    if not isinstance(factor, int) or factor < 1 or (scales and scales[axis] != factor):
        return None
    rule, nearest = op.attribute("coordinates"), op.attribute("nearest")
    if rule == "asymmetric":
        return factor if nearest == "floor" or factor == 1 else None
    # ((i + 0.5) / s - 0.5) rounded is i // s, since (i + 0.5) / s is never a whole number.
    halves = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    return factor if rule in halves and nearest.startswith("round") else None


class Resize:
    """One element of a resize: along each axis a coordinate, the taps around it, their weights."""

    def __init__(self, low: Lowering, op: Op, at: Coordinates) -> None:
        self.op, self.at, self.low = op, at, low
        self.terms = Terms(low, op.graph.registry)
        self.x, self.rank = op.operands[0], op.operands[0].type.rank
        self.rule: str = op.attribute("coordinates")
        self.mode: str = op.attribute("mode")

    def element(self) -> Node:
        place = list(self.at)
        moved: list[int] = []
        for axis in range(self.rank):
            if len(self.op.operands) > 1 or not is_kept(self.op, axis):
                factor = None if len(self.op.operands) > 1 else whole_factor(self.op, axis)
                if factor is None:
                    moved.append(axis)
                else:
                    place[axis] = self.low.domain.quotient(place[axis], factor)
        taps = {axis: self.taps(axis) for axis in moved}
        count = 1
        for found in taps.values():
            count *= len(found)
        if count > MOST_TAPS:
            raise problem(self.op, f"each element is made of {count} others")
        total = _weighted(self.terms, self.x, tuple(place), moved, taps)
        if self.rule == "tf_crop_and_resize":
            for axis in moved:
                last = self.extent(axis) - 1
                where = self.coordinate(axis)
                outside = (where < 0) | (where > last)
                value = float(self.op.attribute("extrapolation"))
                total = self.terms.where(outside, value, total)
        return total.node

    def extent(self, axis: int) -> Term:
        return self.terms.index(self.x.type.shape[axis], F64)

    def size(self, axis: int) -> Term:
        return self.terms.index(self.op.attribute("sizes")[axis], F64)

    def given(self, place: int) -> Term:
        """A number of `geometry`: scales of all axes, then starts, then ends of the region."""
        return self.terms.of(self.low.at(self.op.operands[1], (place,)))

    def scale(self, axis: int) -> Term:
        if len(self.op.operands) > 1:
            return self.given(axis)
        scales = self.op.attribute("scales")
        if scales:
            return self.terms.number(float(scales[axis]), F64)
        return self.size(axis) / self.extent(axis)

    def region(self, axis: int) -> tuple[Term, Term]:
        if len(self.op.operands) > 1:
            return self.given(self.rank + axis), self.given(2 * self.rank + axis)
        roi = self.op.attribute("roi")
        start, end = (self.terms.number(float(roi[i]), F64) for i in (axis, self.rank + axis))
        return start, end

    def coordinate(self, axis: int) -> Term:
        """Where the element lies along an axis of the operand."""
        place, size = self.terms.index(self.at[axis], F64), self.op.attribute("sizes")[axis]
        scale, extent = self.scale(axis), self.extent(axis)
        if self.rule == "asymmetric":
            return place / scale
        if self.rule == "align_corners":
            return place * (extent - 1) / (self.size(axis) - 1).maximum(1)
        if self.rule == "tf_half_pixel_for_nn":
            return (place + 0.5) / scale
        if self.rule == "tf_crop_and_resize":
            start, end = self.region(axis)
            return self._if_many(
                size,
                start * (extent - 1)
                + place * (end - start) * (extent - 1) / (self.size(axis) - 1).maximum(1),
                0.5 * (start + end) * (extent - 1),
            )
        half = (place + 0.5) / scale - 0.5
        if self.rule == "pytorch_half_pixel":
            return self._if_many(size, half, place)
        if self.rule == "half_pixel_symmetric":
            half = half + extent / 2 * (1 - self.size(axis) / (scale * extent))
        return half

    def _if_many(self, size: Dim, many: Term, one: Term) -> Term:
        node = self.low.choose([(1, size)], lambda: many.node, lambda: one.node)
        return self.terms.of(node)

    def taps(self, axis: int) -> list[tuple[Dim, Term | None]]:
        """(place, weight) of what makes the element along one axis."""
        at, extent = self.coordinate(axis), self.extent(axis)
        reach = self.reach(axis)
        if self.mode == "nearest":
            return [(self._place(axis, self._nearest(at)), None)]
        if reach:
            scale, base = self.scale(axis), at.ceil() - 1
            index = [base + step for step in range(1 - reach, 1 + reach)]
            weights = [self._stretched((i - at).abs() * scale) for i in index]
        else:
            base = at.floor()
            t = at - base
            steps = range(2) if self.mode == "linear" else range(-1, 3)
            index = [base + step for step in steps]
            weights = [1 - t, t]
            if self.mode == "cubic":
                weights = cubic_weights(t, float(self.op.attribute("cubic_a")))
        if self.op.attribute("exclude_outside"):
            inside = [(i >= 0) & (i < extent) for i in index]
            weights = [
                self.terms.where(here, w, 0.0) for here, w in zip(inside, weights, strict=True)
            ]
        if reach or self.op.attribute("exclude_outside"):
            total = sum(weights[1:], weights[0])
            weights = [w / total for w in weights]
        return [(self._place(axis, i), w) for i, w in zip(index, weights, strict=True)]

    def reach(self, axis: int) -> int:
        """Elements to each side of a kernel that antialiasing stretches; 0 without."""
        if not self.op.attribute("antialias") or self.mode == "nearest":
            return 0
        extent, size = self.x.type.shape[axis], self.op.attribute("sizes")[axis]
        scales = self.op.attribute("scales")
        if not scales and not (isinstance(extent, int) and isinstance(size, int)):
            raise problem(self.op, f"antialias with {extent} elements of axis {axis} made {size}")
        scale = scales[axis] if scales else dims.evaluate(size, {}) / dims.evaluate(extent, {})
        return antialias_reach(self.mode, scale) if scale < 1 else 0

    def _stretched(self, distance: Term) -> Term:
        if self.mode == "linear":
            return (1 - distance).within(0.0, 1.0)
        a = float(self.op.attribute("cubic_a"))
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        outer = self.terms.where(distance < 2, far, 0.0)
        return self.terms.where(distance <= 1, near, outer)

    def _nearest(self, at: Term) -> Term:
        rule = self.op.attribute("nearest")
        if rule == "floor":
            return at.floor()
        if rule == "ceil":
            return at.ceil()
        return (at - 0.5).ceil() if rule == "round_prefer_floor" else (at + 0.5).floor()

    def _place(self, axis: int, index: Term) -> Dim:
        limited = index.within(0.0, self.extent(axis) - 1)
        return limited.coordinate(self.x.type.shape[axis], "tap")


def cubic_weights(t: Term, a: float) -> list[Term]:
    """Weights of the four elements around a place t behind the second.

    R. Keys, Cubic convolution interpolation for digital image processing (1981), (4).
    """
    far = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in (1 + t, 2 - t)]
    near = [((a + 2) * d - (a + 3)) * d * d + 1 for d in (t, 1 - t)]
    return [far[0], near[0], near[1], far[1]]


def _weighted(
    terms: Terms,
    x: Value,
    at: Coordinates,
    axes: Sequence[int],
    taps: Mapping[int, Sequence[tuple[Dim, Term | None]]],
) -> Term:
    """Sums over the taps of the last axis of sums over those before it."""
    if not axes:
        return terms.of(terms.lowering.at(x, at))
    *rest, axis = axes
    total: Term | None = None
    for place, weight in taps[axis]:
        term = _weighted(terms, x, (*at[:axis], place, *at[axis + 1 :]), rest, taps)
        if weight is not None:
            term = term * weight.to(term.dtype)
        total = term if total is None else total + term
    assert total is not None
    return total


def _resize(low: Lowering, op: Op, at: Coordinates) -> Node:
    return Resize(low, op, at).element()


def _reflected(x: Term, low: float, high: Term) -> Term:
    """x mirrored at low and high until it lies between them."""
    span = high - low
    far = (x - low).abs()
    far = far - (far / (2 * span)).floor() * (2 * span)
    inner = low + far.minimum(2 * span - far)
    inside = x.terms.where((x < low) | (x > high), inner, x)
    return x.terms.where(span <= 0, x.like(low), inside)


def _grid_taps(
    terms: Terms, op: Op, axis: int, x: Term
) -> list[tuple[Dim, Term, Term | None]]:  # fmt: skip
    """(place, whether it is inside, weight) along a spatial axis for a normalised coordinate."""
    mode, padding = op.attribute("mode"), op.attribute("padding")
    aligned = bool(op.attribute("align_corners"))
    dim = op.operands[0].type.shape[axis]
    extent = terms.index(dim, x.dtype)
    at = (x + 1) / 2 * (extent - 1) if aligned else ((x + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1) if aligned else (-0.5, extent - 0.5)
    if mode == "nearest":
        at = at.round()
    if mode != "cubic":
        if padding == "border":
            at = terms.where((at < low) | (at > high), at.within(0.0, extent - 1), at)
        elif padding == "reflection":
            at = _reflected(at, low, high)
    base = at.floor()
    t = at - base
    if mode == "nearest":
        steps, weights, base = [0], list[Term | None]([None]), at.truncated()
    elif mode == "linear":
        steps, weights = [0, 1], list[Term | None]([1 - t, t])
    else:
        steps, weights = [-1, 0, 1, 2], list[Term | None](cubic_weights(t, KEYS))
    out: list[tuple[Dim, Term, Term | None]] = []
    for step, weight in zip(steps, weights, strict=True):
        index = base + step
        if padding == "border":
            index = index.within(0.0, extent - 1)
        elif padding == "reflection":
            index = _reflected(index, low, high).truncated().within(0.0, extent - 1)
        inside = (index >= 0) & (index < extent)
        place = terms.where(inside, index, 0.0).coordinate(dim, "tap")
        out.append((place, inside, weight))
    return out


def _grid_sample(low: Lowering, op: Op, at: Coordinates) -> Node:
    x, grid = op.operands
    terms = Terms(low, op.graph.registry)
    spatial = x.type.rank - 2
    taps = [
        _grid_taps(
            terms, op, 2 + i, terms.of(low.at(grid, (at[0], *at[2:], spatial - 1 - i)))
        )
        for i in range(spatial)
    ]  # fmt: skip
    total: Term | None = None
    for chosen in itertools.product(*taps):
        element = terms.of(low.at(x, (at[0], at[1], *(place for place, _, _ in chosen))))
        for _, _, weight in chosen:
            if weight is not None:
                element = element * weight
        for _, inside, _ in chosen:
            element = terms.where(inside, element, 0.0)
        total = element if total is None else total + element
    assert total is not None
    return total.node


def _roi_align(low: Lowering, op: Op, at: Coordinates) -> Node:
    x, rois, images = op.operands
    count: int = op.attribute("sampling")
    if count == 0 or 4 * count * count > MOST_TAPS:
        raise problem(op, f"{count or 'as many samples as a bin has elements'} samples a bin",
                      "give sampling_ratio a small number")  # fmt: skip
    terms = Terms(low, op.graph.registry)
    image = low.wrapped(low.at(images, (at[0],)), x.type.shape[0], "image")
    axes = [_roi_samples(terms, op, low, rois, at, axis) for axis in range(2)]
    total: Term | None = None
    for row, column in itertools.product(*axes):
        element = terms.of(low.at(x, (image, at[1], row[0], column[0]))) * (row[1] * column[1])
        if total is None:
            total = element
        else:
            total = total + element if op.attribute("mode") == "avg" else total.maximum(element)
    assert total is not None
    return (total / float(count * count) if op.attribute("mode") == "avg" else total).node


def _roi_samples(
    terms: Terms, op: Op, low: Lowering, rois: Value, at: Coordinates, axis: int
) -> list[tuple[Dim, Term]]:
    """(place, weight) of both neighbours of each sample of a bin, along rows (0) or columns (1)."""
    count: int = op.attribute("sampling")
    bins = float(op.attribute("height" if axis == 0 else "width"))
    dim = op.operands[0].type.shape[2 + axis]
    shift: Operand = 0.5 if op.attribute("half_pixel") else 0.0
    start, end = (
        terms.of(low.at(rois, (at[0], corner - axis))) * float(op.attribute("scale")) - shift
        for corner in (1, 3)
    )
    length = end - start if op.attribute("half_pixel") else (end - start).maximum(1.0)
    size, extent = length / bins, terms.index(dim, start.dtype)
    first = start + terms.index(at[2 + axis], start.dtype) * size
    out: list[tuple[Dim, Term]] = []
    for sample in range(count):
        where = first + (sample + 0.5) * size / float(count)
        inside = (where >= -1) & (where <= extent)
        where = where.maximum(0.0)
        below = where.truncated().minimum(extent - 1)
        t = terms.where(below >= extent - 1, 0.0, where - below)
        above = (below + 1).minimum(extent - 1)
        for index, weight in ((below, 1 - t), (above, t)):
            place = index.within(0.0, extent - 1).coordinate(dim, "tap")
            out.append((place, terms.where(inside, weight, 0.0)))
    return out


RULES: Mapping[str, Rule] = {
    "resize": _resize,
    "grid_sample": _grid_sample,
    "roi_align": _roi_align,
}
