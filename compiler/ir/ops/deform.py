"""Ops that read an image around places that the data choose: deformed kernels, maxima of regions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir import dims
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
    check_length,
    check_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import F32, F64, TensorType


def _check_wide(op: str, types: Sequence[TensorType]) -> None:
    check_same_dtype(op, types)
    if types[0].dtype not in (F32, F64):
        raise InferenceError(f"{op}: operands are {types[0].dtype}, want f32 or f64")


class DeformColumns(OpDef):
    """What a deformed kernel reads of x [N, C, H, W] at each position: [N, C * kh * kw, OH, OW].

    Element (c, i, j) of the kernel at (p, q) reads row p * stride - low + i * dilation + dy and the
    like column, bilinearly with zeros outside, times the mask.  offset [N, groups * kh * kw * 2, OH,
    OW] holds dy and dx of each group of channels and kernel element, mask [N, groups * kh * kw, OH,
    OW] a factor.  J. Dai and others, Deformable convolutional networks (2017); X. Zhu and others (2018).
    """

    name = "deform_columns"
    kind = Kind.OPAQUE
    operands = ("x", "offset", "mask?")
    attributes = {
        "kernel": Attribute("ints"),
        "strides": Attribute("ints"),
        "low": Attribute("ints"),
        "high": Attribute("ints"),
        "dilations": Attribute("ints"),
        "groups": Attribute("int", 1),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, offset = types[:2]
        _check_wide(self.name, types)
        check_rank(self.name, "x", x, 4)
        for name in ("kernel", "strides", "low", "high", "dilations"):
            check_length(self.name, name, attributes[name], 2)
        kernel, groups = attributes["kernel"], attributes["groups"]
        if min(*kernel, *attributes["strides"], *attributes["dilations"], groups) < 1:
            raise InferenceError(f"{self.name}: kernel, strides, dilations and groups are positive")
        inference.require(dims.modulo(x.shape[1], groups), "==", 0, f"{self.name}: channels")
        taps = kernel[0] * kernel[1]
        size: list[dims.Dim] = []
        for i in range(2):
            span = attributes["dilations"][i] * (kernel[i] - 1) + 1
            room = x.shape[2 + i] + attributes["low"][i] + attributes["high"][i] - span
            size.append(dims.floordiv(room, attributes["strides"][i]) + 1)
        require_shape(
            inference, self.name, "offset", offset, (x.shape[0], groups * taps * 2, *size)
        )
        if len(types) > 2:
            require_shape(
                inference, self.name, "mask", types[2], (x.shape[0], groups * taps, *size)
            )
        return [x.with_shape((x.shape[0], x.shape[1] * taps, *size))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, offset, *rest = (accumulate(a, context) for a in arrays)
        kernel, groups = attributes["kernel"], attributes["groups"]
        taps = kernel[0] * kernel[1]
        batch, channels, height, width = x.shape
        rows, columns = offset.shape[2:]
        out = np.zeros((batch, channels, taps, rows, columns), x.dtype)
        parts = offset.reshape(batch, groups, taps, 2, rows, columns)
        masks = rest[0].reshape(batch, groups, taps, rows, columns) if rest else None
        each = channels // groups
        for n, g, k in itertools.product(range(batch), range(groups), range(taps)):
            grid = [
                (
                    np.arange(count) * attributes["strides"][i]
                    - attributes["low"][i]
                    + (k // kernel[1], k % kernel[1])[i] * attributes["dilations"][i]
                )
                for i, count in enumerate((rows, columns))
            ]
            at = [parts[n, g, k, 0] + grid[0][:, None], parts[n, g, k, 1] + grid[1][None, :]]
            image = x[n, g * each : (g + 1) * each]
            total = np.zeros((each, rows, columns), x.dtype)
            base = [np.floor(a) for a in at]
            for corner in itertools.product(range(2), range(2)):
                place = [b + c for b, c in zip(base, corner, strict=True)]
                weight = np.ones((rows, columns))
                for i in range(2):
                    t = at[i] - base[i]
                    weight = weight * (t if corner[i] else 1 - t)
                inside = (
                    (place[0] >= 0) & (place[0] < height) & (place[1] >= 0) & (place[1] < width)
                )
                index = [np.where(inside, p, 0).astype(np.int64) for p in place]
                if height and width:
                    total += np.where(inside, image[:, index[0], index[1]] * weight, 0)
            if masks is not None:
                total = total * masks[n, g, k]
            out[n, g * each : (g + 1) * each, k] = total
        return results([out.reshape(batch, channels * taps, rows, columns)], context)


class MaxRoiPool(OpDef):
    """The maximum of each of `height` * `width` bins of regions of x [N, C, H, W]; empty bins are 0.

    rois [R, 5]: the image, then x1, y1, x2, y2 in units of 1 / `scale` elements, corners included,
    rounded half away from zero.  R. Girshick, Fast R-CNN (2015).
    """

    name = "max_roi_pool"
    kind = Kind.OPAQUE
    operands = ("x", "rois")
    attributes = {
        "height": Attribute("int"),
        "width": Attribute("int"),
        "scale": Attribute("float", 1.0),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, rois = types
        _check_wide(self.name, types)
        check_rank(self.name, "x", x, 4)
        require_shape(inference, self.name, "rois", rois, (rois.shape[0], 5))
        size = (attributes["height"], attributes["width"])
        if min(size) < 1:
            raise InferenceError(f"max_roi_pool: {size} bins, want positive numbers")
        return [x.with_shape((rois.shape[0], x.shape[1], *size))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, rois = (accumulate(a, context) for a in arrays)
        bins = (attributes["height"], attributes["width"])
        out = np.zeros((len(rois), x.shape[1], *bins), x.dtype)
        for r, region in enumerate(rois):
            scaled = region[1:] * attributes["scale"]
            left, top, right, bottom = (int(np.floor(abs(v) + 0.5) * np.sign(v)) for v in scaled)
            spans = [self._bins(top, bottom, bins[0], x.shape[2])]
            spans.append(self._bins(left, right, bins[1], x.shape[3]))
            for i, (a, b) in enumerate(spans[0]):
                for j, (c, d) in enumerate(spans[1]):
                    if a < b and c < d:
                        out[r, :, i, j] = x[int(region[0]), :, a:b, c:d].max(axis=(1, 2))
        return results([out], context)

    @staticmethod
    def _bins(first: int, last: int, count: int, extent: int) -> list[tuple[int, int]]:
        length = max(last - first + 1, 1)
        each = length / count
        edges = [
            (int(np.floor(i * each)) + first, int(np.ceil((i + 1) * each)) + first)
            for i in range(count)
        ]
        return [(min(max(a, 0), extent), min(max(b, 0), extent)) for a, b in edges]


OPS: tuple[OpDef, ...] = (DeformColumns(), MaxRoiPool())
