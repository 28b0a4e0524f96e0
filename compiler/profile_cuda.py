"""Times of a CUDA model's launches by events: what `profile_model` asks on a GPU.

A call replays graphs.  To time their kernels the pieces of a replay are launched one kernel after the
other with an event before and after each; the same pieces as graphs, between two events, give the
time of the whole.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from graphwright.runtime.cuda_driver import check
from graphwright.runtime.model import CompiledModel

Launch = Callable[[Sequence[int], int], None]


class DeviceTimes:
    """Seconds of one call on the device.  Not for use from several threads at a time."""

    def __init__(self, model: CompiledModel, feed: Mapping[str, Any]) -> None:
        """Runs the model once, so that there is something to replay."""
        self._model, self._feed = model, feed
        model.run_tensors(feed)
        executor: Any = model.executor
        self._device: Any = executor._device
        self._numbers = {int(p): n for n, p in reversed([*enumerate(executor.program.pointer_start)])
                         if n < len(executor.variant.launches)}  # fmt: skip
        self._pieces: list[Any] = [
            piece
            for context in executor.contexts()
            for replay in context.replays.values()
            for piece in replay.pieces.values()
        ]

    def launches(self) -> dict[int, float]:
        """{number of the launch: seconds}, of a call whose kernels are launched one by one."""
        spent: dict[int, float] = {}

        def each(piece: Any) -> Launch:
            def launch(addresses: Sequence[int], stream: int) -> None:
                # The parameters get this call's addresses; the graph has its own copy of them.
                piece._write(_own(piece, addresses))
                marks = [self._event(stream)]
                for node in piece.nodes:
                    node.launch(stream)
                    marks.append(self._event(stream))
                times = self._between(marks)
                for node, seconds in zip(piece.nodes, times, strict=True):
                    number = self._numbers[int(node.first_pointer)]
                    spent[number] = spent.get(number, 0.0) + seconds

            return launch

        self._run(each)
        return spent

    def whole(self) -> float:
        """Seconds of the graphs of one call, copies of inputs and outputs left out."""
        total = 0.0

        def graph(piece: Any) -> Launch:
            usual: Launch = type(piece).launch.__get__(piece)

            def launch(addresses: Sequence[int], stream: int) -> None:
                nonlocal total
                marks = [self._event(stream)]
                usual(addresses, stream)
                marks.append(self._event(stream))
                total += sum(self._between(marks))

            return launch

        self._run(graph)
        return total

    def _run(self, make: Callable[[Any], Launch]) -> None:
        for piece in self._pieces:
            piece.launch = make(piece)
        try:
            self._model.run_tensors(self._feed)
        finally:
            for piece in self._pieces:
                del piece.launch

    def _event(self, stream: int) -> int:
        event = ctypes.c_void_p()
        check("cuEventCreate", self._device.driver.cuEventCreate(ctypes.byref(event), 0))
        self._device.record_event(event.value or 0, stream)
        return event.value or 0

    def _between(self, marks: Sequence[int]) -> list[float]:
        """Seconds between one event and the next; waits for the last, destroys all."""
        driver = self._device.driver
        check("cuEventSynchronize", driver.cuEventSynchronize(marks[-1]))
        times: list[float] = []
        for before, after in pairwise(marks):
            took = ctypes.c_float()
            code = driver.cuEventElapsedTime(ctypes.byref(took), before, after)
            check("cuEventElapsedTime", code)
            times.append(1e-3 * took.value)
        for mark in marks:
            self._device.destroy_event(mark)
        return times


def _own(piece: Any, addresses: Sequence[int]) -> tuple[int, ...]:
    """The addresses that a piece uses, of all moving tensors or already only its own."""
    if len(addresses) == len(piece.used):
        return tuple(addresses)
    return tuple(addresses[i] for i in piece.used)
