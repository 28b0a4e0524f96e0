"""Ops that carry structure: constants, fused regions, conditionals."""

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
from graphwright.compiler.ir.types import BOOL, TensorType


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


class If(OpDef):
    """`then_body` when the scalar bool is true, else `else_body`; captures are operands of both."""

    name = "if"
    kind = Kind.CONTROL
    operands = ("condition", "captures*")
    bodies = ("then_body", "else_body")
    imports = {}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        if types[0].dtype is not BOOL or types[0].elements != 1:
            raise InferenceError(f"if: condition is {types[0]}, want one bool")
        for body in attributes["bodies"]:
            if [v.type for v in body.inputs] != list(types[1:]):
                raise InferenceError("if: each body takes the captures as its inputs")
        first, second = ([v.type for v in b.outputs] for b in attributes["bodies"])
        if len(first) != len(second):
            raise InferenceError(f"if: branches yield {len(first)} and {len(second)} values")
        for a, b in zip(first, second, strict=True):
            if a.dtype != b.dtype or a.rank != b.rank:
                raise InferenceError(f"if: branches yield {a} and {b}")
            for x, y in zip(a.shape, b.shape, strict=True):
                inference.require(x, "==", y, "if: both branches yield one shape")
        return first

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        assert context.run is not None
        body = context.bodies[0 if arrays[0].reshape(()).item() else 1]
        return context.run(body, arrays[1:])


OPS: tuple[OpDef, ...] = (Constant(), Fused(), If())
