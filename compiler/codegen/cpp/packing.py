"""Weight layouts that the C++ kernels read, made once at compile time.

The contraction kernels (include/gw/gemm.h, conv.h, matmul.h) read the right operand as column
panels: panel j holds columns [j * P, j * P + P), row after row, P floats a row. Columns past the
matrix are zero. Panel j starts at j * K * P floats, so the whole takes K * round_up(N, P) floats.
`panel_shape` gives P for a target ISA (one vector of P lanes), which must equal kPanel of
include/gw/simd.h: 16 for x86-64-v3 and v4, so that an artifact for both holds float weights once.
Integer weights (`integer_shape`) have panels as wide as the ISA's tiles.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class PanelShape:
    """Geometry of a packed panel: `vectors` times `lanes` elements a row."""

    lanes: int
    vectors: int

    @property
    def columns(self) -> int:
        """Columns of a full panel."""
        return self.lanes * self.vectors


_INTEGER_SHAPES = {
    "x86-64": PanelShape(4, 2),
    "x86-64-v2": PanelShape(4, 2),
    "x86-64-v3": PanelShape(8, 2),
    "x86-64-v4": PanelShape(16, 2),
    "x86-64-v4-vnni": PanelShape(16, 2),
    "aarch64": PanelShape(4, 4),
}


_SHAPES = {isa: PanelShape(min(s.columns, 16), 1) for isa, s in _INTEGER_SHAPES.items()}


def panel_shape(isa: str) -> PanelShape:
    """Geometry of float panels for a named ISA, as include/gw/simd.h chooses it from macros."""
    return _shape(_SHAPES, isa)


def integer_shape(isa: str) -> PanelShape:
    """Geometry of integer panels for a named ISA: kLanes and kNV of include/gw/simd.h."""
    return _shape(_INTEGER_SHAPES, isa)


def _shape(shapes: Mapping[str, PanelShape], isa: str) -> PanelShape:
    if isa not in shapes:
        raise ValueError(f"unknown ISA {isa!r}: expected one of {', '.join(shapes)}")
    return shapes[isa]


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
    out = np.zeros(packed_size(*b.shape, shape=shape), np.float32)
    _fill_panels(out, b, shape)
    return out


def _fill_panels(out: Array, b: Array, shape: PanelShape) -> None:
    """Writes the panels of b [K, N] into zeros; large weights are packed without a second copy."""
    k, n = b.shape
    for start in range(0, n, shape.columns):
        stop = min(start + shape.columns, n)
        width = round_up(stop - start, shape.lanes)
        panel = out[start * k : start * k + k * width].reshape(k, width)
        panel[:, : stop - start] = b[:, start:stop]


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
    return _pack_each(matrices, shape)


def _pack_each(matrices: Array, shape: PanelShape) -> Array:
    """The packed matrices of [count, K, N], one after another."""
    count, k, n = matrices.shape
    out = np.zeros((count, packed_size(k, n, shape=shape)), np.float32)
    for part, matrix in zip(out, matrices, strict=True):
        _fill_panels(part, matrix, shape)
    return out.reshape(-1)


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
    return _pack_each(matrices, shape)


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
