"""Sums of products: matrix multiplication, convolution and its transpose.

References add in float64 and round once; integers wrap in their own type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim, Shape, prove
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
    check_minimum_rank,
    check_number,
    check_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.ops.windows import (
    check_windows,
    infer_windows,
    pad_windows,
    window_slices,
    window_view,
)
from graphwright.compiler.ir.types import TensorType

# Whether the kernel may round float32 operands to the 19 bits that matrix units take.
TF32 = {"tf32": Attribute("bool", False)}


def infer_matmul(op: str, a: TensorType, b: TensorType, inference: Inference) -> Shape:
    """The result's shape of a matrix product; element types are the caller's business."""
    for name, t in (("a", a), ("b", b)):
        check_minimum_rank(op, name, t, 1)
    rows = a.shape[-2:-1]  # empty for a vector
    columns = b.shape[-1:] if b.rank > 1 else ()
    depth = b.shape[-2] if b.rank > 1 else b.shape[0]
    inference.require(a.shape[-1], "==", depth, f"{op}: contracted axes")
    batch = inference.broadcast_shapes([a.shape[:-2], b.shape[:-2]], f"{op}: batch axes")
    return (*batch, *rows, *columns)


class Matmul(OpDef):
    """numpy's matmul: the last two axes contract, the others broadcast.

    A vector on the left is a row, on the right a column, and its axis vanishes from the result.
    """

    name = "matmul"
    kind = Kind.CONTRACTION
    operands = ("a", "b")
    attributes = TF32
    imports = {"onnx": ("MatMul",), "aten": ("mm.default", "bmm.default", "matmul.default")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_same_dtype("matmul", types)
        a, b = types
        check_number("matmul", a)
        return [a.with_shape(infer_matmul("matmul", a, b, inference))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        a, b = (accumulate(x, context) for x in arrays)
        return results([np.asarray(np.matmul(a, b))], context)


WINDOW = {
    "strides": Attribute("ints"),
    "low": Attribute("dims"),
    "high": Attribute("dims"),
    "dilations": Attribute("ints"),
    "groups": Attribute("int", 1),
}
WINDOW_NAMES = ("strides", "low", "high", "dilations")


def _check_groups(op: str, count: Dim, groups: int, what: str) -> None:
    if groups < 1 or prove(count % groups, "!=", 0):
        raise InferenceError(f"{op}: {groups} groups do not divide {count} {what}")


def infer_conv(
    op: str, x: TensorType, w: TensorType, attributes: Attributes, inference: Inference
) -> Shape:
    """The result's shape of a convolution of x with w; element types are the caller's business."""
    check_minimum_rank(op, "x", x, 3)
    check_rank(op, "w", w, x.rank)
    check_windows(op, attributes, x.rank - 2, WINDOW_NAMES)
    groups: int = attributes["groups"]
    _check_groups(op, w.shape[0], groups, "filters")
    inference.require(x.shape[1], "==", w.shape[1] * groups, f"{op}: channels of x and w")
    out = infer_windows(op, x.shape[2:], w.shape[2:], attributes, inference)
    return (x.shape[0], w.shape[0], *out)


def correlate(
    x: np.ndarray, w: np.ndarray, attributes: Attributes, context: Reference
) -> np.ndarray:
    """The cross-correlation of x, padded with zeros, with w in the type of both."""
    groups, kernel = attributes["groups"], w.shape[2:]
    shape = context.sizes(context.results[0].shape)
    padded = pad_windows(x, kernel, shape[2:], attributes, context.sizes(attributes["low"]), 0)
    view = window_view(padded, kernel, shape[2:], attributes)
    filters = w.reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:]))
    out = np.empty(shape, x.dtype)
    for image, result in zip(view, out, strict=True):  # one image's columns at a time
        columns = image.reshape(groups, filters.shape[2], math.prod(shape[2:]))
        result[...] = np.matmul(filters, columns).reshape(shape[1:])
    return out


class Conv(OpDef):
    """Cross-correlation of x [N, C, spatial...] with w [M, C / groups, kernel...], plus bias [M].

    The result is [N, M, (extent + low + high - dilation * (kernel - 1) - 1) // stride + 1 ...].
    """

    name = "conv"
    kind = Kind.CONTRACTION
    operands = ("x", "w", "bias?")
    attributes = WINDOW | TF32

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, w = types[:2]
        check_same_dtype("conv", types)
        check_number("conv", x)
        shape = infer_conv("conv", x, w, attributes, inference)
        if len(types) == 3:
            require_shape(inference, "conv", "bias", types[2], w.shape[:1])
        return [x.with_shape(shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, w, *bias = (accumulate(a, context) for a in arrays)
        kernel = w.shape[2:]
        out = correlate(x, w, attributes, context)
        if bias:
            out += bias[0].reshape(-1, *[1] * len(kernel))
        return results([out], context)


class ConvTranspose(OpDef):
    """The transpose of `conv`: w is [C, M / groups, kernel...], each x element adds a scaled kernel.

    The result has extents stride * (extent - 1) + output_padding + dilation * (kernel - 1) + 1
    - low - high.
    """

    name = "conv_transpose"
    kind = Kind.CONTRACTION
    operands = ("x", "w", "bias?")
    attributes = WINDOW | {"output_padding": Attribute("ints")} | TF32

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, w = types[:2]
        check_same_dtype(self.name, types)
        check_number(self.name, x)
        check_minimum_rank(self.name, "x", x, 3)
        check_rank(self.name, "w", w, x.rank)
        check_windows(self.name, attributes, x.rank - 2, (*WINDOW_NAMES, "output_padding"))
        groups: int = attributes["groups"]
        _check_groups(self.name, w.shape[0], groups, "channels")
        inference.require(x.shape[1], "==", w.shape[0], f"{self.name}: channels of x and w")
        filters = w.shape[1] * groups
        if len(types) == 3:
            require_shape(inference, self.name, "bias", types[2], (filters,))
        out: list[Dim] = []
        for i, (extent, size) in enumerate(zip(x.shape[2:], w.shape[2:], strict=True)):
            stride, dilation, low, high, extra = (
                attributes[n][i] for n in ("strides", "dilations", "low", "high", "output_padding")
            )
            full = stride * (extent - 1) + extra + dilation * (size - 1) + 1 - low - high
            inference.require(full, ">=", 0, f"{self.name}: extent of spatial axis {i}")
            out.append(full)
        return [x.with_shape((x.shape[0], filters, *out))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, w, *bias = (accumulate(a, context) for a in arrays)
        groups, kernel = attributes["groups"], w.shape[2:]
        shape = context.sizes(context.results[0].shape)
        low, spatial = context.sizes(attributes["low"]), x.shape[2:]
        # [groups, M / groups * kernel, C / groups] times [N, groups, C / groups, positions]
        filters = w.reshape(groups, w.shape[0] // groups, math.prod(w.shape[1:]))
        images = x.reshape(x.shape[0], groups, filters.shape[1], math.prod(spatial))
        columns = np.matmul(filters.transpose(0, 2, 1), images)
        columns = columns.reshape(x.shape[0], shape[1], *kernel, *spatial)
        full = [
            max((n - 1) * s + d * (k - 1) + 1, a + size)
            for n, s, d, k, a, size in zip(
                spatial, attributes["strides"], attributes["dilations"], kernel, low, shape[2:],
                strict=True,
            )
        ]  # fmt: skip
        out = np.zeros((*shape[:2], *full), x.dtype)
        for coordinate, where in window_slices(kernel, spatial, attributes):
            out[(..., *where)] += columns[(slice(None), slice(None), *coordinate)]
        out = out[(..., *(slice(a, a + n) for a, n in zip(low, shape[2:], strict=True)))]
        if bias:
            out = out + bias[0].reshape(-1, *[1] * len(kernel))
        return results([out], context)


OPS: tuple[OpDef, ...] = (Matmul(), Conv(), ConvTranspose())
