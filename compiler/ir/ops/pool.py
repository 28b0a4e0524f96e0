"""Pooling over windows of the spatial axes, and local response normalisation over channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import check_float, check_minimum_rank, check_number
from graphwright.compiler.ir.ops.precision import accumulate, results, widen
from graphwright.compiler.ir.ops.windows import (
    check_windows,
    infer_windows,
    pad_windows,
    window_slices,
)
from graphwright.compiler.ir.types import I64, TensorType

_ATTRIBUTES = {
    "kernel": Attribute("ints"),
    "strides": Attribute("ints"),
    "low": Attribute("dims"),
    "high": Attribute("dims"),
    "dilations": Attribute("ints"),
    "ceil_mode": Attribute("bool", False),
}


class _Pool(OpDef):
    kind = Kind.OPAQUE
    operands = ("x",)

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        check_minimum_rank(self.name, "x", x, 3)
        names = ("kernel", "strides", "low", "high", "dilations")
        check_windows(self.name, attributes, x.rank - 2, names)
        out = infer_windows(
            self.name,
            x.shape[2:],
            attributes["kernel"],
            attributes,
            inference,
            ceil_mode=attributes["ceil_mode"],
        )
        return [x.with_shape((*x.shape[:2], *out))]


class MaxPool(_Pool):
    """The largest element of each window; padding never wins, NaN does.

    A window of padding alone gives minus infinity (the type's smallest value for integers).
    """

    name = "max_pool"
    attributes = _ATTRIBUTES

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_number(self.name, types[0])
        return super().infer(types, attributes, inference)

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, kernel = widen(arrays[0], context), attributes["kernel"]
        low, out = context.sizes(attributes["low"]), context.sizes(context.results[0].shape)[2:]
        least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
        padded = pad_windows(x, kernel, out, attributes, low, least)
        parts = (padded[(..., *where)] for _, where in window_slices(kernel, out, attributes))
        return results([reduce(np.maximum, parts)], context)


class ArgMaxPool(_Pool):
    """Where the largest element of each window lies: its index in the whole of x, flattened (i64).

    The first one in row-major order wins; a NaN wins over numbers.  `column_major` counts the
    spatial axes of each plane from the first one on.  A window of padding alone gives 0.
    """

    name = "arg_max_pool"
    attributes = _ATTRIBUTES | {"column_major": Attribute("bool", False)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_number(self.name, types[0])
        return [super().infer(types, attributes, inference)[0].with_dtype(I64)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, kernel = widen(arrays[0], context), attributes["kernel"]
        low, out = context.sizes(attributes["low"]), context.sizes(context.results[0].shape)[2:]
        order = "F" if attributes["column_major"] else "C"
        plane = np.arange(int(np.prod(x.shape[2:]))).reshape(x.shape[2:], order=order)
        base = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *[1] * plane.ndim)
        places = np.broadcast_to(base * plane.size + plane, x.shape)
        values = pad_windows(x, kernel, out, attributes, low, 0)
        where = pad_windows(places, kernel, out, attributes, low, -1)
        best = index = None
        for _, part in window_slices(kernel, out, attributes):
            value, place = values[(..., *part)], where[(..., *part)]
            if best is None or index is None:
                best, index = value, place
                continue
            more = (value > best) | ((value != value) & (best == best))
            better = (place >= 0) & ((index < 0) | more)
            best, index = np.where(better, value, best), np.where(better, place, index)
        assert index is not None
        return [np.maximum(index, 0).astype(np.int64)]


class AveragePool(_Pool):
    """The mean of each window, over its elements in the tensor or, with `count_include_pad`, also
    over zeros in the padding.  What `ceil_mode` adds beyond the padding never counts.

    A window of padding alone gives 0.
    """

    name = "average_pool"
    attributes = _ATTRIBUTES | {"count_include_pad": Attribute("bool", False)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_float(self.name, types[0])
        return super().infer(types, attributes, inference)

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, kernel = accumulate(arrays[0], context), attributes["kernel"]
        low, high = context.sizes(attributes["low"]), context.sizes(attributes["high"])
        out = context.sizes(context.results[0].shape)[2:]
        padded = pad_windows(x, kernel, out, attributes, low, 0)
        parts = (padded[(..., *where)] for _, where in window_slices(kernel, out, attributes))
        total = reduce(np.add, parts)
        counts = np.ones((), np.int64)
        for i, (size, count) in enumerate(zip(kernel, out, strict=True)):
            starts = np.arange(count)[:, None] * attributes["strides"][i]
            places = starts + np.arange(size) * attributes["dilations"][i] - low[i]
            first, end = 0, x.shape[2 + i]
            if attributes["count_include_pad"]:
                first, end = -low[i], end + high[i]
            inside = ((places >= first) & (places < end)).sum(axis=1)
            counts = counts[..., None] * inside
        return results([total / np.maximum(counts, 1)], context)


class Lrn(OpDef):
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta.

    The channels from c - (size - 1) // 2 to c + size // 2; axis 1 holds the channels.
    """

    name = "lrn"
    kind = Kind.OPAQUE
    operands = ("x",)
    attributes = {
        "size": Attribute("int"),
        "alpha": Attribute("float", 1e-4),
        "beta": Attribute("float", 0.75),
        "bias": Attribute("float", 1.0),
    }
    imports = {"onnx": ("LRN",)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_float(self.name, types[0])
        check_minimum_rank(self.name, "x", types[0], 2)
        inference.require(attributes["size"], ">", 0, "lrn: size")
        return [types[0].with_shape(types[0].shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, size = accumulate(arrays[0], context), attributes["size"]
        before, channels = (size - 1) // 2, x.shape[1]
        widths = [(0, 0)] * x.ndim
        widths[1] = (before, size - 1 - before)
        squares = np.pad(x * x, widths)
        total = sum((squares[:, i : i + channels] for i in range(size)), np.zeros_like(x))
        scale = attributes["bias"] + attributes["alpha"] / size * total
        return results([x / scale ** attributes["beta"]], context)


OPS: tuple[OpDef, ...] = (MaxPool(), ArgMaxPool(), AveragePool(), Lrn())
