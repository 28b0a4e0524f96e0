"""What each reduction op does with a row: its passes, and the value that it yields.

A program takes a `Row` whose loops it makes, adds passes, and returns the root's result as a node:
of the row (reduce_*, arg_*), or of an element (softmax, norms).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from graphwright.compiler.codegen.cpp.row import Row
from graphwright.compiler.codegen.scalar import Load, Node, compute_dtype
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, DType

Program = Callable[[Row], Callable[[], Node]]


def reduce(row: Row) -> Callable[[], Node]:
    """reduce_sum and its family."""
    root = row.root
    row.loops(root.attribute("axes"))
    definition: Any = root.definition
    x = row.x()
    identity = definition.identity
    if isinstance(identity, str):
        identity = limit(identity, x.dtype)
    if not x.dtype.is_float and x.dtype.kind != "bool":
        identity = int(identity)

    def mean(total: Node) -> Node:
        return row.apply("div", total, row.count(x.dtype))

    is_mean = root.name == "reduce_mean"
    stem = root.name.removeprefix("reduce_")
    name = stem if stem not in ("and", "or") else f"{stem}_all"
    if is_mean:
        total = row.reduce(name, definition.combine, identity, x, finish=mean)
    else:
        total = row.reduce(name, definition.combine, identity, x)
    return lambda: total


def limit(which: str, dtype: DType) -> Any:
    """The lowest or highest value of an element type."""
    sign = -1 if which == "lowest" else 1
    if dtype.is_float:
        return sign * math.inf
    if dtype.kind == "uint":
        return 0 if sign < 0 else 2**dtype.bits - 1
    return -(2 ** (dtype.bits - 1)) if sign < 0 else 2 ** (dtype.bits - 1) - 1


def arg_extreme(row: Row) -> Callable[[], Node]:
    """arg_max and arg_min."""
    root = row.root
    axis: int = root.attribute("axis")
    row.loops([axis])
    flags = f"{'true' if root.name == 'arg_max' else 'false'}, "
    flags += "true" if root.attribute("select_last") else "false"
    found = row.find("where", flags, row.x(), row.coordinates[axis])
    return lambda: found


def _keep_operand(row: Row) -> bool:
    """Whether the first pass should keep the operand: it is calculated, and a row fits."""
    return not isinstance(row.x(), Load) and row.can_buffer()


def softmax(row: Row) -> Callable[[], Node]:
    """Softmax and log_softmax: the maximum, the sum of exponentials, then each element."""
    root = row.root
    row.loops([root.attribute("axis")])
    keep = _keep_operand(row)
    x = row.x()
    top = row.reduce("top", "maximum", -math.inf, x, keep=x if keep else None)
    row.buffered = keep
    x = row.x()
    shifted = row.apply("sub", x, top)
    power = row.apply("exp", shifted)
    if root.name == "log_softmax":
        log_total = row.reduce(
            "log_total", "add", 0.0, power, finish=lambda total: row.apply("log", total)
        )
        return lambda: row.apply("sub", row.apply("sub", row.x(), top), log_total)
    keep = row.can_buffer()
    scale = row.reduce(
        "scale", "add", 0.0, power, finish=lambda t: row.apply("reciprocal", t),
        keep=power if keep else None,
    )  # fmt: skip
    row.buffered = keep
    return lambda: row.apply("mul", row.x() if keep else power, scale)


def _normalised(row: Row) -> Node:
    """(x - mean) / sqrt(variance + epsilon): two passes around the mean, each over a row in cache.

    Elements are taken relative to the row's first one, so that a large mean, which would have to be
    rounded, costs no accuracy.
    """
    keep = _keep_operand(row)
    first = row.first()

    def mean_of(total: Node) -> Node:
        return row.apply("div", total, row.count(total.dtype))

    x = row.x()
    if first is not None:
        x = row.apply("sub", x, first)
    mean = row.reduce("mean", "add", 0.0, x, finish=mean_of, keep=x if keep else None)
    row.buffered = keep
    centred = row.apply("sub", row.x() if keep else x, mean)
    epsilon = row.number(row.root.attribute("epsilon"), centred.dtype)

    def scale_of(total: Node) -> Node:
        return row.apply("reciprocal", row.apply("sqrt", row.apply("add", mean_of(total), epsilon)))

    square = row.apply("mul", centred, centred)
    scale = row.reduce("scale", "add", 0.0, square, finish=scale_of)
    return row.apply("mul", centred, scale)


def _parameter(row: Row, value: Value) -> Node:
    """A scale or bias that broadcasts to the operand."""
    low = row.lowering
    return low.at(value, low.broadcast(row.coordinates, row.source.type.shape, value.type.shape))


def layer_norm(row: Row) -> Callable[[], Node]:
    root = row.root
    row.loops(range(root.attribute("axis"), row.source.type.rank))
    out = _normalised(row)
    for value, op in zip(root.operands[1:], ("mul", "add"), strict=False):
        out = row.apply(op, out, _parameter(row, value))
    return lambda: out


def rms_norm(row: Row) -> Callable[[], Node]:
    root = row.root
    row.loops(range(root.attribute("axis"), row.source.type.rank))
    keep = _keep_operand(row)
    x = row.x()
    epsilon = row.number(root.attribute("epsilon"), x.dtype)

    def scale_of(total: Node) -> Node:
        mean = row.apply("div", total, row.count(total.dtype))
        return row.apply("reciprocal", row.apply("sqrt", row.apply("add", mean, epsilon)))

    scale = row.reduce(
        "scale", "add", 0.0, row.apply("mul", x, x), finish=scale_of, keep=x if keep else None
    )
    row.buffered = keep
    out = row.apply("mul", row.x(), scale)
    if len(root.operands) > 1:
        out = row.apply("mul", out, _parameter(row, root.operands[1]))
    return lambda: out


def channel_norm(row: Row) -> Callable[[], Node]:
    """instance_norm and group_norm: parameters are per channel."""
    root = row.root
    rank = row.source.type.rank
    if root.name == "group_norm":
        row.loops(range(2, rank), groups=root.attribute("groups"))
    else:
        row.loops(range(2, rank))
    out = _normalised(row)
    channel = (row.coordinates[1],)
    out = row.apply("mul", out, row.lowering.at(root.operands[1], channel))
    out = row.apply("add", out, row.lowering.at(root.operands[2], channel))
    return lambda: out


def lp_normalize(row: Row) -> Callable[[], Node]:
    root = row.root
    row.loops([root.attribute("axis")])
    x = row.x()
    if root.attribute("p") == 1:
        norm = row.reduce("norm", "add", 0.0, row.apply("abs", x))
    else:
        norm = row.reduce(
            "norm", "add", 0.0, row.apply("mul", x, x), finish=lambda t: row.apply("sqrt", t)
        )
    zero = row.number(0.0, compute_dtype(row.source.type.dtype))

    is_zero = row.apply("equal", norm, zero, dtype=BOOL)
    return lambda: row.apply("where", is_zero, zero, row.apply("div", x, norm), dtype=x.dtype)


PROGRAMS: Mapping[str, Program] = {
    "arg_max": arg_extreme,
    "arg_min": arg_extreme,
    "softmax": softmax,
    "log_softmax": softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "instance_norm": channel_norm,
    "group_norm": channel_norm,
    "lp_normalize": lp_normalize,
}


def program_of(name: str) -> Program | None:
    """The program of a reduction op, or None."""
    return reduce if name.startswith("reduce_") else PROGRAMS.get(name)
