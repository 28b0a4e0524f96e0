"""Checks of operand types and attributes that several families make; all raise InferenceError."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.dims import Dim, Expr, Symbol
from graphwright.compiler.ir.op import Inference, InferenceError
from graphwright.compiler.ir.types import TensorType


def check_axis(op: str, axis: int, rank: int) -> None:
    """0 <= axis < rank."""
    if not 0 <= axis < rank:
        raise InferenceError(f"{op}: axis {axis}, want 0 to {rank - 1} for rank {rank}")


def check_axes(op: str, axes: Sequence[int], rank: int) -> None:
    """Distinct axes, each in range."""
    for axis in axes:
        check_axis(op, axis, rank)
    if len(set(axes)) != len(axes):
        raise InferenceError(f"{op}: axes {tuple(axes)} name an axis twice")


def check_length(op: str, name: str, values: Sequence[object], count: int) -> None:
    """An attribute with one entry an axis."""
    if len(values) != count:
        raise InferenceError(f"{op}: {name} has {len(values)} entries, want {count}")


def check_rank(op: str, name: str, type: TensorType, rank: int) -> None:
    if type.rank != rank:
        raise InferenceError(f"{op}: {name} is {type}, want rank {rank}")


def check_minimum_rank(op: str, name: str, type: TensorType, rank: int) -> None:
    if type.rank < rank:
        raise InferenceError(f"{op}: {name} is {type}, want rank {rank} or more")


def check_float(op: str, type: TensorType) -> None:
    if not type.dtype.is_float:
        raise InferenceError(f"{op}: operand is {type}, want a float type")


def check_number(op: str, type: TensorType) -> None:
    if not (type.dtype.is_float or type.dtype.is_integer):
        raise InferenceError(f"{op}: operand is {type}, want a number type")


def check_indices(op: str, type: TensorType) -> None:
    if not type.dtype.is_integer:
        raise InferenceError(f"{op}: indices are {type.dtype}, want an integer type")


def check_same_dtype(op: str, types: Sequence[TensorType]) -> None:
    for t in types[1:]:
        if t.dtype != types[0].dtype:
            raise InferenceError(
                f"{op}: operands are {types[0].dtype} and {t.dtype}, want one element type"
            )


def check_choice(op: str, name: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        raise InferenceError(f"{op}: {name} is {value!r}, want one of {', '.join(choices)}")


def require_shape(
    inference: Inference, op: str, name: str, type: TensorType, shape: Sequence[object]
) -> None:
    """The operand has this shape; dims that cannot be compared become constraints."""
    if type.rank != len(shape):
        want = ", ".join(map(str, shape))
        raise InferenceError(f"{op}: {name} is {type}, want shape [{want}]")
    for axis, (got, want) in enumerate(zip(type.shape, shape, strict=True)):
        inference.require(got, "==", want, f"{op}: axis {axis} of {name}")  # type: ignore[arg-type]


def distinct_symbols(op: str, dims: Sequence[Dim]) -> tuple[Symbol, ...]:
    """The symbols that dims are, each another one."""
    found: list[Symbol] = []
    for dim in dims:
        symbol = dim.symbol if isinstance(dim, Expr) else None
        if symbol is None or symbol in found:
            text = ", ".join(map(str, dims))
            raise InferenceError(f"{op}: it binds {text}, want distinct symbols")
        found.append(symbol)
    return tuple(found)
