"""Weights as kernels read them: which packing function a `Packed` argument names."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graphwright.compiler.codegen.cpp import packing
from graphwright.compiler.codegen.cpp.packing import PanelShape, panel_shape
from graphwright.compiler.codegen.kernel import Packed
from graphwright.compiler.codegen.toolchain import find_toolchain, resolved_level

Array = np.ndarray


def _gemm(array: Array, shape: PanelShape) -> Array:
    return packing.pack_gemm_b(np.ascontiguousarray(array, np.float32), shape=shape)


def _conv(array: Array, shape: PanelShape, groups: int) -> Array:
    return packing.pack_conv_weight(np.asarray(array, np.float32), groups=groups, shape=shape)


def _conv_transpose(array: Array, shape: PanelShape, groups: int) -> Array:
    weight = np.asarray(array, np.float32)
    return packing.pack_conv_transpose_weight(weight, groups=groups, shape=shape)


def _depthwise(array: Array, shape: PanelShape) -> Array:
    return packing.pack_depthwise_weight(np.asarray(array, np.float32), shape=shape)


PACKINGS: Mapping[str, Callable[..., Array]] = {
    "gemm": _gemm,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "depthwise": _depthwise,
}


def pack(packed: Packed, level: str) -> Array:
    """The flat array that kernels of an ISA level read."""
    if level == "native":
        level = resolved_level(find_toolchain(), level)
    function = PACKINGS[packed.packing]
    return function(packed.source.array(), panel_shape(level), **dict(packed.parameters))


def packed_form(level: str) -> str:
    """The form that packed weights of an ISA level have; equal forms are stored once."""
    if level == "native":
        level = resolved_level(find_toolchain(), level)
    return str(panel_shape(level))
