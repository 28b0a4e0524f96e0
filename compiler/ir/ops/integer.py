"""Sums of products of small integers: matrix multiplication and convolution of quantized tensors.

Quantized tensors are plain integers; what is subtracted from them, the zero point, is an operand of
the element type of the tensor that it belongs to.  Scales are multiplied by ops of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.op import (
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import require_shape
from graphwright.compiler.ir.ops.contraction import (
    WINDOW,
    correlate,
    infer_conv,
    infer_matmul,
)
from graphwright.compiler.ir.ops.precision import results
from graphwright.compiler.ir.types import I8, I16, I32, U8, DType, TensorType


def _check_types(
    op: str, names: Sequence[str], types: Sequence[TensorType], left: Sequence[DType]
) -> None:
    """The first operand has one of the types `left`, the second 8 bits, zero points their types."""
    for name, t, wanted in ((names[0], types[0], left), (names[1], types[1], (I8, U8))):
        if t.dtype not in wanted:
            raise InferenceError(f"{op}: {name} is {t}, want {' or '.join(map(str, wanted))}")
    for name, zero, of in ((names[0], types[2], types[0]), (names[1], types[3], types[1])):
        if zero.dtype is not of.dtype:
            raise InferenceError(
                f"{op}: the zero point of {name} is {zero.dtype}, want {of.dtype} as {name} is"
            )


def _centred(array: np.ndarray, zero: np.ndarray) -> np.ndarray:
    """array - zero in float64, which holds all sums of products of them exactly."""
    return array.astype(np.float64) - zero.astype(np.float64)


def _wrapped(sums: np.ndarray) -> np.ndarray:
    return np.asarray(sums).astype(np.int64).astype(np.int32)


class MatmulInteger(OpDef):
    """numpy's matmul of (a - a_zero) and (b - b_zero): exact sums, wrapped to 32 bits.

    a is i8, u8 or i16, b is i8 or u8.  Zero points are scalars, or one a row of a ([..., M, 1]) and
    one a column of b ([..., 1, N]).
    """

    name = "matmul_integer"
    kind = Kind.CONTRACTION
    operands = ("a", "b", "a_zero", "b_zero")

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        _check_types(self.name, ("a", "b"), types, (I8, U8, I16))
        a, b, a_zero, b_zero = types
        for name, t, zero, axis in (("a", a, a_zero, -1), ("b", b, b_zero, -2)):
            if zero.rank == 0:
                continue
            along = f"{self.name}: the zero point of {name} along its contracted axis"
            if zero.rank != t.rank or t.rank < 2:
                raise InferenceError(
                    f"{self.name}: the zero point of {name} is {zero}, want rank 0 or {t.rank}"
                )
            inference.require(zero.shape[axis], "==", 1, along)
            shape = inference.broadcast_shapes([t.shape, zero.shape], f"zero point of {name}")
            require_shape(inference, self.name, name, t, shape)
        return [TensorType(I32, infer_matmul(self.name, a, b, inference))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        a, b, a_zero, b_zero = arrays
        sums = np.matmul(_centred(a, a_zero), _centred(b, b_zero))
        return results([_wrapped(sums)], context)


class ConvInteger(OpDef):
    """`conv` of (x - x_zero) and (w - w_zero): exact sums, wrapped to 32 bits; padding adds nothing.

    x and w are i8 or u8.  x_zero is a scalar, w_zero a scalar or one a filter ([M]).
    """

    name = "conv_integer"
    kind = Kind.CONTRACTION
    operands = ("x", "w", "x_zero", "w_zero")
    attributes = WINDOW

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        _check_types(self.name, ("x", "w"), types, (I8, U8))
        x, w, x_zero, w_zero = types
        shape = infer_conv(self.name, x, w, attributes, inference)
        require_shape(inference, self.name, "x_zero", x_zero, ())
        if w_zero.rank != 0:
            require_shape(inference, self.name, "w_zero", w_zero, w.shape[:1])
        return [TensorType(I32, shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, w, x_zero, w_zero = arrays
        if w_zero.ndim:
            w_zero = w_zero.reshape(-1, *[1] * (w.ndim - 1))
        sums = correlate(_centred(x, x_zero), _centred(w, w_zero), attributes, context)
        return results([_wrapped(sums)], context)


OPS: tuple[OpDef, ...] = (MatmulInteger(), ConvInteger())
