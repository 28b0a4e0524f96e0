"""Functions that become several ops: signs, rounding, logarithms, what has cases of its own."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F64
from graphwright.frontends.torch.dtypes import element_type
from graphwright.frontends.torch.node import Compose, Node

TO_FLOAT = PROMOTION.INT_TO_FLOAT


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
}
