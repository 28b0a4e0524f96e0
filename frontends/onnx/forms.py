"""How two entries that take turns, branches or iterations, become one: the form that holds both.

A form is an entry without its tensors.  `join` finds the form for two, `convert` makes the ops that
bring an entry into a form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64, DType
from graphwright.frontends.onnx.containers import (
    Entry,
    Growing,
    Items,
    Maybe,
    NotAppended,
    Packed,
    SequenceEntry,
    Stack,
)
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


@dataclass(frozen=True, slots=True)
class TensorForm:
    dtype: DType
    rank: int

    def __str__(self) -> str:
        return f"a {self.dtype} tensor of rank {self.rank}"


@dataclass(frozen=True, slots=True)
class SequenceForm:
    """`items`: the rank of each tensor of `Items`; `stacked`: that of the rows of a `Stack`; else
    `Packed` of this rank (None: of several) and width.
    """

    dtype: DType | None
    items: tuple[int, ...] | None = None
    stacked: int | None = None
    rank: int | None = None
    width: int = 0

    def __str__(self) -> str:
        return f"a sequence of {self.dtype or 'unknown type'}"


@dataclass(frozen=True, slots=True)
class MaybeForm:
    """`present` is None where only a call knows."""

    present: bool | None
    content: TensorForm | SequenceForm | None

    def __str__(self) -> str:
        return "an optional value" if self.content is None else f"{self.content}, optional"


Form: TypeAlias = TensorForm | SequenceForm | MaybeForm


class Unlike(Exception):
    """Two entries that no form holds; says what they are."""


def form_of(entry: Entry) -> Form:
    """Raises NotAppended for a sequence that a loop has to give up appending to."""
    match entry:
        case Value():
            return TensorForm(entry.type.dtype, entry.type.rank)
        case Items():
            return SequenceForm(entry.dtype, items=tuple(v.type.rank for v in entry.values))
        case Stack():
            return SequenceForm(entry.dtype, stacked=entry.tensor.type.rank - 1)
        case Packed():
            return SequenceForm(entry.dtype, rank=entry.rank, width=entry.width)
        case Growing():
            raise NotAppended(entry.token)
        case Maybe():
            content = None if entry.content is None else form_of(entry.content)
            assert not isinstance(content, MaybeForm)
            present = entry.present if isinstance(entry.present, bool) else None
            return MaybeForm(present, content)


def join(a: Form, b: Form) -> Form:
    """The form that holds entries of both.  Raises Unlike."""
    if a == b:
        return a
    if isinstance(a, MaybeForm) or isinstance(b, MaybeForm):
        return _join_optional(a, b)
    if isinstance(a, SequenceForm) and isinstance(b, SequenceForm):
        return _join_sequences(a, b)
    raise Unlike(f"{a} and {b}")


def _join_optional(a: Form, b: Form) -> Form:
    first = a if isinstance(a, MaybeForm) else MaybeForm(True, a)
    second = b if isinstance(b, MaybeForm) else MaybeForm(True, b)
    present = first.present if first.present == second.present else None
    contents = [c for c in (first.content, second.content) if c is not None]
    content = None
    if contents:
        content = join(contents[0], contents[-1])
        assert not isinstance(content, MaybeForm)
    return MaybeForm(present, content)


def _join_sequences(a: SequenceForm, b: SequenceForm) -> SequenceForm:
    if a.dtype is not b.dtype and a.dtype is not None and b.dtype is not None:
        raise Unlike(f"{a} and {b}")
    dtype = a.dtype or b.dtype
    if a.items is not None and a.items == b.items:
        return SequenceForm(dtype, items=a.items)
    ranks: set[int | None] = set()
    width = 0
    for form in (a, b):
        own: set[int | None]
        if form.items is not None:
            own = set(form.items)
        else:
            own = {form.stacked if form.stacked is not None else form.rank}
        ranks |= own
        width = max(width, form.width, *(r for r in own if r is not None), 0)
    (rank,) = ranks if len(ranks) == 1 else (None,)
    return SequenceForm(dtype, rank=rank, width=width)


def convert(node: Node, entry: Entry, form: Form) -> Entry:
    """The entry in a form that holds it."""
    if isinstance(form, MaybeForm):
        return _as_optional(node, entry, form)
    if isinstance(form, SequenceForm) and not isinstance(entry, Value | Maybe):
        if form.items is not None:
            assert isinstance(entry, Items)
            return Items(entry.values, form.dtype)
        if form.stacked is not None:
            assert isinstance(entry, Stack)
            return entry
        return packed(node, entry, form)
    return entry


def _as_optional(node: Node, entry: Entry, form: MaybeForm) -> Maybe:
    given = entry if isinstance(entry, Maybe) else Maybe(True, entry)
    present: bool | Value = given.present
    if form.present is None and isinstance(present, bool):
        present = node.scalar(present, BOOL)
    if form.content is None:
        return Maybe(present, None)
    if given.content is None:
        return Maybe(present, nothing(node, form.content))
    content = convert(node, given.content, form.content)
    assert not isinstance(content, Maybe)
    return Maybe(present, content)


def nothing(node: Node, form: TensorForm | SequenceForm) -> Value | SequenceEntry:
    """What stands for an absent value of a form: tensors without elements."""
    if isinstance(form, TensorForm):
        return node.full(0, form.dtype, (0,) * form.rank)
    dtype = _known_type(form.dtype)
    if form.items is not None:
        return Items(tuple(node.full(0, dtype, (0,) * r) for r in form.items), dtype)
    if form.stacked is not None:
        return Stack(node.full(0, dtype, (0,) * (form.stacked + 1)))
    return Packed(node.full(0, dtype, (0,)), node.full(0, I64, (0, form.width)), form.rank)


def _known_type(dtype: DType | None) -> DType:
    if dtype is None:
        raise Refusal("nothing says the element type of its empty sequence", "set its dtype")
    return dtype


# -- packed sequences


def packed(node: Node, entry: SequenceEntry, form: SequenceForm | None = None) -> Packed:
    """A sequence as one flat tensor and a table of shapes, as wide as the form wants it."""
    if form is None:
        form = join(form_of(entry), SequenceForm(entry.dtype, items=()))  # type: ignore[assignment]
        assert isinstance(form, SequenceForm)
        if form.items is not None:
            form = SequenceForm(form.dtype, rank=0, width=0)
    match entry:
        case Growing():
            raise NotAppended(entry.token)
        case Packed():
            missing = form.width - entry.width
            shapes = entry.shapes
            if missing:
                fill = node.broadcast_to(node.scalar(-1, I64), (entry.length, missing))
                shapes = node.emit("concat", shapes, fill, axis=1)
            return Packed(entry.data, shapes, form.rank)
        case Stack():
            rows = entry.tensor.type.shape[1:]
            row = node.reshape(shape_row(node, rows, form.width), (1, form.width))
            shapes = node.broadcast_to(row, (entry.length, form.width))
            return Packed(
                node.reshape(entry.tensor, (entry.tensor.type.elements,)), shapes, form.rank
            )
        case Items():
            dtype = _known_type(form.dtype)
            if not entry.values:
                empty = node.full(0, I64, (0, form.width))
                return Packed(node.full(0, dtype, (0,)), empty, form.rank)
            flat = [node.reshape(v, (v.type.elements,)) for v in entry.values]
            table = [
                node.reshape(shape_row(node, v.type.shape, form.width), (1, form.width))
                for v in entry.values
            ]
            return Packed(joined(node, flat, 0), joined(node, table, 0), form.rank)


def shape_row(node: Node, shape: tuple[Dim, ...], width: int) -> Value:
    """Extents as an i64 vector that ends in -1."""
    extents = [*shape, *([-1] * (width - len(shape)))]
    if all(isinstance(d, int) for d in extents):
        return node.array(np.array(extents, np.int64))
    parts = [node.sizes(shape)]
    if width > len(shape):
        parts.append(node.array(np.full(width - len(shape), -1, np.int64)))
    return joined(node, parts, 0)


def joined(node: Node, parts: list[Value], axis: int) -> Value:
    """The tensors along an axis; those without elements there are left out."""
    kept = [p for p in parts if p.type.shape[axis] != 0] or parts[:1]
    return kept[0] if len(kept) == 1 else node.emit("concat", *kept, axis=axis)


def sizes_of(node: Node, seq: Packed) -> Value:
    """How many elements each tensor of the sequence has: i64[length]."""
    if not seq.width:
        return node.full(1, I64, (seq.length,))
    none = node.emit("less", seq.shapes, node.scalar(0, I64))
    factors = node.where(none, node.scalar(1, I64), seq.shapes)
    return node.emit("reduce_prod", factors, axes=(1,), keepdims=False)
