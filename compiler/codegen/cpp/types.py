"""How element types look in C++: in memory, in arithmetic, and as literals."""

from __future__ import annotations

import math
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
    "i4": "uint8_t",
    "u4": "uint8_t",
}
_SMALL_FLOATS = ("f16", "bf16")


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
    if dtype.name == "i4":
        return "int8_t"
    return "float" if dtype.name in _SMALL_FLOATS else _STORAGE[dtype.name]


def read(dtype: DType, pointer: str, offset: str) -> str:
    """The C++ expression of an element in memory, as its arithmetic type."""
    if dtype.name == "i4":
        return f"gw::load_i4({pointer}, {offset})"
    if dtype.name == "u4":
        return f"gw::load_u4({pointer}, {offset})"
    element = f"{pointer}[{offset}]"
    if dtype.name in _SMALL_FLOATS:
        return f"gw::from_{dtype.name}({element})"
    return f"{element} != 0" if dtype.name == "bool" else element


def stored(dtype: DType, value: str) -> str:
    """The C++ expression that memory keeps of an arithmetic value of that type."""
    if dtype.name in _SMALL_FLOATS:
        return f"gw::to_{dtype.name}({value})"
    return value


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
