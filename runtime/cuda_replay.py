"""A program at one binding on a GPU: graphs of kernels, and on the host what steps between them.

Without control flow a replay is one graph.  Branches, loops and sizes bound in mid-run split it: the
host follows the launches, reads the one bool or number that decides (and nothing else) from the
device, and replays the graph of each stretch in between.  Kernels whose sizes are bound in mid-run
are launched one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.cuda_graph import Grid, Mover, Node, Piece, zero_bytes
from graphwright.runtime.expressions import evaluate_expression, symbols_in
from graphwright.runtime.manifest import Launch
from graphwright.runtime.mid_run import MidRun
from graphwright.runtime.program import Placement, Program


class DeviceArena:
    """Device memory that grows; its content is lost when it does."""

    def __init__(self, device: Device, what: str) -> None:
        self._device, self._what = device, what
        self.address = self.bytes = 0

    def reserve(self, size: int) -> bool:
        """Makes it at least `size` bytes; whether it moved.  Raises ResourceError."""
        if size <= self.bytes:
            return False
        if self.address:
            self._device.synchronize_all()
            self._device.free(self.address)
            self.address = self.bytes = 0
        self.address = self._device.allocate(size, self._what)
        self.bytes = size
        return True


class DeviceMemory:
    """What a step between kernels may do: read a few numbers, copy, reserve.  In order on `stream`."""

    def __init__(self, device: Device) -> None:
        self._device, self.stream = device, 0
        self._words = np.zeros(8, np.int64)

    def read(self, addresses: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Little-endian numbers of these bytes, after everything before them has run."""
        if len(addresses) > len(self._words):
            self._words = np.zeros(len(addresses), np.int64)
        words = self._words
        words[:] = 0
        for i, (address, size) in enumerate(zip(addresses, sizes, strict=True)):
            self._device.download(words[i : i + 1].view(np.uint8)[:size], address, self.stream)
        self._device.synchronize(self.stream)
        return words[: len(addresses)].tolist()

    def read_int64(self, addresses: Sequence[int]) -> list[int]:
        return self.read(addresses, [8] * len(addresses))

    def move(self, target: int, source: int, nbytes: int) -> None:
        self._device.copy(target, source, nbytes, self.stream)

    def arena(self) -> DeviceArena:
        return DeviceArena(self._device, "an arena of sizes bound in mid-run")


def late_launches(program: Program) -> set[int]:
    """The kernels that need a pointer, scalar or grid that is known only in mid-run."""
    late: set[int] = set()
    names = set(program.segment_of)
    for starts, places in (
        (program.pointer_start, [p.pointers for p in program.parts[1:]]),
        (program.scalar_start, [p.scalars for p in program.parts[1:]]),
    ):
        for at in places:
            # Several launches may start at one place; the last of them has the entry.
            late.update((np.searchsorted(starts, at, side="right") - 1).tolist())
    for i, launch in enumerate(program.variant.launches):
        if any(symbols_in(g) & names for g in launch.grid):
            late.add(i)
    return {i for i in late if program.variant.launches[i].kind == "kernel"}


class Replay:
    """One binding in one context."""

    def __init__(
        self,
        device: Device,
        program: Program,
        placement: Placement,
        fixed: np.ndarray,
        functions: Sequence[int],
        zeros: int,
        *,
        arenas: dict[tuple[int, int], Any],
        captured: bool = True,
    ) -> None:
        """`fixed`: address of each slot, 0 for inputs and outputs; `zeros`: memory of counters;
        `arenas`: see MidRun.  `make_late` is set before each run: it makes an output whose shape is
        bound in mid-run, and tells its address.
        Not `captured`: all kernels are launched one by one.
        """
        self.captured = captured
        self.make_late: Callable[[int, tuple[int, ...]], tuple[Any, int]] | None = None
        self.device, self.placement, self._program = device, placement, program
        self.pointers = fixed[program.pointer_slot] + placement.offset
        self.scalars = placement.scalars
        self._functions = functions
        variant = program.variant
        self._zeros: list[int] = []
        for launch in variant.launches:
            self._zeros.append(zeros)
            if launch.kind == "kernel":
                zeros += zero_bytes(variant.kernels[launch.kernel])
        self.memory = DeviceMemory(device)
        moving = [*placement.inputs, *placement.outputs]
        self._patches = [
            (i, p.position, p.offset) for i, patches in enumerate(moving) for p in patches
        ]
        self._late: dict[int, Node | None] = dict.fromkeys(late_launches(program))
        self.mid_run: MidRun | None = None
        if program.checks:
            self.mid_run = MidRun(
                program, placement, self, fixed, arenas, self._allocate, memory=self.memory
            )
        self.pieces = self._cut()
        self.only: Piece | None = None  # all of it, as one graph
        if captured and self.is_whole:
            self.only = next(iter(self.pieces.values()), Piece(device, (), {}))

    def _allocate(self, index: int, shape: tuple[int, ...]) -> tuple[Any, int]:
        assert self.make_late is not None
        return self.make_late(index, shape)

    @property
    def is_whole(self) -> bool:
        """Whether no step between kernels is the host's."""
        return all(step.kind == "kernel" for step in self._program.variant.launches)

    def _cut(self) -> dict[int, Piece]:
        """{first launch: piece}: stretches of kernels that nothing jumps into."""
        launches = self._program.variant.launches
        targets = {i + 1 + s.jump for i, s in enumerate(launches) if s.kind != "kernel"}
        pieces: dict[int, Piece] = {}
        self._ends: dict[int, int] = {}
        start = 0
        while start < len(launches):
            end = start
            while (
                end < len(launches)
                and launches[end].kind == "kernel"
                and end not in self._late
                and (end == start or end not in targets)
            ):
                end += 1
            if end > start:
                pieces[start], self._ends[start] = self._piece(range(start, end)), end
            start = max(end, start + 1)
        return pieces

    def _piece(self, which: range) -> Piece:
        nodes = [n for n in map(self._node, which) if n is not None]
        by_position: dict[int, list[tuple[Node, int]]] = {}
        for node in nodes:
            for parameter, number in node.places:
                by_position.setdefault(node.first_pointer + number, []).append((node, parameter))
        movers: dict[int, list[Mover]] = {}
        for i, position, offset in self._patches:
            for node, parameter in by_position.get(position, ()):
                made = node.made.get(parameter)
                movers.setdefault(i, []).append(Mover(node, parameter, offset, made))
        return Piece(self.device, nodes, movers)

    def _node(self, number: int) -> Node | None:
        """A launch's node with what the tables say now; None when its grid is empty."""
        program = self._program
        launch = program.variant.launches[number]
        grid = self._grid(launch)
        if grid is None:
            return None  # a tensor without elements
        kernel = program.variant.kernels[launch.kernel]
        return Node(
            self.device, self._functions[launch.kernel], kernel, grid,
            *self._arguments(number, launch),
            first_pointer=program.pointer_start[number], zeros=self._zeros[number],
        )  # fmt: skip

    def _arguments(self, number: int, launch: Launch) -> tuple[list[int], list[int]]:
        first, scalar = self._program.pointer_start[number], self._program.scalar_start[number]
        return (
            self.pointers[first : first + len(launch.pointers)].tolist(),
            self.scalars[scalar : scalar + len(launch.scalars)].tolist(),
        )

    def _grid(self, launch: Launch) -> Grid | None:
        sizes: Mapping[str, int] = self.placement.binding.sizes
        if self.mid_run is not None:
            sizes = self.mid_run.sizes
        grid = [evaluate_expression(g, sizes) for g in launch.grid]
        if 0 in grid:
            return None
        return Grid(*grid, *[1] * (3 - len(grid)))

    # -- running

    def run(self, addresses: Sequence[int], stream: int) -> None:
        """Enqueues everything with inputs and outputs at these addresses."""
        if self.only is not None:
            self.only.launch(addresses, stream)
        else:
            self._step(addresses, stream)

    def _step(self, addresses: Sequence[int], stream: int) -> None:
        for i, position, offset in self._patches:
            self.pointers[position] = addresses[i] + offset
        self.memory.stream = stream
        program, mid_run = self._program, self.mid_run
        launches = program.variant.launches
        if mid_run is not None:
            split = len(self.placement.inputs)
            mid_run.begin(addresses[:split], addresses[split:])
        counters: dict[int, list[int]] = {}  # of a loop that runs: counter and trips
        at, back = 0, False
        while at < len(launches):
            launch = launches[at]
            piece = self.pieces.get(at)
            if piece is not None:
                (piece.launch if self.captured else piece.launch_one_by_one)(addresses, stream)
                at = self._ends[at]
            elif launch.kind == "kernel":
                self._launch_late(at, launch, stream)
                at += 1
            elif launch.kind == "branch":
                (taken,) = self.memory.read(self._pointers(at, 1), [1])
                at += 1 if taken else 1 + launch.jump
            elif launch.kind == "loop":
                at = self._loop(at, launch, counters, back)
            elif launch.kind == "next":
                (counter,) = self._pointers(at, 1)
                at += 1 + launch.jump
                counters[at][0] += 1
                self.device.write_int64(counter, counters[at][0], stream)
                back = True
                continue
            else:
                if mid_run is not None and launch.kind in ("bind", "check"):
                    mid_run.step(at)
                at += 1 + (launch.jump if launch.kind == "jump" else 0)
            back = False

    def _loop(self, at: int, launch: Launch, counters: dict[int, list[int]], back: bool) -> int:
        """Where to go on.  The counter and the trips are read once; the condition every time."""
        counter, trips, again = self._pointers(at, 3)
        if back:
            (goes_on,) = self.memory.read([again], [1])
        else:
            first, most, goes_on = self.memory.read([counter, trips, again], [8, 8, 1])
            counters[at] = [first, most]
        done, most = counters[at]
        return at + 1 if done < most and goes_on else at + 1 + launch.jump

    def _pointers(self, number: int, count: int) -> list[int]:
        first = self._program.pointer_start[number]
        return self.pointers[first : first + count].tolist()

    def _launch_late(self, number: int, launch: Launch, stream: int) -> None:
        grid = self._grid(launch)
        if grid is None:
            return
        node = self._late[number]
        if node is None:
            node = self._late[number] = self._node(number)
            assert node is not None
        else:
            node.refresh(grid, *self._arguments(number, launch))
        node.launch(stream)

    def close(self) -> None:
        """Frees the graphs; nothing of them may be running."""
        for piece in self.pieces.values():
            piece.close()
