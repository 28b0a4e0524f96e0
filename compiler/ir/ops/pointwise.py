"""Pointwise ops: a table, one row an op, with its numpy meaning, type rule, spellings and facts.

A new row needs no change in any pass or emitter.  Here are the row class and the rows for
arithmetic, comparison, logic, bits and conversions; `functions.py` has the functions of one
operand and the activations.

Spellings are templates over operand expressions {0}, {1}, ... and attributes {alpha}.  They are
scalar expressions; small floats arrive widened to float, and the emitter gives every value the C++
type of its result before it is used again, so that narrow integers wrap.  `gw::` functions live in
codegen/cpp/include/gw/math.h, `libdevice.` ones in triton.language.extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

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
from graphwright.compiler.ir.ops import numerics
from graphwright.compiler.ir.ops.precision import results, widen
from graphwright.compiler.ir.types import BOOL, F8E4M3, F8E5M2, DType, TensorType

Accepts = Literal["float", "number", "signed", "integer", "bool", "any"]
ResultRule = Literal["same", "bool", "dtype"]  # dtype: the attribute of that name
Spelling: TypeAlias = str | Callable[[DType, Attributes], str]  # of the operands' type, attributes

_ACCEPTED: dict[str, tuple[str, ...]] = {
    "float": ("float",),
    "number": ("float", "int", "uint"),
    "signed": ("float", "int"),
    "integer": ("int", "uint"),
    "bool": ("bool",),
    "any": ("float", "int", "uint", "bool"),
}


@dataclass(frozen=True, eq=False)
class Pointwise(OpDef):
    """A row.  `compute(*arrays, **attributes)` is the numpy meaning on broadcast operands.

    `facts`: "commutative", "associative", "idempotent", "monotone" (never decreasing),
    "involution" (twice is nothing).
    `typed`: the operands (by index) that must share one element type; default all.
    `conditions`: operands that must be bool.
    """

    name: str = ""
    compute: Callable[..., Any] = np.positive
    operands: tuple[str, ...] = ("x",)
    accepts: Accepts = "float"
    result: ResultRule = "same"
    cpp: str = ""
    triton: Spelling = ""
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    imports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    renames: Mapping[str, str] = field(default_factory=dict)
    facts: frozenset[str] = frozenset()
    typed: tuple[int, ...] | None = None
    conditions: tuple[int, ...] = ()
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
        for i in self.conditions:
            if types[i].dtype is not BOOL:
                raise InferenceError(
                    f"{self.name}: {self.operands[i]} is {types[i].dtype}, want bool"
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
        with np.errstate(all="ignore"):
            out = np.asarray(self.compute(*(widen(a, context) for a in arrays), **attributes))
        return results([out], context)

    def spelling(
        self, target: Literal["cpp", "triton"], dtype: DType, attributes: Attributes
    ) -> str:
        """The template for operands of an element type; "" where the target has none."""
        found: Spelling = self.cpp if target == "cpp" else self.triton
        return found if isinstance(found, str) else found(dtype, attributes)


class Quantize(Pointwise):
    """x and scale are floats of one type; the zero point has the result's type."""

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        dtype = attributes["dtype"]
        if not (dtype.is_integer or dtype in numerics.SMALL_FLOATS):
            raise InferenceError(f"quantize: dtype is {dtype}, want an integer or float8 type")
        if types[2].dtype != dtype:
            raise InferenceError(f"quantize: zero point is {types[2].dtype}, want {dtype}")
        return super().infer(types, attributes, inference)


class Dequantize(Pointwise):
    """x and zero point have one type, an integer or float8; scale and result are floats."""

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        for name, dtype in (("scale", types[1].dtype), ("dtype", attributes["dtype"])):
            if not dtype.is_float:
                raise InferenceError(f"dequantize: {name} is {dtype}, want a float type")
        return super().infer(types, attributes, inference)


def triton_cast(dtype: DType, attributes: Attributes) -> str:
    """Triton's spelling of a cast from `dtype`, as the attributes of the op `cast` say."""
    to: DType = attributes["dtype"]
    if to.kind == "bool":
        return "({0} != 0)"
    if dtype.is_float and to.is_integer and to.bits < 32:
        # The hardware's conversion saturates at 32 bits (and makes NaN 0), not below.
        low = -(2 ** (to.bits - 1)) if to.kind == "int" else 0
        high = 2 ** (to.bits - (to.kind == "int")) - 1
        return f"tl.minimum(tl.maximum({{0}}.to(tl.int32), {low}), {high}).to({{dtype}})"
    if to in numerics.FLOAT8_MAX and attributes["saturate"]:
        limit = numerics.FLOAT8_MAX[to]
        return (
            f"tl.clamp({{0}}, -{limit}, {limit}, propagate_nan=tl.PropagateNan.ALL).to({{dtype}})"
        )
    if to in (F8E4M3, F8E5M2):
        # Conversions limit what they cannot hold; here it is NaN, or infinite where there is such.
        # (halfway between the largest number and the next one, numbers round to an even fraction)
        past, code = ("> 464.0", 0x7F) if to is F8E4M3 else (">= 61440.0", 0x7C)
        sign = "tl.where({0} < 0, 128, 0)"
        bits = "{0}.to({dtype}).to(tl.uint8, bitcast=True).to(tl.int32)"
        chosen = f"tl.where(tl.abs({{0}}) {past}, {sign} + {code}, {bits})"
        return f"{chosen}.to(tl.uint8).to({{dtype}}, bitcast=True)"
    return "{0}.to({dtype})"


def _triton_quantize(dtype: DType, attributes: Attributes) -> str:
    to: DType = attributes["dtype"]
    ratio = "tl.div_rn({0}, {1})" if dtype.bits <= 32 else "({0} / {1})"
    kind = "tl.float64" if dtype.bits == 64 else "tl.float32"
    if not to.is_integer:
        moved = f"({ratio} + {{2}}.to({kind}))"
        return triton_cast(dtype, {**attributes, "saturate": True}).replace("{0}", moved)
    moved = f"(libdevice.rint({ratio}) + {{2}}.to({kind}))"
    if to.bits >= 32:
        return f"{moved}.to({{dtype}})"
    # (limits of floats take the number beside NaN, whose result is 0)
    low = -(2 ** (to.bits - 1)) if to.kind == "int" else 0
    high = 2 ** (to.bits - (to.kind == "int")) - 1
    within = f"tl.minimum(tl.maximum({moved}, {low}.0), {high}.0)"
    return f"tl.where({ratio} == {ratio}, {within}, 0.0).to(tl.int32).to({{dtype}})"


def _triton_dequantize(dtype: DType, attributes: Attributes) -> str:
    kind = "tl.float64" if attributes["dtype"].bits == 64 else "tl.float32"
    return f"(({{0}}.to({kind}) - {{2}}.to({kind})) * {{1}})"


def _triton_mod(dtype: DType, attributes: Attributes) -> str:
    rest = "({0} % {1})" if dtype.is_integer else "libdevice.fmod({0}, {1})"
    if attributes["fmod"]:
        return rest
    return f"tl.where(({rest} != 0) & (({rest} < 0) != ({{1}} < 0)), {rest} + {{1}}, {rest})"


_AB = ("a", "b")
_XLH = ("x", "low", "high")
_QUANTIZED = ("x", "scale", "zero_point")
_NAN = "propagate_nan=tl.PropagateNan.ALL"
_DTYPE = {"dtype": Attribute("dtype")}
_COMMUTES = frozenset({"commutative"})
_LATTICE = frozenset({"commutative", "associative", "idempotent"})
_FIELD = frozenset({"commutative", "associative"})


def _divide_triton(dtype: DType, attributes: Attributes) -> str:
    del attributes
    if dtype.is_integer:
        return "tl.where({1} == 0, 0, {0} // tl.where({1} == 0, 1, {1}))"
    return "tl.div_rn({0}, {1})" if dtype.bits <= 32 else "({0} / {1})"


def _power_triton(dtype: DType, attributes: Attributes) -> str:
    del attributes
    return "libdevice.pow({0}, {1})" if dtype.is_float else ""


def _logic(name: str, compute: Any, cpp: str, facts: frozenset[str], onnx: str) -> Pointwise:
    triton = cpp.replace("&&", "&").replace("||", "|")
    return Pointwise(
        name, compute, _AB, "bool", cpp=cpp, triton=triton, facts=facts, imports={"onnx": (onnx,)}
    )


def _bits(name: str, compute: Any, sign: str, onnx: tuple[str, ...], **more: Any) -> Pointwise:
    text = f"({{0}} {sign} {{1}})"
    return Pointwise(
        name, compute, _AB, "integer", cpp=text, triton=text, imports={"onnx": onnx}, **more
    )


def _shift(name: str, compute: Any, sign: str) -> Pointwise:
    # The counts that C++ and the GPU leave undefined: the sign, or nothing, remains.
    def triton(dtype: DType, attributes: Attributes) -> str:
        del attributes
        bad = f"(({{1}} < 0) | ({{1}} >= {dtype.bits}))"
        rest = "tl.where({0} < 0, -1, 0)" if sign == ">>" and dtype.kind == "int" else "0"
        return f"tl.where({bad}, {rest}, {{0}} {sign} tl.where({bad}, 0, {{1}}))"

    return Pointwise(name, compute, _AB, "integer", cpp=f"gw::{name}({{0}}, {{1}})", triton=triton)


def _compare(name: str, compute: Any, sign: str, onnx: str, aten: str, **more: Any) -> Pointwise:
    accepts: Accepts = "any" if sign in ("==", "!=") else "number"
    text = f"({{0}} {sign} {{1}})"
    imports = {"onnx": (onnx,) if onnx else (), "aten": (f"{aten}.Tensor",)}
    return Pointwise(name, compute, _AB, accepts, "bool", text, text, imports=imports, **more)


# fmt: off
ARITHMETIC: tuple[OpDef, ...] = (
    Pointwise("add", np.add, _AB, "number", cpp="({0} + {1})", triton="({0} + {1})", facts=_COMMUTES,
              imports={"onnx": ("Add",)}),
    Pointwise("sub", np.subtract, _AB, "number", cpp="({0} - {1})", triton="({0} - {1})",
              imports={"onnx": ("Sub",)}),
    Pointwise("mul", np.multiply, _AB, "number", cpp="({0} * {1})", triton="({0} * {1})", facts=_COMMUTES,
              imports={"onnx": ("Mul",), "aten": ("mul.Tensor",)}),
    Pointwise("div", numerics.divide, _AB, "number", cpp="gw::div({0}, {1})", triton=_divide_triton,
              imports={"onnx": ("Div",)}),
    Pointwise("mod", numerics.modulo, _AB, "number", cpp="gw::mod({0}, {1}, {fmod})", triton=_triton_mod,
              attributes={"fmod": Attribute("bool", False)}, imports={"onnx": ("Mod",)}),
    Pointwise("pow", numerics.power, _AB, "number", cpp="gw::pow({0}, {1})", triton=_power_triton,
              imports={"onnx": ("Pow",)}),
    Pointwise("atan2", numerics.arc_tangent, _AB, cpp="gw::atan2({0}, {1})",
              triton="libdevice.atan2({0}, {1})", imports={}),
    Pointwise("maximum", np.maximum, _AB, "number", cpp="gw::maximum({0}, {1})",
              triton=f"tl.maximum({{0}}, {{1}}, {_NAN})", facts=_LATTICE, imports={"aten": ("maximum.default",)}),
    Pointwise("minimum", np.minimum, _AB, "number", cpp="gw::minimum({0}, {1})",
              triton=f"tl.minimum({{0}}, {{1}}, {_NAN})", facts=_LATTICE, imports={"aten": ("minimum.default",)}),
    Pointwise("clip", numerics.clip, _XLH, "number", cpp="gw::clip({0}, {1}, {2})",
              triton=f"tl.minimum(tl.maximum({{0}}, {{1}}, {_NAN}), {{2}}, {_NAN})"),
    Pointwise("prelu", lambda x, slope: np.where(x < 0, x * slope, x), ("x", "slope"), "number",
              cpp="gw::prelu({0}, {1})", triton="tl.where({0} < 0, {0} * {1}, {0})",
              imports={"onnx": ("PRelu",)}),
)

COMPARISON: tuple[OpDef, ...] = (
    _compare("equal", np.equal, "==", "Equal", "eq", facts=_COMMUTES),
    _compare("not_equal", np.not_equal, "!=", "", "ne", facts=_COMMUTES),
    _compare("less", np.less, "<", "Less", "lt"),
    _compare("less_or_equal", np.less_equal, "<=", "LessOrEqual", "le"),
    _compare("greater", np.greater, ">", "Greater", "gt"),
    _compare("greater_or_equal", np.greater_equal, ">=", "GreaterOrEqual", "ge"),
    Pointwise("is_nan", np.isnan, result="bool", cpp="gw::is_nan({0})", triton="({0} != {0})",
              imports={"onnx": ("IsNaN",), "aten": ("isnan.default",)}),
    Pointwise("is_inf", numerics.is_inf, result="bool", cpp="gw::is_inf({0}, {negative}, {positive})",
              triton="((({0} == float('inf')) & {positive}) | (({0} == float('-inf')) & {negative}))",
              attributes={"negative": Attribute("bool", True), "positive": Attribute("bool", True)},
              imports={"onnx": ("IsInf",), "aten": ("isinf.default",)},
              renames={"detect_negative": "negative", "detect_positive": "positive"}),
)

LOGIC: tuple[OpDef, ...] = (
    Pointwise("logical_not", np.logical_not, accepts="bool", cpp="(!{0})", triton="({0} == 0)",
              facts=frozenset({"involution"}), imports={"onnx": ("Not",)}),
    _logic("logical_and", np.logical_and, "({0} && {1})", _LATTICE, "And"),
    _logic("logical_or", np.logical_or, "({0} || {1})", _LATTICE, "Or"),
    _logic("logical_xor", np.logical_xor, "({0} != {1})", _FIELD, "Xor"),
    Pointwise("bitwise_not", np.invert, accepts="integer", cpp="(~{0})", triton="(~{0})",
              facts=frozenset({"involution"}), imports={"onnx": ("BitwiseNot",)}),
    _bits("bitwise_and", np.bitwise_and, "&", ("BitwiseAnd",), facts=_LATTICE),
    _bits("bitwise_or", np.bitwise_or, "|", ("BitwiseOr",), facts=_LATTICE),
    _bits("bitwise_xor", np.bitwise_xor, "^", ("BitwiseXor",), facts=_FIELD),
    _shift("shift_left", numerics.shift_left, "<<"),
    _shift("shift_right", numerics.shift_right, ">>"),
)

CONVERSION: tuple[OpDef, ...] = (
    Pointwise("where", np.where, ("condition", "x", "y"), "any", cpp="({0} ? {1} : {2})",
              triton="tl.where({0}, {1}, {2})", typed=(1, 2), conditions=(0,),
              imports={"onnx": ("Where",), "aten": ("where.self",)}),
    Pointwise("cast", numerics.cast, accepts="any", result="dtype",
              cpp="gw::cast<{dtype}>({0}, {saturate})", triton=triton_cast,
              attributes=_DTYPE | {"saturate": Attribute("bool", True)},
              imports={"onnx": ("Cast",)}, renames={"to": "dtype"}),
    Quantize("quantize", numerics.quantize, _QUANTIZED, "float", "dtype",
             cpp="gw::quantize<{dtype}>({0}, {1}, {2})", triton=_triton_quantize, attributes=_DTYPE, typed=(0, 1)),
    Dequantize("dequantize", numerics.dequantize, _QUANTIZED, "number", "dtype",
               cpp="gw::dequantize<{dtype}>({0}, {1}, {2})", triton=_triton_dequantize,
               attributes=_DTYPE, typed=(0, 2)),
)
# fmt: on

OPS: tuple[OpDef, ...] = (*ARITHMETIC, *COMPARISON, *LOGIC, *CONVERSION)
