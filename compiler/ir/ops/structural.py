"""Ops that carry structure: constants and fused regions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.types import TensorType


class Constant(OpDef):
    """A tensor known at compile time.  `recipe` (a Recipe or None) says what it was folded from."""

    name = "constant"
    kind = Kind.SOURCE
    attributes = {"value": Attribute("literal"), "recipe": Attribute("recipe", None)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        value = attributes["value"]
        if not isinstance(value, Literal):
            raise InferenceError(f"constant: value is a {type(value).__name__}, want a Literal")
        return [TensorType(value.dtype, value.shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return [attributes["value"].array()]


class Fused(OpDef):
    """A region that becomes one kernel (or a few, as selection decides); see docs/ir.md."""

    name = "fused"
    kind = Kind.FUSED
    operands = ("operands*",)
    attributes = {"region": Attribute("str")}
    bodies = ("body",)

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (body,) = attributes["bodies"]
        if len(body.inputs) != len(types):
            raise InferenceError(f"fused: {len(types)} operands, its body has {len(body.inputs)}")
        for given, inside in zip(types, body.inputs, strict=True):
            if given != inside.type:
                raise InferenceError(f"fused: operand {given}, body input {inside.type}")
        return [v.type for v in body.outputs]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        assert context.run is not None
        return context.run(context.bodies[0], arrays)


OPS: tuple[OpDef, ...] = (Constant(), Fused())
