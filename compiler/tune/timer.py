"""Times candidates on the GPU of this machine: a CUDA graph of many runs over rotating buffers.

Weights and activations of each run are others than those of the run before, together more than the
L2 holds, so that they come from memory as in a whole model.  Inputs are random; outputs are poisoned
and compared with the first candidate's, so that a fast but wrong kernel is never chosen.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed, Workspace
from graphwright.compiler.codegen.triton.build import Cubin
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.layout import storage_elements
from graphwright.compiler.ir.types import BOOL
from graphwright.compiler.passes.profit import typical_size
from graphwright.errors import GraphwrightError
from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.cuda_graph import Grid, Node, zero_bytes

COLD = 150e6  # bytes that pass between two uses of a buffer
MOST_SETS = 16
MOST_BYTES = 8e9  # of all buffers together
RUNS, REPLAYS = 24, 7  # runs in a graph; replays of which the median counts
COMPARED = 1 << 22  # bytes of each output
PATTERN = 1 << 22  # random elements, repeated
FARTHEST = {16: 1e-2, 32: 2e-3, 64: 1e-8}  # relative distance between candidates, by bits


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way: its text, and its launches with their compiled kernels."""

    text: str
    launches: tuple[tuple[EmittedLaunch, Cubin], ...]


class Timer(Protocol):
    """What times candidates; tests have one without a GPU."""

    device: str
    arch: str

    def measure(self, candidates: Sequence[Candidate]) -> list[float | str]:
        """Microseconds of each, or why it is refused.  The first is the reference."""
        ...


def candidate_bytes(value: Value) -> int:
    elements = typical_size(storage_elements(value.type.shape, value.type.layout))
    return -(-elements * value.type.dtype.bits // 8)


class CudaTimer:
    """The timer of a GPU of this machine.  Raises ArtifactError where there is none."""

    def __init__(self, index: int = 0) -> None:
        self._device = Device(index)
        with self._device.current():
            info = self._device.info()
        self.device, self.arch = info.name, info.arch

    def measure(self, candidates: Sequence[Candidate]) -> list[float | str]:
        out: list[float | str] = []
        with self._device.current(), _Buffers(self._device, candidates[0]) as buffers:
            reference: list[np.ndarray] | None = None
            for candidate in candidates:
                try:
                    time, results = self._run(candidate, buffers)
                    problem = "" if reference is None else _difference(results, reference, buffers)
                    reference = results if reference is None else reference
                    out.append(problem or time)
                except GraphwrightError as error:
                    out.append(str(error))
        return out

    def _run(self, candidate: Candidate, buffers: _Buffers) -> tuple[float, list[np.ndarray]]:
        device = self._device
        functions: dict[str, int] = {}
        modules: list[int] = []
        for _, cubin in candidate.launches:
            if cubin.kernel.name not in functions:
                module = device.load_module(cubin.image, cubin.kernel.name)
                modules.append(module)
                functions[cubin.kernel.name] = device.function(
                    module, cubin.kernel.name, cubin.kernel.shared_bytes
                )
        zeros = sum(zero_bytes(c.kernel) for _, c in candidate.launches)
        scratch = [
            sum(-(-typical_size(a.bytes) // 256) * 256 for a in launch.arguments
                if isinstance(a, Workspace))
            for launch, _ in candidate.launches
        ]  # fmt: skip
        extra = device.allocate(zeros + sum(scratch) + 256, "a candidate's scratch memory")
        graph = executable = 0
        try:
            device.fill(extra, 0, zeros + sum(scratch) + 256, buffers.stream)
            graph = device.create_graph()
            before: int | None = None
            kept: list[Node] = []
            for run in range(RUNS):
                at, free = extra, extra + zeros
                for launch, cubin in candidate.launches:
                    pointers: list[int] = []
                    for argument in launch.arguments:
                        if isinstance(argument, Workspace):
                            pointers.append(free)
                            free += -(-typical_size(argument.bytes) // 256) * 256
                        else:
                            assert isinstance(argument, Value)
                            pointers.append(buffers.address(run % buffers.sets, argument))
                    grid = [typical_size(g) for g in launch.grid] + [1, 1]
                    node = Node(
                        device, functions[cubin.kernel.name], cubin.kernel, Grid(*grid[:3]),
                        pointers, [typical_size(s) for s in launch.scalars],
                        first_pointer=0, zeros=at,
                    )  # fmt: skip
                    at += zero_bytes(cubin.kernel)
                    before = device.add_kernel_node(
                        graph, before, node.params, early=cubin.kernel.waits
                    )
                    kept.append(node)
            executable = device.instantiate(graph)
            buffers.poison()
            times: list[float] = []
            for _ in range(REPLAYS + 1):
                times.append(device.time_graph(executable, buffers.stream) / RUNS)
            return statistics.median(times[1:]), buffers.results()
        finally:
            device.synchronize_all()
            device.destroy_graph(graph, executable)
            for module in modules:
                device.unload_module(module)
            device.free(extra)


class _Buffers(AbstractContextManager["_Buffers"]):
    """The operands and results of a launch, several times over, on a device."""

    def __init__(self, device: Device, candidate: Candidate) -> None:
        self._device = device
        self.values: dict[Value, int] = {}  # offset in a set
        self.written: list[Value] = []
        end = 0
        for launch, _ in candidate.launches:
            for i, argument in enumerate(launch.arguments):
                if isinstance(argument, Packed):
                    raise GraphwrightError("packed weights are not timed")
                if isinstance(argument, Workspace):
                    continue
                if argument not in self.values:
                    self.values[argument] = end
                    end += -(-candidate_bytes(argument) // 256) * 256
                if i in launch.writes and argument not in self.written:
                    self.written.append(argument)
        self.set_bytes = max(end, 256)
        wanted = int(-(-COLD // self.set_bytes)) + 1
        self.sets = max(1, min(max(wanted, 2), MOST_SETS, int(MOST_BYTES // self.set_bytes)))
        self.base = self.stream = 0

    def __enter__(self) -> _Buffers:
        device = self._device
        self.stream = device.create_stream()
        self.base = device.allocate(self.set_bytes * self.sets, "buffers of timed kernels")
        device.fill(self.base, 0, self.set_bytes * self.sets, self.stream)
        patterns: dict[str, tuple[int, int]] = {}
        try:
            for number in range(self.sets):
                for value in self.values:
                    self._fill(number, value, patterns)
            device.synchronize(self.stream)
        finally:
            for address, _ in patterns.values():
                device.free(address)
        return self

    def __exit__(self, *error: object) -> None:
        self._device.synchronize_all()
        self._device.free(self.base)

    def address(self, number: int, value: Value) -> int:
        return self.base + number * self.set_bytes + self.values[value]

    def _fill(self, number: int, value: Value, patterns: dict[str, tuple[int, int]]) -> None:
        """Random floats and bools; integers stay 0, which is an index everywhere."""
        dtype = value.type.dtype
        if dtype.bits < 8 or not (dtype.is_float or dtype is BOOL):
            return
        device = self._device
        if dtype.name not in patterns:
            random = np.random.default_rng(7)
            numbers = random.standard_normal(PATTERN, np.float32) * 0.5
            array = (numbers > 0 if not dtype.is_float else numbers).astype(dtype.numpy)
            address = device.allocate(array.nbytes, "random numbers")
            device.upload(address, array.view(np.uint8), self.stream)
            device.synchronize(self.stream)
            patterns[dtype.name] = (address, array.nbytes)
        source, size = patterns[dtype.name]
        start, left = self.address(number, value), candidate_bytes(value)
        while left > 0:
            piece = min(left, size)
            device.copy(start, source, piece, self.stream)
            start, left = start + piece, left - piece

    def poison(self) -> None:
        """NaN in every float that is to be written."""
        for value in self.written:
            self._device.fill(self.address(0, value), 0xFF, candidate_bytes(value), self.stream)

    def results(self) -> list[np.ndarray]:
        """The head of each output of the first set."""
        out: list[np.ndarray] = []
        for value in self.written:
            array = np.empty(min(candidate_bytes(value), COMPARED), np.uint8)
            self._device.download(array, self.address(0, value), self.stream)
            out.append(array)
        self._device.synchronize(self.stream)
        return out


def _difference(got: Sequence[np.ndarray], want: Sequence[np.ndarray], buffers: _Buffers) -> str:
    """Why outputs are not those of the reference; empty when they are."""
    for value, a, b in zip(buffers.written, got, want, strict=True):
        dtype = value.type.dtype
        if dtype.bits < 8 or not dtype.is_float:
            if not np.array_equal(a, b):
                return "its results differ from the first candidate's"
            continue
        size = a.nbytes // dtype.bytes * dtype.bytes
        x, y = (v[:size].view(dtype.numpy).astype(np.float64) for v in (a, b))
        finite: Any = np.isfinite(y)
        if not np.array_equal(finite, np.isfinite(x)):
            return "its results are not finite where the first candidate's are"
        norm = float(np.linalg.norm(y[finite]))
        distance = float(np.linalg.norm(x[finite] - y[finite])) / (norm or 1.0)
        if distance > FARTHEST.get(dtype.bits, 1e-2):
            return f"its results are {distance:.1e} away from the first candidate's"
    return ""
