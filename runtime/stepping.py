"""Runs a CPU model one launch at a time: for profiles and for finding the first wrong kernel.

The same launch records, kernels and pointers as in a normal call; only the loop around them is
Python's, so that somebody can look in between.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphwright.errors import InputError
from graphwright.runtime.executor import CpuExecutor
from graphwright.runtime.library import CALL_BACK, KINDS, LAUNCH
from graphwright.runtime.model import CompiledModel

Watcher = Callable[[int, Sequence[int]], None]
_CALL = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)


class Stepper:
    """One model that is run by steps.  Not for use from several threads at a time."""

    def __init__(self, model: CompiledModel) -> None:
        """Raises InputError for a model that does not run on the CPU."""
        executor = model.executor
        if not isinstance(executor, CpuExecutor):
            raise InputError(
                f"a model on {model.device} cannot be run by steps; load it on the CPU"
            )
        self.model, self._executor = model, executor
        self._pointers = [len(launch.pointers) for launch in executor.variant.launches]

    def run(
        self,
        feed: Mapping[str, Any],
        *,
        before: Watcher | None = None,
        after: Watcher | None = None,
        run_kernel: Callable[[int, Callable[[], int]], int] | None = None,
    ) -> dict[str, Any]:
        """The outputs by name.  `before` and `after` are told each launch that is a kernel: its
        number and the addresses of its pointers.  `run_kernel(number, call)` may wrap the call.
        """
        native = self._executor.library.replay

        def replay(address: int, count: int, pool: Any) -> int:
            records = _records(address, count)
            at = 0
            while at < count:
                record = records[at]
                kind, jump, p = int(record["kind"]), int(record["jump"]), int(record["p"])
                if kind == KINDS["kernel"]:
                    pointers = _words(p, self._pointers[at])
                    if before is not None:
                        before(at, pointers)
                    here = address + at * LAUNCH.itemsize

                    def call(here: int = here) -> int:
                        return native(here, 1, pool)

                    stopped = call() if run_kernel is None else run_kernel(at, call)
                    if stopped:
                        return stopped
                    if after is not None:
                        after(at, pointers)
                elif kind == KINDS["branch"]:
                    at += 0 if _bool(_words(p, 1)[0]) else jump
                elif kind == KINDS["loop"]:
                    counter, trips, again = _words(p, 3)
                    goes_on = _words(counter, 1)[0] < _words(trips, 1)[0] and _bool(again)
                    at += 0 if goes_on else jump
                elif kind == KINDS["next"]:
                    counter = ctypes.c_int64.from_address(_words(p, 1)[0])
                    counter.value += 1
                    at += jump
                elif kind == CALL_BACK:
                    if _CALL(int(record["fn"]))(at):
                        return 2
                else:
                    at += jump
                at += 1
            return 0

        self._executor.replay_with(replay)
        try:
            return self.model.run_tensors(feed)
        finally:
            self._executor.replay_with(native)


def read_memory(address: int, count: int, dtype: np.dtype) -> np.ndarray:
    """A copy of `count` elements at an address that is known to be readable."""
    size = count * dtype.itemsize
    if not size:
        return np.empty(0, dtype)
    return _array(address, size).view(dtype).copy()


def _records(address: int, count: int) -> np.ndarray:
    return _array(address, count * LAUNCH.itemsize).view(LAUNCH)


def _array(address: int, size: int) -> np.ndarray:
    """The bytes at an address, not copied."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_int64 * count).from_address(address)) if count else []


def _bool(address: int) -> bool:
    return bool(ctypes.c_uint8.from_address(address).value)
