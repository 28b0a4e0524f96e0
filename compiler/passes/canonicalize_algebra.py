"""Canonicalize, arithmetic: identities that hold for every value, NaN, infinities and -0.0 included.

Floats are never reassociated and never lose a NaN, an infinity or the sign of a zero; integers wrap,
so for them sums and products may be regrouped.  Where an identity holds only up to rounding
(x / 3 is not x * (1 / 3)) there is no rule.
"""

from __future__ import annotations

import math

import numpy as np

from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.types import BOOL
from graphwright.compiler.passes.fold_constants import folded_value
from graphwright.compiler.passes.match import (
    facts_of,
    fit,
    infers,
    is_cheap,
    is_constant,
    is_uniform,
    never_negative,
    never_negative_zero,
    op_named,
    uniform_of,
    uniform_value,
)
from graphwright.compiler.passes.rewrite import Rewriter, rule


def _replace_fitting(rw: Rewriter, op: Op, value: Value) -> bool | None:
    """Replaces the op by a value, repeated where the op itself repeated it."""
    fitted = fit(rw, value, op.result.type)
    if fitted is None:
        return rw.fail("the operand's shape may differ from the result's")
    return rw.replace(fitted)


@rule(kinds=[Kind.POINTWISE])
def constant_to_the_right(op: Op, rw: Rewriter) -> bool | None:
    """add(c, x) => add(x, c)."""
    if "commutative" not in facts_of(op):
        return None
    a, b = op.operands
    if not is_constant(a) or is_constant(b):
        return None
    return rw.replace(rw.create(op.name, [b, a], op.attributes).result)


@rule(kinds=[Kind.POINTWISE])
def same_function_twice(op: Op, rw: Rewriter) -> bool | None:
    """neg(neg(x)) => x, relu(relu(x)) => relu(x), by the op's declared facts."""
    if len(op.operands) != 1:
        return None
    inner = op_named(op.operands[0], op.name)
    if inner is None or inner.attributes != op.attributes:
        return None
    facts = facts_of(op)
    if "involution" in facts:
        return rw.replace(inner.operands[0])
    if "idempotent" in facts:
        return rw.replace(inner.result)
    return None


@rule(kinds=[Kind.POINTWISE])
def same_operand_twice(op: Op, rw: Rewriter) -> bool | None:
    """maximum(x, x) => x, by the op's declared facts."""
    if len(op.operands) != 2 or op.operands[0] is not op.operands[1]:
        return None
    return rw.replace(op.operands[0]) if "idempotent" in facts_of(op) else None


@rule("add")
def add_zero(op: Op, rw: Rewriter) -> bool | None:
    """x + 0 => x for integers; for floats only x + -0.0, or where x cannot be -0.0."""
    x, c = op.operands
    number = uniform_of(c)
    if number is None or number != 0:
        return None
    if isinstance(number, float) and math.copysign(1.0, number) > 0 and not never_negative_zero(x):
        return rw.fail("x + 0.0 turns -0.0 into 0.0")
    return None if isinstance(number, complex) else _replace_fitting(rw, op, x)


@rule("sub")
def sub_zero(op: Op, rw: Rewriter) -> bool | None:
    """x - 0.0 => x (for floats not x - -0.0, which is x + 0.0)."""
    x, c = op.operands
    return _replace_fitting(rw, op, x) if is_uniform(c, 0.0) else None


@rule("sub")
def sub_itself(op: Op, rw: Rewriter) -> bool | None:
    """x - x => 0 for integers (a float may be NaN or infinite)."""
    x, y = op.operands
    if x is not y or not x.type.dtype.is_integer:
        return None
    return rw.replace(uniform_value(rw, 0, op.result.type))


@rule("sub")
def sub_constant(op: Op, rw: Rewriter) -> bool | None:
    """x - c => x + (-c), exact in floats and in wrapping integers; one form for later rules."""
    x, c = op.operands
    if not is_constant(c) or is_constant(x) or c.type.dtype.kind not in ("float", "int"):
        return None
    if not is_cheap(c):
        return None
    return rw.replace_by("add", x, folded_value(rw, "neg", [c]))


@rule("mul", "div")
def times_one(op: Op, rw: Rewriter) -> bool | None:
    """x * 1 => x, x / 1 => x."""
    x, c = op.operands
    return _replace_fitting(rw, op, x) if is_uniform(c, 1) else None


@rule("mul", "div")
def times_minus_one(op: Op, rw: Rewriter) -> bool | None:
    """x * -1 => neg(x), x / -1 => neg(x)."""
    x, c = op.operands
    if not is_uniform(c, -1) or x.type != op.result.type:
        return None
    return rw.replace_by("neg", x)


@rule("mul")
def times_zero(op: Op, rw: Rewriter) -> bool | None:
    """x * 0 => 0 for integers (a float may be NaN, infinite or negative)."""
    x, c = op.operands
    if not x.type.dtype.is_integer or not is_uniform(c, 0):
        return None
    return rw.replace(uniform_value(rw, 0, op.result.type))


@rule("div")
def divide_by_power_of_two(op: Op, rw: Rewriter) -> bool | None:
    """x / 2^k => x * 2^-k: both round the same real number, and only there is that exact."""
    x, c = op.operands
    number = uniform_of(c)
    if not isinstance(number, float) or not is_cheap(c) or is_constant(x):
        return None
    if not math.isfinite(number) or abs(math.frexp(number)[0]) != 0.5:  # frexp(0) is 0
        return None
    with np.errstate(all="ignore"):
        inverse = np.asarray(1.0 / number).astype(c.type.dtype.numpy)
    if float(inverse) * number != 1.0:
        return rw.fail("the inverse of the divisor is not representable")
    return rw.replace_by("mul", x, folded_value(rw, "reciprocal", [c]))


@rule("add", "sub", "mul")
def move_negation(op: Op, rw: Rewriter) -> bool | None:
    """a + neg(b) => a - b, neg(a) + b => b - a, a - neg(b) => a + b, neg(a) * neg(b) => a * b,
    neg(a) * c => a * (-c) for a constant c."""
    a, b = op.operands
    na, nb = op_named(a, "neg"), op_named(b, "neg")
    if op.name == "add" and nb is not None:
        return rw.replace_by("sub", a, nb.operands[0])
    if op.name == "add" and na is not None:
        return rw.replace_by("sub", b, na.operands[0])
    if op.name == "sub" and nb is not None:
        return rw.replace_by("add", a, nb.operands[0])
    if op.name == "mul" and na is not None and nb is not None:
        return rw.replace_by("mul", na.operands[0], nb.operands[0])
    if op.name == "mul" and na is not None and is_cheap(b):
        return rw.replace_by("mul", na.operands[0], folded_value(rw, "neg", [b]))
    return None


@rule("add", "mul", "bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum")
def regroup_constants(op: Op, rw: Rewriter) -> bool | None:
    """(x + c1) + c2 => x + (c1 + c2) for integers; maximum and minimum for every type."""
    inner = op_named(op.operands[0], op.name)
    if inner is None or not is_constant(op.operands[1]) or not is_constant(inner.operands[1]):
        return None
    if op.name in ("add", "mul") and not op.result.type.dtype.is_integer:
        return rw.fail("sums and products of floats are not reassociated")
    x, c1 = inner.operands
    if is_constant(x) or not (is_cheap(c1) and is_cheap(op.operands[1])):
        return None
    constant = folded_value(rw, op.name, [c1, op.operands[1]])
    new = rw.value(op.name, x, constant)
    if new.type != op.result.type:
        return None
    return rw.replace(new)


@rule("abs")
def abs_of_negation(op: Op, rw: Rewriter) -> bool | None:
    """abs(neg(x)) => abs(x)."""
    inner = op_named(op.operands[0], "neg")
    return rw.replace_by("abs", inner.operands[0]) if inner is not None else None


@rule("pow")
def power_of_constant(op: Op, rw: Rewriter) -> bool | None:
    """x ** 1 => x, x ** 2 => x * x, x ** 3 => x * x * x (f32, f64), x ** -1 => 1 / x, x ** 0 => 1,
    x ** 0.5 => sqrt(x) where x is neither -inf nor -0.0, x ** -0.5 => 1 / sqrt(x) likewise.

    pow(-inf, 0.5) is inf and pow(-0.0, 0.5) is 0.0, but sqrt gives NaN and -0.0.  The cube rounds
    twice where pow rounds once: within 1 ulp; integers wrap the same way.
    """
    x, c = op.operands
    number = uniform_of(c)
    if number is None or isinstance(number, complex):
        return None
    exponent, dtype = float(number), x.type.dtype
    if exponent == 1:
        return _replace_fitting(rw, op, x)
    if exponent == 0:
        return rw.replace(uniform_value(rw, 1, op.result.type))
    fitted = x.type == op.result.type
    if not fitted:
        return None
    if exponent == 2:
        return rw.replace_by("mul", x, x)
    if exponent == 3 and (dtype.is_integer or dtype.bits >= 32):
        return rw.replace_by("mul", rw.value("mul", x, x), x)
    if not dtype.is_float:
        return None
    if exponent == -1:
        return rw.replace_by("reciprocal", x)
    if exponent in (0.5, -0.5):
        if not (never_negative(x) and never_negative_zero(x)):
            return rw.fail("pow and sqrt differ at -inf and -0.0, which the base may be")
        return rw.replace_by("sqrt" if exponent > 0 else "rsqrt", x)
    return None


@rule("mul")
def square_of_root(op: Op, rw: Rewriter) -> bool | None:
    """sqrt(x) * sqrt(x) => x where x is never negative: no rounding instead of two."""
    inner = op_named(op.operands[0], "sqrt")
    if inner is None or op.operands[1] is not op.operands[0]:
        return None
    x = inner.operands[0]
    return rw.replace(x) if never_negative(x) and never_negative_zero(x) else None


@rule("reciprocal", "div")
def reciprocal_of_root(op: Op, rw: Rewriter) -> bool | None:
    """1 / sqrt(x) => rsqrt(x): two roundings become one."""
    if op.name == "div" and not is_uniform(op.operands[0], 1):
        return None
    inner = op_named(op.operands[-1], "sqrt")
    if inner is None or inner.result.type != op.result.type:
        return None
    return rw.replace_by("rsqrt", inner.operands[0])


@rule("div")
def one_over(op: Op, rw: Rewriter) -> bool | None:
    """1 / x => reciprocal(x) for floats."""
    a, b = op.operands
    if not a.type.dtype.is_float or not is_uniform(a, 1) or b.type != op.result.type:
        return None
    return rw.replace_by("reciprocal", b)


@rule("logical_and", "logical_or", "logical_xor")
def logic_with_constant(op: Op, rw: Rewriter) -> bool | None:
    """x and true => x, x and false => false, x or false => x, x or true => true, x xor false => x."""
    x, c = op.operands
    number = uniform_of(c)
    if number is None:
        return None
    if op.name == "logical_xor":
        if number:
            return rw.replace_by("logical_not", x) if x.type == op.result.type else None
        return _replace_fitting(rw, op, x)
    if bool(number) == (op.name == "logical_and"):
        return _replace_fitting(rw, op, x)
    return rw.replace(uniform_value(rw, bool(number), op.result.type))


_NEGATED = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_or_equal",
    "less_or_equal": "greater",
    "greater": "less_or_equal",
    "greater_or_equal": "less",
}


@rule("logical_not")
def negated_comparison(op: Op, rw: Rewriter) -> bool | None:
    """not (a == b) => a != b; not (a < b) => a >= b for integers only, since NaN compares false."""
    inner = op.operands[0].op
    if inner is None or inner.name not in _NEGATED:
        return None
    if inner.name not in ("equal", "not_equal") and inner.operands[0].type.dtype.is_float:
        return rw.fail("not (a < b) is true for NaN, a >= b is not")
    return rw.replace_by(_NEGATED[inner.name], *inner.operands)


@rule("equal", "not_equal", "less", "less_or_equal", "greater", "greater_or_equal")
def compare_with_itself(op: Op, rw: Rewriter) -> bool | None:
    """x == x => true for integers (NaN differs from itself)."""
    a, b = op.operands
    if a is not b or a.type.dtype.is_float or a.type.dtype.kind == "complex":
        return None
    return rw.replace(uniform_value(rw, op.name in _REFLEXIVE, op.result.type))


_REFLEXIVE = ("equal", "less_or_equal", "greater_or_equal")


@rule("where")
def where_of_constant(op: Op, rw: Rewriter) -> bool | None:
    """where(true, x, y) => x; where(c, x, x) => x; where(not c, x, y) => where(c, y, x)."""
    condition, x, y = op.operands
    if x is y:
        return _replace_fitting(rw, op, x)
    number = uniform_of(condition)
    if number is not None:
        return _replace_fitting(rw, op, x if number else y)
    inner = op_named(condition, "logical_not")
    if inner is not None:
        return rw.replace_by("where", inner.operands[0], y, x)
    return None


@rule("where")
def where_of_bools(op: Op, rw: Rewriter) -> bool | None:
    """where(c, true, false) => c; where(c, false, true) => not c."""
    condition, x, y = op.operands
    if x.type.dtype is not BOOL or condition.type != op.result.type:
        return None
    values = (uniform_of(x), uniform_of(y))
    if values == (True, False):
        return rw.replace(condition)
    if values == (False, True):
        return rw.replace_by("logical_not", condition)
    return None


@rule(kinds=[Kind.POINTWISE])
def scalar_for_repeated(op: Op, rw: Rewriter) -> bool | None:
    """A constant of one repeated value becomes a scalar where the op repeats it anyway."""
    for i, value in enumerate(op.operands):
        source = value.op
        if source is None or value.type.rank == 0 or source.name not in ("constant", "full"):
            continue
        number = uniform_of(value)
        if number is None or (source.name == "constant" and source.attribute("recipe") is not None):
            continue  # a weight keeps its shape and its recipe
        scalar = rw.scalar(number, value.type.dtype)
        operands = [scalar if j == i else v for j, v in enumerate(op.operands)]
        if infers(op, operands):
            return rw.replace(rw.create(op.name, operands, op.attributes).result)
    return None
