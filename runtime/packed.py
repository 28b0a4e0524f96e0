"""Elements below 8 bits: numpy keeps one a byte, storage several along the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def pack_elements(array: np.ndarray, bits: int) -> np.ndarray:
    """The storage, as uint8 [..., bytes of a row], the first element in the low bits of a byte."""
    array = np.ascontiguousarray(np.atleast_1d(array))
    codes = array.view(np.uint8) & np.uint8(2**bits - 1)
    each = 8 // bits
    rest = -codes.shape[-1] % each
    if rest:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], rest), np.uint8)], axis=-1)
    packed = codes[..., 0::each].copy()
    for i in range(1, each):
        packed |= codes[..., i::each] << np.uint8(i * bits)
    return packed


def packed_shape(shape: Sequence[int], bits: int) -> tuple[int, ...]:
    """The shape of the storage in bytes."""
    if not shape:
        return (1,)
    return (*shape[:-1], -(-shape[-1] * bits // 8))


def unpack_elements(
    packed: np.ndarray, shape: Sequence[int], dtype: np.dtype[Any], bits: int
) -> np.ndarray:
    """The elements of storage (uint8 of `packed_shape`) as an array of a numpy type of one byte."""
    packed = packed.reshape(packed_shape(shape, bits))
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    codes = (packed[..., None] >> shifts) & np.uint8(2**bits - 1)
    rows = codes.reshape(*packed.shape[:-1], -1)[..., : shape[-1] if shape else 1]
    if dtype.name.startswith("int"):  # the sign goes through the whole byte
        half = np.int8(2 ** (bits - 1))
        rows = (rows.view(np.int8) ^ half) - half
    return np.ascontiguousarray(rows).view(dtype).reshape(tuple(shape))
