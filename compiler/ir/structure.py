"""Hashable keys of what ops are: equal keys, equal calculations, whatever the ops are called."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal

# Of a larger constant only so many elements go into its key; equality then compares all of it.
_SAMPLES = 64


class _Sampled:
    """A large literal: hashed by samples, compared by content."""

    __slots__ = ("literal", "samples")

    def __init__(self, literal: Literal) -> None:
        self.literal = literal
        self.samples = literal.sample(_SAMPLES)

    def __hash__(self) -> int:
        return hash((self.literal.dtype.name, self.literal.shape, self.samples))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Sampled)
            and self.samples == other.samples
            and self.literal == other.literal
        )


def attribute_key(value: Any) -> Hashable:
    """A hashable stand-in that keeps apart what Python calls equal: 1, 1.0, True; 0.0 and -0.0."""
    kind = type(value)
    if kind is int or kind is str or value is None:
        return value
    if kind is tuple:
        return tuple([attribute_key(v) for v in value])
    if isinstance(value, float | np.floating):
        return ("float", repr(float(value)))
    if isinstance(value, Literal):
        if value.is_splat:
            # A dense literal of the same bits has another key: canonicalize makes it a splat.
            number = np.asarray(value.splat_value)
            return ("splat", value.dtype.name, value.shape, number.tobytes())
        if value.elements <= _SAMPLES:
            return ("dense", value.dtype.name, value.shape, value.array().tobytes())
        return _Sampled(value)
    return (kind.__name__, value)


def attributes_key(attributes: Mapping[str, Any]) -> Hashable:
    """The key of all attributes of an op; ops of one name have them in one order."""
    return tuple([attribute_key(v) for v in attributes.values()])


def attributes_key_of(op: Op) -> Hashable:
    """`attributes_key` of an op, calculated once: attributes never change."""
    if op.attributes_key is None:
        op.attributes_key = attributes_key(op.attributes)
    return op.attributes_key


def body_key(body: Graph) -> Hashable:
    """The key of a body: what it calculates from its inputs, without names and origins."""
    number: dict[Value, int] = {v: i for i, v in enumerate(body.inputs)}
    parts: list[Hashable] = [tuple(v.type for v in body.inputs)]
    for op in body.ops:
        parts.append((
            op.name,
            tuple([number[v] for v in op.operands]),
            attributes_key_of(op),
            tuple([r.type for r in op.results]),
            tuple([body_key(b) for b in op.bodies]) if op.bodies else (),
        ))  # fmt: skip
        for result in op.results:
            number[result] = len(number)
    parts.append(tuple([number[v] for v in body.outputs]))
    return tuple(parts)


def op_key(op: Op) -> Hashable:
    """The key of an op but for its operands."""
    return (
        op.name,
        attributes_key_of(op),
        tuple([r.type for r in op.results]),
        tuple([body_key(b) for b in op.bodies]) if op.bodies else (),
    )
