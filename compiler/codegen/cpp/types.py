"""How element types look in C++: in memory, in arithmetic, and as literals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graphwright.compiler.ir.types import DType

# What a pointer to the element type points to.
_STORAGE: dict[str, str] = {
    "bool": "uint8_t",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "u8": "uint8_t",
    "u16": "uint16_t",
    "u32": "uint32_t",
    "u64": "uint64_t",
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f32": "float",
    "f64": "double",
    **dict.fromkeys(("i2", "u2", "i4", "u4", "f4e2m1fn", "f8e8m0fnu"), "uint8_t"),
    **dict.fromkeys(("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz"), "uint8_t"),
}


def is_supported(dtype: DType) -> bool:
    """Whether C++ kernels handle the element type."""
    return dtype.name in _STORAGE


def storage_type(dtype: DType) -> str:
    """The C++ type of an element in memory."""
    return _STORAGE[dtype.name]


def scalar_type(dtype: DType) -> str:
    """The C++ type of an element in arithmetic."""
    if dtype.name == "bool":
        return "bool"
    if is_small_float(dtype):
        return "float"
    if dtype.bits < 8:
        return "int8_t" if dtype.kind == "int" else "uint8_t"
    return _STORAGE[dtype.name]


def is_small_float(dtype: DType) -> bool:
    """Whether memory holds a float's code and arithmetic is in float."""
    return dtype.is_float and dtype.bits < 32


def read(dtype: DType, pointer: str, offset: str) -> str:
    """The C++ expression of an element in memory, as its arithmetic type."""
    element = f"{pointer}[{offset}]"
    if dtype.bits < 8:
        kind = f"u{dtype.bits}" if dtype.is_float else dtype.name
        element = f"gw::load_{kind}({pointer}, {offset})"
    if is_small_float(dtype):
        return f"gw::from_{dtype.name}({element})"
    return f"{element} != 0" if dtype.name == "bool" else element


def stored(dtype: DType, value: str) -> str:
    """The C++ expression that memory keeps of an arithmetic value of that type.

    Below 8 bits it is the element's code in a byte of its own (`packed` puts several together).
    """
    if is_small_float(dtype):
        return f"gw::to_{dtype.name}({value})"
    return f"({value} & {2**dtype.bits - 1})" if dtype.bits < 8 else value


def packed(dtype: DType, values: Sequence[str]) -> str:
    """One byte of elements below 8 bits, the first one in the low bits."""
    codes = [stored(dtype, v) for v in values]
    parts = [f"({c} << {i * dtype.bits})" if i else c for i, c in enumerate(codes)]
    return f"static_cast<uint8_t>({' | '.join(parts)})"


def literal(value: Any, dtype: DType) -> str:
    """A constant of the arithmetic type of dtype."""
    type = scalar_type(dtype)
    if type == "bool":
        return "true" if value else "false"
    if type in ("float", "double"):
        return float_literal(float(value), type)
    value = int(value)
    if type == "int64_t":
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    if type == "uint64_t":
        return f"UINT64_C({value})"
    text = f"{value}u" if type.startswith("u") else str(value)
    if value == -(2**31):
        text = "INT32_MIN"
    return text if type in ("int32_t", "uint32_t") else f"{type}({text})"


def float_literal(value: float, type: str) -> str:
    """A decimal literal that reads back as exactly the value rounded to the type."""
    if math.isnan(value):
        return '__builtin_nanf("")' if type == "float" else '__builtin_nan("")'
    if math.isinf(value):
        sign = "-" if value < 0 else ""
        return f"{sign}__builtin_inf{'f()' if type == 'float' else '()'}"
    if type == "double":
        return repr(value)
    import numpy as np

    rounded = np.float32(value)
    if np.isinf(rounded):
        return float_literal(float(rounded), type)
    text = repr(float(str(rounded)))  # the shortest decimal that rounds to this float32
    return f"{text}f"
