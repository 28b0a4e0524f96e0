"""Equal layers are emitted once: the launches of an op are those of an equal one on other values.

Ops are equal when attributes, types, bodies and the pattern of their operands are, and when the same
operands are constants.  Emitters never look at what a constant holds, but for integers: zero points
decide code, so that integer constants belong to the key with their content, weights excepted.  Whether a value lies at
a multiple of 16 bytes matters too: kernels for GPUs read several elements at a time where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

from graphwright.compiler.codegen.kernel import (
    Argument,
    EmittedLaunch,
    Packed,
    Source,
    Step,
)
from graphwright.compiler.ir.dims import is_multiple
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.structure import op_key
from graphwright.compiler.passes.storage import owner_of

INTEGER_PRODUCTS = ("conv_integer", "matmul_integer")
LARGEST_ZERO_POINTS = 2**16  # elements: more is a weight


class Repetition:
    """What was emitted so far, by the key of the op."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Op, Sequence[Step]]] = {}

    def emit(self, op: Op, emitter: Callable[[Op], Sequence[Step]]) -> Sequence[Step]:
        """The steps that `emitter` makes of the op, which it is asked for once for equal ops."""
        key = (op_key(op), _operands_key(op))
        known = self._known.get(key)
        if known is None:
            steps = emitter(op)
            if all(isinstance(s, EmittedLaunch) for s in steps):
                self._known[key] = (op, steps)
            return steps
        first, steps = known
        values: dict[Value, Value] = {}
        for old, new in zip(
            (*first.operands, *first.results), (*op.operands, *op.results), strict=True
        ):
            values[old] = new
        return [_repeated(s, values, op) for s in steps if isinstance(s, EmittedLaunch)]


def _operands_key(op: Op) -> Hashable:
    place: dict[Value, int] = {}
    inside = op.bodies[0].inputs if op.name == "fused" else op.operands
    operands = [
        (place.setdefault(v, i), v.type, _constant_key(v, inner))
        for i, (v, inner) in enumerate(zip(op.operands, inside, strict=True))
    ]
    aligned = [is_multiple(owner_of(v)[1], 16) for v in (*op.operands, *op.results)]
    return (*operands, *aligned)


def _constant_key(value: Value, inside: Value) -> Hashable:
    """Of an operand, which a region knows as `inside`."""
    if value.op is None or value.op.name != "constant":
        return None
    literal = value.op.attribute("value")
    if not literal.dtype.is_integer or literal.elements > LARGEST_ZERO_POINTS:
        return True
    return True if _is_weight(inside) else literal.digest


def _is_weight(inside: Value) -> bool:
    """Whether a region's operand is nothing but the right operand of integer products."""
    uses = [u for u in inside.uses if isinstance(u.user, Op)]
    return bool(uses) and all(
        (u.user.name in INTEGER_PRODUCTS and u.index == 1)
        or (u.user.kind is Kind.MOVEMENT and u.index == 0 and _is_weight(u.user.result))
        for u in uses
        if isinstance(u.user, Op)
    )


def _repeated(step: EmittedLaunch, values: Mapping[Value, Value], op: Op) -> EmittedLaunch:
    def source(old: Source) -> Source:
        return Source(values.get(old.value, old.value), old.moves)

    def argument(old: Argument) -> Argument:
        if isinstance(old, Value):
            return values.get(old, old)
        if isinstance(old, Packed):
            more = tuple([source(s) for s in old.more])
            return Packed(source(old.source), old.packing, old.parameters, more)
        return old

    return replace(
        step,
        arguments=tuple([argument(a) for a in step.arguments]),
        ops=(op.id,),
        origins=op.origins,
    )
