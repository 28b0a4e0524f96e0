"""The memory plan as text: launches go right, addresses go down, letters are buffers."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphwright.runtime.expressions import evaluate_expression
from graphwright.runtime.manifest import Plan

LETTERS = string.ascii_uppercase + string.ascii_lowercase
ROWS, COLUMNS = 20, 96


@dataclass(frozen=True, slots=True)
class Placed:
    """A buffer of a plan at one binding.  Bytes; `first` and `last` launch during which it lives."""

    index: int
    offset: int
    size: int
    first: int
    last: int
    values: tuple[str, ...]

    @property
    def end(self) -> int:
        return self.offset + self.size


def place(plan: Plan, sizes: Mapping[str, int]) -> list[Placed]:
    """Every buffer's offset and size at a binding {symbol: size}."""
    placed: list[Placed] = []
    ends: list[int] = []
    for index, buffer in enumerate(plan.buffers):
        offset = max((ends[below] for below in buffer.after), default=0)
        size = evaluate_expression(buffer.size, sizes)
        ends.append(offset + -(-size // plan.alignment) * plan.alignment)
        placed.append(Placed(index, offset, size, buffer.first, buffer.last, buffer.values))
    return placed


def arena_bytes(placed: Sequence[Placed]) -> int:
    """What the whole plan needs."""
    return max((p.end for p in placed), default=0)


def lower_bound(placed: Sequence[Placed]) -> int:
    """The most bytes that are live at any one launch: no plan needs less."""
    steps = {p.first for p in placed}
    return max((sum(p.size for p in placed if p.first <= s <= p.last) for s in steps), default=0)


def draw(placed: Sequence[Placed]) -> list[str]:
    """Lines of the chart.  The largest buffers get letters, the rest a dot."""
    total = arena_bytes(placed)
    if not total:
        return ["(no buffers: everything lies in inputs, outputs and weights)"]
    steps = max(p.last for p in placed) + 1
    rows, columns = min(ROWS, max(len(placed), 4)), min(COLUMNS, steps)
    letters = name_buffers(placed)
    lines: list[str] = []
    for row in range(rows):
        low, high = row * total // rows, (row + 1) * total // rows
        cells: list[str] = []
        for column in range(columns):
            start = column * steps // columns
            end = max((column + 1) * steps // columns, start + 1)
            cells.append(_cell(placed, letters, (low, high), (start, end)))
        lines.append(f"{low / 1024:10.0f} KiB |{''.join(cells)}|")
    lines.append(f"{'':16}launches 0 to {steps - 1}")
    return lines


def name_buffers(placed: Sequence[Placed]) -> dict[int, str]:
    """Letters for the largest buffers, in order of size."""
    largest = sorted(placed, key=lambda p: (-p.size, p.index))[: len(LETTERS)]
    return {p.index: letter for p, letter in zip(largest, LETTERS, strict=False)}


def _cell(
    placed: Sequence[Placed],
    letters: Mapping[int, str],
    rows: tuple[int, int],
    steps: tuple[int, int],
) -> str:
    """The buffer that covers most of a cell, or a space."""
    best, covered = " ", 0
    for p in placed:
        height = min(p.end, rows[1]) - max(p.offset, rows[0])
        width = min(p.last + 1, steps[1]) - max(p.first, steps[0])
        if height > 0 and width > 0 and height * width > covered:
            best, covered = letters.get(p.index, "·"), height * width
    return best
