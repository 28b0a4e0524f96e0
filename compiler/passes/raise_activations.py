"""Raise, activations: GELU, SiLU, sigmoid, hard-swish, hard-sigmoid, mish as exporters write them."""

from __future__ import annotations

import math

from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.algebra_match import affine, is_close, product, without
from graphwright.compiler.passes.match import is_uniform, only_user, op_named, uniform_of
from graphwright.compiler.passes.rewrite import Rewriter, rule

_CUBIC = 0.044715


def _half_of_one_plus(value: Value, coefficient: float, name: str) -> Op | None:
    """The op `name` in coefficient * value = 0.5 * (1 + name(...))."""
    parts = affine(value)
    if parts is None or len(parts[1]) != 1:
        return None
    a, (inner,), b = parts
    dtype = value.type.dtype
    if not is_close(coefficient * a, 0.5, dtype) or not is_close(coefficient * b, 0.5, dtype):
        return None
    return op_named(inner, name)


@rule("mul", "div")
def gelu_erf(op: Op, rw: Rewriter) -> bool | None:
    """x * 0.5 * (1 + erf(x / sqrt(2))), in any grouping => gelu."""
    coefficient, factors = product(op.result)
    for factor in factors:
        erf = _half_of_one_plus(factor, coefficient, "erf")
        rest = without(factors, factor)
        if erf is None or len(rest) != 1 or rest[0].type != op.result.type:
            continue
        scale, inside = product(erf.operands[0])
        if inside != rest or not is_close(scale, math.sqrt(0.5), op.result.type.dtype):
            return rw.fail("the argument of erf is not x / sqrt(2)")
        return rw.replace_by("gelu", rest[0])
    return None


def _is_cubic(value: Value, x: Value) -> bool:
    """Whether value = sqrt(2 / pi) * (x + 0.044715 * x ** 3), in any grouping."""
    scale, factors = product(value)
    dtype = x.type.dtype
    if not is_close(scale, math.sqrt(2 / math.pi), dtype):
        return False
    if len(factors) == 1:  # one factor: the sum itself
        total = op_named(factors[0], "add")
        if total is None or x not in total.operands:
            return False
        other = total.operands[1 if total.operands[0] is x else 0]
        c, cube = product(other)
        return cube == [x] * 3 and is_close(c, _CUBIC, dtype)
    rest = without(factors, x)
    parts = affine(rest[0]) if len(rest) == 1 and len(factors) == 2 else None
    return (
        parts is not None
        and parts[1] == [x] * 2
        and is_close(parts[0], _CUBIC, dtype)
        and parts[2] == 1.0
    )


@rule("mul", "div")
def gelu_tanh(op: Op, rw: Rewriter) -> bool | None:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))) => gelu by tanh."""
    coefficient, factors = product(op.result)
    for factor in factors:
        tanh = _half_of_one_plus(factor, coefficient, "tanh")
        rest = without(factors, factor)
        if tanh is None or len(rest) != 1 or rest[0].type != op.result.type:
            continue
        if not _is_cubic(tanh.operands[0], rest[0]):
            return rw.fail("the argument of tanh is not that of GELU")
        return rw.replace_by("gelu", rest[0], approximate="tanh")
    return None


@rule("mul")
def silu(op: Op, rw: Rewriter) -> bool | None:
    """x * sigmoid(x) => silu(x)."""
    for x, s in (op.operands, op.operands[::-1]):
        inner = op_named(s, "sigmoid")
        if inner is None or inner.operands[0] is not x:
            continue
        if only_user(s) is not op:
            return rw.fail("the sigmoid is needed by others too")
        return rw.replace_by("silu", x)
    return None


def _one_plus_exp_minus(value: Value) -> Value | None:
    """x of 1 + exp(-x)."""
    parts = affine(value)
    if parts is None or parts[0] != 1.0 or parts[2] != 1.0 or len(parts[1]) != 1:
        return None
    exp = op_named(parts[1][0], "exp")
    if exp is None:
        return None
    negated = op_named(exp.operands[0], "neg")
    if negated is not None:
        return negated.operands[0]
    scaled = op_named(exp.operands[0], "mul")
    return scaled.operands[0] if scaled is not None and is_uniform(scaled.operands[1], -1) else None


@rule("reciprocal", "div")
def sigmoid(op: Op, rw: Rewriter) -> bool | None:
    """1 / (1 + exp(-x)) => sigmoid(x); x / (1 + exp(-x)) => silu(x)."""
    x = _one_plus_exp_minus(op.operands[-1])
    if x is None or x.type != op.result.type:
        return None
    if op.name == "reciprocal" or is_uniform(op.operands[0], 1):
        return rw.replace_by("sigmoid", x)
    return rw.replace_by("silu", x) if op.operands[0] is x else None


def _clipped(value: Value, coefficient: float) -> tuple[Value, float, float] | None:
    """(x, alpha, beta) of coefficient * value = clip(alpha * x + beta, 0, 1)."""
    clip = op_named(value, "clip")
    if clip is None or clip.operands[0].type != value.type:
        return None
    low, high = uniform_of(clip.operands[1]), uniform_of(clip.operands[2])
    dtype = value.type.dtype
    if low != 0 or not isinstance(high, float) or not is_close(coefficient * high, 1.0, dtype):
        return None
    parts = affine(clip.operands[0])
    if parts is None or len(parts[1]) != 1 or parts[1][0].type != value.type:
        return None
    return parts[1][0], parts[0] * coefficient, parts[2] * coefficient


def _hard(x: Value, alpha: float, beta: float) -> bool:
    """Whether alpha and beta are those of hard-swish."""
    return is_close(alpha, 1 / 6, x.type.dtype) and is_close(beta, 0.5, x.type.dtype)


@rule("mul", "div")
def hard_swish(op: Op, rw: Rewriter) -> bool | None:
    """x * clip(x + 3, 0, 6) / 6, in any grouping, and x * hard_sigmoid(x) with slope 1/6."""
    coefficient, factors = product(op.result)
    if len(factors) != 2:
        return None
    for x, gate in (factors, factors[::-1]):
        if x.type != op.result.type:
            continue
        hard = op_named(gate, "hard_sigmoid")
        if hard is not None and hard.operands[0] is x and coefficient == 1.0:
            if _hard(x, hard.attribute("alpha"), hard.attribute("beta")):
                return rw.replace_by("hard_swish", x)
            continue
        found = _clipped(gate, coefficient)
        if found is not None and found[0] is x and _hard(x, found[1], found[2]):
            return rw.replace_by("hard_swish", x)
    return None


@rule("mul", "div", "clip")
def hard_sigmoid(op: Op, rw: Rewriter) -> bool | None:
    """clip(x + 3, 0, 6) / 6 => hard_sigmoid, and clip(x * a + b, 0, 1)."""
    coefficient, factors = product(op.result)
    if len(factors) != 1 or not op.result.type.dtype.is_float:
        return None
    found = _clipped(factors[0], coefficient)
    if found is None or found[0].type != op.result.type:
        return None
    if op.name == "clip" and _hard_swish_follows(op, found[0]):
        return rw.fail("a hard-swish comes after it")
    x, alpha, beta = found
    return rw.replace_by("hard_sigmoid", x, alpha=alpha, beta=beta)


def _hard_swish_follows(op: Op, x: Value) -> bool:
    user = only_user(op.result)
    return user is not None and user.name == "mul" and x in user.operands


@rule("mul")
def mish(op: Op, rw: Rewriter) -> bool | None:
    """x * tanh(softplus(x)) => mish(x)."""
    for x, t in (op.operands, op.operands[::-1]):
        tanh = op_named(t, "tanh")
        softplus = op_named(tanh.operands[0], "softplus") if tanh is not None else None
        if softplus is not None and softplus.operands[0] is x and only_user(t) is op:
            return rw.replace_by("mish", x)
    return None
