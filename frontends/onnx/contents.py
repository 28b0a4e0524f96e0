"""What small tensors hold: numbers, or sizes of symbolic dims, found by evaluating IR ops backwards.

Exporters compute shapes with tensor ops (Shape, Gather, Mul, Concat, ...).  `Contents.of(value)`
evaluates such a subgraph: with the ops' own `reference` where everything is a number, with the
rules of `SYMBOLIC` where dims take part.  An element is an int, bool, Fraction, Expr, `Ratio` (a
symbolic number that need not be whole) or None (unknown).  No shape that a file declares is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Effect, Kind, Reference

# Larger tensors are data, not shapes.
LIMIT = 4096

Array: TypeAlias = np.ndarray


@dataclass(frozen=True, slots=True)
class Ratio:
    """numerator / denominator for dims; the denominator is positive."""

    numerator: Dim
    denominator: Dim

    def __str__(self) -> str:
        return f"({self.numerator}) / ({self.denominator})"


def is_symbolic(array: Array) -> bool:
    """Whether some element is not a plain number."""
    return array.dtype == object and any(isinstance(e, Expr | Ratio) for e in array.flat)


class Contents:
    """Memoised contents of values; `assume` gives those that come from elsewhere (captures)."""

    def __init__(self) -> None:
        self._known: dict[Value, Array | None] = {}

    def assume(self, value: Value, array: Array | None) -> None:
        self._known[value] = array

    def of(self, value: Value) -> Array | None:
        """A numpy array of the value's own type, or one of objects, or None when unknown."""
        stack = [value]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            op = top.op
            if op is None or not _may_be_known(op):
                self._known[top] = None
                continue
            waiting = [v for v in op.operands if v not in self._known]
            if waiting:
                stack += waiting
                continue
            results = self._evaluate(op)
            for result, array in zip(op.results, results, strict=True):
                self._known[result] = array
        return self._known[value]

    def _evaluate(self, op: Op) -> Sequence[Array | None]:
        nothing = [None] * len(op.results)
        arrays = [self._known[v] for v in op.operands]
        known = [a for a in arrays if a is not None]
        numbers = len(known) == len(arrays) and not any(a.dtype == object for a in known)
        if numbers and all(r.type.is_static for r in op.results) and _is_numeric(op):
            return _reference(op, known)
        rule = SYMBOLIC.get(op.name)
        if rule is None or not all(r.type.is_static for r in op.results) or len(op.results) != 1:
            return nothing
        if not known and op.operands:
            return nothing
        objects = [
            _as_objects(a) if a is not None else _unknown(v)
            for a, v in zip(arrays, op.operands, strict=True)
        ]
        if any(o is None for o in objects):
            return nothing
        out = rule(op, objects)  # type: ignore[arg-type]
        if out is None:
            return nothing
        out = np.asarray(out, object)  # numpy hands out the element where a rank-0 array is due
        if all(e is None for e in out.flat):
            return nothing
        return [_narrow(out, op.results[0])]


def _may_be_known(op: Op) -> bool:
    if op.definition.effect != Effect.PURE or op.kind in (Kind.CONTROL, Kind.FUSED):
        return False
    for result in op.results:
        elements = result.type.elements
        if isinstance(elements, Expr) or elements > LIMIT:
            return False
    # A reduction of something large is data too.
    return all(not isinstance(v.type.elements, Expr) for v in op.operands) and all(
        int(v.type.elements) <= LIMIT  # type: ignore[arg-type]
        for v in op.operands
    )


def _is_numeric(op: Op) -> bool:
    """Whether no attribute holds a symbolic dim."""

    def plain(a: Any) -> bool:
        return all(map(plain, a)) if isinstance(a, tuple) else not isinstance(a, Expr)

    return all(map(plain, op.attributes.values()))


def _reference(op: Op, arrays: Sequence[Array]) -> Sequence[Array | None]:
    context = Reference(results=[r.type for r in op.results])
    try:
        results = op.definition.reference(arrays, op.attributes, context)
    except (ArithmeticError, IndexError, ValueError):
        return [None] * len(op.results)  # it would fail at each call as well
    return [np.asarray(a) for a in results]


def _unknown(value: Value) -> Array | None:
    if not value.type.is_static:
        return None
    return np.full(value.type.sizes, None, object)


def _as_objects(array: Array) -> Array:
    if array.dtype == object:
        return array
    out = np.empty(array.shape, object)
    for i, e in enumerate(array.flat):
        out.flat[i] = _number(e.item(), array.dtype)
    return out


def _number(e: Any, dtype: np.dtype) -> Any:
    if isinstance(e, bool | int) or not isinstance(e, float):
        return e
    if e != e or e in (float("inf"), float("-inf")):
        return e
    # A float factor such as 0.7 stands for a ratio of small numbers; its binary form would make
    # floor(10 * 0.7) 6, where float32 arithmetic rounds to 7.
    simple = Fraction(e).limit_denominator(4096)
    return simple if dtype.type(float(simple)) == dtype.type(e) else Fraction(e)


def _narrow(array: Array, value: Value) -> Array:
    """Object arrays of nothing but numbers become arrays of the value's type."""
    if any(e is None or isinstance(e, Expr | Ratio) for e in array.flat):
        return array
    dtype = value.type.dtype.numpy
    plain = [float(e) if isinstance(e, Fraction) else e for e in array.flat]
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if any(not info.min <= e <= info.max for e in plain):
            return np.full(array.shape, None, object)
    return np.array(plain, dtype).reshape(array.shape)


# -- arithmetic on elements; None: unknown


def _ratio(e: Any) -> tuple[Dim, Dim] | None:
    if isinstance(e, bool):
        return None
    if isinstance(e, int | Expr):
        return e, 1
    if isinstance(e, Fraction):
        return e.numerator, e.denominator
    return (e.numerator, e.denominator) if isinstance(e, Ratio) else None


def divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b when b divides a as a polynomial with integer coefficients, else None.

    Multivariate long division by the leading term, in the canonical order of terms.
    """
    if isinstance(b, int):
        if b == 0:
            return None
        if isinstance(a, int):
            return a // b if a % b == 0 else None
    quotient: Dim = 0
    rest = a
    lead_monomial, lead = ((), b) if isinstance(b, int) else b.terms[0]
    for _ in range(64):
        if isinstance(rest, int) and rest == 0:
            return quotient
        monomial, coefficient = ((), rest) if isinstance(rest, int) else rest.terms[0]
        left = list(monomial)
        for atom in lead_monomial:
            if atom not in left:
                return None
            left.remove(atom)
        if coefficient % lead:
            return None
        term: Dim = coefficient // lead
        for atom in left:
            term = dims.multiply(term, Expr((((atom,), 1),)))
        quotient = quotient + term
        rest = rest - dims.multiply(term, b)
    return None


def _make(numerator: Dim, denominator: Dim) -> Any:
    if isinstance(denominator, int):
        if denominator == 0:
            return None
        if isinstance(numerator, int):
            f = Fraction(numerator, denominator)
            return f.numerator if f.denominator == 1 else f
        if denominator < 0:
            numerator, denominator = -numerator, -denominator
    exact = divide_exactly(numerator, denominator)
    if exact is not None:
        return exact
    if dims.bounds(denominator)[0] < 0:
        return None
    return Ratio(numerator, denominator)


def _add(a: Any, b: Any) -> Any:
    x, y = _ratio(a), _ratio(b)
    if x is None or y is None:
        return None
    cross = dims.multiply(x[0], y[1]) + dims.multiply(y[0], x[1])
    return _make(cross, dims.multiply(x[1], y[1]))


def _neg(a: Any) -> Any:
    x = _ratio(a)
    return None if x is None else _make(0 - x[0], x[1])


def _sub(a: Any, b: Any) -> Any:
    return _add(a, _neg(b))


def _mul(a: Any, b: Any) -> Any:
    x, y = _ratio(a), _ratio(b)
    if x is None or y is None:
        return 0 if (a == 0 and isinstance(a, int)) or (b == 0 and isinstance(b, int)) else None
    return _make(dims.multiply(x[0], y[0]), dims.multiply(x[1], y[1]))


def _true_div(a: Any, b: Any) -> Any:
    x, y = _ratio(a), _ratio(b)
    if x is None or y is None or (isinstance(y[0], int) and y[0] == 0):
        return None
    return _make(dims.multiply(x[0], y[1]), dims.multiply(x[1], y[0]))


def _whole(e: Any, *, up: bool = False, exact: bool = False) -> Any:
    """floor (or ceiling); exact: None unless floor equals truncation, that is e >= 0."""
    x = _ratio(e)
    if x is None:
        return None
    n, d = x
    if d == 1:
        return n
    if exact and dims.bounds(n)[0] < 0:
        return None
    return dims.ceildiv(n, d) if up else dims.floordiv(n, d)


def _int_div(a: Any, b: Any) -> Any:
    """Integer division, which truncates; equal to the floor where both are certainly >= 0."""
    if not (isinstance(a, int | Expr) and isinstance(b, int | Expr)) or b == 0:
        return None
    exact = divide_exactly(a, b)
    if exact is not None:
        return exact
    if dims.bounds(a)[0] < 0 or dims.bounds(b)[0] < 0:
        return None
    return dims.floordiv(a, b)


def _mod(a: Any, b: Any) -> Any:
    if not (isinstance(a, int | Expr) and isinstance(b, int | Expr)) or b == 0:
        return None
    if dims.bounds(a)[0] < 0 or dims.bounds(b)[0] < 0:
        return None
    return dims.modulo(a, b)


def _extreme(pick: Callable[[Any, Any], Any], sign: str) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, int | Expr) and isinstance(b, int | Expr):
            return pick(a, b)
        first = _compare(sign)(a, b)
        return None if first is None else a if first else b

    return apply


def _compare(sign: Any) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, bool) and isinstance(b, bool):
            return {"==": a == b, "!=": a != b}.get(sign)
        x, y = _ratio(a), _ratio(b)
        if x is None or y is None:
            return None
        return dims.prove(dims.multiply(x[0], y[1]), sign, dims.multiply(y[0], x[1]))

    return apply


def _and(a: Any, b: Any) -> Any:
    if a is False or b is False:
        return False
    return True if a is True and b is True else None


def _or(a: Any, b: Any) -> Any:
    if a is True or b is True:
        return True
    return False if a is False and b is False else None


def _where(c: Any, a: Any, b: Any) -> Any:
    return a if c is True else b if c is False else None


def _elementwise(function: Callable[..., Any]) -> Callable[[Op, Sequence[Array]], Array | None]:
    def apply(op: Op, arrays: Sequence[Array]) -> Array:
        spread = np.broadcast_arrays(*arrays)
        out = np.empty(spread[0].shape, object)
        for i, elements in enumerate(zip(*(s.flat for s in spread), strict=True)):
            out.flat[i] = function(*elements)
        return out

    return apply


def _divide(op: Op, arrays: Sequence[Array]) -> Array | None:
    is_float = op.result.type.dtype.is_float
    return _elementwise(_true_div if is_float else _int_div)(op, arrays)


def _cast(op: Op, arrays: Sequence[Array]) -> Array | None:
    to = op.attributes["dtype"]

    def apply(e: Any) -> Any:
        if e is None:
            return None
        if to.kind == "bool":
            return e if isinstance(e, bool) else _compare("!=")(e, 0)
        if isinstance(e, bool):
            return int(e)
        if to.is_integer:
            whole = _whole(e, exact=True)
            if isinstance(whole, Expr) and to.kind == "uint" and dims.bounds(whole)[0] < 0:
                return None
            return whole
        return e if to.is_float else None

    return _elementwise(apply)(op, arrays)


def _reduction(
    function: Callable[[Any, Any], Any],
) -> Callable[[Op, Sequence[Array]], Array | None]:
    def apply(op: Op, arrays: Sequence[Array]) -> Array | None:
        axes = tuple(op.attributes["axes"]) or tuple(range(arrays[0].ndim))
        kept = [a for a in range(arrays[0].ndim) if a not in axes]
        rows = arrays[0].transpose(*kept, *axes)
        rows = rows.reshape(*rows.shape[: len(kept)], -1)
        if not rows.shape[-1]:
            return None
        out = np.empty(rows.shape[:-1], object)
        for i in np.ndindex(*out.shape):
            out[i] = reduce(function, rows[i])
        return out.reshape(_static(op))

    return apply


def _static(op: Op) -> tuple[int, ...]:
    return op.result.type.sizes


def _from_dims(op: Op, arrays: Sequence[Array]) -> Array:
    out = np.empty(_static(op), object)
    for i, d in enumerate(op.attributes["dims"]):
        out.flat[i] = d
    return out


def _slice(op: Op, arrays: Sequence[Array]) -> Array | None:
    starts, steps = op.attributes["starts"], op.attributes["steps"]
    if not all(isinstance(s, int) for s in starts):
        return None
    x = arrays[0]
    for axis, (start, size, step) in enumerate(zip(starts, _static(op), steps, strict=True)):
        x = np.take(x, [start + i * step for i in range(size)], axis=axis)
    return x


def _gather(op: Op, arrays: Sequence[Array]) -> Array | None:
    x, indices = arrays
    if not all(isinstance(i, int) for i in indices.flat):
        return None
    axis = op.attributes["axis"]
    plain = indices.astype(np.int64)
    if plain.size and not (-x.shape[axis] <= plain.min() and plain.max() < x.shape[axis]):
        return None
    return np.take(x, plain, axis=axis)


# fmt: off
SYMBOLIC: dict[str, Callable[[Op, Sequence[Array]], Array | None]] = {
    "from_dims": _from_dims,
    "reshape": lambda op, a: a[0].reshape(_static(op)),
    "transpose": lambda op, a: a[0].transpose(op.attributes["permutation"]),
    "broadcast_to": lambda op, a: np.broadcast_to(a[0], _static(op)),
    "concat": lambda op, a: np.concatenate(list(a), axis=op.attributes["axis"]),
    "slice": _slice,
    "gather": _gather,
    "add": _elementwise(_add), "sub": _elementwise(_sub), "mul": _elementwise(_mul),
    "neg": _elementwise(_neg), "div": _divide, "mod": _elementwise(_mod),
    "maximum": _elementwise(_extreme(dims.maximum, ">=")),
    "minimum": _elementwise(_extreme(dims.minimum, "<=")),
    "clip": _elementwise(lambda x, low, high: SCALAR_MIN(SCALAR_MAX(x, low), high)),
    "floor": _elementwise(_whole), "ceil": _elementwise(lambda e: _whole(e, up=True)),
    "trunc": _elementwise(lambda e: _whole(e, exact=True)),
    "round": _elementwise(lambda e: e if isinstance(e, int | Expr) else None),
    "abs": _elementwise(lambda e: e if isinstance(e, Expr) and dims.bounds(e)[0] >= 0 else None),
    "cast": _cast,
    "where": _elementwise(_where),
    "equal": _elementwise(_compare("==")), "not_equal": _elementwise(_compare("!=")),
    "less": _elementwise(_compare("<")), "less_or_equal": _elementwise(_compare("<=")),
    "greater": _elementwise(_compare(">")), "greater_or_equal": _elementwise(_compare(">=")),
    "logical_and": _elementwise(_and), "logical_or": _elementwise(_or),
    "logical_not": _elementwise(lambda e: None if e is None else not e),
    "reduce_prod": _reduction(_mul), "reduce_sum": _reduction(_add),
    "reduce_max": _reduction(_extreme(dims.maximum, ">=")),
    "reduce_min": _reduction(_extreme(dims.minimum, "<=")),
}
# fmt: on
SCALAR_MAX = _extreme(dims.maximum, ">=")
SCALAR_MIN = _extreme(dims.minimum, "<=")
