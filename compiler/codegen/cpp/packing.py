"""Weight layouts that the C++ kernels read, made once at compile time.

The contraction kernels (include/gw/gemm.h, conv.h, matmul.h) read the right operand as column
panels: panel j holds columns [j * NR, j * NR + width), row after row, `width` floats a row, where
NR = vectors * lanes and width = NR but for the last panel, which is as narrow as a multiple of
`lanes` allows. Columns past the matrix are zero. Panel j starts at j * K * NR floats, so the whole
takes K * round_up(N, lanes) floats. `lanes` and `vectors` come from the target ISA (`panel_shape`)
and must equal kLanes and kNV of include/gw/simd.h.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PanelShape:
    """Geometry of a packed panel: `vectors` vectors of `lanes` float32 values a row."""

    lanes: int
    vectors: int

    @property
    def columns(self) -> int:
        """Columns of a full panel (kNR)."""
        return self.lanes * self.vectors


_SHAPES = {
    "x86-64": PanelShape(4, 2),
    "x86-64-v2": PanelShape(4, 2),
    "x86-64-v3": PanelShape(8, 2),
    "x86-64-v4": PanelShape(16, 2),
    "x86-64-v4-vnni": PanelShape(16, 2),
    "aarch64": PanelShape(4, 4),
}


def panel_shape(isa: str) -> PanelShape:
    """Panel geometry of a named ISA, as include/gw/simd.h chooses it from the compiler's macros."""
    if isa not in _SHAPES:
        raise ValueError(f"unknown ISA {isa!r}: expected one of {', '.join(_SHAPES)}")
    return _SHAPES[isa]


def round_up(value: int, multiple: int) -> int:
    """Smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


def packed_size(k: int, n: int, *, shape: PanelShape) -> int:
    """Floats that `pack_gemm_b` returns for a [k, n] matrix."""
    return k * round_up(n, shape.lanes)


def conv_size(weight: Sequence[int], *, groups: int, shape: PanelShape) -> int:
    """Floats that `pack_conv_weight` returns for a weight of this shape."""
    out, depth = weight[0] // groups, math.prod(weight[1:])
    return groups * packed_size(depth, out, shape=shape)


def conv_transpose_size(weight: Sequence[int], *, groups: int, shape: PanelShape) -> int:
    """Floats that `pack_conv_transpose_weight` returns for a weight of this shape."""
    depth = weight[0] // groups * math.prod(weight[2:])
    return groups * packed_size(depth, weight[1], shape=shape)


def depthwise_size(weight: Sequence[int], *, shape: PanelShape) -> int:
    """Elements that a packed depthwise weight of this shape has."""
    return packed_size(math.prod(weight[2:]), weight[0], shape=shape)


def pack_gemm_b(b: Array, *, shape: PanelShape) -> Array:
    """Packs b [K, N] into column panels; returns a flat float32 array of packed_size(K, N)."""
    if b.ndim != 2:
        raise ValueError(f"pack_gemm_b needs a matrix, got shape {b.shape}")
    k, n = b.shape
    padded = np.zeros((k, round_up(n, shape.lanes)), np.float32)
    padded[:, :n] = b
    panels = [
        padded[:, start : start + shape.columns].ravel()
        for start in range(0, padded.shape[1], shape.columns)
    ]
    return np.concatenate(panels) if panels else np.zeros(0, np.float32)


def pack_conv_weight(weight: Array, *, groups: int, shape: PanelShape) -> Array:
    """Packs a convolution weight [O, I/groups, *kernel] (any number of kernel axes) for gw/conv.h.

    Each group becomes one packed matrix of K = kernel positions * I/groups rows (channel fastest)
    and O/groups columns; the groups follow each other.
    """
    out_channels = weight.shape[0]
    if weight.ndim < 3 or groups < 1 or out_channels % groups:
        raise ValueError(f"weight {weight.shape} does not split in {groups} groups")
    per_group = out_channels // groups
    channels_last = np.moveaxis(weight, 1, -1)  # [O, *kernel, I/groups]
    matrices = channels_last.reshape(groups, per_group, -1).transpose(0, 2, 1)
    return np.concatenate([pack_gemm_b(m, shape=shape) for m in matrices])


def pack_conv_transpose_weight(weight: Array, *, groups: int, shape: PanelShape) -> Array:
    """Packs a transposed convolution's weight [I, O/groups, *kernel] for gw/conv_transpose.h.

    Same panels as `pack_conv_weight`; kernel positions keep their order (the kernel pairs position
    k with the input it came from, nothing is flipped).
    """
    in_channels = weight.shape[0]
    if weight.ndim < 3 or groups < 1 or in_channels % groups:
        raise ValueError(f"weight {weight.shape} does not split in {groups} groups")
    grouped = weight.reshape(groups, in_channels // groups, *weight.shape[1:])
    rows = np.moveaxis(grouped, (1, 2), (-2, -1))  # [G, *kernel, I/groups, O/groups]
    matrices = rows.reshape(groups, -1, weight.shape[1])
    return np.concatenate([pack_gemm_b(m, shape=shape) for m in matrices])


def pack_depthwise_weight(weight: Array, *, shape: PanelShape) -> Array:
    """Packs a depthwise weight [C * multiplier, 1, *kernel] for gw/depthwise.h.

    Returns [kernel positions][round_up(C * multiplier, lanes)], zero padded, flattened.
    """
    if weight.ndim < 3 or weight.shape[1] != 1:
        raise ValueError(f"a depthwise weight is [channels, 1, *kernel], got {weight.shape}")
    channels = weight.shape[0]
    taps = weight.reshape(channels, -1).T
    packed = np.zeros((taps.shape[0], round_up(channels, shape.lanes)), np.float32)
    packed[:, :channels] = taps
    return packed.ravel()
