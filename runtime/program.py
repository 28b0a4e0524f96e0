"""A variant made ready: expressions, plan and pointers as tables that any device's executor fills.

Independent of the device.  `Program.place` computes, for one binding, every buffer's offset, every
kernel scalar and every pointer's position; an executor adds base addresses and launches.  What
depends on symbols that are bound in mid-run is listed by segment (`Part`) and placed then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from graphwright.errors import ArtifactError
from graphwright.runtime.binding import Binding, relation_holds
from graphwright.runtime.expressions import ExpressionTable, symbols_in
from graphwright.runtime.manifest import ConstraintSpec, Launch, Manifest, Variant
from graphwright.runtime.weights import storage_bytes


@dataclass(frozen=True, slots=True)
class Patch:
    """A pointer that changes from call to call: place in the pointer table, bytes to add."""

    position: int
    offset: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Everything about one binding but addresses.  Arrays are int64, in bytes.

    `base`: per pointer, the slot (see `Program.slots`) that it is relative to; `offset`: what to
    add.  `arena_offsets`: per buffer.  `inputs`, `outputs`: which pointers each of them moves.
    `values`: of every expression by number; what later segments bind is 0 in all of these.
    """

    binding: Binding
    arena_bytes: int
    arena_offsets: np.ndarray
    offset: np.ndarray
    scalars: np.ndarray
    inputs: tuple[tuple[Patch, ...], ...]
    outputs: tuple[tuple[Patch, ...], ...]
    values: list[int]


@dataclass(frozen=True, slots=True)
class Check:
    """A constraint with the numbers of its sides."""

    constraint: ConstraintSpec
    left: int
    right: int

    def holds(self, values: Sequence[int]) -> bool:
        return relation_holds(self.constraint.relation, values[self.left], values[self.right])


@dataclass(frozen=True, slots=True)
class Part:
    """What one segment decides: buffers, outputs, constraints; pointers and scalars by position.

    The arrays (int64) give for each pointer its slot and the number of its offset, and for each
    scalar its number.
    """

    symbols: tuple[str, ...]
    buffers: tuple[int, ...]
    outputs: tuple[int, ...]
    checks: tuple[Check, ...]
    pointers: np.ndarray
    slots: np.ndarray
    offsets: np.ndarray
    scalars: np.ndarray
    numbers: np.ndarray


class Program:
    """Launches and plan of one variant with interned expressions.

    slots: buffers first, then inputs, outputs, weights.  `pointer_start[i]` and `scalar_start[i]`
    say where launch i's pointers and scalars begin in the tables.  `parts[k]` is segment k.
    """

    def __init__(self, manifest: Manifest, variant: Variant) -> None:
        """Raises ArtifactError for a launch on the host and for symbols that nothing binds."""
        self.manifest, self.variant = manifest, variant
        self.buffers = len(variant.plan.buffers)
        inputs, outputs = len(manifest.inputs), len(manifest.outputs)
        first = {
            "arena": 0,
            "input": self.buffers,
            "output": self.buffers + inputs,
            "weight": self.buffers + inputs + outputs,
        }
        self._first_input, self._first_output = first["input"], first["output"]
        groups = _segments(variant.launches)
        self.segment_of = {s: k for k, group in enumerate(groups) for s in group}
        self._expressions = ExpressionTable(self.segment_of)
        add = self._expressions.add
        self._buffer_sizes = [add(b.size) for b in variant.plan.buffers]
        self.output_shapes = [[add(e) for e in t.shape] for t in manifest.outputs]
        slots: list[int] = []
        offsets: list[int] = []
        scalars: list[int] = []
        pointer_start: list[int] = []
        scalar_start: list[int] = []
        self.checks: dict[int, tuple[Check, ...]] = {}  # launch -> what it checks
        self.moved: dict[int, list[int]] = {}  # launch -> number of each move's bytes
        self.flips: set[int] = set()  # launches that move what lies in the segment that they place
        self.turns = _turns(variant.launches)
        for i, launch in enumerate(variant.launches):
            if launch.kind == "host":
                raise ArtifactError(f"launch on the host is not supported: {launch.reason}")
            pointer_start.append(len(slots))
            scalar_start.append(len(scalars))
            for p in launch.pointers:
                slots.append(first[p.space] + p.index)
                offsets.append(add(p.offset))
            scalars += [add(s) for s in launch.scalars]
            if launch.kind in ("bind", "check"):
                self.checks[i] = tuple(map(self._check, launch.checks))
                self.moved[i] = [add(m.bytes) for m in launch.moves]
        self.pointer_slot = np.array(slots, np.int64)
        self._pointer_offset = np.array(offsets, np.int64)
        self._scalar_number = np.array(scalars, np.int64)
        self.pointer_start, self.scalar_start = pointer_start, scalar_start
        self._moving_count = (inputs, outputs)
        constraints = [
            self._check(c)
            for c in manifest.constraints
            if not self.segment_of.keys().isdisjoint(symbols_in(c.left) | symbols_in(c.right))
        ]
        self._divide(groups, constraints, first)
        self._moving: list[tuple[int, int]] = [  # (pointer, slot) of inputs and outputs
            (i, slots[i])
            for i in self.parts[0].pointers.tolist()
            if first["input"] <= slots[i] < first["weight"]
        ]

    def _check(self, c: ConstraintSpec) -> Check:
        add = self._expressions.add
        return Check(c, add(c.left), add(c.right))

    def _divide(
        self,
        groups: Sequence[tuple[str, ...]],
        constraints: Sequence[Check],
        first: Mapping[str, int],
    ) -> None:
        """Sorts everything into segments."""
        segment = self._expressions.segment
        bound = {s.name for s in self.manifest.symbols if s.bound_by is not None}
        for name in self._expressions.symbols:
            if name not in bound and name not in self.segment_of:
                raise ArtifactError(f"nothing binds the symbol {name}")
        of_slot = np.zeros(first["weight"] + len(self.manifest.weights), np.int64)
        for b, size in enumerate(self._buffer_sizes):
            of_slot[b] = segment[size]
            for below in self.variant.plan.buffers[b].after:
                if of_slot[below] != of_slot[b]:
                    raise ArtifactError(f"buffers {below} and {b} are of different segments")
        of_output = [max((segment[n] for n in s), default=0) for s in self.output_shapes]
        of_slot[first["output"] : first["weight"]] = of_output
        numbers = np.array(segment, np.int64)
        for i, launch in enumerate(self.variant.launches):
            sources = [self.pointer_slot[self.pointer_start[i] + m.source] for m in launch.moves]
            if any(of_slot[s] == self.segment_of[launch.symbols[0]] for s in sources):
                self.flips.add(i)
        of_pointer = np.zeros(0, np.int64)
        if len(self.pointer_slot):
            of_pointer = np.maximum(of_slot[self.pointer_slot], numbers[self._pointer_offset])
        of_scalar = numbers[self._scalar_number] if len(self._scalar_number) else of_pointer[:0]
        self.parts: list[Part] = []
        for k, symbols in enumerate(groups):
            pointers, scalars = np.flatnonzero(of_pointer == k), np.flatnonzero(of_scalar == k)
            checks = tuple(c for c in constraints if max(segment[c.left], segment[c.right]) == k)
            self.parts.append(
                Part(
                    symbols,
                    tuple(np.flatnonzero(of_slot[: self.buffers] == k).tolist()),
                    tuple(i for i, at in enumerate(of_output) if at == k),
                    checks,
                    pointers,
                    self.pointer_slot[pointers],
                    self._pointer_offset[pointers],
                    scalars,
                    self._scalar_number[scalars],
                )
            )

    def place(self, binding: Binding) -> Placement:
        """Raises ArtifactError when a pointer would lie outside its tensor or buffer."""
        values = self._expressions.evaluate(binding.sizes)
        part = self.parts[0]
        starts, sizes, arena_bytes = self.place_buffers(0, values, binding.sizes)
        manifest = self.manifest
        ends = np.array(
            [
                *sizes,
                *map(_bytes, (t.dtype for t in manifest.inputs), binding.inputs),
                *(
                    0 if shape is None else _bytes(t.dtype, shape)
                    for t, shape in zip(manifest.outputs, binding.outputs, strict=True)
                ),
                *map(
                    _bytes, (w.dtype for w in manifest.weights), (w.shape for w in manifest.weights)
                ),
            ],
            np.int64,
        )
        offset = np.zeros(len(self.pointer_slot), np.int64)
        scalars = np.zeros(len(self._scalar_number), np.int64)
        numbers = np.array(values, np.int64)
        if len(part.pointers):
            offset[part.pointers] = numbers[part.offsets]
        if len(part.scalars):
            scalars[part.scalars] = numbers[part.numbers]
        check_pointers(part, numbers, ends, binding.sizes)
        inputs: list[list[Patch]] = [[] for _ in range(self._moving_count[0])]
        outputs: list[list[Patch]] = [[] for _ in range(self._moving_count[1])]
        for position, slot in self._moving:
            patch = Patch(position, int(offset[position]))
            if slot < self._first_output:
                inputs[slot - self._first_input].append(patch)
            else:
                outputs[slot - self._first_output].append(patch)
        return Placement(
            binding,
            arena_bytes,
            np.array(starts, np.int64),
            offset,
            scalars,
            tuple(map(tuple, inputs)),
            tuple(map(tuple, outputs)),
            values,
        )

    def is_late(self, check: Check) -> bool:
        """Whether a check needs sizes that are bound in mid-run."""
        segment = self._expressions.segment
        return segment[check.left] > 0 or segment[check.right] > 0

    def evaluate(self, segment: int, sizes: Mapping[str, int], values: list[int]) -> None:
        """Computes a later segment's expressions into `values`."""
        self._expressions.evaluate_segment(segment, sizes, values)

    def place_buffers(
        self,
        segment: int,
        values: Sequence[int],
        sizes: Mapping[str, int],
        until: int | None = None,
    ) -> tuple[list[int], list[int], int]:
        """Per buffer its offset and size, both 0 in other segments; the bytes of the arena.

        `until`: what is touched only after this launch may have no size yet.
        """
        plan = self.variant.plan
        starts, ends, lengths = [0] * self.buffers, [0] * self.buffers, [0] * self.buffers
        total = 0
        for b in self.parts[segment].buffers:
            size = values[self._buffer_sizes[b]]
            if size < 0:
                if until is None or plan.buffers[b].first <= until:
                    raise ArtifactError(f"a buffer has a negative size for {dict(sizes)}")
                size = 0
            start = max((ends[j] for j in plan.buffers[b].after), default=0)
            starts[b], lengths[b] = start, size
            ends[b] = start + -(-size // plan.alignment) * plan.alignment
            total = max(total, ends[b])
        if total >= 1 << 62:
            raise ArtifactError(f"the arena would need {total} bytes")
        return starts, lengths, total

    def arena(self, binding: Binding) -> tuple[int, int]:
        """(bytes of the call's arena, the largest number of bytes live during one launch); without
        what later segments add.
        """
        plan = self.variant.plan
        values = self._expressions.evaluate(binding.sizes)
        _, sizes, total = self.place_buffers(0, values, binding.sizes)
        change: dict[int, int] = {}
        for size, buffer in zip(sizes, plan.buffers, strict=True):
            rounded = -(-size // plan.alignment) * plan.alignment
            change[buffer.first] = change.get(buffer.first, 0) + rounded
            change[buffer.last + 1] = change.get(buffer.last + 1, 0) - rounded
        live = bound = 0
        for step in sorted(change):
            live += change[step]
            bound = max(bound, live)
        return total, bound


def check_pointers(
    part: Part,
    numbers: np.ndarray,
    ends: np.ndarray,
    sizes: Mapping[str, int],
    below: int | None = None,
) -> None:
    """Raises ArtifactError when a pointer of a segment lies outside what `ends` (per slot) allows;
    of those at positions `below` one, unless that is None.
    """
    if not len(part.pointers):
        return
    offset, end = numbers[part.offsets], ends[part.slots]
    wrong = (offset < 0) | (offset > end)
    if below is not None:
        wrong &= part.pointers < below
    if wrong.any():
        bad = int(np.argmax(wrong))
        raise ArtifactError(
            f"pointer {int(part.pointers[bad])} of the program lies {int(offset[bad])} bytes into a "
            f"tensor of {int(end[bad])} for {dict(sizes)}"
        )


def _turns(launches: Sequence[Launch]) -> dict[int, int]:
    """{bind launch: last launch of the loop around it, or of the one that it begins}.

    What such a launch binds is not final until the loop has ended.
    """
    loops = [(i + 1 + step.jump, i) for i, step in enumerate(launches) if step.kind == "next"]
    found: dict[int, int] = {}
    for i, step in enumerate(launches):
        if step.kind == "bind":
            ends = [end for start, end in loops if start - 1 <= i <= end]
            if ends:
                found[i] = min(ends)
    return found


def _segments(launches: Sequence[Launch]) -> list[tuple[str, ...]]:
    """The symbols that each segment begins with, in program order; segment 0 has none.

    Launches that bind the same symbols (at the end of either branch, at every turn of a loop) begin
    one segment.  Raises ArtifactError when some of a launch's symbols belong to another.
    """
    groups: list[tuple[str, ...]] = [()]
    known: dict[str, tuple[str, ...]] = {}
    for launch in launches:
        if launch.kind != "bind":
            continue
        old = {known.get(s) for s in launch.symbols}
        if old == {None}:
            groups.append(launch.symbols)
            known |= dict.fromkeys(launch.symbols, launch.symbols)
        elif old != {launch.symbols}:
            raise ArtifactError(f"a launch binds {', '.join(launch.symbols)}, others some of them")
    return groups


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    return min(storage_bytes(dtype, shape), (1 << 63) - 1)
