"""Reading arithmetic back from ops: products, affine functions, values of reductions."""

from __future__ import annotations

import math

from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import DType
from graphwright.compiler.passes.match import op_named, split_uniform, uniform_of

_LONGEST = 8


def tolerance(dtype: DType) -> float:
    """How far a constant that an exporter wrote in this type may be from what it stands for."""
    return {"f16": 1e-3, "bf16": 8e-3}.get(dtype.name, 2e-6)


def is_close(number: float, want: float, dtype: DType) -> bool:
    return math.isclose(number, want, rel_tol=tolerance(dtype))


def product(value: Value) -> tuple[float, list[Value]]:
    """value = coefficient * factors[0] * factors[1] ...

    Looks into `value` itself and into factors that are used only here: a factor with other users is
    a value of its own right.  Squares and cubes count as repeated factors.
    """
    coefficient = 1.0
    factors: list[Value] = []
    pending = [(value, True)]
    while pending:
        current, look = pending.pop()
        op = current.op
        square = op is not None and op.name == "mul" and op.operands[0] is op.operands[1]
        if op is None or not (look or len(current.uses) == 1 or square):
            factors.append(current)
            continue
        if len(factors) + len(pending) > _LONGEST:
            factors.append(current)
        elif op.name == "mul":
            split = split_uniform(op)
            if split is not None:
                coefficient *= split[1]
                pending.append((split[0], False))
            else:
                pending += [(op.operands[1], False), (op.operands[0], False)]
        elif op.name == "div" and (by := _number(op.operands[1])) is not None and by != 0:
            coefficient /= by
            pending.append((op.operands[0], False))
        elif op.name == "neg":
            coefficient = -coefficient
            pending.append((op.operands[0], False))
        elif op.name == "pow" and _number(op.operands[1]) in (2.0, 3.0):
            pending += [(op.operands[0], False)] * int(_number(op.operands[1]) or 0)
        else:
            factors.append(current)
    return coefficient, factors


def _number(value: Value) -> float | None:
    number = uniform_of(value)
    return None if number is None or isinstance(number, complex) else float(number)


def affine(value: Value) -> tuple[float, list[Value], float] | None:
    """value = a * (product of factors) + b, for an addition of one number; else None."""
    op = op_named(value, "add")
    split = split_uniform(op) if op is not None else None
    if split is None:
        return None
    a, factors = product(split[0]) if len(split[0].uses) == 1 else (1.0, [split[0]])
    return a, factors, split[1]


def without(factors: list[Value], *taken: Value) -> list[Value]:
    """The factors less one occurrence of each of `taken`."""
    left = list(factors)
    for value in taken:
        if value in left:
            left.remove(value)
    return left


def peeled(value: Value) -> Value:
    """The value below reshapes, which keep the order of elements."""
    while (op := op_named(value, "reshape")) is not None:
        value = op.operands[0]
    return value


def kept_shape(x: Value, axes: tuple[int, ...]) -> Shape:
    """The shape of a reduction of x over axes that keeps them with extent 1."""
    kept: list[Dim] = [1 if a in axes else d for a, d in enumerate(x.type.shape)]
    return tuple(kept)


def repeated_over(value: Value, x: Value, axes: tuple[int, ...]) -> Value | None:
    """The value as it meets x, when it has one element for each reduced slice of x."""
    broadcast = op_named(value, "broadcast_to")
    if broadcast is not None and value.type.shape == x.type.shape:
        value = broadcast.operands[0]
    return value if value.type.shape == kept_shape(x, axes) else None


def reduction(value: Value, name: str) -> Op | None:
    """The reduction below reshapes."""
    return op_named(peeled(value), name)
