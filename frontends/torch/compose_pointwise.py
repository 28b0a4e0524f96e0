"""Arithmetic, comparison, logic and functions that become several ops, or that need torch's types."""

from __future__ import annotations

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, F64, I64
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
    "square.default": lambda node: node.emit("mul", node.x(), node.x()),
    "positive.default": lambda node: node.x(),
}
