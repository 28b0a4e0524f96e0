"""Weights as kernels read them: which packing function a `Packed` argument names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from graphwright.compiler.codegen.cpp import integer_packing, packing
from graphwright.compiler.codegen.cpp.integer_packing import Left
from graphwright.compiler.codegen.cpp.packing import PanelShape, integer_shape, panel_shape
from graphwright.compiler.codegen.kernel import Packed
from graphwright.compiler.codegen.toolchain import find_toolchain, resolved_level

Array = np.ndarray


def _gemm(array: Array, shape: PanelShape) -> Array:
    return packing.pack_gemm_b(np.asarray(array, np.float32), shape=shape)


def _conv(array: Array, shape: PanelShape, groups: int) -> Array:
    return packing.pack_conv_weight(np.asarray(array, np.float32), groups=groups, shape=shape)


def _conv_transpose(array: Array, shape: PanelShape, groups: int) -> Array:
    weight = np.asarray(array, np.float32)
    return packing.pack_conv_transpose_weight(weight, groups=groups, shape=shape)


def _depthwise(array: Array, shape: PanelShape) -> Array:
    return packing.pack_depthwise_weight(np.asarray(array, np.float32), shape=shape)


def _recurrent(array: Array, shape: PanelShape) -> Array:
    """[directions, gates * hidden, k] for gw/recurrent.h: each direction's transpose as panels."""
    return np.concatenate([_gemm(direction.T, shape) for direction in array])


def _gru_recurrent(array: Array, shape: PanelShape) -> Array:
    """Recurrent weights of a gru that resets before the product: z and r, then h."""
    split = 2 * array.shape[2]
    parts = [p for d in array for p in (d[:split].T, d[split:].T)]
    return np.concatenate([_gemm(p, shape) for p in parts])


def _lstm_bias(array: Array, shape: PanelShape) -> Array:
    """[directions, 8 * hidden]: the sum of both biases."""
    del shape
    halves = np.asarray(array, np.float32).reshape(len(array), 2, -1)
    return np.ascontiguousarray(halves.sum(axis=1)).ravel()


def _gru_bias(array: Array, shape: PanelShape, linear: int) -> Array:
    """[directions, 6 * hidden]: z and r summed, then the biases of h, apart when `linear`."""
    del shape
    into, again = np.split(np.asarray(array, np.float32), 2, axis=1)
    hidden = into.shape[1] // 3
    both = into[:, : 2 * hidden] + again[:, : 2 * hidden]
    fresh, recurrent = into[:, 2 * hidden :], again[:, 2 * hidden :]
    parts = [both, fresh if linear else fresh + recurrent, recurrent]
    return np.ascontiguousarray(np.concatenate(parts, axis=1)).ravel()


_LEFT: tuple[Left, ...] = ("u8", "i8", "i16")  # what a packing's parameter `left` counts


def _zeros(zero: int | Array, weights: Array) -> Array:
    """Zero points of weights in their type; one number comes as an int."""
    return np.asarray(zero).astype(weights.dtype)


def _integer_gemm(
    array: Array, shape: PanelShape, zeros: Array | None = None, *, left: int, zero: int = 0
) -> Array:
    used = _zeros(zero if zeros is None else zeros.reshape(-1), array)
    packed = np.ascontiguousarray(array)
    return integer_packing.pack_integer_b(packed, used, left=_LEFT[left], shape=shape)


def _lstm_integer(array: Array, shape: PanelShape, zeros: Array) -> Array:
    """[directions, k, gates * hidden] for gw/lstm_integer.h, zero points [directions, gates * hidden]."""
    return np.concatenate([
        _integer_gemm(a, shape, z, left=_LEFT.index("u8")) for a, z in zip(array, zeros, strict=True)
    ])  # fmt: skip


def _integer_conv(
    array: Array,
    shape: PanelShape,
    zeros: Array | None = None,
    *,
    left: int,
    groups: int,
    zero: int = 0,
) -> Array:
    used = _zeros(zero if zeros is None else zeros, array)
    return integer_packing.pack_integer_conv(
        array, used, left=_LEFT[left], groups=groups, shape=shape
    )


def _integer_depthwise(
    array: Array, shape: PanelShape, zeros: Array | None = None, *, zero: int = 0
) -> Array:
    used = _zeros(zero if zeros is None else zeros, array)
    return integer_packing.pack_integer_depthwise(array, used, shape=shape)


PACKINGS: Mapping[str, Callable[..., Array]] = {
    "gemm": _gemm,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "depthwise": _depthwise,
    "integer_gemm": _integer_gemm,
    "integer_conv": _integer_conv,
    "integer_depthwise": _integer_depthwise,
    "integer_lstm": _lstm_integer,
    "recurrent": _recurrent,
    "gru_recurrent": _gru_recurrent,
    "lstm_bias": _lstm_bias,
    "gru_bias": _gru_bias,
}


def pack(packed: Packed, form: PanelShape) -> Array:
    """The flat array that kernels read, of `packed_type`."""
    arrays = [source.array() for source in (packed.source, *packed.more)]
    return pack_arrays(packed.packing, packed.parameters, form, arrays)


def pack_arrays(
    packing: str, parameters: Iterable[tuple[str, int]], form: PanelShape, arrays: Sequence[Array]
) -> Array:
    """The packed form of a weight, given with the further arrays that its packing takes."""
    first, *more = arrays
    return PACKINGS[packing](first, form, *more, **dict(parameters))


def packed_type(packed: Packed, form: PanelShape) -> tuple[str, int]:
    """Element type (its long name) and number of elements of a packed weight, without packing it."""
    shape, given = packed.source.shape, dict(packed.parameters)
    match packed.packing:
        case "gemm":
            return "float32", packing.packed_size(*shape, shape=form)
        case "conv":
            return "float32", packing.conv_size(shape, groups=given["groups"], shape=form)
        case "conv_transpose":
            return "float32", packing.conv_transpose_size(shape, groups=given["groups"], shape=form)
        case "depthwise":
            return "float32", packing.depthwise_size(shape, shape=form)
        case "recurrent":
            return "float32", shape[0] * packing.packed_size(shape[2], shape[1], shape=form)
        case "gru_recurrent":
            hidden = shape[2]
            parts = (2 * hidden, shape[1] - 2 * hidden)
            each = [packing.packed_size(hidden, n, shape=form) for n in parts]
            return "float32", shape[0] * sum(each)
        case "lstm_bias":
            return "float32", math.prod(shape) // 2
        case "gru_bias":
            return "float32", math.prod(shape) // 3 * 2
        case "integer_gemm":
            return "uint8", integer_packing.integer_size(*shape, shape=form)
        case "integer_conv":
            groups = given["groups"]
            depth = math.prod(shape[1:])
            each = integer_packing.integer_size(depth, shape[0] // groups, shape=form)
            return "uint8", groups * each
        case "integer_lstm":
            each = integer_packing.integer_size(*shape[1:], shape=form)
            return "uint8", shape[0] * each
        case "integer_depthwise":
            return "int16", packing.depthwise_size(shape, shape=form)
        case _:
            raise ValueError(f"there is no packing {packed.packing!r}")


def packed_form(level: str, packing: str) -> PanelShape:
    """The form that weights of a packing have at an ISA level; equal forms are stored once."""
    if level == "native":
        level = resolved_level(find_toolchain(), level)
    return integer_shape(level) if packing.startswith("integer_") else panel_shape(level)
