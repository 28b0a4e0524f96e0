"""The CUDA driver's library through ctypes: prototypes, structures, constants.  No model, no policy.

ctypes and not a binding package: a deployment then needs the driver alone, and nothing is imported for it
(`cuda.bindings` takes 70 ms, more than most artifacts take to load).
Names and layouts are those of cuda.h, of the version that each symbol's suffix names.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from graphwright.errors import ArtifactError

LIBRARIES = ("nvcuda.dll",) if sys.platform == "win32" else ("libcuda.so.1", "libcuda.so")
MAP_BYTES = 128  # of an encoded tensor map
STREAM_NON_BLOCKING = 1
EVENT_DISABLE_TIMING = 2
PROGRAMMATIC_PORT = 1  # CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
PROGRAMMATIC_EDGE = 1  # CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
MAX_DYNAMIC_SHARED_BYTES = 8  # CU_FUNC_ATTRIBUTE_...
ATTRIBUTES = {  # CU_DEVICE_ATTRIBUTE_...
    "MULTIPROCESSOR_COUNT": 16,
    "COMPUTE_CAPABILITY_MAJOR": 75,
    "COMPUTE_CAPABILITY_MINOR": 76,
}
L2_PROMOTION_128B = 2
OUT_OF_MEMORY = 2
NO_BINARY_FOR_GPU = 209


class KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("func", c_void_p),
        ("grid_x", c_uint), ("grid_y", c_uint), ("grid_z", c_uint),
        ("block_x", c_uint), ("block_y", c_uint), ("block_z", c_uint),
        ("shared_bytes", c_uint),
        ("params", c_void_p),
        ("extra", c_void_p),
        ("kern", c_void_p),
        ("ctx", c_void_p),
    ]  # fmt: skip


class EdgeData(ctypes.Structure):
    """CUgraphEdgeData."""

    _fields_ = [
        ("from_port", ctypes.c_uint8), ("to_port", ctypes.c_uint8), ("type", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 5),
    ]  # fmt: skip


_HANDLE, _OUT = c_void_p, POINTER(c_void_p)
_PROTOTYPES: dict[str, Sequence[Any]] = {
    "cuInit": (c_uint,),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(c_int), c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cuDeviceTotalMem_v2": (POINTER(c_size_t), c_int),
    "cuDevicePrimaryCtxRetain": (_OUT, c_int),
    "cuCtxGetCurrent": (_OUT,),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(c_uint64), c_size_t),
    "cuMemFree_v2": (c_uint64,),
    "cuMemAllocAsync": (POINTER(c_uint64), c_size_t, _HANDLE),
    "cuMemFreeAsync": (c_uint64, _HANDLE),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, _HANDLE),
    "cuMemsetD8Async": (c_uint64, ctypes.c_ubyte, c_size_t, _HANDLE),
    "cuMemsetD32Async": (c_uint64, c_uint, c_size_t, _HANDLE),
    "cuStreamCreate": (_OUT, c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, c_uint),
    "cuEventCreate": (_OUT, c_uint),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuEventSynchronize": (_HANDLE,),
    "cuEventElapsedTime": (POINTER(c_float), _HANDLE, _HANDLE),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuModuleLoadData": (_OUT, c_void_p),
    "cuModuleUnload": (_HANDLE,),
    "cuModuleGetFunction": (_OUT, _HANDLE, c_char_p),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuLaunchKernel": (_HANDLE, *(c_uint,) * 7, _HANDLE, c_void_p, c_void_p),
    "cuGraphCreate": (_OUT, c_uint),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphAddKernelNode_v2": (_OUT, _HANDLE, c_void_p, c_size_t, POINTER(KernelNodeParams)),
    "cuGraphAddDependencies_v2": (_HANDLE, c_void_p, c_void_p, POINTER(EdgeData), c_size_t),
    "cuGraphInstantiateWithFlags": (_OUT, _HANDLE, ctypes.c_ulonglong),
    "cuGraphExecDestroy": (_HANDLE,),
    "cuGraphExecKernelNodeSetParams_v2": (_HANDLE, _HANDLE, c_void_p),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuTensorMapEncodeTiled": (
        c_void_p, c_int, c_uint, c_uint64, *(c_void_p,) * 4, c_int, c_int, c_int, c_int,
    ),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}  # fmt: skip
assert ctypes.sizeof(c_float) == 4


class DriverLibrary:
    """The loaded library: one attribute a function, made at its first use.

    A function that the installed driver lacks raises ArtifactError, naming it.
    """

    def __init__(self, handle: ctypes.CDLL) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., int]:
        try:
            found = getattr(self._handle, name)
        except AttributeError:
            raise ArtifactError(
                f"the NVIDIA driver of this machine has no {name}; it is too old, update it"
            ) from None
        found.argtypes, found.restype = list(_PROTOTYPES[name]), c_int
        setattr(self, name, found)  # the next access is a plain attribute
        return found


@functools.cache
def driver_library() -> DriverLibrary:
    """The driver of this machine, initialised.  Raises ArtifactError when there is none."""
    for name in LIBRARIES:
        try:
            handle = ctypes.CDLL(name)
        except OSError:
            continue
        library = DriverLibrary(handle)
        code = library.cuInit(0)
        if code:
            name, words = explain(library, code)
            raise ArtifactError(f"the NVIDIA driver does not start: {name}: {words}")
        return library
    raise ArtifactError(
        f"this machine has no NVIDIA driver: none of {', '.join(LIBRARIES)} can be loaded"
    )


def explain(library: DriverLibrary, code: int) -> tuple[str, str]:
    """The name of an error code, and the driver's own words for it."""
    out: list[str] = []
    for function in (library.cuGetErrorName, library.cuGetErrorString):
        text = c_char_p()
        function(code, ctypes.byref(text))
        out.append(text.value.decode() if text.value else f"error {code}")
    return out[0], out[1]
