"""The pointwise table: one row an op, with its numpy meaning, type rule, spellings and facts.

A new row needs no change in any pass or emitter.  `cpp` and `triton` are templates over operand
expressions {0}, {1}, ... and attributes {alpha}; they are scalar expressions of the operands' type.
`gw::` functions live in codegen/cpp/include/gw/math.h.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

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
from graphwright.compiler.ir.types import BOOL, DType, TensorType

Accepts = Literal["float", "number", "signed", "integer", "bool", "any"]
ResultRule = Literal["same", "bool", "dtype"]  # dtype: the attribute of that name

_ACCEPTED: dict[str, tuple[str, ...]] = {
    "float": ("float", "complex"),
    "number": ("float", "int", "uint", "complex"),
    "signed": ("float", "int", "complex"),
    "integer": ("int", "uint"),
    "bool": ("bool",),
    "any": ("float", "int", "uint", "bool", "complex"),
}


@dataclass(frozen=True, eq=False)
class Pointwise(OpDef):
    """A row.  `compute(*arrays, **attributes)` is the numpy meaning on broadcast operands.

    `promote`: 16-bit floats are computed in float32 (and in `Reference.compute` when verifying).
    `facts`: "commutative", "associative", "idempotent", "monotone", "involution".
    `typed` marks the operands (by index) that must share one element type; default all.
    """

    name: str = ""
    compute: Callable[..., Any] = np.positive
    operands: tuple[str, ...] = ("x",)
    accepts: Accepts = "float"
    result: ResultRule = "same"
    cpp: str = ""
    triton: str = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    facts: frozenset[str] = frozenset()
    typed: tuple[int, ...] | None = None
    promote: bool = True
    kind: Kind = Kind.POINTWISE

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        typed = range(len(types)) if self.typed is None else self.typed
        dtype = types[typed[0]].dtype
        for i in typed:
            if types[i].dtype != dtype:
                raise InferenceError(
                    f"{self.name}: operands are {dtype} and {types[i].dtype}, want one element type"
                )
        if dtype.kind not in _ACCEPTED[self.accepts]:
            raise InferenceError(f"{self.name}: operand is {dtype}, want {self.accepts}")
        shape = inference.broadcast_shapes([t.shape for t in types], self.name)
        return [TensorType(self.result_dtype(dtype, attributes), shape)]

    def result_dtype(self, dtype: DType, attributes: Attributes) -> DType:
        if self.result == "bool":
            return BOOL
        return attributes["dtype"] if self.result == "dtype" else dtype

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        (result,) = context.results
        wide = list(arrays)
        for i, a in enumerate(wide):
            if _is_small_float(a.dtype) and self.promote:
                wide[i] = a.astype(context.compute or np.float32)
            elif context.compute is not None and a.dtype.kind == "f":
                wide[i] = a.astype(context.compute)
        with np.errstate(all="ignore"):
            out = np.asarray(self.compute(*wide, **attributes))
        dtype = result.dtype.numpy
        if context.compute is not None and result.dtype.is_float:
            dtype = context.compute
        return [out.astype(dtype, copy=False)]


def _is_small_float(dtype: np.dtype) -> bool:
    return dtype == np.float16 or (dtype.kind == "V" or dtype.name.startswith(("bfloat", "float8")))


_AB = ("a", "b")
_COMMUTES = frozenset({"commutative"})

# fmt: off
OPS: tuple[OpDef, ...] = (
    Pointwise("add", np.add, _AB, "number", cpp="({0} + {1})", triton="({0} + {1})", facts=_COMMUTES, imports={"onnx": ("Add",)}),
    Pointwise("mul", np.multiply, _AB, "number", cpp="({0} * {1})", triton="({0} * {1})", facts=_COMMUTES, imports={"onnx": ("Mul",)}),
    Pointwise("exp", np.exp, cpp="gw::exp({0})", triton="tl.exp({0})", imports={"onnx": ("Exp",)}),
    Pointwise("relu", lambda x: np.maximum(x, 0), accepts="signed", cpp="gw::relu({0})", imports={"onnx": ("Relu",)}),
)
# fmt: on
