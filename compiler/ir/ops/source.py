"""Ops without tensor operands: filled tensors, ramps, sizes as data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Expr
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.precision import result_dtype, results
from graphwright.compiler.ir.types import I64, DType, TensorType


class Full(OpDef):
    """Every element is `value` (an int, float or bool)."""

    name = "full"
    kind = Kind.SOURCE
    attributes = {
        "value": Attribute("number"),
        "dtype": Attribute("dtype"),
        "shape": Attribute("dims"),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        return [TensorType(attributes["dtype"], attributes["shape"])]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        dtype = result_dtype(context.results[0], context)
        # The value is rounded to the element type also where the calculation is wider.
        value = np.asarray(attributes["value"]).astype(attributes["dtype"].numpy).astype(dtype)
        return [np.broadcast_to(value, context.sizes(attributes["shape"]))]


class Iota(OpDef):
    """`start` + i * `step` for i below `size`; start may be a dim, step an int or float."""

    name = "iota"
    kind = Kind.SOURCE
    attributes = {
        "size": Attribute("dim"),
        "dtype": Attribute("dtype", I64),
        "start": Attribute("number or dim", 0),
        "step": Attribute("number", 1),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        dtype: DType = attributes["dtype"]
        if not (dtype.is_float or dtype.is_integer):
            raise InferenceError(f"iota: dtype is {dtype}, want a number type")
        for name in ("start", "step"):
            if isinstance(attributes[name], float) and not dtype.is_float:
                raise InferenceError(f"iota: {name} is {attributes[name]}, want an int for {dtype}")
        inference.require(attributes["size"], ">=", 0, "iota: size")
        return [TensorType(dtype, (attributes["size"],))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        start, step = attributes["start"], attributes["step"]
        if isinstance(start, Expr):
            start = context.size(start)
        wide = np.float64 if attributes["dtype"].is_float else np.int64
        count = np.arange(context.size(attributes["size"]), dtype=wide)
        return results([wide(start) + count * wide(step)], context)


class FromDims(OpDef):
    """Sizes as data: an i64 vector of the dims, or with `scalar` the only one as a scalar."""

    name = "from_dims"
    kind = Kind.SOURCE
    attributes = {"dims": Attribute("dims"), "scalar": Attribute("bool", False)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        count = len(attributes["dims"])
        if attributes["scalar"] and count != 1:
            raise InferenceError(f"from_dims: {count} dims for a scalar, want one")
        return [TensorType(I64, () if attributes["scalar"] else (count,))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        sizes = np.array(context.sizes(attributes["dims"]), np.int64)
        return [sizes.reshape(()) if attributes["scalar"] else sizes]


OPS: tuple[OpDef, ...] = (Full(), Iota(), FromDims())
