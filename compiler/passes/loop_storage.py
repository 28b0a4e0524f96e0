"""Storage of values in loops: what lives longer than the order of steps says, and which copies vanish.

Steps are in the order in which they stand; a step with `back` ends a loop that begins so many steps
before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from graphwright.compiler.ir.graph import Graph, Op, Value


class Step(Protocol):
    """What this module reads of `storage.Step`."""

    @property
    def reads(self) -> tuple[Value, ...]: ...
    @property
    def writes(self) -> tuple[Value, ...]: ...
    @property
    def in_place(self) -> tuple[tuple[Value, Value], ...]: ...
    @property
    def is_copy(self) -> bool: ...
    @property
    def back(self) -> int: ...


def joined_inputs(op: Op, body: Graph) -> Iterator[tuple[Value, Value]]:
    """(body input, value outside) pairs that are one storage.

    The inputs of an `if` are its captures.  A loop's counter and carried values are its results.
    """
    if op.name != "loop":
        yield from zip(body.inputs, op.operands[1:], strict=True)
        return
    count = op.attribute("carried")
    yield from zip(body.inputs[: 1 + count], op.results[: 1 + count], strict=True)
    yield from zip(body.inputs[1 + count :], op.operands[2 + count :], strict=True)


def loops_of(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """(first, last) step of every loop, inner loops before those around them."""
    return [(at - step.back, at) for at, step in enumerate(steps) if step.back]


def extend_over_loops(
    steps: Sequence[Step], first: dict[Value, int], last: dict[Value, int]
) -> None:
    """Values from outside that a loop reads live until it ends; values that it makes for what comes
    after it live from its beginning.
    """
    for start, end in loops_of(steps):
        for owner, begin in first.items():
            if begin < start <= last[owner] < end:
                last[owner] = end
            elif start < begin <= end < last[owner]:
                first[owner] = start


def is_free_before(
    steps: Sequence[Step],
    copy: int,
    owner: Value,
    home: Value,
    first: Mapping[Value, int],
    root: Callable[[Value], Value],
) -> bool:
    """Whether `owner`, which step `copy` copies to `home`, may be made in `home` right away.

    True when no step that runs between the making of `owner` and the copy reads or writes `home`,
    other than one that makes an element of the former from the same element of the latter.
    """
    begin = first[owner]
    around = [(s, e) for s, e in loops_of(steps) if s <= copy <= e]
    if around and begin < around[0][0]:
        return False  # made outside the loop, copied by each iteration
    if not around and home in first and first[home] < copy:
        return False
    for start, end in loops_of(steps):
        # A loop between the two runs all its steps, in whatever order.
        if start <= begin <= end < copy:
            begin = start
    for at in range(begin, copy):
        step = steps[at]
        if home in map(root, step.writes):
            return False
        reads = [v for v in step.reads if root(v) is home]
        if not reads:
            continue
        allowed = at == begin and {
            v for w, v in step.in_place if root(w) is owner and root(v) is home
        }
        if step.is_copy and at == begin and root(step.writes[0]) is owner:
            allowed = set(reads)
        if not allowed or any(v not in allowed for v in reads):
            return False
    return True
