"""Sequences and optional values at a model's boundary: how callers' values become its tensors.

The graph and the artifact know tensors only.  Where an input or output of the source is a sequence
or optional, the metadata says under `KEY` which tensors it consists of: a JSON object with "inputs"
and "outputs", each a list of [name, layout] in order.  A layout is the index of a tensor, or

    {"items": [index, ...]}              a list of that many arrays
    {"stack": index}                     a list of arrays of one shape, the rows of a tensor
    {"packed": [data, shapes]}           a list of any arrays: all elements, flat, and a row of extents
                                         for each, filled up with -1; "rank": that of all, if one
    {"optional": present, "content": layout or null}    None, or what the content says; `present` is
                                         true, false or the index of a bool

Standard library and numpy only: compiler and runtime both import it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, InputError

KEY = "graphwright.values"


class Values:
    """The boundary of a model that has sequences or optional values."""

    def __init__(self, text: str) -> None:
        """Raises ArtifactError for a text that is none."""
        try:
            data = json.loads(text)
            self.inputs: list[tuple[str, Any]] = [(str(n), form) for n, form in data["inputs"]]
            self.outputs: list[tuple[str, Any]] = [(str(n), form) for n, form in data["outputs"]]
            for _, form in (*self.inputs, *self.outputs):
                _check(form)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise ArtifactError(f"metadata {KEY}: {error!r}") from None

    @classmethod
    def of(cls, metadata: Mapping[str, str]) -> Values | None:
        """The boundary that the metadata describe; None when all values are tensors."""
        return cls(metadata[KEY]) if KEY in metadata else None

    def check_counts(self, inputs: int, outputs: int) -> None:
        """Raises ArtifactError unless every index is of one of so many tensors."""
        for forms, count in ((self.inputs, inputs), (self.outputs, outputs)):
            for name, form in forms:
                if any(not 0 <= index < count for index in _all_indices(form)):
                    raise ArtifactError(f"metadata {KEY}: {name!r} has a tensor that is not there")

    @property
    def input_names(self) -> list[str]:
        return [name for name, _ in self.inputs]

    @property
    def output_names(self) -> list[str]:
        return [name for name, _ in self.outputs]

    def packed_inputs(self) -> list[tuple[int, int, int | None]]:
        """Of each input that is a packed sequence: its data, its table of extents, the rank of all."""
        out: list[tuple[int, int, int | None]] = []
        for _, form in self.inputs:
            inner = form
            while isinstance(inner, dict) and "optional" in inner:
                inner = inner["content"]
            if isinstance(inner, dict) and "packed" in inner:
                data, table = inner["packed"]
                out.append((data, table, inner.get("rank")))
        return out

    def tensors(
        self,
        given: Mapping[str, Any],
        dtypes: Sequence[np.dtype[Any]],
        shapes: Sequence[tuple[int, ...]],
    ) -> list[Any]:
        """The input tensors for values by name; a plain one that is not given is None.

        `dtypes` are those of the tensors, `shapes` what each is where a value is absent.  Raises
        InputError for a name that the model has not, and for a value of another kind.
        """
        for name in given:
            if name not in self.input_names:
                names = ", ".join(self.input_names)
                raise InputError(f"the model has no input {name!r}; it has: {names}")
        out: list[Any] = [None] * len(dtypes)
        for name, form in self.inputs:
            if isinstance(form, int):
                out[form] = given.get(name)
                continue
            if name not in given and "optional" not in form:
                raise InputError(f"input {name!r} (a sequence) is missing")
            _take_apart(f"input {name!r}", form, given.get(name), out, dtypes, shapes)
        return out

    def targets(self, out: Sequence[Any] | None, count: int) -> list[Any] | None:
        """`out` of the values for the `count` output tensors.  Raises InputError where it gives
        memory for a sequence or optional value.
        """
        if out is None:
            return None
        if len(out) != len(self.outputs):
            raise InputError(f"`out` has {len(out)} entries, the model {len(self.outputs)} outputs")
        found: list[Any] = [None] * count
        for (name, form), target in zip(self.outputs, out, strict=True):
            if isinstance(form, int):
                found[form] = target
            elif target is not None:
                raise InputError(f"output {name!r} is a {describe(form)}: it takes no memory")
        return found

    def values(self, arrays: Sequence[Any]) -> list[Any]:
        """The outputs that the output tensors make up."""
        return [_put_together(form, arrays) for _, form in self.outputs]


def _check(form: Any) -> None:
    if type(form) is int:
        return
    if not isinstance(form, dict):
        raise TypeError(f"no layout: {form}")
    parts: list[Any]
    if "items" in form:
        parts = form["items"]
    elif "stack" in form:
        parts = [form["stack"]]
    elif "packed" in form:
        parts = form["packed"]
        if len(parts) != 2:
            raise ValueError(f"packed: {parts}")
    else:
        present, content = form["optional"], form["content"]
        parts = [] if isinstance(present, bool) else [present]
        if content is not None:
            _check(content)
    if not all(type(p) is int for p in parts):
        raise ValueError(f"not indices of tensors: {parts}")


def _all_indices(form: Any) -> list[int]:
    if isinstance(form, int) or "optional" not in form:
        return _indices(form)
    present, content = form["optional"], form["content"]
    own = [] if isinstance(present, bool) else [present]
    return [*own, *([] if content is None else _all_indices(content))]


def describe(form: Any) -> str:
    """What a layout is, in words."""
    if isinstance(form, int):
        return "tensor"
    if "optional" in form:
        return "optional" if form["content"] is None else f"optional {describe(form['content'])}"
    return "sequence"


def _take_apart(
    what: str,
    form: Any,
    value: Any,
    out: list[Any],
    dtypes: Sequence[np.dtype[Any]],
    shapes: Sequence[tuple[int, ...]],
) -> None:
    if isinstance(form, int):
        out[form] = value
        return
    if "optional" in form:
        present, content = form["optional"], form["content"]
        if isinstance(present, int) and not isinstance(present, bool):
            out[present] = np.array(value is not None)
        elif present is not (value is not None):
            raise InputError(f"{what} is {'missing' if present else 'given'}")
        if content is None:
            return
        if value is None:
            for index in _indices(content):
                out[index] = np.zeros(shapes[index], dtypes[index])
        else:
            _take_apart(what, content, value, out, dtypes, shapes)
        return
    if not isinstance(value, list | tuple):
        raise InputError(f"{what} is a {type(value).__name__}, want a list of arrays")
    first = _indices(form)[0] if _indices(form) else None
    arrays = [np.asarray(v) for v in value]
    for k, array in enumerate(arrays):
        if first is not None and array.dtype != dtypes[first]:
            raise InputError(f"{what}: element {k} is {array.dtype}, want {dtypes[first]}")
    if "items" in form:
        if len(arrays) != len(form["items"]):
            raise InputError(f"{what} has {len(arrays)} elements, want {len(form['items'])}")
        for index, array in zip(form["items"], arrays, strict=True):
            out[index] = array
    elif "stack" in form:
        index = form["stack"]
        row = shapes[index][1:]
        for k, array in enumerate(arrays):
            if array.shape != row:
                raise InputError(f"{what}: element {k} is {list(array.shape)}, want {list(row)}")
        out[index] = np.array(arrays) if arrays else np.zeros((0, *row), dtypes[index])
    else:
        data, table = form["packed"]
        width, rank = shapes[table][1], form.get("rank")
        for k, array in enumerate(arrays):
            if array.ndim > width or (rank is not None and array.ndim != rank):
                want = f"rank {rank}" if rank is not None else f"at most rank {width}"
                raise InputError(f"{what}: element {k} is {list(array.shape)}, want {want}")
        flat = [a.reshape(-1) for a in arrays]
        rows = [[*a.shape, *[-1] * (width - a.ndim)] for a in arrays]
        out[data] = np.concatenate(flat) if flat else np.zeros(0, dtypes[data])
        out[table] = np.array(rows, np.int64).reshape(len(arrays), width)


def _indices(form: Any) -> list[int]:
    if isinstance(form, int):
        return [form]
    if "stack" in form:
        return [form["stack"]]
    return list(form["items"] if "items" in form else form["packed"])


def _put_together(form: Any, arrays: Sequence[Any]) -> Any:
    if isinstance(form, int):
        return arrays[form]
    if "optional" in form:
        present = form["optional"]
        there = present if isinstance(present, bool) else bool(np.asarray(arrays[present]).item())
        content = form["content"]
        return _put_together(content, arrays) if there and content is not None else None
    if "items" in form:
        return [arrays[index] for index in form["items"]]
    if "stack" in form:
        return list(arrays[form["stack"]])
    data, table = (arrays[index] for index in form["packed"])
    out: list[Any] = []
    start = 0
    for row in np.asarray(table).tolist():
        shape = [extent for extent in row if extent >= 0]
        size = math.prod(shape)
        out.append(data[start : start + size].reshape(shape))
        start += size
    return out
