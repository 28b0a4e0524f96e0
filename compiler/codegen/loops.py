"""A loop as steps: carried values have a home, the result's storage, that every iteration writes anew.

    enter, copies of initial values to homes
    loop        past the end unless counter < trips and condition
      the body's steps
      rows of stacked values, copies of carried values to their homes
    next        back to loop
    bind        the sizes that the loop has ended with, where they change

Storage assignment lets a carried value be written straight to its home where nothing reads the old
one any more; the copy then finds that source and target are one and does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphwright.compiler.codegen.control import EmitBody, bind_extents, emit_bodies
from graphwright.compiler.codegen.kernel import (
    EmittedBind,
    EmittedLaunch,
    EmittedLoop,
    EmittedNext,
    Step,
)
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir.dims import of
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.symbol_scope import is_sized_by


class LoopKernels(Protocol):
    """A target's kernels for the steps of a loop."""

    def check(self, op: Op, value: Value) -> None:
        """Raises UnsupportedError for a carried value of a type that the target lacks."""
        ...

    def enter(self, op: Op, counter: Value, condition: Value, initial: Value) -> EmittedLaunch:
        """counter = 0, condition = initial."""
        ...

    def copy(self, op: Op, source: Value, target: Value) -> EmittedLaunch:
        """target = source; nothing where they share storage."""
        ...

    def store_row(self, op: Op, row: Value, counter: Value, stack: Value) -> EmittedLaunch:
        """stack[counter] = row."""
        ...


def loop_steps(op: Op, emit_body: EmitBody, kernels: LoopKernels) -> list[Step]:
    """The steps of a loop op; see the module's text."""
    (inside,) = emit_bodies(op, emit_body)
    (body,), count = op.bodies, op.attribute("carried")
    for value in op.results:
        kernels.check(op, value)
        if value.type.dtype.bits < 8:
            raise problem(op, f"a loop that carries {value.type.dtype.long_name} has no kernel")
    counter, condition = body.inputs[0], body.outputs[0]
    initial, homes = op.operands[2 : 2 + count], body.inputs[1 : 1 + count]
    after, rows = body.outputs[1 : 1 + count], body.outputs[1 + count :]
    stacks = op.results[1 + count :]
    sized = [is_sized_by(op, r) for r in op.results[1 : 1 + count]]
    known = (op.id,)

    def copies(sources: Sequence[Value]) -> list[Step]:
        pairs = zip(sources, homes, sized, strict=True)
        return [kernels.copy(op, source, home) for source, home, late in pairs if not late]

    # What comes after the loop may have sizes that only its last turn makes possible: they are
    # settled, and checked, once more behind it.
    symbols = op.definition.binds(op.attributes)
    settled = [
        EmittedBind(symbols, sizes=tuple(map(of, symbols)), ops=known, origins=op.origins)
    ]  # fmt: skip

    def bind(sources: Sequence[Value]) -> list[Step]:
        return [bind_extents(op, sources, homes)] if any(sized) else []

    enter = kernels.enter(op, counter, condition, op.operands[1])
    # Rows first, then what is moved: both may read homes, which copies write.
    turn: list[Step] = [
        *inside,
        *(
            kernels.store_row(op, row, counter, stack)
            for row, stack in zip(rows, stacks, strict=True)
        ),
        *bind(after),
        *copies(after),
    ]
    return [
        enter,
        *copies(initial),
        *bind(initial),
        EmittedLoop(counter, op.operands[0], condition, len(turn) + 1, known, op.origins),
        *turn,
        EmittedNext(counter, len(turn) + 1, known, op.origins),
        *(settled if any(sized) else ()),
    ]
