"""Arithmetic, comparison, logic and functions that become several ops, or that need torch's types."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.ops.pointwise import Pointwise
from graphwright.compiler.ir.types import BOOL, F32, F64, I64
from graphwright.frontends.torch.direct import pointwise
from graphwright.frontends.torch.dtypes import element_type
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal

TO_FLOAT, DEFAULT, TO_BOOL = PROMOTION.INT_TO_FLOAT, PROMOTION.DEFAULT, PROMOTION.ALWAYS_BOOL
# Of bools, arithmetic is logic.
OF_BOOLS = {
    "add": "logical_or",
    "mul": "logical_and",
    "maximum": "logical_or",
    "minimum": "logical_and",
}


def arithmetic(node: Node, op: str, a: Value, b: Value) -> Value:
    """One op on operands of one type; of bools the logical one."""
    if a.type.dtype is BOOL and op in OF_BOOLS:
        op = OF_BOOLS[op]
    return node.emit(op, a, b)


def binary(op: str, kind: PROMOTION = DEFAULT) -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted("self", "other", kind=kind)
        return node.cast(arithmetic(node, op, a, b), node.out_dtype)

    return compose


def sum_with_alpha(op: str, first: str = "self", second: str = "other") -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted(first, second)
        alpha = node.raw("alpha")
        if alpha is not None and alpha != 1:
            b = arithmetic(node, "mul", b, node.number(alpha, b.type.dtype))
        return node.cast(arithmetic(node, op, a, b), node.out_dtype)

    return compose


def reverse_subtract(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    alpha = node.raw("alpha")
    if alpha is not None and alpha != 1:
        a = node.emit("mul", a, node.number(alpha, a.type.dtype))
    return node.emit("sub", b, a)


def divide(node: Node) -> Value:
    mode = node.arg("rounding_mode")
    kind = TO_FLOAT if mode is None else DEFAULT
    a, b = node.promoted("self", "other", kind=kind)
    return node.cast(divided(node, a, b, mode), node.out_dtype)


def floor_divide(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    return node.cast(divided(node, a, b, "floor"), node.out_dtype)


def divided(node: Node, a: Value, b: Value, mode: str | None) -> Value:
    """The quotient, as it is, towards zero, or down."""
    if mode is None:
        return node.emit("div", a, b)
    if a.type.dtype is BOOL:
        raise Refusal("it divides bools")
    if not a.type.dtype.is_float:
        if mode == "trunc":
            return node.emit("div", a, b)
        rest = node.emit("mod", a, b, fmod=False)
        return node.emit("div", node.emit("sub", a, rest), b)
    if mode == "trunc":
        return node.emit("trunc", node.emit("div", a, b))
    return _floor_of_floats(node, a, b)


def _floor_of_floats(node: Node, a: Value, b: Value) -> Value:
    """torch's floor division, which agrees with its remainder: not floor(a / b) near whole numbers."""
    dtype = a.type.dtype
    if dtype not in (F32, F64):  # calculated wider, rounded once
        wide = _floor_of_floats(node, node.cast(a, F32), node.cast(b, F32))
        return node.cast(wide, dtype)
    zero, one, half = (node.scalar(n, dtype) for n in (0, 1, 0.5))
    rest = node.emit("mod", a, b, fmod=True)
    quotient = node.emit("div", node.emit("sub", a, rest), b)
    differ = node.emit("logical_xor", node.emit("less", b, zero), node.emit("less", rest, zero))
    lower = node.emit("logical_and", node.emit("not_equal", rest, zero), differ)
    quotient = node.where(lower, node.emit("sub", quotient, one), quotient)
    down = node.emit("floor", quotient)
    off = node.emit("greater", node.emit("sub", quotient, down), half)
    down = node.where(off, node.emit("add", down, one), down)
    plain = node.emit("div", a, b)
    signed_zero = node.emit("mul", plain, zero)
    finite_zero = node.where(node.emit("is_inf", plain), zero, signed_zero)
    found = node.where(node.emit("equal", quotient, zero), finite_zero, down)
    return node.where(node.emit("equal", b, zero), plain, found)


def remainder(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    if not a.type.dtype.is_float:
        return node.emit("mod", a, b, fmod=False)
    dtype = a.type.dtype
    zero = node.scalar(0, dtype)
    rest = node.emit("mod", a, b, fmod=True)
    differ = node.emit("logical_xor", node.emit("less", b, zero), node.emit("less", rest, zero))
    wrong = node.emit("logical_and", node.emit("not_equal", rest, zero), differ)
    return node.where(wrong, node.emit("add", rest, b), rest)


def fmod(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    return node.emit("mod", a, b, fmod=True)


def power(node: Node) -> Value:
    """torch writes small known exponents out as products and roots."""
    a, b = node.promoted("self", "exponent")
    exponent = node.raw("exponent")
    x = node.cast(a, node.out_dtype)
    if x.type.dtype is BOOL:
        raise Refusal("it raises bools to powers")
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        known = _known_power(node, x, float(exponent))
        if known is not None:
            return known
    return node.emit("pow", x, node.cast(b, x.type.dtype))


def _known_power(node: Node, x: Value, exponent: float) -> Value | None:
    if exponent == 1:
        return x
    if exponent == 2:
        return node.emit("mul", x, x)
    if exponent == 3:
        return node.emit("mul", node.emit("mul", x, x), x)
    if not x.type.dtype.is_float:
        return None
    one = node.scalar(1, x.type.dtype)
    if exponent == 0.5:
        return node.emit("sqrt", x)
    if exponent == -0.5:
        return node.emit("rsqrt", x)
    if exponent == -1:
        return node.emit("reciprocal", x)
    if exponent == -2:
        return node.emit("div", one, node.emit("mul", x, x))
    return None


def compare(op: str) -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted("self", "other", kind=TO_BOOL)
        if a.type.dtype is BOOL and op not in ("equal", "not_equal"):
            a, b = node.cast(a, I64), node.cast(b, I64)
        return node.emit(op, a, b)

    return compose


def logical(op: str) -> Compose:
    def compose(node: Node) -> Value:
        return node.emit(op, node.operand("self", BOOL), node.operand("other", BOOL))

    return compose


def bitwise(op: str) -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted("self", "other")
        name = f"logical_{op}" if a.type.dtype is BOOL else f"bitwise_{op}"
        return node.emit(name, a, b)

    return compose


def logical_not(node: Node) -> Value:
    return node.emit("logical_not", node.cast(node.x(), BOOL))


def bitwise_not(node: Node) -> Value:
    x = node.x()
    return node.emit("logical_not" if x.type.dtype is BOOL else "bitwise_not", x)


def shift(op: str) -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted("self", "other")
        return node.emit(op, a, b)

    return compose


def extreme_without_nan(op: str) -> Compose:
    """fmax and fmin: a NaN loses against a number."""

    def compose(node: Node) -> Value:
        a, b = node.promoted("self", "other")
        if not a.type.dtype.is_float:
            return arithmetic(node, op, a, b)
        both = node.emit(op, a, b)
        without = node.where(node.emit("is_nan", b), a, both)
        return node.where(node.emit("is_nan", a), b, without)

    return compose


def extreme(op: str) -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted("self", "other")
        return arithmetic(node, op, a, b)

    return compose


def clamp(node: Node) -> Value:
    """The upper limit wins where the limits are the wrong way round; NaN stays, also of a limit."""
    names = ["self", *(n for n in ("min", "max") if node.has(n))]
    x, *limits = node.promoted(*names)
    for name, limit in zip(names[1:], limits, strict=True):
        x = node.emit("maximum" if name == "min" else "minimum", x, limit)
    return x


def clamp_one(limit: str) -> Compose:
    def compose(node: Node) -> Value:
        a, b = node.promoted("self", limit)
        return node.emit("maximum" if limit == "min" else "minimum", a, b)

    return compose


def where(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    return node.where(node.x("condition"), a, b)


def absolute(node: Node) -> Value:
    x = node.x()
    return x if x.type.dtype.kind in ("bool", "uint") else node.emit("abs", x)


def sign(node: Node) -> Value:
    """torch's sign of NaN is 0."""
    x = node.x()
    if x.type.dtype is BOOL:
        return x
    found = node.emit("sign", x)
    if not x.type.dtype.is_float:
        return found
    return node.where(node.emit("is_nan", x), node.scalar(0, x.type.dtype), found)


def signbit(node: Node) -> Value:
    x = node.x()
    dtype = x.type.dtype
    if dtype is BOOL or dtype.kind == "uint":
        return node.full(False, BOOL, x.type.shape)
    if not dtype.is_float:
        return node.emit("less", x, node.scalar(0, dtype))
    ours = element_type({16: torch.int16, 32: torch.int32, 64: torch.int64}[dtype.bits])
    bits = node.emit("bitcast", x, source=dtype, dtype=ours)
    return node.emit("less", bits, node.scalar(0, ours))


def copysign(node: Node) -> Value:
    a, b = node.promoted("self", "other", kind=TO_FLOAT)
    size = node.emit("abs", a)
    ours = element_type({16: torch.int16, 32: torch.int32, 64: torch.int64}[b.type.dtype.bits])
    bits = node.emit("bitcast", b, source=b.type.dtype, dtype=ours)
    negative = node.emit("less", bits, node.scalar(0, ours))
    return node.where(negative, node.emit("neg", size), size)


def rounded(node: Node) -> Value:
    x = node.x()
    decimals = node.static("decimals") if "decimals" in node._given else 0
    if not x.type.dtype.is_float:
        return x
    if not decimals:
        return node.emit("round", x)
    scale = node.scalar(10.0 ** abs(decimals), x.type.dtype)
    into, back = ("mul", "div") if decimals > 0 else ("div", "mul")
    return node.emit(back, node.emit("round", node.emit(into, x, scale)), scale)


def of_float(build: Callable[[Node, Value], Value]) -> Compose:
    """A function of floats, of integers in the default float type."""

    def compose(node: Node) -> Value:
        (x,) = node.promoted("self", kind=TO_FLOAT)
        return node.cast(build(node, x), node.out_dtype)

    return compose


def _scaled_log(scale: float) -> Callable[[Node, Value], Value]:
    def build(node: Node, x: Value) -> Value:
        wide = node.cast(x, F64)
        return node.cast(
            node.emit("mul", node.emit("log", wide), node.scalar(scale, F64)), x.type.dtype
        )

    return build


def _exp2(node: Node, x: Value) -> Value:
    return node.emit("pow", node.scalar(2, x.type.dtype), x)


def _erfc(node: Node, x: Value) -> Value:
    """Through gelu, which is written with erfc and so exact in the tail: gelu(x) = x/2 erfc(-x/sqrt 2)."""
    wide = node.cast(x, F64)
    one = node.scalar(1, F64)
    return node.cast(node.emit("sub", one, node.emit("erf", wide)), x.type.dtype)


def fused_multiply(op: str) -> Compose:
    """addcmul and addcdiv: self + value * tensor1 op tensor2."""

    def compose(node: Node) -> Value:
        x, a, b = node.promoted("self", "tensor1", "tensor2")
        value = node.raw("value")
        if op == "mul" and value is not None and value != 1:
            a = node.emit("mul", a, node.number(value, a.type.dtype))
            value = 1
        found = node.emit(op, a, b)
        if value is not None and value != 1:
            found = node.emit("mul", found, node.number(value, a.type.dtype))
        return node.emit("add", x, found)

    return compose


def lerp(node: Node) -> Value:
    """torch takes the end that is nearer: exact at both."""
    a, b = node.x(), node.x("end")
    weight = node.operand("weight", a.type.dtype)
    dtype = a.type.dtype
    one, half = node.scalar(1, dtype), node.scalar(0.5, dtype)
    gap = node.emit("sub", b, a)
    low = node.emit("add", a, node.emit("mul", weight, gap))
    high = node.emit("sub", b, node.emit("mul", gap, node.emit("sub", one, weight)))
    return node.where(node.emit("less", node.emit("abs", weight), half), low, high)


def logaddexp(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    high, low = node.emit("maximum", a, b), node.emit("minimum", a, b)
    difference = node.emit("sub", low, high)
    out = node.emit("add", high, node.emit("log1p", node.emit("exp", difference)))
    # Equal infinities have no difference.
    same = node.emit("logical_and", node.emit("is_inf", a), node.emit("equal", a, b))
    return node.where(same, a, out)


def nan_to_num(node: Node) -> Value:
    x = node.x()
    dtype = x.type.dtype
    nan, high, low = (node.arg(n) for n in ("nan", "posinf", "neginf"))
    if not dtype.is_float:
        return x
    info = torch.finfo(node.out.dtype)
    limits = {
        "is_nan": 0.0 if nan is None else nan,
        "high": info.max if high is None else high,
        "low": info.min if low is None else low,
    }
    out = node.where(node.emit("is_nan", x), node.scalar(limits["is_nan"], dtype), x)
    up = node.emit("is_inf", x, negative=False)
    out = node.where(up, node.scalar(limits["high"], dtype), out)
    down = node.emit("is_inf", x, positive=False)
    return node.where(down, node.scalar(limits["low"], dtype), out)


def infinite(negative: bool) -> Compose:
    def compose(node: Node) -> Value:
        x = node.x()
        if not x.type.dtype.is_float:
            return node.full(False, BOOL, x.type.shape)
        return node.emit("is_inf", x, negative=negative, positive=not negative)

    return compose


def is_finite(node: Node) -> Value:
    x = node.x()
    if not x.type.dtype.is_float:
        return node.full(True, BOOL, x.type.shape)
    bad = node.emit("logical_or", node.emit("is_inf", x), node.emit("is_nan", x))
    return node.emit("logical_not", bad)


def heaviside(node: Node) -> Value:
    x, values = node.promoted("self", "values")
    dtype = x.type.dtype
    zero = node.scalar(0, dtype)
    above = node.cast(node.emit("greater", x, zero), dtype)
    return node.where(node.emit("equal", x, zero), values, above)


def xlogy(node: Node) -> Value:
    """self * log(other), 0 where self is 0 and other is no NaN."""
    a, b = node.promoted("self", "other", kind=TO_FLOAT)
    zero = node.scalar(0, a.type.dtype)
    out = node.emit("mul", a, node.emit("log", b))
    is_zero = node.emit(
        "logical_and", node.emit("equal", a, zero), node.emit("logical_not", node.emit("is_nan", b))
    )
    return node.where(is_zero, zero, out)


def atan2(node: Node) -> Value:
    a, b = node.promoted("self", "other", kind=TO_FLOAT)
    return node.emit("atan2", a, b)


def hypot(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    wide_a, wide_b = node.cast(a, F64), node.cast(b, F64)
    squares = node.emit("add", node.emit("mul", wide_a, wide_a), node.emit("mul", wide_b, wide_b))
    return node.cast(node.emit("sqrt", squares), a.type.dtype)


def unary(name: str, argument: str = "self") -> Compose:
    """A row of the pointwise table under another name."""

    def compose(node: Node) -> Value:
        declared = REGISTRY[name]
        assert isinstance(declared, Pointwise)
        return pointwise(node, declared, [argument], {})

    return compose


def _degrees(factor: float) -> Callable[[Node, Value], Value]:
    return lambda node, x: node.emit("mul", x, node.scalar(factor, x.type.dtype))


def _logit(node: Node) -> Value:
    (x,) = node.promoted("self", kind=TO_FLOAT)
    eps, dtype = node.arg("eps"), x.type.dtype
    if eps is not None:
        x = node.emit("clip", x, node.scalar(eps, dtype), node.scalar(1 - eps, dtype))
    rest = node.emit("sub", node.scalar(1, dtype), x)
    return node.emit("log", node.emit("div", x, rest))


def _sinc(node: Node, x: Value) -> Value:
    dtype = x.type.dtype
    angle = node.emit("mul", x, node.scalar(np.pi, dtype))
    zero = node.emit("equal", angle, node.scalar(0, dtype))
    found = node.emit("div", node.emit("sin", angle), angle)
    return node.where(zero, node.scalar(1, dtype), found)


def _frac(node: Node) -> Value:
    x = node.x()
    return node.emit("sub", x, node.emit("trunc", x))


def _entropy(node: Node) -> Value:
    (x,) = node.promoted("self", kind=TO_FLOAT)
    dtype = x.type.dtype
    zero = node.scalar(0, dtype)
    usual = node.emit("neg", node.emit("mul", x, node.emit("log", x)))
    low = node.where(node.emit("equal", x, zero), zero, node.scalar(-np.inf, dtype))
    out = node.where(node.emit("greater", x, zero), usual, low)
    return node.where(node.emit("is_nan", x), x, out)


def _both(name: str, compose: Compose, *overloads: str) -> dict[str, Compose]:
    return {f"{name}.{o}": compose for o in overloads or ("Tensor", "Scalar")}


COMPOSE: dict[str, Compose] = {
    **_both("add", sum_with_alpha("add")),
    **_both("sub", sum_with_alpha("sub")),
    **_both("rsub", reverse_subtract),
    **_both("mul", binary("mul")),
    **_both("div", divide, "Tensor", "Scalar", "Tensor_mode", "Scalar_mode"),
    **_both("true_divide", divide),
    **_both("floor_divide", floor_divide, "default", "Scalar"),
    **_both("remainder", remainder, "Tensor", "Scalar", "Scalar_Tensor"),
    **_both("fmod", fmod),
    **_both("pow", power, "Tensor_Tensor", "Tensor_Scalar", "Scalar"),
    **_both("eq", compare("equal")),
    **_both("ne", compare("not_equal")),
    **_both("lt", compare("less")),
    **_both("le", compare("less_or_equal")),
    **_both("gt", compare("greater")),
    **_both("ge", compare("greater_or_equal")),
    "logical_and.default": logical("logical_and"),
    "logical_or.default": logical("logical_or"),
    "logical_xor.default": logical("logical_xor"),
    "logical_not.default": logical_not,
    **_both("bitwise_and", bitwise("and"), "Tensor", "Scalar", "Scalar_Tensor"),
    **_both("bitwise_or", bitwise("or"), "Tensor", "Scalar", "Scalar_Tensor"),
    **_both("bitwise_xor", bitwise("xor"), "Tensor", "Scalar", "Scalar_Tensor"),
    "bitwise_not.default": bitwise_not,
    **_both("bitwise_left_shift", shift("shift_left"), "Tensor", "Tensor_Scalar", "Scalar_Tensor"),
    **_both(
        "bitwise_right_shift", shift("shift_right"), "Tensor", "Tensor_Scalar", "Scalar_Tensor"
    ),
    **_both("__lshift__", shift("shift_left")),
    **_both("__rshift__", shift("shift_right")),
    "maximum.default": extreme("maximum"),
    "minimum.default": extreme("minimum"),
    "fmax.default": extreme_without_nan("maximum"),
    "fmin.default": extreme_without_nan("minimum"),
    "clamp.default": clamp,
    "clamp.Tensor": clamp,
    **_both("clamp_min", clamp_one("min"), "default", "Tensor"),
    **_both("clamp_max", clamp_one("max"), "default", "Tensor"),
    **_both("where", where, "self", "ScalarSelf", "ScalarOther", "Scalar"),
    "abs.default": absolute,
    "sign.default": sign,
    "sgn.default": sign,
    "signbit.default": signbit,
    "copysign.Tensor": copysign,
    "copysign.Scalar": copysign,
    **_both("round", rounded, "default", "decimals"),
    "log2.default": of_float(_scaled_log(1 / math.log(2))),
    "log10.default": of_float(_scaled_log(1 / math.log(10))),
    "exp2.default": of_float(_exp2),
    "erfc.default": of_float(_erfc),
    "deg2rad.default": of_float(_degrees(math.pi / 180)),
    "rad2deg.default": of_float(_degrees(180 / math.pi)),
    "sinc.default": of_float(_sinc),
    "logit.default": _logit,
    "frac.default": _frac,
    "special_entr.default": _entropy,
    "square.default": lambda node: node.emit("mul", node.x(), node.x()),
    "addcmul.default": fused_multiply("mul"),
    "addcdiv.default": fused_multiply("div"),
    **_both("lerp", lerp),
    "logaddexp.default": logaddexp,
    "nan_to_num.default": nan_to_num,
    "isposinf.default": infinite(negative=False),
    "isneginf.default": infinite(negative=True),
    "isfinite.default": is_finite,
    "heaviside.default": heaviside,
    **_both("xlogy", xlogy, "Tensor", "Scalar_Other", "Scalar_Self"),
    "atan2.default": atan2,
    "hypot.default": hypot,
    "positive.default": lambda node: node.x(),
}
