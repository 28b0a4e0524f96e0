"""Element types and tensor types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

from graphwright.compiler.ir.dims import Dim, Shape, multiply, product
from graphwright.compiler.ir.layout import Layout, canonical, storage_elements

DTypeKind = Literal["bool", "int", "uint", "float", "complex", "string"]


@dataclass(frozen=True, slots=True)
class DType:
    """An element type: short name (`f32`), kind, width in bits, and its numpy (or ml_dtypes) type."""

    name: str
    kind: DTypeKind
    bits: int
    numpy: np.dtype

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def bytes(self) -> int:
        """Bytes of one element; 1 for the packed types below 8 bits, which see `storage_bytes`."""
        return max(self.bits // 8, 1)

    @property
    def per_byte(self) -> int:
        """Elements in a byte: 1, or 2 or 4 of the packed types."""
        return max(8 // self.bits, 1)

    @property
    def long_name(self) -> str:
        """The name users know: float32, int64, bfloat16, bool."""
        return self.numpy.name


def _dtype(name: str, kind: DTypeKind, bits: int, numpy: object) -> DType:
    return DType(name, kind, bits, np.dtype(numpy))  # type: ignore[arg-type]


BOOL = _dtype("bool", "bool", 8, np.bool_)
I2 = _dtype("i2", "int", 2, ml_dtypes.int2)
I4 = _dtype("i4", "int", 4, ml_dtypes.int4)
I8 = _dtype("i8", "int", 8, np.int8)
I16 = _dtype("i16", "int", 16, np.int16)
I32 = _dtype("i32", "int", 32, np.int32)
I64 = _dtype("i64", "int", 64, np.int64)
U2 = _dtype("u2", "uint", 2, ml_dtypes.uint2)
U4 = _dtype("u4", "uint", 4, ml_dtypes.uint4)
U8 = _dtype("u8", "uint", 8, np.uint8)
U16 = _dtype("u16", "uint", 16, np.uint16)
U32 = _dtype("u32", "uint", 32, np.uint32)
U64 = _dtype("u64", "uint", 64, np.uint64)
F4E2M1 = _dtype("f4e2m1fn", "float", 4, ml_dtypes.float4_e2m1fn)
F8E8M0 = _dtype("f8e8m0fnu", "float", 8, ml_dtypes.float8_e8m0fnu)  # powers of two, no sign
F8E4M3 = _dtype("f8e4m3fn", "float", 8, ml_dtypes.float8_e4m3fn)
F8E4M3FNUZ = _dtype("f8e4m3fnuz", "float", 8, ml_dtypes.float8_e4m3fnuz)
F8E5M2 = _dtype("f8e5m2", "float", 8, ml_dtypes.float8_e5m2)
F8E5M2FNUZ = _dtype("f8e5m2fnuz", "float", 8, ml_dtypes.float8_e5m2fnuz)
F16 = _dtype("f16", "float", 16, np.float16)
BF16 = _dtype("bf16", "float", 16, ml_dtypes.bfloat16)
F32 = _dtype("f32", "float", 32, np.float32)
F64 = _dtype("f64", "float", 64, np.float64)
C64 = _dtype("c64", "complex", 64, np.complex64)
C128 = _dtype("c128", "complex", 128, np.complex128)

# fmt: off
DTYPES: dict[str, DType] = {d.name: d for d in (
    BOOL, I2, I4, I8, I16, I32, I64, U2, U4, U8, U16, U32, U64,
    F4E2M1, F8E8M0, F8E4M3, F8E4M3FNUZ, F8E5M2, F8E5M2FNUZ, F16, BF16, F32, F64, C64, C128,
)}
# fmt: on
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}


def dtype_of(array: np.ndarray | np.dtype) -> DType:
    """Our element type of a numpy array or dtype.  Raises TypeError for one that we do not have."""
    numpy = array.dtype if isinstance(array, np.ndarray) else np.dtype(array)
    found = _BY_NUMPY.get(numpy.newbyteorder("="))
    if found is None:
        raise TypeError(f"numpy type {numpy} has no element type here; known: {', '.join(DTYPES)}")
    return found


@dataclass(frozen=True, slots=True)
class TensorType:
    """Element type, logical shape and memory layout (None: row-major)."""

    dtype: DType
    shape: Shape
    layout: Layout | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(self.shape))
        object.__setattr__(self, "layout", canonical(self.layout))
        if self.layout is not None and len(self.layout.order) != len(self.shape):
            raise ValueError(f"layout {self.layout} does not fit rank {len(self.shape)}")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def elements(self) -> Dim:
        return product(self.shape)

    @property
    def storage_bytes(self) -> Dim:
        """Bytes of the tensor's storage; types below 8 bits are packed along the last axis."""
        elements = storage_elements(self.shape, self.layout)
        if self.dtype.bits < 8:
            rows = product(self.shape[:-1])
            each = self.dtype.per_byte
            return multiply(rows, (self.shape[-1] + (each - 1)) // each) if self.shape else 1
        return multiply(elements, self.dtype.bytes)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape as numbers.  Raises ValueError when a dim is symbolic."""
        found = tuple(d for d in self.shape if isinstance(d, int))
        if len(found) != self.rank:
            raise ValueError(f"{self} has symbolic dims")
        return found

    def with_shape(self, shape: Shape) -> TensorType:
        """The same element type with another shape, row-major."""
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> TensorType:
        return TensorType(dtype, self.shape, self.layout)

    def with_layout(self, layout: Layout | None) -> TensorType:
        return TensorType(self.dtype, self.shape, layout)

    def __str__(self) -> str:
        text = f"{self.dtype}[{', '.join(map(str, self.shape))}]"
        return text if self.layout is None else f"{text}{{{self.layout}}}"
