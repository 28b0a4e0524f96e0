"""Ops that read a tensor at coordinates that another tensor gives, between its elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import (
    check_choice,
    check_indices,
    check_minimum_rank,
    check_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import F32, F64, TensorType

_A = -0.75  # of Keys' cubic kernel, as torch and ONNX have it


def _check_wide(op: str, types: Sequence[TensorType]) -> None:
    check_same_dtype(op, types)
    if types[0].dtype not in (F32, F64):
        raise InferenceError(f"{op}: operands are {types[0].dtype}, want f32 or f64")


def _reflect(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """x mirrored at low and high until it lies between them."""
    span = high - low
    if span <= 0:
        return np.full_like(x, low)
    outside = (x < low) | (x > high)
    far = np.abs(x - low) % (2 * span)
    return np.where(outside, low + np.minimum(far, 2 * span - far), x)


def _axis_taps(x: np.ndarray, extent: int, attributes: Attributes) -> tuple[np.ndarray, np.ndarray]:
    """Indices (-1: a zero) and weights [taps, ...] of normalised coordinates along one axis."""
    mode, padding, aligned = (attributes[n] for n in ("mode", "padding", "align_corners"))
    at = (x + 1) / 2 * (extent - 1) if aligned else ((x + 1) * extent - 1) / 2
    low, high = (0.0, extent - 1.0) if aligned else (-0.5, extent - 0.5)
    at = np.rint(at) if mode == "nearest" else at
    # Cubic kernels lie around the position itself, as torch has it; only what they read is moved.
    if mode == "cubic":
        pass
    elif padding == "border":
        at = np.where((at < low) | (at > high), np.clip(at, 0, extent - 1), at)
    elif padding == "reflection":
        at = _reflect(at, low, high)
    base = np.floor(at)
    t = at - base
    if mode == "nearest":
        # Reflection at half positions can leave one: the element towards zero.
        steps, weights = [0], [np.ones_like(t)]
        base = np.trunc(at)
    elif mode == "linear":
        steps, weights = [0, 1], [1 - t, t]
    else:
        steps = [-1, 0, 1, 2]
        far = [((_A * d - 5 * _A) * d + 8 * _A) * d - 4 * _A for d in (1 + t, 2 - t)]
        near = [((_A + 2) * d - (_A + 3)) * d * d + 1 for d in (t, 1 - t)]
        weights = [far[0], near[0], near[1], far[1]]
    index = np.stack([base + s for s in steps])
    if padding == "border":
        index = np.clip(index, 0, extent - 1)
    elif padding == "reflection":
        index = np.clip(np.trunc(_reflect(index, low, high)), 0, extent - 1)
    index = np.where((index >= 0) & (index < extent), index, -1)  # NaN too
    return index.astype(np.int64), np.stack(weights)


class GridSample(OpDef):
    """x [N, C, spatial...] at the positions grid [N, out..., r], r the number of spatial axes.

    A position runs from -1 to 1 across each axis, the last axis first: from the centre of the first
    element to that of the last with `align_corners`, else from edge to edge.  `mode` nearest (ties
    to even), linear or cubic; `padding` zeros, border or reflection says what lies outside.
    """

    name = "grid_sample"
    kind = Kind.OPAQUE
    operands = ("x", "grid")
    attributes = {
        "mode": Attribute("str", "linear"),
        "padding": Attribute("str", "zeros"),
        "align_corners": Attribute("bool", False),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, grid = types
        _check_wide(self.name, types)
        check_choice(self.name, "mode", attributes["mode"], ("nearest", "linear", "cubic"))
        check_choice(self.name, "padding", attributes["padding"], ("zeros", "border", "reflection"))
        check_minimum_rank(self.name, "x", x, 3)
        if x.rank > 5:
            raise InferenceError(f"grid_sample: x is {x}, want at most three spatial axes")
        check_rank(self.name, "grid", grid, x.rank)
        inference.require(x.shape[0], "==", grid.shape[0], "grid_sample: batch of x and grid")
        inference.require(grid.shape[-1], "==", x.rank - 2, "grid_sample: last axis of the grid")
        return [x.with_shape((*x.shape[:2], *grid.shape[1:-1]))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, grid = (accumulate(a, context) for a in arrays)
        spatial = x.shape[2:]
        out = np.zeros(context.sizes(context.results[0].shape), x.dtype)
        if 0 in x.shape or 0 in out.shape:
            return results([out], context)
        for n in range(x.shape[0]):
            taps = [
                _axis_taps(grid[n, ..., len(spatial) - 1 - i], extent, attributes)
                for i, extent in enumerate(spatial)
            ]
            for choice in itertools.product(*(range(len(w)) for _, w in taps)):
                where = tuple(index[k] for (index, _), k in zip(taps, choice, strict=True))
                weight = np.prod([w[k] for (_, w), k in zip(taps, choice, strict=True)], axis=0)
                inside = np.all([index >= 0 for index in where], axis=0)
                values = x[n][(slice(None), *(np.maximum(i, 0) for i in where))]
                out[n] += np.where(inside, values * weight, 0)
        return results([out], context)


class RoiAlign(OpDef):
    """Bins of regions of x [N, C, H, W], each the mean (or maximum) of bilinear samples in it.

    rois [R, 4] are x1, y1, x2, y2 in units of 1 / `scale` elements, batch_indices [R] name images.
    `sampling` samples a bin along each axis; 0: as many as the bin has elements, rounded up.
    `half_pixel` shifts the regions by half an element; without it they measure at least one.  The
    maximum is over the weighted neighbours of the samples, as ONNX has it.
    """

    name = "roi_align"
    kind = Kind.OPAQUE
    operands = ("x", "rois", "batch_indices")
    attributes = {
        "height": Attribute("int", 1),
        "width": Attribute("int", 1),
        "sampling": Attribute("int", 0),
        "scale": Attribute("float", 1.0),
        "half_pixel": Attribute("bool", True),
        "mode": Attribute("str", "avg"),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, rois, indices = types
        _check_wide(self.name, types[:2])
        check_choice(self.name, "mode", attributes["mode"], ("avg", "max"))
        check_rank(self.name, "x", x, 4)
        check_rank(self.name, "batch_indices", indices, 1)
        check_indices(self.name, indices)
        require_shape(inference, self.name, "rois", rois, (indices.shape[0], 4))
        size = (attributes["height"], attributes["width"])
        if min(size) < 1 or attributes["sampling"] < 0:
            raise InferenceError(f"roi_align: {size} bins, sampling {attributes['sampling']}")
        return [x.with_shape((indices.shape[0], x.shape[1], *size))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, rois = (accumulate(a, context) for a in arrays[:2])
        bins = (attributes["height"], attributes["width"])
        shift = 0.5 if attributes["half_pixel"] else 0.0
        out = np.zeros(context.sizes(context.results[0].shape), x.dtype)
        for r, image in enumerate(arrays[2]):
            region = rois[r] * attributes["scale"] - shift
            axes = [
                self._samples(region[1 - i], region[3 - i], bins[i], x.shape[2 + i], attributes)
                for i in range(2)
            ]
            (rows, row_weights), (columns, column_weights) = axes
            # [bin, sample, 2] each: terms of all pairs, then over samples and neighbours.
            pixels = x[int(image)][:, rows[:, :, :, None, None, None], columns]
            terms = pixels * (row_weights[:, :, :, None, None, None] * column_weights)
            if attributes["mode"] == "avg":
                count = max(rows.shape[1] * columns.shape[1], 1)
                out[r] = terms.sum(axis=(2, 3, 5, 6)) / count
            elif terms.size:
                out[r] = terms.max(axis=(2, 3, 5, 6))
        return results([out], context)

    @staticmethod
    def _samples(
        start: float, end: float, bins: int, extent: int, attributes: Attributes
    ) -> tuple[np.ndarray, np.ndarray]:
        """Neighbours and weights [bins, samples, 2] along one axis; weights are 0 outside."""
        length = end - start if attributes["half_pixel"] else max(end - start, 1.0)
        size = length / bins
        count = attributes["sampling"] or max(int(np.ceil(size)), 0)
        at = (
            start
            + np.arange(bins)[:, None] * size
            + (np.arange(count) + 0.5) * size / max(count, 1)
        )
        inside = (at >= -1) & (at <= extent)
        at = np.maximum(at, 0)
        low = np.minimum(np.trunc(at), extent - 1)
        t = np.where(low >= extent - 1, 0.0, at - low)
        high = np.minimum(low + 1, extent - 1)
        weights = np.where(inside[..., None], np.stack([1 - t, t], axis=-1), 0.0)
        return np.stack([low, high], axis=-1).astype(np.int64), weights


class Determinant(OpDef):
    """The determinants of the matrices in the last two axes."""

    name = "determinant"
    kind = Kind.OPAQUE
    operands = ("x",)

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        _check_wide(self.name, types)
        check_minimum_rank(self.name, "x", x, 2)
        inference.require(x.shape[-1], "==", x.shape[-2], "determinant: the matrix is square")
        return [x.with_shape(x.shape[:-2])]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return results([np.asarray(np.linalg.det(accumulate(arrays[0], context)))], context)


OPS: tuple[OpDef, ...] = (GridSample(), RoiAlign(), Determinant())
