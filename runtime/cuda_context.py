"""What one call in flight on a GPU needs: a stream, an arena, staging for host arrays, replays."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.cuda_replay import Replay

Shapes = tuple[tuple[int, ...], ...]
CACHED_BINDINGS = 16
HOST = -1  # in place of the caller's stream: the arrays lie on the host


class Context:
    """Serves one call at a time.  Calls of several threads, or on several streams, have one each."""

    def __init__(self, device: Device) -> None:
        self.device, self.stream = device, device.create_stream()
        self.last_stream: int | None = None  # where the last call was enqueued
        self.arena_address = self.arena_bytes = self._zeros = 0
        self.later: dict[tuple[int, int], Any] = {}  # arenas of segments bound in mid-run
        self.staging: dict[tuple[str, int], tuple[int, int]] = {}  # (side, index): address, bytes
        self.replays: OrderedDict[Shapes, Replay] = OrderedDict()
        self.kept: set[Shapes] = set()  # replays that are never dropped: the buckets
        self._done: int | None = None  # an event, once calls have come on more than one stream

    def follow(self, stream: int) -> None:
        """Makes work enqueued on `stream` wait for this context's last call on another one."""
        if self.last_stream == stream:
            return
        if self.last_stream is not None:
            if self._done is None:  # an event of a call costs as much as half its launch
                self.device.synchronize_all()
                self._done = self.device.create_event()
            else:
                self.device.wait_event(stream, self._done)
        self.last_stream = stream

    def finish(self, stream: int) -> None:
        """A call has been enqueued on `stream`."""
        if self._done is not None:
            self.device.record_event(self._done, stream)

    def reserve(self, size: int) -> None:
        """Makes the arena at least `size` bytes; replays of a smaller one are dropped."""
        if size <= self.arena_bytes:
            return
        if self.arena_address:
            self.device.synchronize_all()
            for replay in self.replays.values():
                replay.close()
            self.replays.clear()
            self.kept.clear()
            self.device.free(self.arena_address)
            self.arena_address = self.arena_bytes = 0
        self.arena_address = self.device.allocate(size, "the arena")
        self.arena_bytes = size

    def keep(self, shapes: Shapes, replay: Replay, *, always: bool) -> None:
        """Keeps a replay; of those that are not kept always, the least recently used goes."""
        self.replays[shapes] = replay
        if always:
            self.kept.add(shapes)
        others = [s for s in self.replays if s not in self.kept]
        for old in others[: max(len(others) - CACHED_BINDINGS, 0)]:
            self.device.synchronize_all()
            self.replays.pop(old).close()

    def zeros(self, size: int) -> int:
        """Device memory that kernels find zero and leave zero, shared by the bindings: the calls of
        a context run one after the other.
        """
        if size and not self._zeros:
            self._zeros = self.device.allocate(size, "counters")
            self.device.fill(self._zeros, 0, size, self.stream)
            self.device.synchronize(self.stream)
        return self._zeros

    def stage(self, side: str, index: int, size: int) -> int:
        """Device memory for one host input or output, kept for the next call."""
        address, capacity = self.staging.get((side, index), (0, 0))
        if size > capacity or not address:
            if address:
                self.device.synchronize_all()
                self.device.free(address)
            address = self.device.allocate(size, f"{side} {index}")
            self.staging[side, index] = address, size
        return address
