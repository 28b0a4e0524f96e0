"""A variant made ready: expressions, plan and pointers as tables that any device's executor fills.

Independent of the device.  `Program.place` computes, for one binding, every buffer's offset, every
kernel scalar and every pointer's position; an executor adds base addresses and launches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from graphwright.errors import ArtifactError
from graphwright.runtime.binding import Binding
from graphwright.runtime.expressions import ExpressionTable
from graphwright.runtime.manifest import Manifest, Variant
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
    """

    binding: Binding
    arena_bytes: int
    arena_offsets: np.ndarray
    offset: np.ndarray
    scalars: np.ndarray
    inputs: tuple[tuple[Patch, ...], ...]
    outputs: tuple[tuple[Patch, ...], ...]


class Program:
    """Launches and plan of one variant with interned expressions.

    slots: buffers first, then inputs, outputs, weights.  `pointer_start[i]` and `scalar_start[i]`
    say where launch i's pointers and scalars begin in the tables.
    """

    def __init__(self, manifest: Manifest, variant: Variant) -> None:
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
        self._expressions = ExpressionTable()
        add = self._expressions.add
        self._buffer_sizes = [add(b.size) for b in variant.plan.buffers]
        slots: list[int] = []
        offsets: list[int] = []
        scalars: list[int] = []
        pointer_start: list[int] = []
        scalar_start: list[int] = []
        for launch in variant.launches:
            if launch.kind == "host":
                raise ArtifactError(f"launch on the host is not supported: {launch.reason}")
            pointer_start.append(len(slots))
            scalar_start.append(len(scalars))
            for p in launch.pointers:
                slots.append(first[p.space] + p.index)
                offsets.append(add(p.offset))
            scalars += [add(s) for s in launch.scalars]
        self.pointer_slot = np.array(slots, np.int64)
        self._pointer_offset = np.array(offsets, np.int64)
        self._scalar_number = np.array(scalars, np.int64)
        self.pointer_start, self.scalar_start = pointer_start, scalar_start
        self._moving: list[tuple[int, int]] = [  # (pointer, slot) of inputs and outputs
            (i, s) for i, s in enumerate(slots) if first["input"] <= s < first["weight"]
        ]
        self._moving_count = (inputs, outputs)

    def place(self, binding: Binding) -> Placement:
        """Raises ArtifactError when a pointer would lie outside its tensor or buffer."""
        values = np.array(self._expressions.evaluate(binding.sizes), np.int64)
        plan = self.variant.plan
        sizes = values[self._buffer_sizes] if self.buffers else np.zeros(0, np.int64)
        if self.buffers and int(sizes.min()) < 0:
            raise ArtifactError(f"a buffer has a negative size for {dict(binding.sizes)}")
        starts, arena_bytes = self._offsets(sizes.tolist(), plan.alignment)
        offset = values[self._pointer_offset] if len(self._pointer_offset) else np.zeros(0, "i8")
        manifest = self.manifest
        ends = np.array(
            [
                *sizes.tolist(),
                *map(_bytes, (t.dtype for t in manifest.inputs), binding.inputs),
                *map(_bytes, (t.dtype for t in manifest.outputs), binding.outputs),
                *map(
                    _bytes, (w.dtype for w in manifest.weights), (w.shape for w in manifest.weights)
                ),
            ],
            np.int64,
        )
        if len(offset) and ((offset < 0) | (offset > ends[self.pointer_slot])).any():
            bad = int(np.argmax((offset < 0) | (offset > ends[self.pointer_slot])))
            raise ArtifactError(
                f"pointer {bad} of the program lies {int(offset[bad])} bytes into a tensor of "
                f"{int(ends[self.pointer_slot[bad]])} for {dict(binding.sizes)}"
            )
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
            values[self._scalar_number] if len(self._scalar_number) else np.zeros(0, np.int64),
            tuple(map(tuple, inputs)),
            tuple(map(tuple, outputs)),
        )

    def arena(self, binding: Binding) -> tuple[int, int]:
        """(bytes of the arena, the largest number of bytes live during one launch)."""
        plan = self.variant.plan
        values = self._expressions.evaluate(binding.sizes)
        sizes = [values[i] for i in self._buffer_sizes]
        change: dict[int, int] = {}
        for size, buffer in zip(sizes, plan.buffers, strict=True):
            rounded = -(-size // plan.alignment) * plan.alignment
            change[buffer.first] = change.get(buffer.first, 0) + rounded
            change[buffer.last + 1] = change.get(buffer.last + 1, 0) - rounded
        live = bound = 0
        for step in sorted(change):
            live += change[step]
            bound = max(bound, live)
        return self._offsets(sizes, plan.alignment)[1], bound

    def _offsets(self, sizes: Sequence[int], alignment: int) -> tuple[list[int], int]:
        starts: list[int] = []
        ends: list[int] = []
        for size, buffer in zip(sizes, self.variant.plan.buffers, strict=True):
            start = max((ends[j] for j in buffer.after), default=0)
            starts.append(start)
            ends.append(start + -(-size // alignment) * alignment)
        total = max(ends, default=0)
        if total >= 1 << 62:
            raise ArtifactError(f"the arena would need {total} bytes")
        return starts, total


def _bytes(dtype: str, shape: Sequence[int]) -> int:
    return min(storage_bytes(dtype, shape), (1 << 63) - 1)
