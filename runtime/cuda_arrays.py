"""The arrays of a call on a GPU: where each lies, whether it fits, results of the caller's kind.

torch is never imported here: a caller that passes its tensors has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphwright.errors import InputError
from graphwright.runtime.binding import Signature, describe
from graphwright.runtime.cuda_context import HOST
from graphwright.runtime.cuda_driver import Device
from graphwright.runtime.device_arrays import CUDA, DeviceArray, StateArray, borrow
from graphwright.runtime.interop import as_array

POINTER_ALIGNMENT = 16  # what kernels assume of every tensor


@dataclass(frozen=True, slots=True)
class Torch:
    """What a call needs of torch, found once."""

    tensor: type[Any]
    empty: Any
    device: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    stream: Any  # function of a device number


class Arrays:
    """What a signature says of the arrays of a call on one device."""

    def __init__(self, signature: Signature, device: Device, weights: Sequence[int]) -> None:
        """`weights`: device addresses, for inputs with a default."""
        self.signature, self.device, self._weights = signature, device, weights
        self.name = f"cuda:{device.index}"

    def accept(self, index: int, value: Any, stream: int) -> tuple[Any, tuple[int, ...], Any]:
        """(device address or host array, shape, what must stay alive)."""
        spec, dtype = self.signature.inputs[index], self.signature.input_dtypes[index]
        if value is None:
            if spec.default is None:
                raise InputError(f"input {spec.name!r} ({describe(spec)}) is missing")
            return self._weights[spec.default], self.default_shape(index), None
        if type(value) is StateArray:
            return value.address, value.shape, value
        if getattr(value, "is_cuda", False) and hasattr(value, "data_ptr"):  # a torch tensor
            name = str(value.dtype).removeprefix("torch.")
            found = value.get_device(), value.data_ptr(), tuple(value.shape), value.is_contiguous()
            keep = value
        else:
            lent = borrow(value, stream)
            if lent is None:
                array = as_array(value, spec.name)
                if array.dtype != dtype:
                    raise InputError(f"input {spec.name!r} is {array.dtype}, want {describe(spec)}")
                return np.ascontiguousarray(array).reshape(array.shape), array.shape, array
            name, keep = lent.dtype, lent.keep
            found = lent.device, lent.address, lent.shape, lent.is_contiguous
        device, address, shape, is_contiguous = found
        if name != dtype.name:
            raise InputError(f"input {spec.name!r} is {name}, want {describe(spec)}")
        if device is not None and device != self.device.index:
            raise InputError(
                f"input {spec.name!r} lies on cuda:{device}, the model runs on {self.name}"
            )
        if not is_contiguous:
            raise InputError(f"input {spec.name!r} is not contiguous; pass array.contiguous()")
        return address, shape, keep

    def output_address(self, target: Any, index: int, stream: int) -> int | None:
        """Where a result array on the device lies, None for one on the host."""
        if isinstance(target, np.ndarray):
            return None
        name = self.signature.outputs[index].name
        if getattr(target, "is_cuda", False) and hasattr(target, "data_ptr"):
            address, contiguous = int(target.data_ptr()), bool(target.is_contiguous())
        elif isinstance(target, DeviceArray):
            return target.address
        else:
            lent = borrow(target, stream)
            if lent is None:
                raise InputError(f"{name!r}: a {type(target).__name__} lies on no CUDA device")
            address, contiguous = lent.address, lent.is_contiguous
        if not contiguous:
            raise InputError(f"{name!r} is not contiguous; pass array.contiguous()")
        if address % POINTER_ALIGNMENT:
            raise InputError(
                f"{name!r} lies at an address that is no multiple of {POINTER_ALIGNMENT}"
            )
        return address

    def check_target(self, i: int, target: Any, shape: tuple[int, ...]) -> None:
        spec, dtype = self.signature.outputs[i], self.signature.output_dtypes[i]
        name = str(target.dtype).removeprefix("torch.")
        if isinstance(target, np.ndarray) and not (
            target.flags.c_contiguous and target.flags.writeable
        ):
            raise InputError(f"out[{i}] is read-only or not contiguous")
        if name != dtype.name or tuple(target.shape) != shape:
            raise InputError(
                f"out[{i}] is {name}{list(target.shape)}, output {spec.name!r} is "
                f"{spec.dtype}{list(shape)}"
            )

    def find_torch(self, torch: Any) -> Torch:
        index = self.device.index
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)

        def current(number: int) -> int:
            return int(torch.cuda.current_stream(number).cuda_stream)

        return Torch(
            tensor=torch.Tensor,
            empty=torch.empty,
            device=torch.device("cuda", index),
            inputs=tuple(getattr(torch, d.name, None) for d in self.signature.input_dtypes),
            outputs=tuple(getattr(torch, d.name, None) for d in self.signature.output_dtypes),
            stream=current if raw is None else raw,
        )

    def default_shape(self, index: int) -> tuple[int, ...]:
        """Of an input with a default, which is constant."""
        return tuple(int(n) for n in self.signature.inputs[index].shape)


def fresh_results(
    t: Torch, addresses: list[int], shapes: Sequence[Any], out: Sequence[Any] | None
) -> list[Any] | None:
    """Fresh results, or the state that `out` holds, and their addresses; None when it holds more."""
    results: list[Any] = []
    made = zip(shapes, t.outputs, strict=True)
    for i, (shape, dtype) in enumerate(made):
        result = None if out is None else out[i]
        if result is None:
            result = t.empty(shape, dtype=dtype, device=t.device)
            addresses.append(result.data_ptr())
        elif type(result) is StateArray:
            addresses.append(result.address)
        else:
            return None
        results.append(result)
    return results


def fits(
    t: Torch, given: Sequence[Any], addresses: list[int], shapes: Sequence[Any], out: Sequence[Any]
) -> bool:  # fmt: skip
    """Appends the addresses of `out`; whether all of it can be written where it lies."""
    index = t.device.index
    if len(out) != len(shapes):
        return False
    taken = [(a, a + g.nbytes) for a, g in zip(addresses, given, strict=True)]
    for value, shape, dtype in zip(out, shapes, t.outputs, strict=True):
        if (
            not isinstance(value, t.tensor)
            or value.dtype is not dtype
            or value.get_device() != index
            or value.shape != shape
            or not value.is_contiguous()
        ):
            return False
        start = value.data_ptr()
        end = start + value.nbytes
        if start % POINTER_ALIGNMENT or any(a < end and start < b for a, b in taken):
            return False
        taken.append((start, end))
        addresses.append(start)
    return True


class Maker:
    """Makes result arrays of the kind that the caller uses."""

    def __init__(self, arrays: Arrays, torch: Any, caller: int, stream: int) -> None:
        self._arrays, self._torch, self._stream = arrays, torch, stream
        self.on_host = torch is None and caller == HOST

    def name(self, index: int) -> str:
        return f"output {self._arrays.signature.outputs[index].name!r}"

    def __call__(self, index: int, shape: tuple[int, ...]) -> Any:
        arrays, torch = self._arrays, self._torch
        dtype = arrays.signature.output_dtypes[index]
        if torch is not None:
            kind = getattr(torch, dtype.name)
            return torch.empty(shape, dtype=kind, device=arrays.name)
        if self.on_host:
            return np.empty(shape, dtype)
        return DeviceArray(arrays.device, shape, dtype, self._stream, self.name(index))


def is_lent(value: Any) -> bool:
    where = getattr(value, "__dlpack_device__", None)
    return where is not None and not isinstance(value, np.ndarray) and where()[0] == CUDA


def stream_of(given: Sequence[Any]) -> int:
    """The stream on which another library's arrays are ready: cupy's current one, or the one that
    they name, or the default one.
    """
    cupy: Any = sys.modules.get("cupy")
    if cupy is not None and any(isinstance(g, cupy.ndarray) for g in given):
        return int(cupy.cuda.get_current_stream().ptr)
    for value in given:
        interface = getattr(value, "__cuda_array_interface__", None)
        if interface is not None and interface.get("stream"):
            return 0 if interface["stream"] == 1 else int(interface["stream"])
    return 0
