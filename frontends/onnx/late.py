"""Values that only a call knows, where an op needs a size or an axis.

A size becomes a symbol that is bound in mid-run (`late_sizes`).  An axis, or another number with few
possible values, becomes a choice: the node is imported once for each of them, in the branches of
`if` (`Undecided`, raised where the number is asked for, and `decide`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import MAX_EXTENT, Dim, Expr
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.types import I64

if TYPE_CHECKING:
    from graphwright.frontends.onnx.node import Node

MOST_SIZES = 64  # elements of a tensor that may become symbols
MOST_CHOICES = 64


class Undecided(Exception):
    """Input `index` of a node has to be one of `choices`, and which one is only known at run time.

    `code(node)` makes an i64 scalar from the input; it is `codes[k]` for choice k.
    """

    def __init__(
        self,
        index: int,
        choices: Sequence[np.ndarray],
        codes: Sequence[int],
        code: Callable[[Node], Value],
    ) -> None:
        super().__init__(index)
        self.index, self.choices, self.codes, self.code = index, list(choices), list(codes), code


def bind(
    node: Node, sizes: Sequence[Value], *, at_most: Sequence[Dim] | None = None, hint: str = ""
) -> tuple[Dim, ...]:
    """Symbols that are, from here on, the numbers in these i64 scalars."""
    high = [MAX_EXTENT] * len(sizes)
    if at_most is not None:
        high = [max(min(dims.bounds(d)[1], MAX_EXTENT), 0) for d in at_most]
    name = hint or node.origin
    symbols = tuple(dims.of(node.importer.fresh_symbol(name, high=h)) for h in high)
    node.emit_all("bind", *sizes, symbols=symbols, at_most=tuple(at_most or ()))
    return symbols


def element(node: Node, value: Value, index: int) -> Value:
    """One element of a vector (or the scalar itself) as an i64 scalar."""
    if value.type.rank:
        value = node.slice_axis(node.reshape(value, [value.type.elements]), 0, index, 1)
    return node.reshape(node.cast(value, I64), ())


def late_sizes(node: Node, value: Value, known: np.ndarray | None) -> tuple[Dim, ...] | None:
    """The elements of an integer vector as dims, bound where they are not `known`; None when it is no
    such vector, or its length is unknown.
    """
    count = value.type.elements
    if value.type.rank > 1 or not isinstance(count, int) or count > MOST_SIZES:
        return None
    if not value.type.dtype.is_integer:
        return None
    found: list[Dim | None] = [None] * count
    if known is not None:
        found = [_size(e) for e in known.reshape(-1)]
    missing = [i for i, e in enumerate(found) if e is None]
    if missing:
        bound = bind(node, [element(node, value, i) for i in missing], hint=value.name)
        for i, symbol in zip(missing, bound, strict=True):
            found[i] = symbol
        whole = np.empty(count, object)
        whole[:] = found
        node.importer.contents.assume(value, whole.reshape(value.type.sizes))
    return tuple(e for e in found if e is not None)


def _size(e: object) -> Dim | None:
    if isinstance(e, Expr):
        return e
    return int(e) if isinstance(e, int | np.integer) else None


# -- choices


def undecided_axes(
    index: int, count: int, rank: int, dtype: np.dtype, *, ordered: bool, among: Sequence[int]
) -> Undecided | None:
    """The choice of `count` distinct axes `among` those of a rank, negative ones counted from the end;
    None: too many, or none.

    `ordered`: their order matters, as it does beside starts and ends.
    """
    pick = itertools.permutations if ordered else itertools.combinations
    axes = list(itertools.islice(pick(among, count), MOST_CHOICES + 1))
    if not axes or len(axes) > MOST_CHOICES:
        return None
    weights = [rank**j if ordered else 0 for j in range(count)]

    def code_of(chosen: Sequence[int]) -> int:
        if ordered:
            return sum(a * w for a, w in zip(chosen, weights, strict=True))
        return sum(1 << a for a in chosen)

    def code(node: Node) -> Value:
        value = node.reshape(node.cast(node.x(index), I64), [count])
        zero, extent = node.scalar(0, I64), node.scalar(rank, I64)
        place = node.where(node.emit("less", value, zero), node.emit("add", value, extent), value)
        if ordered:
            terms = node.emit("mul", place, node.array(np.array(weights, np.int64)))
        else:
            terms = node.emit("shift_left", node.scalar(1, I64), place)
        return node.emit("reduce_sum", terms, axes=(0,), keepdims=False)

    choices = [np.array(a, dtype) for a in axes]
    return Undecided(index, choices, [code_of(a) for a in axes], code)


def undecided_number(index: int, choices: Sequence[int], shape: Sequence[int], dtype: np.dtype) -> Undecided:  # fmt: skip
    """The choice of one number."""

    def code(node: Node) -> Value:
        return node.reshape(node.cast(node.x(index), I64), ())

    return Undecided(index, [np.full(shape, c, dtype) for c in choices], choices, code)


def choice_of(node: Node, undecided: Undecided) -> Dim:
    """Which choice the data make, as a symbol; data that make none end the call."""
    code = undecided.code(node)
    codes = node.array(np.array(undecided.codes, np.int64))
    place = node.array(np.arange(1, len(undecided.codes) + 1))
    same = node.emit("equal", codes, code)
    found = node.where(same, place, node.scalar(0, I64))
    number = node.emit("reduce_sum", found, axes=(0,), keepdims=False)
    name = f"{node.origin}.choice"
    last = len(undecided.choices)
    symbol = dims.of(node.importer.fresh_symbol(name, low=1, high=last))
    node.emit_all("bind", number, symbols=(symbol,))
    return symbol


def assume_choice(node: Node, undecided: Undecided, choice: int) -> None:
    """Inside a branch: the input is this."""
    name = node.proto.input[undecided.index]
    array = undecided.choices[choice]
    shape = list(node.scope.value(name).type.sizes)
    literal = Literal.dense(np.ascontiguousarray(array.reshape(shape)))
    node.scope.names[name] = node.literal(literal)
