"""The signature of a model: binds symbols from input shapes and checks everything that is promised.

Independent of the device.  Errors name the input, the axis, the value and what was expected.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from graphwright.errors import ArtifactError, InputError
from graphwright.runtime.expressions import (
    evaluate_expression,
    format_expression,
    symbols_in,
)
from graphwright.runtime.manifest import ConstraintSpec, Expression, Manifest, TensorSpec

_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le,
    ">": operator.gt, ">=": operator.ge, "broadcast": lambda a, b: a == b or a == 1 or b == 1,
}  # fmt: skip
_RELATION_WORDS = {"broadcast": "equal to (or one of them 1)"}


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of a long name; ml_dtypes has those that numpy lacks."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


@dataclass(frozen=True, slots=True)
class Binding:
    """One setting of the symbols, and the shapes that follow from it."""

    sizes: Mapping[str, int]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...] | None, ...]  # None: known only when bound in mid-run


class Signature:
    """Inputs, outputs and symbols of a manifest."""

    def __init__(self, manifest: Manifest) -> None:
        """Raises ArtifactError when a shape depends on a symbol that no input binds."""
        self.inputs, self.outputs = manifest.inputs, manifest.outputs
        self.input_dtypes = [numpy_dtype(t.dtype) for t in self.inputs]
        self.output_dtypes = [numpy_dtype(t.dtype) for t in self.outputs]
        self._symbols = manifest.symbols
        self._positions = {t.name: i for i, t in enumerate(self.inputs)}
        self._bound_at = {s.name: s.bound_by for s in manifest.symbols}
        free = {s.name for s in manifest.symbols if s.bound_by is None}
        used = {n for t in self.inputs for e in t.shape for n in symbols_in(e)}
        if used & free:
            raise ArtifactError(f"symbol {sorted(used & free)[0]} of an input is bound by none")
        self._is_known = [not (symbols_in_shape(t) & free) for t in self.outputs]
        self._constraints = [
            c for c in manifest.constraints
            if not (symbols_in(c.left) | symbols_in(c.right)) & free
        ]  # fmt: skip

    def order_arguments(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """One entry per input, None where a default serves.  Raises InputError naming the input."""
        given: list[Any] = list(args)
        if len(given) > len(self.inputs):
            raise InputError(
                f"{len(given)} inputs are given, the model has {len(self.inputs)}: {self._names()}"
            )
        given += [None] * (len(self.inputs) - len(given))
        for name, value in named.items():
            position = self._positions.get(name)
            if position is None:
                raise InputError(f"the model has no input {name!r}; it has: {self._names()}")
            if given[position] is not None:
                raise InputError(f"input {name!r} is given twice, by position and by name")
            given[position] = value
        for spec, value in zip(self.inputs, given, strict=True):
            if value is None and spec.default is None:
                raise InputError(f"input {spec.name!r} ({describe(spec)}) is missing")
        return given

    def bind(self, shapes: Sequence[tuple[int, ...]]) -> Binding:
        """The binding for these input shapes.  Raises InputError for the first misfit."""
        sizes: dict[str, int] = {}
        for i, (spec, shape) in enumerate(zip(self.inputs, shapes, strict=True)):
            if len(shape) != len(spec.shape):
                raise InputError(
                    f"input {spec.name!r} has shape {list(shape)}, want {len(spec.shape)} axes: "
                    f"{describe(spec)}"
                )
            for axis, expression in enumerate(spec.shape):
                if isinstance(expression, str) and self._bound_at[expression] == (i, axis):
                    sizes[expression] = shape[axis]
        self._check_ranges(sizes)
        for spec, shape in zip(self.inputs, shapes, strict=True):
            for axis, expression in enumerate(spec.shape):
                want = evaluate_expression(expression, sizes)
                if shape[axis] != want:
                    raise InputError(
                        f"input {spec.name!r}: axis {axis} is {shape[axis]}, want "
                        f"{self._explain(expression, want)}; the whole shape is {describe(spec)}"
                    )
        for c in self._constraints:
            self._check_constraint(c, sizes)
        outputs = tuple(
            tuple(evaluate_expression(e, sizes) for e in t.shape) if known else None
            for t, known in zip(self.outputs, self._is_known, strict=True)
        )
        for spec, shape in zip(self.outputs, outputs, strict=True):
            if shape is not None and any(extent < 0 for extent in shape):
                raise InputError(
                    f"output {spec.name!r} would have the shape {list(shape)} for "
                    f"{_show(sizes)}: the input is too small"
                )
        return Binding(sizes, tuple(tuple(s) for s in shapes), outputs)

    def size(self, expression: Expression, sizes: Mapping[str, int]) -> int:
        """The value of a shape entry for given symbol sizes."""
        return evaluate_expression(expression, sizes)

    def _check_ranges(self, sizes: Mapping[str, int]) -> None:
        for s in self._symbols:
            if s.bound_by is None:
                continue
            index, axis = s.bound_by
            size, name = sizes[s.name], self.inputs[index].name
            if not s.min <= size <= s.max:
                raise InputError(
                    f"input {name!r}: axis {axis} is {size}, want {s.name} in {s.min}..{s.max}"
                )
            if size % s.multiple_of:
                raise InputError(
                    f"input {name!r}: axis {axis} is {size}, want {s.name} a multiple of "
                    f"{s.multiple_of}"
                )

    def _check_constraint(self, constraint: ConstraintSpec, sizes: Mapping[str, int]) -> None:
        left = evaluate_expression(constraint.left, sizes)
        right = evaluate_expression(constraint.right, sizes)
        if not relation_holds(constraint.relation, left, right):
            raise violated(constraint, left, right, sizes, self._where())

    def _where(self) -> dict[str, str]:
        """From which input and axis each symbol comes, in words."""
        return {
            name: f"input {self.inputs[at[0]].name!r}, axis {at[1]}"
            for name, at in self._bound_at.items()
            if at is not None
        }

    def _explain(self, expression: Any, want: int) -> str:
        text = format_expression(expression)
        if text == str(want):
            return text
        where = [
            f"{name} by input {self.inputs[at[0]].name!r}, axis {at[1]}"
            for name in sorted(symbols_in(expression))
            if (at := self._bound_at[name]) is not None
        ]
        return f"{text} = {want} (bound: {', '.join(where)})"

    def _names(self) -> str:
        return ", ".join(t.name for t in self.inputs) or "none"


def relation_holds(relation: str, left: int, right: int) -> bool:
    """Whether a constraint's relation holds between two numbers."""
    return _RELATIONS[relation](left, right)


def violated(
    constraint: ConstraintSpec,
    left: int,
    right: int,
    sizes: Mapping[str, int],
    where: Mapping[str, str] | None = None,
) -> InputError:
    """The error for a constraint whose sides are these numbers; `where` each size comes from."""
    relation = _RELATION_WORDS.get(constraint.relation, constraint.relation)
    named = symbols_in(constraint.left) | symbols_in(constraint.right)
    if not named:  # it holds for no size: control flow came where the data should not lead
        return InputError(constraint.reason)
    used = {n: s for n, s in sizes.items() if n in named}
    return InputError(
        f"want {format_expression(constraint.left)} {relation} "
        f"{format_expression(constraint.right)}, got {left} and {right} for "
        f"{_show(used or sizes, where)}: {constraint.reason}"
    )


def symbols_in_shape(spec: TensorSpec) -> set[str]:
    """The names of the symbols in a tensor's shape."""
    return {name for e in spec.shape for name in symbols_in(e)}


def describe(spec: TensorSpec) -> str:
    """`float32[B, 3, 224, 224]`."""
    return f"{spec.dtype}[{', '.join(map(format_expression, spec.shape))}]"


def _show(sizes: Mapping[str, int], where: Mapping[str, str] | None = None) -> str:
    known = where or {}
    shown = (f"{k} = {v}" + (f" ({known[k]})" if k in known else "") for k, v in sizes.items())
    return ", ".join(shown) or "constant sizes"
