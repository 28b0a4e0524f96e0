"""State of a model on a GPU: tensors that stay there between calls and that kernels write in place.

A state whose new value may lie where the old one does (`in_place` of the manifest's output) has one
buffer, another one two that change places after each call.  Nothing is copied in a call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graphwright.errors import InputError
from graphwright.runtime.calling import write_back
from graphwright.runtime.cuda_executor import CudaExecutor
from graphwright.runtime.device_arrays import StateArray


class DeviceState:
    """The state of one model; its calls come one after the other."""

    def __init__(
        self, executor: CudaExecutor, states: Mapping[str, int], updates: Mapping[int, int]
    ) -> None:
        """`states`: name to input; `updates`: output to the input that it is the new value of."""
        self._executor, self._states = executor, states
        outputs = executor.artifact.manifest.outputs
        self._updates, self._outputs = updates, len(outputs)
        self._in_place = {o for o, i in self._updates.items() if outputs[o].in_place == i}
        self._now: dict[int, StateArray] = {}
        self._spare: dict[int, StateArray] = {}

    def call(self, given: list[Any]) -> list[Any]:
        """A call with the state in `given`'s gaps; then the new values are the current ones, and
        arguments that the model changes hold theirs.
        """
        if len(self._now) < len(self._states):
            for name in self._states:
                self.set(name, None)
        for i, array in self._now.items():
            given[i] = array
        out: list[Any] = [None] * self._outputs
        for o, i in self._updates.items():
            if i in self._now:
                out[o] = self._now[i] if o in self._in_place else self._spare[i]
            elif o in self._in_place and not isinstance(given[i], np.ndarray):
                out[o] = given[i]  # the caller's array, written where it lies
        results = self._executor.call(given, out)
        for o, i in self._updates.items():
            if i not in self._now:
                _write_back(given[i], results[o], self._executor.artifact.manifest.inputs[i].name)
            elif o not in self._in_place:
                self._now[i], self._spare[i] = self._spare[i], self._now[i]
        return results

    def get(self, name: str) -> np.ndarray:
        """A copy of a state on the host."""
        i = self._states[name]
        found = self._now.get(i)
        if found is None:
            return np.array(self._executor.default(i))
        return self._executor.read_state(found)

    def set(self, name: str, value: np.ndarray | None) -> None:
        """Gives a state a value, None for its first one.  Raises InputError for another shape."""
        i, executor = self._states[name], self._executor
        first = executor.default(i)
        value = first if value is None else np.ascontiguousarray(value)
        if value.shape != first.shape or value.dtype != first.dtype:
            raise InputError(
                f"state {name!r} is {value.dtype}{list(value.shape)}, want "
                f"{first.dtype}{list(first.shape)}"
            )
        if i not in self._now:
            self._now[i] = executor.state_array(first.shape, first.dtype, f"state {name!r}")
            if not all(o in self._in_place for o, j in self._updates.items() if j == i):
                self._spare[i] = executor.state_array(first.shape, first.dtype, f"state {name!r}")
        executor.fill_state(self._now[i], value)


def _write_back(target: Any, value: Any, name: str) -> None:
    if value is target:
        return
    if hasattr(target, "copy_") and hasattr(value, "data_ptr"):  # tensors of torch
        target.copy_(value)
    else:
        write_back(target, value, name)
