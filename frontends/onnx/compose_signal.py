"""Fourier transforms as products with a matrix of roots of unity; the mel filter bank.

Complex tensors have a last axis of 2 (real, imaginary), as ONNX has it; real ones of 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from onnx import TensorProto

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F64, I64, DType
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

# (from part, to part): which function of the angle, and with which sign for the forward transform.
_PARTS = {(0, 0): ("cos", 1), (0, 1): ("sin", -1), (1, 0): ("sin", 1), (1, 1): ("cos", 1)}


def _check_signal(node: Node, x: Value) -> int:
    """How many parts (1 real, 2 complex) the last axis of a signal holds."""
    parts = x.type.shape[-1] if x.type.rank > 1 else None
    if parts not in (1, 2) or not x.type.dtype.is_float:
        raise Refusal(f"its signal is {x.type}, want floats with a last axis of 1 or 2")
    return int(parts)  # type: ignore[arg-type]


def roots(
    node: Node, dtype: DType, rows: Dim, columns: Dim, length: Dim, parts: tuple[int, int],
    *, sign: int = 1, weights: tuple[int, ...] = (),
) -> Value:  # fmt: skip
    """[rows, parts[0], columns, parts[1]]: the powers exp(-sign * 2 pi i * row * column / length)
    as the matrix that maps the parts of a row to those of a column.

    A constant where the sizes are known, calculated in float64; else made at run time.  `weights`:
    of the rows, for a one-sided spectrum.
    """
    known = all(isinstance(d, int) for d in (rows, columns, length))
    if not known:
        return _roots_at_run_time(node, dtype, rows, columns, length, parts, sign)
    products = np.outer(np.arange(rows), np.arange(columns)) % max(int(length), 1)  # type: ignore[arg-type, call-overload]
    angle = products * (2 * np.pi / max(int(length), 1))  # type: ignore[arg-type]
    table = {"cos": np.cos(angle), "sin": np.sin(angle)}
    out = np.empty((rows, parts[0], columns, parts[1]))  # type: ignore[arg-type]
    for i in range(parts[0]):
        for j in range(parts[1]):
            name, factor = _PARTS[i, j]
            out[:, i, :, j] = table[name] * (factor * (sign if name == "sin" else 1))
    if weights:
        out *= np.array(weights).reshape(-1, 1, 1, 1)
    return node.array(out.astype(dtype.numpy))


def _roots_at_run_time(
    node: Node, dtype: DType, rows: Dim, columns: Dim, length: Dim, parts: tuple[int, int],
    sign: int,
) -> Value:  # fmt: skip
    product = node.emit(
        "mul", node.unsqueeze(node.iota(rows), (1,)), node.unsqueeze(node.iota(columns), (0,))
    )
    within = node.emit("mod", product, node.size(length, I64), fmod=False)
    turn = node.emit("div", node.scalar(2 * math.pi, dtype), node.size(length, dtype))
    angle = node.emit("mul", node.cast(within, dtype), turn)
    table = {name: node.unsqueeze(node.emit(name, angle), (1, 3)) for name in ("cos", "sin")}

    def entry(i: int, j: int) -> Value:
        name, factor = _PARTS[i, j]
        factor *= sign if name == "sin" else 1
        return table[name] if factor == 1 else node.emit("neg", table[name])

    lines: list[Value] = []
    for i in range(parts[0]):
        line = [entry(i, j) for j in range(parts[1])]
        lines.append(line[0] if len(line) == 1 else node.emit("concat", *line, axis=3))
    return lines[0] if len(lines) == 1 else node.emit("concat", *lines, axis=1)


def dft(node: Node) -> Value:
    """Along one axis: forward or (divided by the length) inverse, whole or one-sided spectra."""
    x = node.x()
    parts = _check_signal(node, x)
    rank = x.type.rank
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    if node.opset >= 20:
        choices = [a for a in range(-rank, rank) if a % rank != rank - 1]
        axis = node.number_at(2, "the axis", choices) if node.has_input(2) else -2
    else:
        axis = node.attr("axis", 1)
    axis = node.axis(axis, rank)
    if axis == rank - 1:
        raise Refusal("its axis is the last one, which holds real and imaginary parts")
    extent = x.type.shape[axis]
    length: Dim = 2 * (extent - 1) if inverse and onesided else extent
    if node.has_input(1):
        (length,) = node.dims(1, "the length")
    half = dims.floordiv(length, 2) + 1
    used = half if inverse and onesided else length
    # Longer signals are cut; for shorter ones the rows beyond them are zeros that need no product.
    rows = node.smaller(extent, used)
    x = node.slice_axis(x, axis, 0, rows)
    to = 1 if inverse and onesided else 2
    columns = half if onesided and not inverse else length
    weights = half_weights(node, rows, length) if inverse and onesided else ()
    sign = -1 if inverse else 1
    matrix = roots(
        node, x.type.dtype, rows, columns, length, (parts, to), sign=sign, weights=weights
    )
    out = transformed(node, x, axis, matrix)
    if inverse:
        out = node.emit("div", out, node.size(length, x.type.dtype))
    return out


def half_weights(node: Node, rows: Dim, length: Dim) -> tuple[int, ...]:
    """How often each row of a one-sided spectrum stands in the whole one."""
    if not isinstance(rows, int) or not isinstance(length, int):
        raise Refusal("a one-sided inverse needs known sizes", "fix the dims with --shape")
    return tuple(1 if r == 0 or 2 * r == length else 2 for r in range(rows))


def transformed(node: Node, x: Value, axis: int, matrix: Value) -> Value:
    """x with its `axis` and last axis contracted with the first two of the matrix, its last two in
    their places."""
    rank = x.type.rank
    order = [*(a for a in range(rank) if a not in (axis, rank - 1)), axis, rank - 1]
    moved = node.transpose(x, order)
    *lead, rows, parts = moved.type.shape
    columns, to = matrix.type.shape[2:]
    flat = node.reshape(moved, (*lead, rows * parts))
    table = node.reshape(matrix, (rows * parts, columns * to))
    out = node.reshape(node.emit("matmul", flat, table), (*lead, columns, to))
    return node.transpose(out, [order.index(a) for a in range(rank)])


def stft(node: Node) -> Value:
    """Frames of the signal, each times the window, transformed: a convolution whose filters are the
    rows of the windowed transform."""
    x = node.x()
    if x.type.rank == 2:
        x = node.unsqueeze(x, (2,))
    parts = _check_signal(node, x)
    if x.type.rank != 3:
        raise Refusal(f"its signal is {x.type}, want [batch, length, 1 or 2]")
    (step,) = node.dims(1, "the frame step")
    window = node.maybe(2)
    if node.has_input(3):
        (length,) = node.dims(3, "the frame length")
    else:
        length = window.type.shape[0] if window is not None else x.type.shape[1]
    node.require(step, ">=", 1, f"STFT {node.origin}: frame step")
    node.require(x.type.shape[1], ">=", length, f"STFT {node.origin}: a frame fits")
    if window is not None:
        node.require(window.type.shape[0], "==", length, f"STFT {node.origin}: window length")
    onesided = bool(node.attr("onesided", 1)) and parts == 1
    columns = dims.floordiv(length, 2) + 1 if onesided else length
    matrix = roots(node, x.type.dtype, length, columns, length, (parts, 2))
    if not isinstance(step, int) or not isinstance(length, int):
        return _gathered_frames(node, x, step, length, window, matrix)
    if window is not None:
        matrix = node.emit("mul", matrix, node.reshape(window, (length, 1, 1, 1)))
    filters = node.reshape(node.transpose(matrix, (2, 3, 1, 0)), (2 * columns, parts, length))
    out = node.emit(
        "conv", node.transpose(x, (0, 2, 1)), filters,
        strides=(step,), low=(0,), high=(0,), dilations=(1,), groups=1,
    )  # fmt: skip
    batch, _, frames = out.type.shape
    out = node.reshape(out, (batch, columns, 2, frames))
    return node.transpose(out, (0, 3, 1, 2))


def _gathered_frames(
    node: Node, x: Value, step: Dim, length: Dim, window: Value | None, matrix: Value
) -> Value:
    """The same with sizes that only a call knows: frames are gathered."""
    batch, samples, parts = x.type.shape
    frames = dims.floordiv(samples - length, dims.maximum(step, 1)) + 1
    begin = node.emit("mul", node.iota(frames), node.size(step))
    place = node.emit("add", node.unsqueeze(begin, (1,)), node.unsqueeze(node.iota(length), (0,)))
    cut = node.gather(x, place, 1)
    if window is not None:
        cut = node.emit("mul", cut, node.reshape(window, (length, 1)))
    columns = matrix.type.shape[2]
    table = node.reshape(matrix, (length * parts, columns * 2))
    flat = node.reshape(cut, (batch, frames, length * parts))
    return node.reshape(node.emit("matmul", flat, table), (batch, frames, columns, 2))


def _late_mel_weights(node: Node) -> Value:
    """The same with numbers that only a call knows, in float64."""
    (bins,), (length,) = node.dims(0, "the number of bins"), node.dims(1, "the length")
    rate, low, high = (node.reshape(node.cast(node.x(i), F64), ()) for i in (2, 3, 4))
    dtype = node.dtype(node.attr("output_datatype", TensorProto.FLOAT))

    def number(value: float) -> Value:
        return node.scalar(value, F64)

    def mel(hertz: Value) -> Value:
        ratio = node.emit("add", node.emit("div", hertz, number(700)), number(1))
        return node.emit("mul", node.emit("log", ratio), number(2595 / math.log(10)))

    count = node.size(bins + 2, F64)
    each = node.emit("div", node.emit("sub", mel(high), mel(low)), count)
    place = node.emit("mul", node.cast(node.iota(bins + 2), F64), each)
    place = node.emit("div", node.emit("add", place, mel(low)), number(2595))
    hertz = node.emit("sub", node.emit("pow", number(10), place), number(1))
    scaled = node.emit("mul", node.emit("mul", hertz, number(700)), node.size(length + 1, F64))
    edges = node.cast(node.emit("floor", node.emit("div", scaled, rate)), I64)
    rows = dims.floordiv(length, 2) + 1
    k = node.unsqueeze(node.iota(rows), (1,))
    left, centre, right = (
        node.unsqueeze(node.slice_axis(edges, 0, i, bins), (0,)) for i in range(3)
    )
    one, zero = node.scalar(1, I64), number(0)

    def share(above: tuple[Value, Value], below: tuple[Value, Value]) -> Value:
        top = node.cast(node.emit("sub", *above), F64)
        return node.emit("div", top, node.cast(node.emit("maximum", node.emit("sub", *below), one), F64))  # fmt: skip

    def both(name: str, a: tuple[Value, Value], other: str, b: tuple[Value, Value]) -> Value:
        return node.emit("logical_and", node.emit(name, *a), node.emit(other, *b))

    rising = node.where(
        both("greater_or_equal", (k, left), "less_or_equal", (k, centre)),
        node.where(node.emit("equal", left, centre), number(1), share((k, left), (centre, left))),
        zero,
    )
    falls = both("greater", (k, centre), "less", (k, right))
    out = node.where(falls, share((right, k), (right, centre)), rising)
    return node.cast(out, dtype)


def mel_weight_matrix(node: Node) -> Value:
    """Triangular filters over the bins of a spectrum, equally wide on the mel scale."""
    if any(node.known(node.x(i)) is None for i in range(5)):
        return _late_mel_weights(node)
    names = (
        "the number of bins",
        "the length",
        "the sample rate",
        "the lower edge",
        "the upper edge",
    )
    bins, length, rate, low, high = (node.one(i, what) for i, what in enumerate(names))
    dtype = node.dtype(node.attr("output_datatype", TensorProto.FLOAT))
    edges = _mel_edges(int(bins), int(length), int(rate), float(low), float(high))
    out = np.zeros((int(length) // 2 + 1, int(bins)))
    if edges[-1] >= len(out):
        raise Refusal(f"its upper edge {high} Hz is above half of its sample rate {rate} Hz")
    for i in range(int(bins)):
        left, centre, right = edges[i : i + 3]
        if left == centre:
            out[centre, i] = 1
        else:
            out[left : centre + 1, i] = np.arange(centre - left + 1) / (centre - left)
        if right > centre:
            out[centre:right, i] = np.arange(right - centre, 0, -1) / (right - centre)
    return node.array(out.astype(dtype.numpy))


def _mel_edges(bins: int, length: int, rate: int, low: float, high: float) -> Sequence[int]:
    """The spectrum bins where the filters start, peak and end."""
    first, last = (2595 * np.log10(1 + f / 700) for f in (low, high))
    mel = np.arange(bins + 2) * ((last - first) / (bins + 2)) + first
    hertz = 700 * (10 ** (mel / 2595) - 1)
    return [int(e) for e in ((length + 1) * hertz) // rate]


COMPOSE = {"DFT": dft, "MelWeightMatrix": mel_weight_matrix, "STFT": stft}
