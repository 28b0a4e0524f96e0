"""The CUDA driver API as the executor needs it: a few checked calls over `cuda.bindings`.

Nothing here knows a model.  Every call checks its return code; failures become ResourceError (out
of memory, with the bytes asked for and free) or ArtifactError naming the call and the driver's
own words.  The bindings are imported on first use, never by `import graphwright.runtime`.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphwright.errors import ArtifactError, ResourceError


@functools.cache
def _driver() -> Any:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as e:
        raise ArtifactError(
            "running on a CUDA device needs the cuda-bindings package: "
            f"pip install 'graphwright[cuda]' ({e})"
        ) from e


MAP_BYTES = 128  # of an encoded tensor map


class CudaError(ArtifactError):
    """A driver call failed; `code` is the driver's error name."""

    def __init__(self, call: str, code: str, detail: str) -> None:
        super().__init__(f"{call} failed: {code}: {detail}")
        self.code = code


def check(call: str, result: tuple[Any, ...]) -> Any:
    """The values of a driver call's result tuple.  Raises CudaError when its code is not success."""
    code, *values = result
    driver = _driver()
    if code != driver.CUresult.CUDA_SUCCESS:
        _, text = driver.cuGetErrorString(code)
        raise CudaError(call, code.name, text.decode() if text else "no description")
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


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
        d = self.driver = _driver()
        try:
            check("cuInit", d.cuInit(0))
        except RuntimeError as e:  # the bindings cannot find the driver's library
            raise ArtifactError(f"this machine has no NVIDIA driver: {e}") from e
        count = check("cuDeviceGetCount", d.cuDeviceGetCount())
        if index >= count:
            raise ArtifactError(f"device cuda:{index} does not exist; this machine has {count}")
        self.index = index
        self.handle = check("cuDeviceGet", d.cuDeviceGet(index))
        self.context = check("cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain(self.handle))

    def attribute(self, name: str) -> int:
        which = getattr(self.driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(
            check("cuDeviceGetAttribute", self.driver.cuDeviceGetAttribute(which, self.handle))
        )

    def info(self) -> DeviceInfo:
        name = check("cuDeviceGetName", self.driver.cuDeviceGetName(256, self.handle))
        major = self.attribute("COMPUTE_CAPABILITY_MAJOR")
        minor = self.attribute("COMPUTE_CAPABILITY_MINOR")
        total = check("cuDeviceTotalMem", self.driver.cuDeviceTotalMem(self.handle))
        return DeviceInfo(
            self.index,
            name.split(b"\0")[0].decode(),
            f"sm_{major}{minor}",
            self.attribute("MULTIPROCESSOR_COUNT"),
            int(total),
        )

    def make_current(self) -> None:
        """Makes the primary context current on the calling thread."""
        check("cuCtxSetCurrent", self.driver.cuCtxSetCurrent(self.context))

    # -- memory

    def allocate(self, nbytes: int, what: str) -> int:
        """A device address of at least `nbytes` bytes, aligned to 256.  Raises ResourceError."""
        try:
            return int(check("cuMemAlloc", self.driver.cuMemAlloc(max(nbytes, 1))))
        except CudaError as e:
            if e.code != "CUDA_ERROR_OUT_OF_MEMORY":
                raise
            free, total = check("cuMemGetInfo", self.driver.cuMemGetInfo())
            raise ResourceError(
                f"{what}: {nbytes:,} bytes asked for on cuda:{self.index}, "
                f"{int(free):,} of {int(total):,} are free"
            ) from e

    def free(self, address: int) -> None:
        check("cuMemFree", self.driver.cuMemFree(address))

    def upload(self, address: int, array: np.ndarray, stream: Any = 0) -> None:
        """Copies a contiguous host array to the device, in order on the stream."""
        if array.nbytes:
            check(
                "cuMemcpyHtoDAsync",
                self.driver.cuMemcpyHtoDAsync(address, array.ctypes.data, array.nbytes, stream),
            )

    def download(self, array: np.ndarray, address: int, stream: Any = 0) -> None:
        """Copies device memory into a contiguous host array, in order on the stream."""
        if array.nbytes:
            check(
                "cuMemcpyDtoHAsync",
                self.driver.cuMemcpyDtoHAsync(array.ctypes.data, address, array.nbytes, stream),
            )

    def fill(self, address: int, byte: int, nbytes: int, stream: Any = 0) -> None:
        if nbytes:
            check("cuMemsetD8Async", self.driver.cuMemsetD8Async(address, byte, nbytes, stream))

    # -- streams

    def create_stream(self) -> Any:
        flag = self.driver.CUstream_flags.CU_STREAM_NON_BLOCKING
        return check("cuStreamCreate", self.driver.cuStreamCreate(flag))

    def create_event(self) -> Any:
        flag = self.driver.CUevent_flags.CU_EVENT_DISABLE_TIMING
        return check("cuEventCreate", self.driver.cuEventCreate(flag))

    def record_event(self, event: Any, stream: Any) -> None:
        check("cuEventRecord", self.driver.cuEventRecord(event, stream))

    def wait_event(self, stream: Any, event: Any) -> None:
        """Later work on the stream starts after the event."""
        check("cuStreamWaitEvent", self.driver.cuStreamWaitEvent(stream, event, 0))

    def synchronize(self, stream: Any) -> None:
        check("cuStreamSynchronize", self.driver.cuStreamSynchronize(stream))

    # -- graphs

    def add_programmatic_edge(self, graph: Any, before: Any, after: Any) -> None:
        """`after` may start while `before` runs: it waits by itself."""
        d = self.driver
        edge = d.CUgraphEdgeData()
        edge.from_port = int(d.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
        edge.type = int(d.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC)
        add = getattr(d, "cuGraphAddDependencies_v2", d.cuGraphAddDependencies)
        check("cuGraphAddDependencies", add(graph, [before], [after], [edge], 1))

    def encode(self, made: TensorMap, address: int) -> bytes:
        """The 128 bytes of a tensor map over memory at `address`, a multiple of 16."""
        d = self.driver
        rank = len(made.box)
        strides = [d.cuuint64_t(n * made.bytes) for n in made.strides[-2::-1]]
        result = d.cuTensorMapEncodeTiled(
            d.CUtensorMapDataType(made.kind),
            rank,
            address,
            [d.cuuint64_t(n) for n in reversed(made.shape)],
            strides,
            [d.cuuint32_t(n) for n in reversed(made.box)],
            [d.cuuint32_t(1)] * rank,
            d.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
            d.CUtensorMapSwizzle(made.swizzle),
            d.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            d.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
        encoded = check("cuTensorMapEncodeTiled", result)
        return ctypes.string_at(encoded.getPtr(), MAP_BYTES)

    # -- modules and launches

    def load_module(self, image: bytes, what: str) -> Any:
        """Loads a cubin, fatbin or PTX text.  Raises ArtifactError naming `what`."""
        try:
            return check("cuModuleLoadData", self.driver.cuModuleLoadData(image))
        except CudaError as e:
            raise ArtifactError(f"{what} cannot be loaded on cuda:{self.index}: {e}") from e

    def function(self, module: Any, name: str, shared_bytes: int = 0) -> Any:
        """A kernel of a module, allowed the dynamic shared memory that it needs."""
        f = check("cuModuleGetFunction", self.driver.cuModuleGetFunction(module, name.encode()))
        if shared_bytes > 48 * 1024:
            which = self.driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check("cuFuncSetAttribute", self.driver.cuFuncSetAttribute(f, which, shared_bytes))
        return f


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


class Parameters:
    """The argument block of one kernel: typed slots that can be rewritten, and their address table.

    `kinds`: "p" (device pointer), "i32", "i64", "f32", "map" (the bytes of a tensor map), one a
    parameter, in order.
    """

    _CTYPES = {
        "p": ctypes.c_uint64,
        "i32": ctypes.c_int32,
        "i64": ctypes.c_int64,
        "f32": ctypes.c_float,
    }

    def __init__(self, kinds: Sequence[str], values: Sequence[Any]) -> None:
        self.slots = [
            AlignedBytes(v) if k == "map" else self._CTYPES[k](v)
            for k, v in zip(kinds, values, strict=True)
        ]
        self._table = (ctypes.c_void_p * max(len(self.slots), 1))(
            *(s.address if isinstance(s, AlignedBytes) else ctypes.addressof(s) for s in self.slots)
        )

    @property
    def address(self) -> int:
        """Address of the `void**` that launches take."""
        return ctypes.addressof(self._table)

    def set(self, index: int, value: Any) -> None:
        self.slots[index].value = value
