"""What native replay leaves to Python: sizes bound in mid-run, and checks that do not hold.

A bind launch calls back with its number.  Then the new sizes are read, everything of the segment
that they begin is calculated, its arena is placed (and grown, when it is too small), outputs that
were waiting for their shape are allocated, and the native tables are patched.  The replay goes on
where it was; control flow around the launch stays native.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from graphwright.errors import ArtifactError, InputError, ResourceError
from graphwright.runtime.binding import violated
from graphwright.runtime.manifest import Launch
from graphwright.runtime.program import Check, Placement, Program, check_pointers
from graphwright.runtime.weights import storage_bytes

# int32 (*)(int64 launch): not 0 ends the replay.
CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)


class Tables(Protocol):
    """The native tables of a replay."""

    pointers: np.ndarray
    scalars: np.ndarray


class Arena:
    """Anonymous memory that grows; its content is lost when it does."""

    def __init__(self) -> None:
        self.memory: mmap.mmap | None = None
        self.address, self.bytes = 0, 0

    def reserve(self, size: int) -> bool:
        """Makes the arena at least `size` bytes; whether it moved.  Raises ResourceError."""
        if size <= self.bytes:
            return False
        self.memory = None
        self.bytes = 0
        try:
            self.memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise ResourceError(f"an arena of {size} bytes cannot be allocated: {error}") from None
        if size >= 2 << 20 and hasattr(mmap, "MADV_HUGEPAGE"):
            with suppress(OSError):  # a kernel without transparent huge pages
                self.memory.madvise(mmap.MADV_HUGEPAGE)
        start = np.frombuffer(self.memory, np.uint8).__array_interface__["data"][0]
        self.address, self.bytes = int(start), size
        return True


class Memory(Protocol):
    """The memory that a program runs in, as steps between its kernels use it."""

    def read_int64(self, addresses: Sequence[int]) -> list[int]: ...

    def move(self, target: int, source: int, nbytes: int) -> None: ...

    def arena(self) -> Any:
        """Of `address`, `bytes` and `reserve`, as Arena."""
        ...


class HostMemory:
    """The process's own."""

    def read_int64(self, addresses: Sequence[int]) -> list[int]:
        return [ctypes.c_int64.from_address(a).value for a in addresses]

    def move(self, target: int, source: int, nbytes: int) -> None:
        ctypes.memmove(target, source, nbytes)

    def arena(self) -> Arena:
        return Arena()


class MidRun:
    """The part of one replay that is decided while it runs.

    `arenas` belongs to the context: (segment, side) -> arena.  A segment that is placed again while
    values of it are moved has two sides.
    """

    def __init__(
        self,
        program: Program,
        placement: Placement,
        tables: Tables,
        fixed: np.ndarray,
        arenas: dict[tuple[int, int], Any],
        allocate: Callable[[int, tuple[int, ...]], tuple[Any, int]],
        *,
        memory: Memory | None = None,
    ) -> None:
        """`fixed`: address of each slot, 0 for inputs and outputs; `allocate(output, shape)` makes
        an output and tells its address; `memory`: where all of these lie, None for the host's.
        """
        self._memory: Memory = HostMemory() if memory is None else memory
        self.program, self.tables, self._allocate = program, tables, allocate
        self._symbols = {s.name: s for s in program.manifest.symbols}
        self.sizes = dict(placement.binding.sizes)
        self._values = list(placement.values)
        self._addresses = fixed.copy()
        self._ends = np.zeros(len(fixed), np.int64)
        manifest = program.manifest
        first = program.buffers
        for i, (spec, shape) in enumerate(
            zip(manifest.inputs, placement.binding.inputs, strict=True), first
        ):
            self._ends[i] = storage_bytes(spec.dtype, shape)
        self._first_input, self._first_output = first, first + len(manifest.inputs)
        for i, spec in enumerate(manifest.weights, self._first_output + len(manifest.outputs)):
            self._ends[i] = storage_bytes(spec.dtype, spec.shape)
        _, sizes, _ = program.place_buffers(0, self._values, self.sizes)
        self._ends[:first] = sizes
        self._binds = bool(program.segment_of)
        self._arenas, self._side = arenas, dict.fromkeys(range(len(program.parts)), 0)
        self.outputs: dict[int, Any] = {}  # those that are allocated in mid-run
        self.error: BaseException | None = None
        self._callback = CALLBACK(self._on_launch)
        self.address = ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    def begin(self, inputs: Sequence[int], outputs: Sequence[int]) -> None:
        """A call starts, with its arrays at these addresses."""
        if not self._binds:  # checks alone look at no address
            self.error = None
            return
        self._addresses[self._first_input : self._first_output] = inputs
        self._addresses[self._first_output : self._first_output + len(outputs)] = outputs
        self.outputs, self.error = {}, None

    def finish(self) -> None:
        """The native replay stopped early: raises what a callback raised."""
        error, self.error = self.error, None
        raise error or ArtifactError("the native replay stopped in mid-run")

    def _on_launch(self, number: int) -> int:
        try:
            self.step(number)
        except BaseException as error:  # it travels around native code
            self.error = error
            return 1
        return 0

    def step(self, number: int) -> None:
        """Does a bind or check launch.  Raises InputError for sizes that break a promise."""
        launch = self.program.variant.launches[number]
        if launch.kind == "bind":
            self._bind(number, launch)
        else:
            for check in self.program.checks[number]:
                self._require(check)

    def _require(self, check: Check) -> None:
        if not check.holds(self._values):
            left, right = self._values[check.left], self._values[check.right]
            raise violated(check.constraint, left, right, self.sizes)

    def _bind(self, number: int, launch: Launch) -> None:
        program, pointers = self.program, self.tables.pointers
        start = program.pointer_start[number]
        moved = program.moved[number]
        sources = [int(pointers[start + m.source]) for m in launch.moves]
        lengths = [self._values[n] for n in moved]
        if launch.scalars:
            at = program.scalar_start[number]
            sizes = [int(n) for n in self.tables.scalars[at : at + len(launch.symbols)]]
        else:
            at = pointers[start : start + len(launch.symbols)].tolist()
            sizes = self._memory.read_int64(at)
        for name, size in zip(launch.symbols, sizes, strict=True):
            self._check_range(name, size, launch)
            self.sizes[name] = size
        segment = program.segment_of[launch.symbols[0]]
        kept = dict(self.outputs)  # old ones, until they have been moved
        program.evaluate(segment, self.sizes, self._values)
        for check in (*program.parts[segment].checks, *program.checks[number]):
            self._require(check)
        self._place(segment, number, launch)
        for move, source, length in zip(launch.moves, sources, lengths, strict=True):
            target = int(pointers[start + move.target])
            if length and source != target:
                self._memory.move(target, source, length)
        del kept

    def _check_range(self, name: str, size: int, launch: Launch) -> None:
        s = self._symbols[name]
        if not s.min <= size <= s.max or size % s.multiple_of:
            by = f", a multiple of {s.multiple_of}" if s.multiple_of != 1 else ""
            where = f" ({', '.join(launch.origins)})" if launch.origins else ""
            raise InputError(f"the data make {name} = {size}{where}, want {s.min} to {s.max}{by}")

    def _place(self, segment: int, number: int, launch: Launch) -> None:
        program, values = self.program, self._values
        part = program.parts[segment]
        flip, until = number in program.flips, program.turns.get(number)
        if part.buffers:
            starts, sizes, total = program.place_buffers(segment, values, self.sizes, until)
            if flip:
                self._side[segment] ^= 1
            arena = self._arenas.get((segment, self._side[segment]))
            if arena is None:
                arena = self._memory.arena()
                self._arenas[segment, self._side[segment]] = arena
            if total > arena.bytes:
                arena.reserve(total + total // 2 if flip else total)
            for b in part.buffers:
                self._addresses[b], self._ends[b] = arena.address + starts[b], sizes[b]
        for i in part.outputs:
            shape = tuple(values[n] for n in program.output_shapes[i])
            spec = program.manifest.outputs[i]
            if any(extent < 0 for extent in shape):
                if until is None:
                    raise InputError(f"output {spec.name!r} would have the shape {list(shape)}")
                continue  # a later turn, or the launch after the loop, makes it
            held = self.outputs.get(i)
            if held is not None and held.shape == shape and until is None and not launch.moves:
                continue  # sizes that a loop has ended with
            self.outputs[i], start = self._allocate(i, shape)
            slot = self._first_output + i
            self._addresses[slot], self._ends[slot] = start, storage_bytes(spec.dtype, shape)
        numbers = np.array(values, np.int64)
        below = None
        if until is not None and until + 1 < len(program.pointer_start):
            below = program.pointer_start[until + 1]
        check_pointers(part, numbers, self._ends, self.sizes, below)
        if len(part.pointers):
            self.tables.pointers[part.pointers] = (
                self._addresses[part.slots] + numbers[part.offsets]
            )
        if len(part.scalars):
            self.tables.scalars[part.scalars] = numbers[part.numbers]


def host_launches(program: Program, placement: Placement) -> list[int]:
    """The launches that must call back at a binding: all binds, and checks that do not hold or
    depend on sizes bound in mid-run.
    """
    out: list[int] = []
    for number, checks in program.checks.items():
        launch = program.variant.launches[number]
        known = not any(program.is_late(c) for c in checks)
        if launch.kind == "bind" or not known or not all(c.holds(placement.values) for c in checks):
            out.append(number)
    return out
