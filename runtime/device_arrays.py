"""Arrays on a GPU, of any library, in and out without copies: DLPack and `__cuda_array_interface__`.

torch's tensors are handled by their own methods in the executor, which is faster.  `DeviceArray` is
what a call returns when its inputs are device arrays of another library.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.errors import InputError
from graphwright.runtime.binding import numpy_dtype
from graphwright.runtime.cuda_driver import Device

CUDA = 2  # kDLCUDA
_NAME = b"dltensor"
_CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_BFLOAT = 4
_NAMES = {0: "int", 1: "uint", 2: "float", _BFLOAT: "bfloat", 5: "complex"}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32), ("index", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("offset", ctypes.c_uint64),
    ]  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [
        ("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_api = ctypes.pythonapi
_pointer_of = _api.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


class Lent:
    """A device array of somebody else: address, shape, dtype name; `keep` holds it alive."""

    __slots__ = ("address", "device", "dtype", "is_contiguous", "keep", "shape")

    def __init__(
        self, address: int, shape: tuple[int, ...], dtype: str, device: int | None, keep: Any,
        *, is_contiguous: bool,
    ) -> None:  # fmt: skip
        self.address, self.shape, self.dtype = address, shape, dtype
        self.device, self.keep, self.is_contiguous = device, keep, is_contiguous


def borrow(value: Any, stream: int) -> Lent | None:
    """A device array as it lies, ready for work on `stream`; None for what lies on the host."""
    interface = getattr(value, "__cuda_array_interface__", None)
    if interface is not None:
        shape = tuple(interface["shape"])
        dtype, strides = np.dtype(interface["typestr"]), interface.get("strides")
        contiguous = strides is None or _is_contiguous(shape, strides, dtype.itemsize)
        address = int(interface["data"][0] or 0)
        return Lent(address, shape, dtype.name, None, value, is_contiguous=contiguous)
    where = getattr(value, "__dlpack_device__", None)
    if where is None or isinstance(value, np.ndarray) or where()[0] != CUDA:
        return None
    capsule = value.__dlpack__(stream=stream or 1)  # 1: the default stream
    found = _pointer_of(capsule, _NAME)
    assert found is not None
    t = _Managed.from_address(found).tensor
    shape = tuple(t.shape[i] for i in range(t.rank))
    size = t.bits * t.lanes // 8
    contiguous = True
    if t.strides:
        strides = [t.strides[i] * size for i in range(t.rank)]
        contiguous = _is_contiguous(shape, strides, size)
    name = "bool" if t.code == _CODES["b"] else f"{_NAMES.get(t.code, 'unknown')}{t.bits}"
    # Not renamed: the capsule's destructor gives the tensor back when the call is over.
    return Lent((t.data or 0) + t.offset, shape, name, t.index, capsule, is_contiguous=contiguous)


def _is_contiguous(shape: Sequence[int], strides: Sequence[int], size: int) -> bool:
    step = size
    for extent, stride in zip(reversed(shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


class DeviceArray:
    """A result on the device: DLPack, `__cuda_array_interface__`, `numpy()` for a copy on the host.

    Its memory comes from the driver's pool and goes back there, in order on the stream of the call.
    """

    def __init__(
        self, device: Device, shape: tuple[int, ...], dtype: np.dtype[Any], stream: int, name: str
    ) -> None:
        self.address = 0
        self.device, self.shape, self.dtype, self.stream = device, shape, dtype, stream
        self.nbytes = math.prod(shape) * dtype.itemsize
        self.address = device.allocate(self.nbytes, name, stream)

    def __del__(self) -> None:
        if self.address:
            before = self.device.enter()
            try:
                self.device.free(self.address, self.stream)
            finally:
                self.device.leave(before)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.kind == "V":
            raise AttributeError(f"the array interface has no {self.dtype}; use DLPack")
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": self.stream or 1,
            "version": 3,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, self.device.index

    def __dlpack__(self, *, stream: int | None = None, **_: Any) -> Any:
        """A capsule; work on `stream` (None: the default one) may use it at once."""
        consumer = 0 if stream in (None, 1) else stream
        if consumer not in (-1, self.stream):
            with self.device.current():
                event = self.device.create_event()
                self.device.record_event(event, self.stream)
                self.device.wait_event(consumer, event)
                self.device.destroy_event(event)
        return _export(self)

    def numpy(self) -> np.ndarray:
        """A copy on the host; waits for it."""
        out = np.empty(self.shape, self.dtype)
        with self.device.current():
            self.device.download(out, self.address, self.stream)
            self.device.synchronize(self.stream)
        return out

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.numpy() if dtype is None else self.numpy().astype(dtype)

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype.name}{list(self.shape)} on cuda:{self.device.index}>"


class StateArray(DeviceArray):
    """A state of a model: memory that calls read and write and that no caller sees."""


_lent: dict[int, tuple[Any, ...]] = {}  # exported tensors that consumers hold


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _give_back(managed: int) -> None:
    _lent.pop(managed, None)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _drop(capsule: int) -> None:
    """Destructor of a capsule: a consumer would have renamed it and calls the deleter itself."""
    is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_IsValid", _api)
    )
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", _api)
    )
    if is_valid(capsule, _NAME):
        _lent.pop(pointer(capsule, _NAME), None)


def _export(array: DeviceArray) -> Any:
    rank = len(array.shape)
    shape = (ctypes.c_int64 * max(rank, 1))(*array.shape)
    code = _CODES.get(array.dtype.kind)
    if code is None and array.dtype == numpy_dtype("bfloat16"):
        code = _BFLOAT
    if code is None:
        raise InputError(f"DLPack has no {array.dtype}")
    tensor = _Tensor(
        data=array.address, device=CUDA, index=array.device.index, rank=rank, code=code,
        bits=8 * array.dtype.itemsize, lanes=1,
        shape=ctypes.cast(shape, ctypes.POINTER(ctypes.c_int64)), strides=None, offset=0,
    )  # fmt: skip
    managed = _Managed(tensor, None, ctypes.cast(_give_back, ctypes.c_void_p))
    at = ctypes.addressof(managed)
    _lent[at] = (array, shape, managed)
    new = ctypes.PYFUNCTYPE(
        ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
    )(("PyCapsule_New", _api))  # fmt: skip
    return new(at, _NAME, ctypes.cast(_drop, ctypes.c_void_p))
