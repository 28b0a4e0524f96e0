"""Complex numbers and transforms of com.microsoft: products, Fourier transforms, inverse matrices."""

from __future__ import annotations

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I64
from graphwright.frontends.onnx.compose_signal import half_weights, roots, transformed
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

MOST_ROWS = 16  # of a matrix whose inverse is written out


def complex_mul(node: Node) -> Value:
    """Products of complex numbers, their parts along the last axis; ComplexMulConj conjugates b."""
    parts: list[tuple[Value, Value]] = []
    for i in range(2):
        x = node.ranked(i, 1, or_more=True)
        axis = x.type.rank - 1
        node.require(x.type.shape[axis], "==", 2, f"{node.type} {node.origin}: parts of input {i}")
        parts.append((node.slice_axis(x, axis, 0, 1), node.slice_axis(x, axis, 1, 1)))
    (a, b), (c, d) = parts
    if node.type == "ComplexMulConj":
        d = node.emit("neg", d)
    real = node.emit("sub", node.emit("mul", a, c), node.emit("mul", b, d))
    imaginary = node.emit("add", node.emit("mul", a, d), node.emit("mul", b, c))
    return node.emit("concat", real, imaginary, axis=real.type.rank - 1)


def _check_fourier(node: Node) -> None:
    if node.attr("signal_ndim", 1) != 1:
        raise Refusal(f"its signal_ndim is {node.attr('signal_ndim')}, want 1")
    if node.attr("normalized", 0) or not node.attr("onesided", 1):
        raise Refusal("it is normalized or two-sided", "use normalized=0 and onesided=1")


def rfft(node: Node) -> Value:
    """Along the last axis: [.., n] as [.., n / 2 + 1, 2]."""
    _check_fourier(node)
    x = node.ranked(0, 1, or_more=True)
    length = x.type.shape[-1]
    matrix = roots(node, x.type.dtype, length, dims.floordiv(length, 2) + 1, length, (1, 2))
    return transformed(node, node.unsqueeze(x, (x.type.rank,)), x.type.rank - 1, matrix)


def irfft(node: Node) -> Value:
    """[.., n / 2 + 1, 2] as [.., n], divided by n."""
    _check_fourier(node)
    x = node.ranked(0, 2, or_more=True)
    rows = x.type.shape[-2]
    length = 2 * (rows - 1)
    dtype = x.type.dtype
    weights = half_weights(node, rows, length)
    matrix = roots(node, dtype, rows, length, length, (2, 1), sign=-1, weights=weights)
    axis = x.type.rank - 2
    out = node.squeeze(transformed(node, x, axis, matrix), (axis + 1,))
    return node.emit("div", out, node.size(length, dtype))


def inverse(node: Node) -> Value:
    """Gauss-Jordan elimination with the largest pivot of each column, written out."""
    x = node.ranked(0, 2, or_more=True)
    n = x.type.shape[-1]
    if not isinstance(n, int) or not 1 <= n <= MOST_ROWS:
        raise Refusal(f"its matrices are {x.type}; want a known size, at most {MOST_ROWS}")
    node.require(x.type.shape[-2], "==", n, f"{node.type} {node.origin}: rows")
    wide = x.type.dtype if x.type.dtype.bits >= 32 else F32
    count = dims.product(x.type.shape[:-2])
    rows = node.reshape(node.cast(x, wide), (count, n, n))
    unit = node.broadcast_to(node.array(np.eye(n), wide), (count, n, n))
    both = node.emit("concat", rows, unit, axis=2)
    place = node.unsqueeze(node.iota(n), (0,))
    for k in range(n):
        column = node.emit("abs", node.slice_axis(node.slice_axis(both, 2, k, 1), 1, k, n - k))
        best = node.emit("arg_max", column, axis=1, keepdims=False)  # [count, 1]
        best = node.emit("add", best, node.scalar(k, I64))
        here = node.scalar(k, I64)
        is_here = node.emit("equal", place, here)
        swapped = node.where(node.emit("equal", place, best), here, place)
        swapped = node.where(is_here, best, swapped)
        both = node.emit("gather_nd", both, node.unsqueeze(swapped, (2,)), batch_dims=1)
        pivot = node.slice_axis(both, 1, k, 1)
        pivot = node.emit("div", pivot, node.slice_axis(pivot, 2, k, 1))
        factor = node.slice_axis(both, 2, k, 1)
        reduced = node.emit("sub", both, node.emit("mul", factor, pivot))
        both = node.where(node.unsqueeze(is_here, (2,)), pivot, reduced)
    out = node.reshape(node.slice_axis(both, 2, n, n), x.type.shape)
    return node.cast(out, x.type.dtype)
