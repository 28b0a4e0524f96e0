"""Index maps and small sums for ops that `fuse` leaves alone but that need no kernel of their own.

Each rule gives one element of the op's result as scalar code, so that the emitter of pointwise
regions makes the loops: triangles, one-hot vectors, sizes as data, sums over neighbouring channels.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from graphwright.compiler.codegen.lower import Coordinates, Lowering, Rule, problem
from graphwright.compiler.codegen.scalar import Index, Node, Number, compute_dtype
from graphwright.compiler.codegen.terms import apply, cast
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import BOOL, F64, I64, DType

MAX_UNROLLED = 16  # elements of a reduction that is written out
MAX_WINDOW = 64  # kernel positions that a pooling window may have when it is written out


def _call(low: Lowering, op: Op, name: str, *arguments: Node, dtype: DType | None = None) -> Node:
    return apply(low, op.graph.registry, name, *arguments, dtype=dtype)


def _cast(low: Lowering, op: Op, node: Node, dtype: DType) -> Node:
    return cast(low, op.graph.registry, node, dtype)


def _trilu(low: Lowering, op: Op, at: Coordinates) -> Node:
    row, column, k = at[-2], at[-1], op.attribute("k")
    zero = low.node(Number(0, compute_dtype(op.result.type.dtype)))
    # upper: column - row >= k; lower: column - row <= k
    kept = (row + (k - 1), column) if op.attribute("upper") else (column, row + (k + 1))
    return low.choose([kept], lambda: low.at(op.operands[0], at), lambda: zero)


def _one_hot(low: Lowering, op: Op, at: Coordinates) -> Node:
    indices, values = op.operands
    axis: int = op.attribute("axis")
    depth: Dim = op.attribute("depth")
    raw = low.at(indices, (*at[:axis], *at[axis + 1 :]))
    index = _cast(low, op, raw, I64)
    is_negative = _call(low, op, "less", index, low.node(Number(0, I64)), dtype=BOOL)
    moved = _call(low, op, "add", index, low.node(Index(depth, I64)))
    index = _call(low, op, "where", is_negative, moved, index, dtype=I64)
    here = _call(low, op, "equal", index, low.node(Index(at[axis], I64)), dtype=BOOL)
    off, on = low.at(values, (0,)), low.at(values, (1,))
    return _call(low, op, "where", here, on, off, dtype=on.dtype)


def _from_dims(low: Lowering, op: Op, at: Coordinates) -> Node:
    sizes: Sequence[Dim] = op.attribute("dims")
    nodes = [low.node(Index(d, I64)) for d in sizes]
    if not at:
        return nodes[0]

    def pick(i: int) -> Node:
        if i + 1 == len(nodes):
            return nodes[i]
        return low.choose([(at[0], i + 1)], lambda: nodes[i], lambda: pick(i + 1))

    return pick(0)


def _iota(low: Lowering, op: Op, at: Coordinates) -> Node:
    start, step = op.attribute("start"), op.attribute("step")
    dtype = compute_dtype(op.result.type.dtype)
    if not isinstance(start, float) and not isinstance(step, float):
        return low.node(Index(start + dims.multiply(at[0], step), dtype))
    # Calculated in float64 and rounded once, as the op says.
    base = low.node(Number(start, F64)) if isinstance(start, float) else low.node(Index(start, F64))
    grown = _call(low, op, "mul", low.node(Index(at[0], F64)), low.node(Number(float(step), F64)))
    return _cast(low, op, _call(low, op, "add", base, grown), dtype)


def _lrn(low: Lowering, op: Op, at: Coordinates) -> Node:
    (x,) = op.operands
    size: int = op.attribute("size")
    channels = x.type.shape[1]
    zero = low.node(Number(0.0, compute_dtype(x.type.dtype)))
    dtype = zero.dtype

    def square(channel: Dim) -> Node:
        node = low.at(x, (at[0], channel, *at[2:]))
        return _call(low, op, "mul", node, node)

    total = zero
    for i in range(size):
        channel = at[1] + (i - (size - 1) // 2)
        term = low.choose(
            [(-1, channel), (channel, channels)], lambda c=channel: square(c), lambda: zero
        )
        total = term if total is zero else _call(low, op, "add", total, term)
    slope = low.node(Number(op.attribute("alpha") / size, dtype))
    scale = _call(
        low, op, "add", low.node(Number(op.attribute("bias"), dtype)),
        _call(low, op, "mul", slope, total),
    )  # fmt: skip
    beta: float = op.attribute("beta")
    if beta == 0.75:  # the usual one: two square roots in place of a power
        root = _call(low, op, "sqrt", scale)
        power = _call(low, op, "mul", root, _call(low, op, "sqrt", root))
    else:
        power = _call(low, op, "pow", scale, low.node(Number(beta, dtype)))
    return _call(low, op, "div", low.at(x, at), power)


def _batch_norm(low: Lowering, op: Op, at: Coordinates) -> Node:
    x = low.at(op.operands[0], at)
    scale, bias, mean, variance = (low.at(v, (at[1],)) for v in op.operands[1:])
    epsilon = low.node(Number(op.attribute("epsilon"), x.dtype))
    deviation = _call(low, op, "sqrt", _call(low, op, "add", variance, epsilon))
    centred = _call(low, op, "div", _call(low, op, "sub", x, mean), deviation)
    return _call(low, op, "add", _call(low, op, "mul", centred, scale), bias)


def _window(
    low: Lowering, op: Op, at: Coordinates
) -> list[tuple[Coordinates, list[tuple[Dim, Dim]]]]:
    """The input coordinates of each kernel position, with the conditions for being inside."""
    kernel: Sequence[int] = op.attribute("kernel")
    count = 1
    for k in kernel:
        count *= k
    if count > MAX_WINDOW:
        raise problem(op, f"a window of {count} elements of type {op.result.type.dtype.long_name}")
    shape = op.operands[0].type.shape
    out: list[tuple[Coordinates, list[tuple[Dim, Dim]]]] = []
    for position in itertools.product(*(range(k) for k in kernel)):
        place: list[Dim] = []
        inside: list[tuple[Dim, Dim]] = []
        for i, step in enumerate(position):
            c = dims.multiply(at[2 + i], op.attribute("strides")[i])
            c = c + step * op.attribute("dilations")[i] - op.attribute("low")[i]
            place.append(c)
            inside += [(-1, c), (c, shape[2 + i])]
        out.append(((*at[:2], *place), inside))
    return out


def _max_pool(low: Lowering, op: Op, at: Coordinates) -> Node:
    (x,) = op.operands
    dtype = compute_dtype(x.type.dtype)
    least = (
        float("-inf")
        if dtype.is_float
        else (0 if dtype.kind == "uint" else -(2 ** (dtype.bits - 1)))
    )
    start = best = low.node(Number(least, dtype))
    for place, inside in _window(low, op, at):
        term = low.choose(inside, lambda p=place: low.at(x, p), lambda: start)
        best = _call(low, op, "maximum", best, term)
    return best


def _arg_max_pool(low: Lowering, op: Op, at: Coordinates) -> Node:
    """Index and value of the best so far, window position after position; -1: none yet."""
    (x,) = op.operands
    dtype = compute_dtype(x.type.dtype)
    none, zero = low.node(Number(-1, I64)), low.node(Number(0, dtype))
    index, best = none, zero
    for place, inside in _window(low, op, at):
        flat: Dim = (
            at[0] * x.type.shape[1] + at[1] if at[1] != 0 else dims.multiply(at[0], x.type.shape[1])
        )
        axes = list(range(2, x.type.rank))
        for axis in axes:
            flat = dims.multiply(flat, x.type.shape[axis])
        within: Dim = 0
        for axis in reversed(axes) if op.attribute("column_major") else axes:
            within = dims.multiply(within, x.type.shape[axis]) + place[axis]
        here = low.choose(inside, lambda f=flat + within: low.node(Index(f, I64)), lambda: none)
        value = low.choose(inside, lambda p=place: low.at(x, p), lambda: zero)
        more = _call(low, op, "greater", value, best, dtype=BOOL)
        if dtype.is_float:
            odd = _call(low, op, "is_nan", value, dtype=BOOL)
            usual = _call(low, op, "equal", best, best, dtype=BOOL)
            wins = _call(low, op, "logical_and", odd, usual, dtype=BOOL)
            more = _call(low, op, "logical_or", more, wins, dtype=BOOL)
        first = _call(low, op, "less", index, low.node(Number(0, I64)), dtype=BOOL)
        some = _call(low, op, "greater_or_equal", here, low.node(Number(0, I64)), dtype=BOOL)
        better = _call(low, op, "logical_or", first, more, dtype=BOOL)
        better = _call(low, op, "logical_and", some, better, dtype=BOOL)
        index = _call(low, op, "where", better, here, index, dtype=I64)
        best = _call(low, op, "where", better, value, best, dtype=dtype)
    return _call(low, op, "maximum", index, low.node(Number(0, I64)))


def _average_pool(low: Lowering, op: Op, at: Coordinates) -> Node:
    (x,) = op.operands
    dtype = compute_dtype(x.type.dtype)
    zero, one = low.node(Number(0.0, dtype)), low.node(Number(1.0, dtype))
    total = count = zero
    for place, inside in _window(low, op, at):
        term = low.choose(inside, lambda p=place: low.at(x, p), lambda: zero)
        total = _call(low, op, "add", total, term)
        counted = inside
        if op.attribute("count_include_pad"):
            counted = _inside_padding(op, place)
        count = _call(low, op, "add", count, low.choose(counted, lambda: one, lambda: zero))
    return _call(low, op, "div", total, _call(low, op, "maximum", count, one))


def _inside_padding(op: Op, place: Coordinates) -> list[tuple[Dim, Dim]]:
    shape = op.operands[0].type.shape
    out: list[tuple[Dim, Dim]] = []
    for i, c in enumerate(place[2:]):
        before, after = op.attribute("low")[i], op.attribute("high")[i]
        out += [(-1 - before, c), (c, shape[2 + i] + after)]
    return out


def unrolled_length(op: Op) -> int | None:
    """How many elements each result of a reduce op combines, when that is known and few."""
    shape = op.operands[0].type.shape
    extents = [shape[a] for a in op.attribute("axes")]
    if not all(isinstance(e, int) for e in extents):
        return None
    count = 1
    for e in extents:
        count *= dims.evaluate(e, {})
    return count if 1 <= count <= MAX_UNROLLED else None


def _reduce(low: Lowering, op: Op, at: Coordinates) -> Node:
    """A reduction of a few elements, written out in order."""
    axes: Sequence[int] = op.attribute("axes")
    (x,) = op.operands
    if unrolled_length(op) is None:
        raise problem(op, "a reduction inside a pointwise region")
    place: list[Dim] = []
    rest = iter(at)
    for axis in range(x.type.rank):
        if axis not in axes:
            place.append(next(rest))
        else:
            place.append(0)
            if op.attribute("keepdims"):
                next(rest)
    total: Node | None = None
    # Only reductions declare `combine`; the base class, which types are checked by, does not.
    combine: str = getattr(op.definition, "combine")  # noqa: B009
    extents = [range(dims.evaluate(x.type.shape[a], {})) for a in axes]
    count = 0
    for position in itertools.product(*extents):
        here = list(place)
        for axis, p in zip(axes, position, strict=True):
            here[axis] = p
        node = low.at(x, tuple(here))
        total = node if total is None else _call(low, op, combine, total, node)
        count += 1
    assert total is not None
    if op.name == "reduce_mean":
        number = low.node(Number(float(count) if total.dtype.is_float else count, total.dtype))
        return _call(low, op, "div", total, number)
    return total


RULES: Mapping[str, Rule] = {
    "trilu": _trilu,
    "one_hot": _one_hot,
    "from_dims": _from_dims,
    "iota": _iota,
    "lrn": _lrn,
    "batch_norm": _batch_norm,
    "max_pool": _max_pool,
    "arg_max_pool": _arg_max_pool,
    "average_pool": _average_pool,
    **{f"reduce_{n}": _reduce for n in ("sum", "mean", "max", "min", "prod", "and", "or")},
}
