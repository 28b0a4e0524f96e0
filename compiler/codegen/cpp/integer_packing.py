"""Layouts of quantized weights that the integer C++ kernels read (include/gw/integer_*.h).

A word is four elements of the left operand along k, which meet as many bytes of the right operand for
each column; for a left operand of 16 bits the two in the middle are exchanged.  A packed matrix is

    sums  int32 [columns]   sum over k of (b - zero point), columns = round_up(N, lanes)
    zeros int32 [columns]   zero points of the bytes as packed
    (zero bytes up to a multiple of 64)
    panels                  as in packing.py, with [words][columns of the panel][bytes] for rows of floats

`words` is padded with zero bytes to a multiple of 16 where the ISA has 16 lanes.  The bytes are of the sign that the instruction wants (see integer_dot.h): signed for a left
operand of u8 or i16, unsigned for i8; where the weights have the other, their top bit is flipped and
the zero point moves by 128.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from graphwright.compiler.codegen.cpp.packing import PanelShape, round_up

Left = Literal["u8", "i8", "i16"]
Bytes = NDArray[np.uint8]


def flipped(weights: np.dtype, left: Left) -> bool:
    """Whether packing flips the top bit of weights of this type."""
    return (weights == np.int8) == (left == "i8")


def packed_zero(zero: np.ndarray, weights: np.dtype, left: Left) -> np.ndarray:
    """Zero points of weights as int32, in terms of the packed bytes."""
    wide = np.asarray(zero).astype(np.int32)
    if not flipped(weights, left):
        return wide
    return wide + (128 if weights == np.int8 else -128)


def words_of(k: int, shape: PanelShape) -> int:
    """Words of a packed column of k elements."""
    count = -(-k // 4)
    return round_up(count, 16) if shape.lanes == 16 else count


def integer_size(k: int, n: int, *, shape: PanelShape) -> int:
    """Bytes that `pack_integer_b` returns for a [k, n] matrix."""
    columns = round_up(n, shape.lanes)
    return round_up(8 * columns, 64) + words_of(k, shape) * 4 * columns


def pack_integer_b(b: np.ndarray, zero: np.ndarray, *, left: Left, shape: PanelShape) -> Bytes:
    """Packs b [K, N] of i8 or u8, zero point one number or [N], for products with `left` elements."""
    if b.ndim != 2 or b.dtype not in (np.dtype(np.int8), np.dtype(np.uint8)):
        raise ValueError(f"pack_integer_b needs a matrix of bytes, got {b.dtype}{list(b.shape)}")
    k, n = b.shape
    words, columns = words_of(k, shape), round_up(n, shape.lanes)
    raw = b.view(np.uint8)
    bytes_ = np.zeros((words * 4, columns), np.uint8)
    bytes_[:k, :n] = raw ^ 0x80 if flipped(b.dtype, left) else raw
    sums, zeros = np.zeros((2, columns), np.int32)
    zeros[:n] = packed_zero(zero, b.dtype, left)
    wide = np.asarray(zero).astype(np.int64)
    sums[:n] = (b.astype(np.int64).sum(axis=0) - k * wide).astype(np.int32)
    head = np.zeros(round_up(8 * columns, 64), np.uint8)
    head[: 8 * columns] = np.concatenate([sums, zeros]).view(np.uint8)
    grouped = bytes_.reshape(words, 4, columns).transpose(0, 2, 1)
    if left == "i16":
        grouped = grouped[:, :, [0, 2, 1, 3]]
    parts = [head]
    for start in range(0, columns, shape.columns):
        parts.append(grouped[:, start : start + shape.columns].ravel())
    return np.concatenate(parts)


def pack_integer_conv(
    weight: np.ndarray, zero: np.ndarray, *, left: Left, groups: int, shape: PanelShape
) -> Bytes:
    """Packs a weight [O, I/groups, *kernel] for integer_conv.h: a matrix a group, one after another.

    Rows are kernel positions with the channel fastest; `zero` is one number or [O].
    """
    out_channels = weight.shape[0]
    if weight.ndim < 3 or groups < 1 or out_channels % groups:
        raise ValueError(f"weight {weight.shape} does not split in {groups} groups")
    per_group = out_channels // groups
    matrices = np.moveaxis(weight, 1, -1).reshape(groups, per_group, -1).transpose(0, 2, 1)
    zeros = np.broadcast_to(np.asarray(zero), (out_channels,)).reshape(groups, per_group)
    return np.concatenate([
        pack_integer_b(np.ascontiguousarray(m), z, left=left, shape=shape)
        for m, z in zip(matrices, zeros, strict=True)
    ])  # fmt: skip


def pack_integer_depthwise(
    weight: np.ndarray, zero: np.ndarray, *, shape: PanelShape
) -> NDArray[np.int16]:
    """Packs [C * multiplier, 1, *kernel]: [kernel positions][round_up(channels, lanes)], centred."""
    if weight.ndim < 3 or weight.shape[1] != 1:
        raise ValueError(f"a depthwise weight is [channels, 1, *kernel], got {weight.shape}")
    channels = weight.shape[0]
    zeros = np.broadcast_to(np.asarray(zero), (channels,)).astype(np.int16)
    taps = weight.reshape(channels, -1).astype(np.int16).T - zeros
    packed = np.zeros((taps.shape[0], round_up(channels, shape.lanes)), np.int16)
    packed[:, :channels] = taps
    return packed.ravel()
