"""Rows of the pointwise table: functions of one operand (elementary, rounding, activations).

Their numpy meanings are calculated in float64 and rounded once, so that a reference in float32 is
the correctly rounded value (to within one unit in 10^7).  NaN in is NaN out, except where a
definition by cases says otherwise (`thresholded_relu`, `shrink`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphwright.compiler.ir.op import Attribute, Attributes, OpDef
from graphwright.compiler.ir.ops import numerics
from graphwright.compiler.ir.ops.pointwise import Accepts, Pointwise, Spelling
from graphwright.compiler.ir.types import DType

_NAN = "propagate_nan=tl.PropagateNan.ALL"
_MONOTONE = frozenset({"monotone"})


def _exact(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, calculated in float64."""
    return lambda x, **attributes: function(np.asarray(x, np.float64), **attributes)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def _gelu(x: np.ndarray, *, approximate: str) -> np.ndarray:
    if approximate == "tanh":
        return 0.5 * x * (1.0 + np.tanh(np.sqrt(2.0 / np.pi) * (x + 0.044715 * x * x * x)))
    return 0.5 * x * numerics.erfc(-x / np.sqrt(2.0))


def _hard_sigmoid(x: np.ndarray, *, alpha: float, beta: float) -> np.ndarray:
    return np.clip(alpha * x + beta, 0.0, 1.0)


def _shrink(x: np.ndarray, *, bias: float, lambd: float) -> np.ndarray:
    return np.where(x < -lambd, x + bias, np.where(x > lambd, x - bias, 0.0))


def _celu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _elu(x: np.ndarray, *, alpha: float) -> np.ndarray:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _selu(x: np.ndarray, *, alpha: float, gamma: float) -> np.ndarray:
    return gamma * _elu(x, alpha=alpha)


def _triton_gelu(dtype: DType, attributes: Attributes) -> str:
    del dtype
    if attributes["approximate"] == "tanh":
        inner = "0.7978845608028654 * ({0} + 0.044715 * {0} * {0} * {0})"
        return f"(0.5 * {{0}} * (1.0 + libdevice.tanh({inner})))"
    return "(0.5 * {0} * (1.0 + libdevice.erf({0} * 0.7071067811865476)))"


def _function(
    name: str,
    compute: Callable[..., Any],
    triton: Spelling,
    onnx: str = "",
    *,
    aten: str | None = None,
    monotone: bool = False,
) -> Pointwise:
    """An elementary function: no attributes, floats only.  `aten` None: named as here; "": none."""
    return Pointwise(
        name,
        _exact(compute),
        cpp=f"gw::{name}({{0}})",
        triton=triton,
        imports={
            "onnx": (onnx,) if onnx else (),
            "aten": (f"{name}.default",) if aten is None else (aten,) if aten else (),
        },
        facts=_MONOTONE if monotone else frozenset(),
    )


def _direct(
    name: str, compute: Any, accepts: Accepts, cpp: str, triton: Spelling, onnx: str, *facts: str
) -> Pointwise:
    """An exact function that keeps its operand's type, integers included."""
    return Pointwise(
        name,
        compute,
        accepts=accepts,
        cpp=cpp,
        triton=triton,
        # torch's sign of NaN is 0.
        imports={"onnx": (onnx,), "aten": (f"{name}.default",) if name != "sign" else ()},
        facts=frozenset(facts),
    )


def _activation(
    name: str, compute: Callable[..., Any], onnx: str, triton: Spelling, **defaults: float
) -> Pointwise:
    """A function with float attributes, passed to the C++ function after the operand."""
    arguments = "".join(f", {{{a}}}" for a in defaults)
    return Pointwise(
        name,
        _exact(compute),
        cpp=f"gw::{name}({{0}}{arguments})",
        triton=triton,
        attributes={a: Attribute("float", v) for a, v in defaults.items()},
        imports={"onnx": (onnx,)},
    )


_SOFTPLUS = f"(tl.maximum({{0}}, 0.0, {_NAN}) + libdevice.log1p(tl.exp(-tl.abs({{0}}))))"


def _triton_clamp(text: str) -> str:
    return f"tl.minimum(tl.maximum({text}, 0.0, {_NAN}), 1.0, {_NAN})"


# fmt: off
ELEMENTARY: tuple[OpDef, ...] = (
    _function("exp", np.exp, "tl.exp({0})", "Exp", monotone=True),
    _function("log", np.log, "tl.log({0})", "Log", monotone=True),
    _function("log1p", np.log1p, "libdevice.log1p({0})", monotone=True),
    _function("expm1", np.expm1, "libdevice.expm1({0})", monotone=True),
    _function("sqrt", np.sqrt, "libdevice.sqrt({0})", "Sqrt", monotone=True),
    _function("rsqrt", lambda x: 1.0 / np.sqrt(x), "libdevice.rsqrt({0})"),
    _function("reciprocal", lambda x: 1.0 / x, "(1.0 / {0})", "Reciprocal"),
    _function("sin", np.sin, "libdevice.sin({0})", "Sin"),
    _function("cos", np.cos, "libdevice.cos({0})", "Cos"),
    _function("tan", np.tan, "libdevice.tan({0})", "Tan"),
    _function("asin", np.arcsin, "libdevice.asin({0})", "Asin", monotone=True),
    _function("acos", np.arccos, "libdevice.acos({0})", "Acos"),
    _function("atan", np.arctan, "libdevice.atan({0})", "Atan", monotone=True),
    _function("sinh", np.sinh, "libdevice.sinh({0})", "Sinh", monotone=True),
    _function("cosh", np.cosh, "libdevice.cosh({0})", "Cosh"),
    _function("tanh", np.tanh, "libdevice.tanh({0})", "Tanh", monotone=True),
    _function("asinh", np.arcsinh, "libdevice.asinh({0})", "Asinh", monotone=True),
    _function("acosh", np.arccosh, "libdevice.acosh({0})", "Acosh", monotone=True),
    _function("atanh", np.arctanh, "libdevice.atanh({0})", "Atanh", monotone=True),
    _function("erf", numerics.erf, "libdevice.erf({0})", "Erf", monotone=True),
    _function("sigmoid", _sigmoid, "tl.sigmoid({0})", "Sigmoid", monotone=True),
    _function("softplus", _softplus, _SOFTPLUS, "Softplus", aten="", monotone=True),
    _function("softsign", lambda x: x / (1.0 + np.abs(x)), "({0} / (1.0 + tl.abs({0})))", "Softsign", aten="", monotone=True),
    _function("silu", lambda x: x * _sigmoid(x), "({0} * tl.sigmoid({0}))"),
    _function("mish", lambda x: x * np.tanh(_softplus(x)), f"({{0}} * libdevice.tanh({_SOFTPLUS}))", "Mish"),
    _function("hard_swish", lambda x: x * _hard_sigmoid(x, alpha=1 / 6, beta=0.5),
              f"({{0}} * {_triton_clamp('{0} * 0.16666666666666666 + 0.5')})", "HardSwish", aten="hardswish.default"),
)

EXACT: tuple[OpDef, ...] = (
    _direct("neg", np.negative, "number", "(-{0})", "(-{0})", "Neg", "involution"),
    _direct("abs", np.abs, "number", "gw::abs({0})", "tl.abs({0})", "Abs", "idempotent"),
    _direct("sign", np.sign, "number", "gw::sign({0})",
            "tl.where({0} > 0, 1, tl.where({0} < 0, -1, {0}))", "Sign", "monotone", "idempotent"),
    _direct("relu", lambda x: np.maximum(x, 0), "number", "gw::relu({0})",
            f"tl.maximum({{0}}, 0, {_NAN})", "Relu", "monotone", "idempotent"),
    _direct("floor", np.floor, "float", "gw::floor({0})", "tl.floor({0})", "Floor", "monotone", "idempotent"),
    _direct("ceil", np.ceil, "float", "gw::ceil({0})", "tl.ceil({0})", "Ceil", "monotone", "idempotent"),
    _direct("round", np.rint, "float", "gw::round_even({0})", "libdevice.rint({0})", "Round", "monotone", "idempotent"),
    Pointwise("trunc", np.trunc, cpp="gw::trunc({0})", triton="libdevice.trunc({0})",
              facts=frozenset({"monotone", "idempotent"}), imports={"aten": ("trunc.default",)}),
)

ACTIVATIONS: tuple[OpDef, ...] = (
    Pointwise("gelu", _exact(_gelu), cpp="gw::gelu_{approximate}({0})", triton=_triton_gelu,
              attributes={"approximate": Attribute("str", "none")}, imports={"onnx": ("Gelu",), "aten": ("gelu.default",)}),
    _activation("hard_sigmoid", _hard_sigmoid, "HardSigmoid", _triton_clamp("{alpha} * {0} + {beta}"), alpha=0.2, beta=0.5),
    _activation("elu", _elu, "Elu", "tl.where({0} > 0, {0}, {alpha} * libdevice.expm1({0}))", alpha=1.0),
    _activation("selu", _selu, "Selu", "({gamma} * tl.where({0} > 0, {0}, {alpha} * libdevice.expm1({0})))",
                alpha=1.67326319217681884765625, gamma=1.05070102214813232421875),
    _activation("celu", _celu, "Celu", "tl.where({0} > 0, {0}, {alpha} * libdevice.expm1({0} / {alpha}))", alpha=1.0),
    _activation("leaky_relu", lambda x, alpha: np.where(x < 0, alpha * x, x), "LeakyRelu",
                "tl.where({0} < 0, {alpha} * {0}, {0})", alpha=0.01),
    _activation("thresholded_relu", lambda x, alpha: np.where(x > alpha, x, 0.0), "ThresholdedRelu",
                "tl.where({0} > {alpha}, {0}, 0.0)", alpha=1.0),
    _activation("shrink", _shrink, "Shrink",
                "tl.where({0} < -{lambd}, {0} + {bias}, tl.where({0} > {lambd}, {0} - {bias}, 0.0))", bias=0.0, lambd=0.5),
)
# fmt: on

OPS: tuple[OpDef, ...] = (*ELEMENTARY, *EXACT, *ACTIVATIONS)
