"""Tensors of a model file as `Literal`s: element types, inline data, memory-mapped external data."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto

from graphwright.compiler.ir import types as t
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.types import DType
from graphwright.errors import InvalidModelError
from graphwright.frontends.onnx.refusal import Refusal

ELEMENT: dict[int, DType] = {
    TensorProto.FLOAT: t.F32,
    TensorProto.UINT8: t.U8,
    TensorProto.INT8: t.I8,
    TensorProto.UINT16: t.U16,
    TensorProto.INT16: t.I16,
    TensorProto.INT32: t.I32,
    TensorProto.INT64: t.I64,
    TensorProto.BOOL: t.BOOL,
    TensorProto.FLOAT16: t.F16,
    TensorProto.DOUBLE: t.F64,
    TensorProto.UINT32: t.U32,
    TensorProto.UINT64: t.U64,
    TensorProto.COMPLEX64: t.C64,
    TensorProto.COMPLEX128: t.C128,
    TensorProto.BFLOAT16: t.BF16,
    TensorProto.FLOAT8E4M3FN: t.F8E4M3,
    TensorProto.FLOAT8E4M3FNUZ: t.F8E4M3FNUZ,
    TensorProto.FLOAT8E5M2: t.F8E5M2,
    TensorProto.FLOAT8E5M2FNUZ: t.F8E5M2FNUZ,
    TensorProto.FLOAT8E8M0: t.F8E8M0,
    TensorProto.FLOAT4E2M1: t.F4E2M1,
    TensorProto.UINT4: t.U4,
    TensorProto.INT4: t.I4,
    TensorProto.UINT2: t.U2,
    TensorProto.INT2: t.I2,
}
ONNX_TYPE = {dtype: number for number, dtype in ELEMENT.items()}

# Where TensorProto keeps values that are not in raw_data; bit patterns of narrow types in int32.
_TYPED_FIELD = {
    t.F32: ("float_data", np.float32),
    t.F64: ("double_data", np.float64),
    t.I64: ("int64_data", np.int64),
    t.U32: ("uint64_data", np.uint64),
    t.U64: ("uint64_data", np.uint64),
    t.C64: ("float_data", np.float32),
    t.C128: ("double_data", np.float64),
}


def element_type(number: int, what: str) -> DType:
    """Our element type for ONNX's number.  Raises Refusal for one that we do not have."""
    dtype = ELEMENT.get(number)
    if dtype is None:
        known = number in TensorProto.DataType.values()
        name = TensorProto.DataType.Name(number).lower() if known else f"number {number}"
        raise Refusal(
            f"{what} has the element type {name}, which is not supported",
            "convert it to one of " + ", ".join(d.long_name for d in ELEMENT.values()),
        )
    return dtype


class TensorReader:
    """Reads the tensors of one model; external files are mapped once and checked before opening.

    Only regular files inside `folder` are read: absolute locations, `..` and links that lead out of
    the folder are refused.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._maps: dict[str, np.ndarray] = {}

    def literal(self, tensor: TensorProto, what: str) -> Literal:
        """The tensor's value.  Raises InvalidModelError when its data does not fit its shape."""
        dtype = element_type(tensor.data_type, what)
        shape = tuple(tensor.dims)
        if any(d < 0 for d in shape):
            raise InvalidModelError(f"{what} has negative dims {list(shape)}")
        if tensor.HasField("segment"):
            raise InvalidModelError(f"{what} is stored in segments, which no ONNX version defines")
        elements = math.prod(shape)
        if tensor.data_location == TensorProto.EXTERNAL:
            data = self._external(tensor, what, _storage_bytes(dtype, elements))
            array = _from_bytes(data, dtype, shape)
        elif tensor.HasField("raw_data"):
            raw = tensor.raw_data
            want = _storage_bytes(dtype, elements)
            if len(raw) != want:
                raise InvalidModelError(
                    f"{what}: raw_data has {len(raw)} bytes, its shape {list(shape)} of "
                    f"{dtype.long_name} wants {want} bytes"
                )
            array = _from_bytes(np.frombuffer(raw, np.uint8), dtype, shape)
        else:
            array = _from_typed(tensor, what, dtype, shape, elements)
        return Literal.dense(array)

    def _external(self, tensor: TensorProto, what: str, want: int) -> np.ndarray:
        entries = {e.key: e.value for e in tensor.external_data}
        location = entries.get("location", "")
        path = self._checked_path(location, what)
        if path not in self._maps:
            if not os.path.isfile(path):
                raise InvalidModelError(f"{what}: its external data file {location!r} is not there")
            empty = os.path.getsize(path) == 0
            try:
                mapped = np.zeros(0, np.uint8) if empty else np.memmap(path, np.uint8, "r")
            except OSError as e:
                raise InvalidModelError(
                    f"{what}: its external data file {location!r} cannot be read: {e.strerror}"
                ) from None
            self._maps[path] = mapped
        data = self._maps[path]
        try:
            offset, length = int(entries.get("offset") or 0), int(entries.get("length") or want)
        except ValueError:
            raise InvalidModelError(
                f"{what}: external data offset and length must be whole numbers, they are "
                f"{entries.get('offset')!r} and {entries.get('length')!r}"
            ) from None
        if length != want:
            raise InvalidModelError(
                f"{what}: external data length is {length} bytes, its shape {list(tensor.dims)} "
                f"wants {want} bytes"
            )
        if offset < 0 or offset + length > len(data):
            raise InvalidModelError(
                f"{what}: external data bytes {offset} to {offset + length} lie outside "
                f"{location!r}, which has {len(data)} bytes"
            )
        return data[offset : offset + length]

    def _checked_path(self, location: str, what: str) -> str:
        refused = f"{what}: the external data location {location!r} is refused"
        if self.folder is None:
            raise InvalidModelError(
                f"{what} is external data, but the model came without a folder; give its path"
            )
        parts = location.replace("\\", "/").split("/")
        if not location or "\0" in location:
            raise InvalidModelError(f"{refused}: it names no file")
        if location.startswith(("/", "\\")) or os.path.isabs(location) or parts[0][1:2] == ":":
            raise InvalidModelError(f"{refused}: an absolute path")
        if ".." in parts:
            raise InvalidModelError(f"{refused}: a path out of the model's folder")
        home = os.path.realpath(self.folder)
        path = os.path.realpath(os.path.join(home, location))
        if os.path.commonpath([home, path]) != home:
            raise InvalidModelError(f"{refused}: a link out of the model's folder")
        return path


def _storage_bytes(dtype: DType, elements: int) -> int:
    return (elements * dtype.bits + 7) // 8


def _from_bytes(data: np.ndarray, dtype: DType, shape: tuple[int, ...]) -> np.ndarray:
    """Little-endian storage as an array; a view wherever the bytes can stay as they are."""
    if dtype.bits < 8:
        return _unpack(data, dtype, math.prod(shape)).reshape(shape)
    if dtype is t.BOOL:
        return (data != 0).reshape(shape)
    if dtype.numpy.kind in "iufc" and dtype.bytes > 1:
        array = data.view(dtype.numpy.newbyteorder("<"))
        return array.astype(dtype.numpy, copy=False).reshape(shape)
    return data.view(dtype.numpy).reshape(shape)


def _unpack(data: np.ndarray, dtype: DType, elements: int) -> np.ndarray:
    """Elements below 8 bits, the first one in the low bits of a byte."""
    shifts = np.arange(dtype.per_byte, dtype=np.uint8) * np.uint8(dtype.bits)
    codes = (data[:, None] >> shifts & np.uint8(2**dtype.bits - 1)).reshape(-1)[:elements]
    if dtype.is_float:
        return codes.view(dtype.numpy)
    values = codes.astype(np.int8)
    if dtype.kind == "int":
        values = np.where(values >= 2 ** (dtype.bits - 1), values - 2**dtype.bits, values)
    return values.astype(dtype.numpy)


def _from_typed(
    tensor: TensorProto, what: str, dtype: DType, shape: tuple[int, ...], elements: int
) -> np.ndarray:
    field, kind = _TYPED_FIELD.get(dtype, ("int32_data", np.int32))
    values = np.array(getattr(tensor, field), kind)
    want = elements
    if dtype.kind == "complex":
        want = 2 * elements
    elif dtype.bits < 8 and len(values) != elements:
        want = -(-elements // dtype.per_byte)
    if len(values) != want:
        raise InvalidModelError(
            f"{what}: {field} has {len(values)} values, its shape {list(shape)} wants {want}"
        )
    if dtype.kind == "complex":
        return values.view(dtype.numpy).reshape(shape)
    if dtype.bits < 8 and want != elements:
        return _unpack((values & 0xFF).astype(np.uint8), dtype, elements).reshape(shape)
    if dtype.is_float and dtype.bits < 32:  # bit patterns
        bits = np.uint16 if dtype.bits == 16 else np.uint8  # a 4-bit code has a byte in numpy
        return values.astype(bits).view(dtype.numpy).reshape(shape)
    return values.astype(dtype.numpy).reshape(shape)


def sparse_refusal(tensor: onnx.SparseTensorProto) -> Refusal:
    """Why a sparse initializer cannot be taken."""
    return Refusal(
        f"the initializer {tensor.values.name!r} is sparse, which is not supported",
        "store it densely",
    )
