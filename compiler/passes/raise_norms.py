"""Raise, reductions: means, layer and RMS norms, softmax as exporters write them."""

from __future__ import annotations

from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.passes.algebra_match import (
    is_close,
    peeled,
    product,
    reduction,
    repeated_over,
    without,
)
from graphwright.compiler.passes.match import (
    broadcasts,
    is_constant,
    only_user,
    op_named,
    split_uniform,
    static,
    uniform_of,
)
from graphwright.compiler.passes.rewrite import Rewriter, rule


@rule("mul", "div")
def mean_of_sum(op: Op, rw: Rewriter) -> bool | None:
    """reduce_sum(x) / n and reduce_sum(x) * (1 / n) => reduce_mean(x), n elements being summed."""
    split = split_uniform(op) if op.name == "mul" else None
    if op.name == "div":
        number = uniform_of(op.operands[1])
        if isinstance(number, float) and number:
            split = (op.operands[0], 1.0 / number)
    if split is None or not op.result.type.dtype.is_float or split[0].type != op.result.type:
        return None
    total = op_named(split[0], "reduce_sum")
    if total is None or only_user(total.result) is not op:
        return None
    x = total.operands[0]
    extents = static([x.type.shape[a] for a in total.attribute("axes")])
    if extents is None:
        return None
    count = 1
    for extent in extents:
        count *= extent
    if count == 0 or not is_close(split[1] * count, 1.0, x.type.dtype):
        return None
    return rw.replace(rw.create("reduce_mean", [x], total.attributes).result)


def _mean(value: Value, x: Value) -> tuple[int, ...] | None:
    """The axes over which `value`, as it meets x, is the mean of x."""
    op = reduction(_unbroadcast(value), "reduce_mean")
    if op is None or op.operands[0] is not x:
        return None
    axes = tuple(sorted(op.attribute("axes")))
    return axes if repeated_over(value, x, axes) is not None else None


def _unbroadcast(value: Value) -> Value:
    op = op_named(value, "broadcast_to")
    return op.operands[0] if op is not None else value


def _is_square(value: Value, of: Value) -> bool:
    op = op_named(value, "mul")
    return op is not None and op.operands[0] is of and op.operands[1] is of


def _mean_of_square(value: Value, of: Value, axes: tuple[int, ...]) -> bool:
    op = reduction(value, "reduce_mean")
    if op is None or tuple(sorted(op.attribute("axes"))) != axes:
        return False
    return _is_square(op.operands[0], of)


def _is_variance(value: Value, x: Value, centred: Value, axes: tuple[int, ...]) -> bool:
    """mean((x - mean)^2), or mean(x^2) - mean^2 perhaps limited to positive numbers."""
    if _mean_of_square(value, centred, axes):
        return True
    value = peeled(value)
    relu = op_named(value, "relu")
    difference = op_named(peeled(relu.operands[0]) if relu is not None else value, "sub")
    if difference is None or not _mean_of_square(difference.operands[0], x, axes):
        return False
    square = op_named(peeled(difference.operands[1]), "mul")
    if square is None or square.operands[0] is not square.operands[1]:
        return False
    mean = reduction(square.operands[0], "reduce_mean")
    return (
        mean is not None and mean.operands[0] is x and tuple(sorted(mean.attribute("axes"))) == axes
    )


def _with_epsilon(value: Value) -> tuple[Value, float] | None:
    op = op_named(peeled(value), "add")
    split = split_uniform(op) if op is not None else None
    return split if split is not None and 0 < split[1] < 1 else None


def _inverse_roots(op: Op) -> list[tuple[Value, Value, list[Value], float]]:
    """(1 / root as it meets the rest, what it is the root of, other factors, coefficient)."""
    found: list[tuple[Value, Value, list[Value], float]] = []
    if op.name == "div":
        root = op_named(peeled(_unbroadcast(op.operands[1])), "sqrt")
        if root is not None:
            coefficient, factors = (
                product(op.operands[0])
                if len(op.operands[0].uses) == 1
                else (1.0, [op.operands[0]])
            )
            found.append((op.operands[1], root.operands[0], factors, coefficient))
        return found
    coefficient, factors = product(op.result)
    for factor in factors:
        root = op_named(peeled(_unbroadcast(factor)), "rsqrt")
        if root is not None:
            found.append((factor, root.operands[0], without(factors, factor), coefficient))
    return found


def _norm(rw: Rewriter, name: str, x: Value, axes: tuple[int, ...], epsilon: float) -> Value:
    """The norm over any axes: those that are not the last ones are moved there and back."""
    rank = x.type.rank
    first = rank - len(axes)
    if axes == tuple(range(first, rank)):
        return rw.value(name, x, axis=first, epsilon=epsilon)
    order = (*(a for a in range(rank) if a not in axes), *axes)
    back = tuple(order.index(a) for a in range(rank))
    moved = rw.value(name, rw.value("transpose", x, permutation=order), axis=first, epsilon=epsilon)
    return rw.value("transpose", moved, permutation=back)


def _times(rw: Rewriter, value: Value, others: list[Value], coefficient: float) -> Value:
    for other in others:
        value = rw.value("mul", value, other)
    if coefficient != 1.0:
        value = rw.value("mul", value, rw.scalar(coefficient, value.type.dtype))
    return value


@rule("mul", "div")
def layer_norm(op: Op, rw: Rewriter) -> bool | None:
    """(x - mean) / sqrt(variance + epsilon) and (x - mean) * (rsqrt(variance + epsilon) * scale).

    The variance as the mean of squared differences or, less exactly than what replaces it, as the
    mean of squares less the squared mean.
    """
    for inverse, inside, factors, coefficient in _inverse_roots(op):
        parts = _with_epsilon(inside)
        if parts is None:
            continue
        for centred in factors:
            difference = op_named(centred, "sub")
            if difference is None:
                continue
            x = difference.operands[0]
            axes = _mean(difference.operands[1], x)
            if axes is None or not axes or repeated_over(inverse, x, axes) is None:
                continue
            if not _is_variance(parts[0], x, centred, axes):
                rw.fail("what is under the root is not the variance of x")
                continue
            value = _norm(rw, "layer_norm", x, axes, parts[1])
            value = _times(rw, value, without(factors, centred), coefficient)
            if value.type != op.result.type:
                return rw.fail("the result's shape would change")
            return rw.replace(value)
    return None


@rule("mul", "div")
def rms_norm(op: Op, rw: Rewriter) -> bool | None:
    """x / sqrt(mean(x * x) + epsilon), and with scales beside."""
    for inverse, inside, factors, coefficient in _inverse_roots(op):
        parts = _with_epsilon(inside)
        mean = reduction(parts[0], "reduce_mean") if parts is not None else None
        square = op_named(mean.operands[0], "mul") if mean is not None else None
        if parts is None or mean is None or square is None:
            continue
        x, axes = square.operands[0], tuple(sorted(mean.attribute("axes")))
        if square.operands[1] is not x or x not in factors or not axes:
            continue
        if repeated_over(inverse, x, axes) is None:
            continue
        value = _norm(rw, "rms_norm", x, axes, parts[1])
        value = _times(rw, value, without(factors, x), coefficient)
        if value.type != op.result.type:
            return rw.fail("the result's shape would change")
        return rw.replace(value)
    return None


@rule("mul", "add")
def parameters_of_norm(op: Op, rw: Rewriter) -> bool | None:
    """layer_norm(x) * scale + bias => layer_norm(x, scale, bias), both constant."""
    norm = op_named(op.operands[0], "layer_norm", "rms_norm")
    wanted = 1 if op.name == "mul" else 2
    if norm is None or len(norm.operands) != wanted or only_user(norm.result) is not op:
        return None
    parameter = op.operands[1]
    if wanted == 2 and norm.name == "rms_norm":
        return None
    if not is_constant(parameter) or norm.result.type != op.result.type:
        return None
    if not broadcasts(parameter.type.shape, norm.result.type.shape):
        return None
    new = rw.create(norm.name, [*norm.operands, parameter], norm.attributes)
    return rw.replace(new.result)


@rule("div", "mul")
def softmax(op: Op, rw: Rewriter) -> bool | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) => softmax(x)."""
    exponential, total = op.operands
    if op.name == "mul":
        inverse = op_named(peeled(_unbroadcast(total)), "reciprocal")
        if inverse is None:
            return None
        total_below = inverse.operands[0]
    else:
        total_below = _unbroadcast(total)
    exp, sums = op_named(exponential, "exp"), reduction(total_below, "reduce_sum")
    if exp is None or sums is None or sums.operands[0] is not exp.result:
        return None
    axes = tuple(sums.attribute("axes"))
    shifted = op_named(exp.operands[0], "sub")
    if shifted is None or len(axes) != 1 or repeated_over(total, exponential, axes) is None:
        return None
    x = shifted.operands[0]
    largest = reduction(_unbroadcast(shifted.operands[1]), "reduce_max")
    if largest is None or largest.operands[0] is not x or x.type != op.result.type:
        return rw.fail("what is subtracted is not the maximum of x")
    if tuple(largest.attribute("axes")) != axes:
        return rw.fail("maximum and sum are over different axes")
    if repeated_over(shifted.operands[1], x, axes) is None:
        return None
    return rw.replace_by("softmax", x, axis=axes[0])
