"""Resampling a tensor along its axes: nearest, linear and cubic, with ONNX's coordinate rules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

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
    check_float,
    check_length,
    check_number,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import F64, TensorType

MODES = ("nearest", "linear", "cubic")
COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
    "tf_crop_and_resize", "tf_half_pixel_for_nn",
)  # fmt: skip
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def source_coordinates(
    attributes: Mapping[str, Any], axis: int, extent: int, size: int
) -> np.ndarray:
    """Where each of `size` result elements lies along an axis of x with `extent` elements: f64."""
    scales, rule = attributes["scales"], attributes["coordinates"]
    scale = scales[axis] if scales else size / extent
    place = np.arange(size, dtype=np.float64)
    if rule == "asymmetric":
        return place / scale
    if rule == "align_corners":
        return place * (extent - 1) / (size - 1) if size > 1 else place
    if rule == "tf_half_pixel_for_nn":
        return (place + 0.5) / scale
    if rule == "tf_crop_and_resize":
        roi = attributes["roi"]
        start, end = roi[axis], roi[len(roi) // 2 + axis]
        if size == 1:
            return np.array([0.5 * (start + end) * (extent - 1)])
        return start * (extent - 1) + place * (end - start) * (extent - 1) / (size - 1)
    if rule == "pytorch_half_pixel" and size == 1:
        return place
    half = (place + 0.5) / scale - 0.5
    if rule == "half_pixel_symmetric":
        half += extent / 2 * (1 - size / (scale * extent))
    return half


def _nearest_index(coordinates: np.ndarray, rule: str) -> np.ndarray:
    if rule == "floor":
        return np.floor(coordinates)
    if rule == "ceil":
        return np.ceil(coordinates)
    down = rule == "round_prefer_floor"
    return np.ceil(coordinates - 0.5) if down else np.floor(coordinates + 0.5)


def resize_taps(
    attributes: Mapping[str, Any], axis: int, extent: int, size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Which elements along an axis make each result element, and with which weights.

    Two arrays [size, taps]: i64 indices inside the axis and f64 weights.  Kernels may build the
    same tables.
    """
    coordinates = source_coordinates(attributes, axis, extent, size)
    scale = attributes["scales"][axis] if attributes["scales"] else size / extent
    if attributes["antialias"] and scale < 1 and attributes["mode"] != "nearest":
        index, weights = _antialiased(attributes, coordinates, scale)
        if attributes["exclude_outside"]:
            weights = np.where((index < 0) | (index >= extent), 0.0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
        return np.clip(index, 0, extent - 1).astype(np.int64), weights
    if attributes["mode"] == "nearest":
        index = _nearest_index(coordinates, attributes["nearest"])[:, None]
        weights = np.ones((size, 1))
    else:
        base = np.floor(coordinates)
        t = coordinates - base
        if attributes["mode"] == "linear":
            steps, weights = np.arange(2), np.stack([1 - t, t], axis=1)
        else:
            # R. Keys, Cubic convolution interpolation for digital image processing (1981), (4).
            a = attributes["cubic_a"]
            steps = np.arange(-1, 3)
            outer, inner = np.stack([1 + t, 2 - t]), np.stack([t, 1 - t])
            far = ((a * outer - 5 * a) * outer + 8 * a) * outer - 4 * a
            near = ((a + 2) * inner - (a + 3)) * inner * inner + 1
            weights = np.stack([far[0], near[0], near[1], far[1]], axis=1)
        index = base[:, None] + steps
        if attributes["exclude_outside"]:
            weights = np.where((index < 0) | (index >= extent), 0.0, weights)
            weights = weights / weights.sum(axis=1, keepdims=True)
    return np.clip(index, 0, extent - 1).astype(np.int64), weights


def antialias_reach(mode: str, scale: float) -> int:
    """How many elements to each side a kernel covers that is stretched by 1 / scale."""
    return math.ceil((1 if mode == "linear" else 2) / scale)


def _antialiased(
    attributes: Mapping[str, Any], coordinates: np.ndarray, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and weights of the kernel stretched by 1 / scale, its weights adding up to 1."""
    reach = antialias_reach(attributes["mode"], scale)
    base = np.ceil(coordinates) - 1
    index = base[:, None] + np.arange(1 - reach, 1 + reach)
    distance = np.abs(index - coordinates[:, None]) * scale
    if attributes["mode"] == "linear":
        weights = np.clip(1 - distance, 0, 1)
    else:
        a = attributes["cubic_a"]
        near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
        far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
        weights = np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
    return index, weights / weights.sum(axis=1, keepdims=True)


class Resize(OpDef):
    """x resampled to `sizes` (dims, one an axis), each axis by itself.

    `scales` (empty, or one float an axis) are what coordinates are calculated from; without them
    sizes / extents.  `coordinates`, `nearest`, `cubic_a`, `exclude_outside`, `extrapolation` and
    `roi` (starts, then ends, for tf_crop_and_resize) are ONNX's attributes of Resize.  `antialias`
    stretches the kernel of an axis that shrinks by 1 / scale.  With `geometry` (f64 [3 * rank]: a
    scale of each axis, then the region's starts and ends) these come from the data, and `scales` and
    `roi` are empty.
    Axes whose element i is made of element i alone are left as they are.
    """

    name = "resize"
    kind = Kind.OPAQUE
    operands = ("x", "geometry?")
    attributes = {
        "sizes": Attribute("dims"),
        "scales": Attribute("floats", ()),
        "mode": Attribute("str", "nearest"),
        "coordinates": Attribute("str", "half_pixel"),
        "nearest": Attribute("str", "round_prefer_floor"),
        "cubic_a": Attribute("float", -0.75),
        "exclude_outside": Attribute("bool", False),
        "extrapolation": Attribute("float", 0.0),
        "roi": Attribute("floats", ()),
        "antialias": Attribute("bool", False),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x = types[0]
        if len(types) > 1:
            if attributes["scales"] or attributes["roi"]:
                raise InferenceError("resize: scales or roi besides geometry")
            if types[1].dtype is not F64:
                raise InferenceError(f"resize: geometry is {types[1]}, want f64")
            require_shape(inference, "resize", "geometry", types[1], (3 * x.rank,))
        check_choice("resize", "mode", attributes["mode"], MODES)
        check_choice("resize", "coordinates", attributes["coordinates"], COORDINATES)
        check_choice("resize", "nearest", attributes["nearest"], NEAREST)
        check_length("resize", "sizes", attributes["sizes"], x.rank)
        if attributes["scales"]:
            check_length("resize", "scales", attributes["scales"], x.rank)
            if any(s <= 0 for s in attributes["scales"]):
                raise InferenceError(f"resize: scales {attributes['scales']}, want positive ones")
        if attributes["coordinates"] == "tf_crop_and_resize" and len(types) == 1:
            check_length("resize", "roi", attributes["roi"], 2 * x.rank)
        if attributes["mode"] == "nearest":
            check_number("resize", x)
        else:
            check_float("resize", x)
        for axis, (size, extent) in enumerate(zip(attributes["sizes"], x.shape, strict=True)):
            inference.require(size, ">=", 0, f"resize: size of axis {axis}")
            # Elements cannot come from nothing; a multiple of no elements is none.
            if isinstance(extent, int) or size % extent != 0:
                inference.require(extent, ">" if size != 0 else ">=", 0, f"resize: extent {axis}")
        return [x.with_shape(attributes["sizes"])]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x = accumulate(arrays[0], context)
        sizes = context.sizes(attributes["sizes"])
        original = x.shape
        if len(arrays) > 1:
            numbers = [float(g) for g in arrays[1]]
            given = {"scales": tuple(numbers[: x.ndim]), "roi": tuple(numbers[x.ndim :])}
            attributes = {**attributes, **given}
        for axis, size in enumerate(sizes):
            if x.shape[axis] == 0 or size == 0:
                x = np.zeros((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype)
                continue
            index, weights = resize_taps(attributes, axis, x.shape[axis], size)
            column = [1] * x.ndim
            column[axis] = -1
            if attributes["mode"] == "nearest":
                x = np.take(x, index[:, 0], axis=axis)
                continue
            if _is_identity(index, weights, x.shape[axis]):
                continue
            terms = [
                np.take(x, taps, axis=axis) * weight.reshape(column)
                for taps, weight in zip(index.T, weights.T, strict=True)
            ]
            x = reduce(np.add, terms)
        if attributes["coordinates"] == "tf_crop_and_resize":
            for axis, (extent, size) in enumerate(zip(original, sizes, strict=True)):
                place = source_coordinates(attributes, axis, extent, size)
                outside = (place < 0) | (place > extent - 1)
                column = [1] * x.ndim
                column[axis] = -1
                value = np.asarray(attributes["extrapolation"]).astype(x.dtype)
                x = np.where(outside.reshape(column), value, x)
        return results([x], context)


def _is_identity(index: np.ndarray, weights: np.ndarray, extent: int) -> bool:
    """Infinities must not meet zero weights on an axis that is not resized."""
    if len(index) != extent:
        return False
    main = (index == np.arange(extent)[:, None]) & (weights == 1)
    return bool(main.any(axis=1).all() and ((weights == 0) | main).all())


OPS: tuple[OpDef, ...] = (Resize(),)
