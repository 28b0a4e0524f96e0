"""What a name may stand for beside a tensor: sequences and optional values, as tensors of the IR.

The IR has no containers.  A sequence whose length is known is its tensors (`Items`); what appends to
an otherwise unread sequence in each iteration of a loop makes a `Stack`; any other sequence is one
flat tensor of all elements beside a table of shapes (`Packed`).  An optional value is its content
beside a bool (`Maybe`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import DType


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """A sequence of these tensors; `dtype` is that of every element."""

    values: tuple[Value, ...]
    dtype: DType | None  # None: nothing says it

    @property
    def length(self) -> Dim:
        return len(self.values)


@dataclass(frozen=True, slots=True, eq=False)
class Stack:
    """A sequence of tensors of one shape: the rows of `tensor`."""

    tensor: Value

    @property
    def dtype(self) -> DType:
        return self.tensor.type.dtype

    @property
    def length(self) -> Dim:
        return self.tensor.type.shape[0]


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """A sequence of any tensors: all elements one after another, and a row of extents for each.

    `data` is flat; `shapes` is i64[length, width].  Elements have the rank `rank`, which is `width`;
    where ranks differ, `rank` is None and rows of fewer extents end in -1.
    """

    data: Value
    shapes: Value
    rank: int | None

    @property
    def dtype(self) -> DType:
        return self.data.type.dtype

    @property
    def length(self) -> Dim:
        return self.shapes.type.shape[0]

    @property
    def width(self) -> int:
        width = self.shapes.type.shape[1]
        assert isinstance(width, int)
        return width


@dataclass(frozen=True, slots=True, eq=False)
class Growing:
    """A sequence that a loop carries and so far only appended to, and what was appended.

    Stands in for the sequence while a body is imported; whoever reads it raises `NotAppended`.
    `token` is of the loop's making.
    """

    token: object
    dtype: DType | None
    appended: tuple[Value, ...] = ()


SequenceEntry: TypeAlias = Items | Stack | Packed | Growing


@dataclass(frozen=True, slots=True, eq=False)
class Maybe:
    """An optional value: whether it is there, a bool or a scalar of the graph, and what it is then.

    `content` is None when nothing says what it would be.
    """

    present: bool | Value
    content: Value | SequenceEntry | None


Entry: TypeAlias = Value | SequenceEntry | Maybe


class NotAppended(Exception):
    """A loop reads a sequence that was taken for one that it only appends to."""

    def __init__(self, token: object) -> None:
        super().__init__(token)
        self.token = token


def flatten(entry: Entry | None) -> list[Value]:
    """The tensors that an entry consists of."""
    match entry:
        case None:
            return []
        case Value():
            return [entry]
        case Items():
            return list(entry.values)
        case Stack():
            return [entry.tensor]
        case Packed():
            return [entry.data, entry.shapes]
        case Growing():
            return list(entry.appended)
        case Maybe():
            own = [entry.present] if isinstance(entry.present, Value) else []
            return [*own, *flatten(entry.content)]


def rebuilt(entry: Entry, values: Sequence[Value]) -> Entry:
    """An entry of the same form that consists of other tensors."""
    source = iter(values)
    made = _rebuilt(entry, source)
    assert next(source, None) is None
    return made


def _rebuilt(entry: Entry, source: Iterator[Value]) -> Entry:
    match entry:
        case Value():
            return next(source)
        case Items():
            return Items(tuple(next(source) for _ in entry.values), entry.dtype)
        case Stack():
            return Stack(next(source))
        case Packed():
            return Packed(next(source), next(source), entry.rank)
        case Growing():
            return Growing(entry.token, entry.dtype, tuple(next(source) for _ in entry.appended))
        case Maybe():
            present = next(source) if isinstance(entry.present, Value) else entry.present
            content = None if entry.content is None else _rebuilt(entry.content, source)
            assert not isinstance(content, Maybe)
            return Maybe(present, content)


def described(entry: Entry) -> str:
    """What an entry is, in words for a report."""
    match entry:
        case Value():
            return str(entry.type)
        case Maybe():
            inside = "" if entry.content is None else f" {described(entry.content)}"
            return f"an optional{inside}"
        case _:
            return f"a sequence of {entry.dtype or 'unknown type'}"
