"""A GPU as the executor needs it: memory, streams, modules, graphs; every return code is checked.

Nothing here knows a model.  Failures become ResourceError (out of memory, with the bytes asked for
and free) or ArtifactError naming the call and the driver's own words.  The driver's library is
loaded on first use, never by `import graphwright.runtime`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, ResourceError
from graphwright.runtime import cuda_library
from graphwright.runtime.cuda_library import (
    ATTRIBUTES,
    EVENT_DISABLE_TIMING,
    L2_PROMOTION_128B,
    MAP_BYTES,
    MAX_DYNAMIC_SHARED_BYTES,
    NO_BINARY_FOR_GPU,
    OUT_OF_MEMORY,
    PROGRAMMATIC_EDGE,
    PROGRAMMATIC_PORT,
    STREAM_NON_BLOCKING,
    EdgeData,
    KernelNodeParams,
    explain,
)


class CudaError(ArtifactError):
    """A driver call failed; `code` is the driver's number, `error` its name."""

    def __init__(self, call: str, code: int, error: str, detail: str) -> None:
        super().__init__(f"{call} failed: {error}: {detail}")
        self.code, self.error = code, error


def check(call: str, code: int) -> None:
    """Raises CudaError when the code that a driver call returned is not success."""
    if code:
        raise CudaError(call, code, *explain(cuda_library.driver_library(), code))


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """What matters about a device: name, compute capability (`sm_90`), multiprocessors, memory."""

    index: int
    name: str
    arch: str
    multiprocessors: int
    total_bytes: int


class Device:
    """One GPU through its primary context, which is shared with torch and cupy in this process."""

    def __init__(self, index: int = 0) -> None:
        d = self.driver = cuda_library.driver_library()
        count = c_int()
        check("cuDeviceGetCount", d.cuDeviceGetCount(byref(count)))
        if index >= count.value:
            raise ArtifactError(
                f"device cuda:{index} does not exist; this machine has {count.value}"
            )
        self.index = index
        handle = c_int()
        check("cuDeviceGet", d.cuDeviceGet(byref(handle), index))
        self.handle = handle.value
        self.context = self._handle("cuDevicePrimaryCtxRetain", self.handle)

    def _handle(self, call: str, *arguments: Any) -> int:
        """The handle that a call writes to its first parameter."""
        out = c_void_p()
        check(call, getattr(self.driver, call)(byref(out), *arguments))
        return out.value or 0

    def attribute(self, name: str) -> int:
        out = c_int()
        code = self.driver.cuDeviceGetAttribute(byref(out), ATTRIBUTES[name], self.handle)
        check("cuDeviceGetAttribute", code)
        return out.value

    def info(self) -> DeviceInfo:
        name = ctypes.create_string_buffer(256)
        check("cuDeviceGetName", self.driver.cuDeviceGetName(name, 256, self.handle))
        major = self.attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = self.attribute("COMPUTE_CAPABILITY_MINOR")
        total = c_size_t()
        check("cuDeviceTotalMem", self.driver.cuDeviceTotalMem_v2(byref(total), self.handle))
        return DeviceInfo(
            self.index,
            name.value.decode(),
            f"sm_{major}{minor}",
            self.attribute("MULTIPROCESSOR_COUNT"),
            total.value,
        )

    def enter(self) -> int | None:
        """Makes the primary context current on the calling thread.  Returns what `leave` takes."""
        before = c_void_p()
        check("cuCtxGetCurrent", self.driver.cuCtxGetCurrent(byref(before)))
        if before.value == self.context:
            return None
        check("cuCtxSetCurrent", self.driver.cuCtxSetCurrent(self.context))
        return before.value or 0

    def leave(self, before: int | None) -> None:
        """Makes the context current that was before `enter`: another device may be the caller's."""
        if before:
            check("cuCtxSetCurrent", self.driver.cuCtxSetCurrent(before))

    @contextmanager
    def current(self) -> Generator[None, None, None]:
        """As `enter` and `leave`."""
        before = self.enter()
        try:
            yield
        finally:
            self.leave(before)

    # -- memory

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
        free, total = c_size_t(), c_size_t()
        check("cuMemGetInfo", self.driver.cuMemGetInfo_v2(byref(free), byref(total)))
        return free.value, total.value

    def allocate(self, nbytes: int, what: str, stream: int | None = None) -> int:
        """A device address of at least `nbytes` bytes, aligned to 256; from the driver's pool, in
        order on the stream, when one is given.  Raises ResourceError.
        """
        out = c_uint64()
        if stream is None:
            code = self.driver.cuMemAlloc_v2(byref(out), max(nbytes, 1))
        else:
            code = self.driver.cuMemAllocAsync(byref(out), max(nbytes, 1), stream)
        if code == OUT_OF_MEMORY:
            free, total = self.memory()
            raise ResourceError(
                f"{what}: {nbytes:,} bytes asked for on cuda:{self.index}, "
                f"{free:,} of {total:,} are free"
            )
        check("cuMemAlloc" if stream is None else "cuMemAllocAsync", code)
        return out.value

    def free(self, address: int, stream: int | None = None) -> None:
        """Gives memory back; to the pool, in order on the stream, when it came from there."""
        if stream is None:
            check("cuMemFree", self.driver.cuMemFree_v2(address))
        else:
            check("cuMemFreeAsync", self.driver.cuMemFreeAsync(address, stream))

    def upload(self, address: int, array: np.ndarray, stream: int = 0) -> None:
        """Copies a contiguous host array to the device, in order on the stream."""
        if array.nbytes:
            code = self.driver.cuMemcpyHtoDAsync_v2(
                address, array.ctypes.data, array.nbytes, stream
            )
            check("cuMemcpyHtoDAsync", code)

    def download(self, array: np.ndarray, address: int, stream: int = 0) -> None:
        """Copies device memory into a contiguous host array, in order on the stream."""
        if array.nbytes:
            code = self.driver.cuMemcpyDtoHAsync_v2(
                array.ctypes.data, address, array.nbytes, stream
            )
            check("cuMemcpyDtoHAsync", code)

    def copy(self, target: int, source: int, nbytes: int, stream: int = 0) -> None:
        """Copies within the device, in order on the stream."""
        if nbytes:
            code = self.driver.cuMemcpyDtoDAsync_v2(target, source, nbytes, stream)
            check("cuMemcpyDtoDAsync", code)

    def fill(self, address: int, byte: int, nbytes: int, stream: int = 0) -> None:
        if nbytes:
            code = self.driver.cuMemsetD8Async(address, byte, nbytes, stream)
            check("cuMemsetD8Async", code)

    def write_int64(self, address: int, value: int, stream: int = 0) -> None:
        """Writes one number, in order on the stream; the host need not keep it."""
        for half in range(2):
            word = value >> 32 * half & 0xFFFFFFFF
            code = self.driver.cuMemsetD32Async(address + 4 * half, word, 1, stream)
            check("cuMemsetD32Async", code)

    # -- streams

    def create_stream(self) -> int:
        return self._handle("cuStreamCreate", STREAM_NON_BLOCKING)

    def create_event(self) -> int:
        return self._handle("cuEventCreate", EVENT_DISABLE_TIMING)

    def destroy_event(self, event: int) -> None:
        """What waits for it goes on waiting."""
        check("cuEventDestroy", self.driver.cuEventDestroy_v2(event))

    def record_event(self, event: int, stream: int) -> None:
        check("cuEventRecord", self.driver.cuEventRecord(event, stream))

    def wait_event(self, stream: int, event: int) -> None:
        """Later work on the stream starts after the event."""
        check("cuStreamWaitEvent", self.driver.cuStreamWaitEvent(stream, event, 0))

    def synchronize(self, stream: int) -> None:
        check("cuStreamSynchronize", self.driver.cuStreamSynchronize(stream))

    def synchronize_all(self) -> None:
        """Waits for everything that was enqueued on this device."""
        check("cuCtxSynchronize", self.driver.cuCtxSynchronize())

    # -- graphs

    def create_graph(self) -> int:
        return self._handle("cuGraphCreate", 0)

    def add_kernel_node(
        self, graph: int, before: int | None, params: KernelNodeParams, *, early: bool
    ) -> int:
        """A node after `before`; `early`: it may start while that one runs, it waits by itself."""
        d = self.driver
        depends = c_void_p(before)
        count = 0 if before is None or early else 1
        node = self._handle(
            "cuGraphAddKernelNode_v2", graph, byref(depends) if count else None, count,
            byref(params),
        )  # fmt: skip
        if early and before is not None:
            edge = EdgeData(PROGRAMMATIC_PORT, 0, PROGRAMMATIC_EDGE)
            after = c_void_p(node)
            code = d.cuGraphAddDependencies_v2(graph, byref(depends), byref(after), byref(edge), 1)
            check("cuGraphAddDependencies", code)
        return node

    def instantiate(self, graph: int) -> int:
        """Raises ResourceError with the bytes that are free when memory is short."""
        out = c_void_p()
        code = self.driver.cuGraphInstantiateWithFlags(byref(out), graph, 0)
        if code == OUT_OF_MEMORY:
            free, total = self.memory()
            raise ResourceError(
                f"a CUDA graph cannot be instantiated on cuda:{self.index}: "
                f"{free:,} of {total:,} bytes are free"
            )
        check("cuGraphInstantiate", code)
        return out.value or 0

    def time_graph(self, executable: int, stream: int) -> float:
        """Microseconds of one launch of an instantiated graph, by events; waits for it."""
        events = [self._handle("cuEventCreate", 0) for _ in range(2)]
        self.record_event(events[0], stream)
        check("cuGraphLaunch", self.driver.cuGraphLaunch(executable, stream))
        self.record_event(events[1], stream)
        check("cuEventSynchronize", self.driver.cuEventSynchronize(events[1]))
        took = c_float()
        check("cuEventElapsedTime", self.driver.cuEventElapsedTime(byref(took), *events))
        for event in events:
            self.destroy_event(event)
        return 1e3 * took.value

    def destroy_graph(self, graph: int, executable: int) -> None:
        """Frees a graph and what was instantiated of it, where they are not 0."""
        if executable:
            check("cuGraphExecDestroy", self.driver.cuGraphExecDestroy(executable))
        if graph:
            check("cuGraphDestroy", self.driver.cuGraphDestroy(graph))

    def encode(self, made: TensorMap, address: int) -> bytes:
        """The 128 bytes of a tensor map over memory at `address`, a multiple of 16."""
        rank = len(made.box)
        room = AlignedBytes(bytes(MAP_BYTES))

        def numbers(kind: type[c_uint64 | c_uint32], values: Sequence[int]) -> Any:
            return (kind * max(len(values), 1))(*values)

        code = self.driver.cuTensorMapEncodeTiled(
            room.address, made.kind, rank, address,
            numbers(c_uint64, made.shape[::-1]),
            numbers(c_uint64, [n * made.bytes for n in made.strides[-2::-1]]),
            numbers(c_uint32, made.box[::-1]),
            numbers(c_uint32, [1] * rank),
            0, made.swizzle, L2_PROMOTION_128B, 0,
        )  # fmt: skip
        check("cuTensorMapEncodeTiled", code)
        return room.value

    # -- modules and launches

    def load_module(self, image: bytes, what: str) -> int:
        """Loads a cubin, fatbin or PTX text.  Raises ArtifactError naming `what`."""
        try:
            return self._handle("cuModuleLoadData", image)
        except CudaError as e:
            hint = ""
            if e.code == NO_BINARY_FOR_GPU:
                hint = f"; this device is {self.info().arch}"
            raise ArtifactError(f"{what} cannot be loaded on cuda:{self.index}: {e}{hint}") from e

    def unload_module(self, module: int) -> None:
        """Nothing of it may be running."""
        check("cuModuleUnload", self.driver.cuModuleUnload(module))

    def function(self, module: int, name: str, shared_bytes: int = 0) -> int:
        """A kernel of a module, allowed the dynamic shared memory that it needs."""
        function = self._handle("cuModuleGetFunction", module, name.encode())
        if shared_bytes > 48 * 1024:
            code = self.driver.cuFuncSetAttribute(function, MAX_DYNAMIC_SHARED_BYTES, shared_bytes)
            check("cuFuncSetAttribute", code)
        return function


@dataclass(frozen=True, slots=True)
class TensorMap:
    """What a tensor map says beside the address.  Row-major: the last axis has stride 1.

    `kind` and `swizzle` as the driver numbers them; `bytes` of an element; `strides` in elements.
    """

    kind: int
    bytes: int
    swizzle: int
    box: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class AlignedBytes:
    """128 bytes at a multiple of 64, as a tensor map must lie."""

    def __init__(self, value: bytes) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + 64)
        self.address = -(-ctypes.addressof(self._memory) // 64) * 64
        self.value = value

    @property
    def value(self) -> bytes:
        return ctypes.string_at(self.address, MAP_BYTES)

    @value.setter
    def value(self, data: bytes) -> None:
        ctypes.memmove(self.address, data, MAP_BYTES)
