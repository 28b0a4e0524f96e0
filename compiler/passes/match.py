"""Questions that rules ask about values: constants, single uses, ranges that can be proven."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Inference, InferenceError
from graphwright.compiler.ir.ops.pointwise import Pointwise
from graphwright.compiler.ir.types import TensorType
from graphwright.compiler.passes.rewrite import Rewriter

# Dense constants up to this size are looked through for one repeated value.
_SMALL = 4096


def op_named(value: Value, *names: str) -> Op | None:
    """The op that made the value, when it has one of these names."""
    return value.op if value.op is not None and value.op.name in names else None


def only_user(value: Value) -> Op | None:
    """The single op operand that uses the value, when nothing else does."""
    uses = value.uses
    return uses[0].user if len(uses) == 1 and isinstance(uses[0].user, Op) else None


def facts_of(op: Op) -> frozenset[str]:
    """The algebraic facts of a pointwise op."""
    definition = op.definition
    return definition.facts if isinstance(definition, Pointwise) else frozenset()


def literal_of(value: Value) -> Literal | None:
    """The value as a literal: a constant, or a `full` of static shape."""
    op = value.op
    if op is None:
        return None
    if op.name == "constant":
        return op.attribute("value")
    if op.name == "full" and value.type.is_static:
        shape = tuple(int(d) for d in value.type.shape if isinstance(d, int))
        return Literal.splat(op.attribute("value"), value.type.dtype, shape)
    return None


def uniform_of(value: Value) -> Any:
    """The one value that every element has, as a Python int, float, bool or complex; else None.

    Found for constants, `full`, and both seen through reshape, transpose, broadcast_to.  None too
    for a tensor without elements, and for a named weight of several elements: what is derived from
    its present values would be wrong for the weights that may take its place.
    """
    while (op := op_named(value, "reshape", "transpose", "broadcast_to")) is not None:
        value = op.operands[0]
    op = value.op
    if op is None:
        return None
    if op.name == "full":
        number = np.asarray(op.attribute("value"), value.type.dtype.numpy)
        return number.astype(_exact(number.dtype)).item()
    if op.name != "constant":
        return None
    literal: Literal = op.attribute("value")
    if literal.elements == 0 or (literal.elements > 1 and op.attribute("recipe") is not None):
        return None
    if literal.is_splat or literal.elements == 1:
        number = literal.array().reshape(-1)[0]
    elif literal.elements <= _SMALL:
        array = np.ascontiguousarray(literal.array()).reshape(-1)
        if not same_bits(array, array[0]):
            return None
        number = array[0]
    else:
        return None
    number = np.asarray(number)
    return number.astype(_exact(number.dtype)).item()


def _exact(dtype: np.dtype) -> np.dtype:
    """A standard numpy type that holds every value of dtype, ml_dtypes' included."""
    return dtype if dtype.kind in "biufc" else np.dtype(np.float64)


def same_bits(array: np.ndarray, value: Any) -> bool:
    """Whether every element has the bits of `value` (NaN equals itself, 0.0 differs from -0.0)."""
    raw = np.dtype((np.void, array.dtype.itemsize))
    single = np.asarray(value, array.dtype).reshape(1).view(raw)
    return bool(np.all(np.ascontiguousarray(array).reshape(-1).view(raw) == single))


def is_uniform(value: Value, number: float) -> bool:
    """Whether every element is exactly `number`; the sign of zero counts for floats."""
    found = uniform_of(value)
    if found is None or isinstance(found, complex) or found != number:
        return False
    if isinstance(found, float):
        return math.copysign(1.0, found) == math.copysign(1.0, number)
    return True


def near(value: Value, number: float, tolerance: float = 1e-6) -> bool:
    """Whether every element equals `number` up to a relative tolerance: exporters round constants."""
    found = uniform_of(value)
    if found is None or isinstance(found, complex):
        return False
    return math.isclose(float(found), number, rel_tol=tolerance)


def split_uniform(op: Op) -> tuple[Value, float] | None:
    """(other operand, number) of a commutative op with one operand of one repeated real number."""
    a, b = op.operands
    for x, c in ((a, b), (b, a)):
        number = uniform_of(c)
        if number is not None and not isinstance(number, complex):
            return x, float(number)
    return None


def is_constant(value: Value) -> bool:
    return value.op is not None and value.op.name in ("constant", "full")


def is_cheap(value: Value) -> bool:
    """Whether a constant may be calculated anew for one user: small, or used only there."""
    literal = literal_of(value)
    return literal is not None and (literal.stored_bytes <= 2**16 or len(value.uses) == 1)


def infers(op: Op, operands: Sequence[Value]) -> bool:
    """Whether the op's results would keep their types, and no constraint be added, on `operands`."""
    inference = Inference()
    try:
        types = op.definition.infer([v.type for v in operands], op.attributes, inference)
    except InferenceError:
        return False
    return [r.type for r in op.results] == list(types) and not inference.constraints


def broadcasts(shape: Shape, to: Shape) -> bool:
    """Whether `shape` certainly broadcasts to exactly `to`."""
    if len(shape) > len(to):
        return False
    offset = len(to) - len(shape)
    return all(d == 1 or d == to[i + offset] for i, d in enumerate(shape))


def fit(rw: Rewriter, value: Value, type: TensorType) -> Value | None:
    """The value broadcast to a type of the same dtype; None where that is not certain."""
    if value.type == type:
        return value
    if value.type.dtype != type.dtype or type.layout is not None or value.type.layout is not None:
        return None
    if not broadcasts(value.type.shape, type.shape):
        return None
    return rw.value("broadcast_to", value, shape=type.shape)


def uniform_value(rw: Rewriter, number: Any, type: TensorType) -> Value:
    """A tensor of one repeated number: a splat constant, or `full` when the shape is symbolic."""
    if type.is_static:
        return rw.scalar(number, type.dtype, tuple(d for d in type.shape if isinstance(d, int)))
    return rw.value("full", value=number, dtype=type.dtype, shape=type.shape)


def never_negative_zero(value: Value, depth: int = 6) -> bool:
    """Whether no element can be -0.0 (proven from how it was made)."""
    if not value.type.dtype.is_float:
        return True
    number = uniform_of(value)
    if number is not None:
        return not (number == 0 and math.copysign(1.0, float(number)) < 0)
    op = value.op
    if op is None or depth == 0:
        return False
    if op.name in ("exp", "abs", "sigmoid", "softmax", "cosh"):
        return True
    if op.name == "mul" and op.operands[0] is op.operands[1]:
        return True
    moves = ("reshape", "transpose", "broadcast_to", "slice", "reduce_max", "reduce_min")
    if op.name in (*moves, "reduce_sum", "reduce_mean"):
        return never_negative_zero(op.operands[0], depth - 1)
    if op.name == "add":  # a sum is -0.0 only when both are
        return any(never_negative_zero(v, depth - 1) for v in op.operands)
    if op.name == "cast":
        return not op.operands[0].type.dtype.is_float
    return False


def never_negative(value: Value, depth: int = 6) -> bool:
    """Whether every element is >= 0 or NaN; -0.0 counts as 0 (proven from how it was made)."""
    if value.type.dtype.kind in ("uint", "bool"):
        return True
    number = uniform_of(value)
    if number is not None and not isinstance(number, complex):
        return number >= 0 or number != number
    op = value.op
    if op is None or depth == 0:
        return False
    if op.name in ("exp", "abs", "sigmoid", "softmax", "cosh", "relu", "sqrt", "softplus"):
        return value.type.dtype.is_float or op.name == "relu"  # abs of the least integer wraps
    if op.name == "mul" and op.operands[0] is op.operands[1]:
        return value.type.dtype.is_float
    # Not reduce_max: of no elements it is minus infinity.
    moves = ("reshape", "transpose", "broadcast_to", "slice", "reduce_min")
    floats = ("reduce_sum", "reduce_mean") if value.type.dtype.is_float else ()
    if op.name in moves + floats:
        return never_negative(op.operands[0], depth - 1)
    if op.name in ("add", "mul", "div") and value.type.dtype.is_float:
        return all(never_negative(v, depth - 1) for v in op.operands)
    if op.name == "cast":
        return never_negative(op.operands[0], depth - 1) and value.type.dtype.is_float
    return False


def static(dims: Sequence[Dim]) -> tuple[int, ...] | None:
    """The dims as ints when all are."""
    ints = tuple(d for d in dims if isinstance(d, int))
    return ints if len(ints) == len(dims) else None
