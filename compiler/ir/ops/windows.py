"""Sliding windows over the spatial axes (2 and later) of N, C, ... tensors: extents and views."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim, Shape, ceildiv, floordiv, minimum
from graphwright.compiler.ir.op import Attributes, Inference, InferenceError
from graphwright.compiler.ir.ops.checks import check_length


def check_windows(op: str, attributes: Attributes, spatial: int, names: Sequence[str]) -> None:
    """Each named attribute has one entry a spatial axis; strides and dilations are positive."""
    if spatial < 1:
        raise InferenceError(f"{op}: operand has no spatial axes, want N, C and at least one more")
    for name in names:
        check_length(op, name, attributes[name], spatial)
        if name in ("strides", "dilations", "kernel"):
            for n in attributes[name]:
                if not isinstance(n, int) or n < 1:
                    raise InferenceError(f"{op}: {name} {attributes[name]}, want positive ints")


def infer_windows(
    op: str,
    extents: Shape,
    kernel: Shape,
    attributes: Attributes,
    inference: Inference,
    *,
    ceil_mode: bool = False,
) -> Shape:
    """How many windows fit along each axis.

    With `ceil_mode` the last window may reach beyond the padding, but it starts inside the tensor
    or its low padding.  None fits where the window is larger: the result is empty.
    """
    out: list[Dim] = []
    for i, (extent, size) in enumerate(zip(extents, kernel, strict=True)):
        stride, dilation = attributes["strides"][i], attributes["dilations"][i]
        low, high = attributes["low"][i], attributes["high"][i]
        for side, pad in (("low", low), ("high", high)):
            inference.require(pad, ">=", 0, f"{op}: {side} padding of spatial axis {i}")
        reach = dilation * (size - 1) + 1
        room = extent + low + high - reach
        # The count below is not negative.  Asking for a window (room >= 0) would leave a constraint
        # at each layer of a network whose images may be empty.
        reason = f"{op}: windows of {reach} by {stride} on spatial axis {i}"
        inference.require(extent + low + high, ">=", reach - stride, reason)
        if ceil_mode:
            out.append(minimum(ceildiv(room, stride) + 1, ceildiv(extent + low, stride)))
        else:
            out.append(floordiv(room, stride) + 1)
    return tuple(out)


def pad_windows(
    x: np.ndarray,
    kernel: Sequence[int],
    out: Sequence[int],
    attributes: Attributes,
    low: Sequence[int],
    value: object,
) -> np.ndarray:
    """x padded with `value` to exactly what `out` windows along each axis read."""
    strides, dilations = attributes["strides"], attributes["dilations"]
    shape, source, target = list(x.shape), [slice(None)] * x.ndim, [slice(None)] * x.ndim
    for i, (size, count) in enumerate(zip(kernel, out, strict=True)):
        shape[2 + i] = max((count - 1) * strides[i] + dilations[i] * (size - 1) + 1, 0)
        kept = max(min(x.shape[2 + i], shape[2 + i] - low[i]), 0)
        source[2 + i], target[2 + i] = slice(0, kept), slice(low[i], low[i] + kept)
    padded = np.full(shape, value, x.dtype)
    padded[tuple(target)] = x[tuple(source)]
    return padded


def window_slices(
    kernel: Sequence[int], out: Sequence[int], attributes: Attributes
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """(kernel coordinate, slices of the padded spatial axes that it meets), over all coordinates."""
    strides, dilations = attributes["strides"], attributes["dilations"]
    for coordinate in itertools.product(*(range(k) for k in kernel)):
        starts = [c * d for c, d in zip(coordinate, dilations, strict=True)]
        yield (
            coordinate,
            tuple(
                slice(s, s + max((n - 1) * step + 1, 0), step)
                for s, n, step in zip(starts, out, strides, strict=True)
            ),
        )


def window_view(
    x: np.ndarray, kernel: Sequence[int], out: Sequence[int], attributes: Attributes
) -> np.ndarray:
    """A read-only view [N, C, kernel..., out...] of padded x."""
    strides, dilations = attributes["strides"], attributes["dilations"]
    spatial = x.strides[2:]
    steps = [s * d for s, d in zip(spatial, dilations, strict=True)]
    hops = [s * d for s, d in zip(spatial, strides, strict=True)]
    return np.lib.stride_tricks.as_strided(
        x, (*x.shape[:2], *kernel, *out), (*x.strides[:2], *steps, *hops), writeable=False
    )
