"""Convolution and pooling.  torch leaves out the batch axis of a single image; ours never do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I64, DType
from graphwright.frontends.torch.node import Compose, Node, known_sizes
from graphwright.frontends.torch.refusal import Refusal


def spread(values: Sequence[int] | int | None, count: int, default: int = 0) -> tuple[int, ...]:
    """One entry an axis: torch repeats a single one."""
    listed = [values] if isinstance(values, int) else list(values or [default])
    return tuple(listed * count) if len(listed) == 1 else tuple(listed)


def batched(node: Node, x: Value, rank: int) -> Value:
    """x with a batch axis."""
    return x if x.type.rank == rank + 2 else node.unsqueeze(x, (0,))


def convolution(node: Node) -> Value:
    """All of torch's convolutions; `transposed` ones have their weight as [in, out / groups, ...]."""
    node.ignore("benchmark", "deterministic", "cudnn_enabled", "allow_tf32")
    x, weight, bias = node.x("input"), node.x("weight"), node.maybe("bias")
    rank = weight.type.rank - 2
    image = batched(node, x, rank)
    given = node.arg("padding")
    strides, dilations = (spread(node.arg(n), rank, 1) for n in ("stride", "dilation"))
    transposed = bool(node.arg("transposed")) if "transposed" in node._given else False
    kernel = weight.type.shape[2:]
    if isinstance(given, str):
        low, high = named_padding(given, kernel, dilations)
    else:
        low = high = spread(given, rank)
    attributes = {
        "strides": strides,
        "low": low,
        "high": high,
        "dilations": dilations,
        "groups": node.arg("groups"),
    }
    operands = [image, weight] + ([bias] if bias is not None else [])
    if transposed:
        extra = spread(node.arg("output_padding"), rank)
        out = transposed_convolution(node, *operands, **attributes, output_padding=extra)
    else:
        node.ignore("output_padding")
        out = node.emit("conv", *operands, **attributes)
    return out if image is x else node.reshape(out, out.type.shape[1:])


def transposed_convolution(node: Node, x: Value, weight: Value, *bias: Value, **how: Any) -> Value:
    """`conv_transpose`; in types that it has no kernel for, a convolution of the image with zeros
    between its elements by the mirrored filters.
    """
    dtype = x.type.dtype
    if dtype.is_float and dtype.bits <= 32:
        return node.emit("conv_transpose", x, weight, *bias, **how)
    reason = f"a transposed convolution of {dtype} with filters of unknown size"
    inner, outer, *kernel = known_sizes(weight.type.shape, reason)
    rank, groups = len(kernel), how["groups"]
    spread_out = x
    for i, stride in enumerate(how["strides"]):
        if stride > 1:
            spread_out = _with_zeros(node, spread_out, 2 + i, stride)
    low, high = [0, 0], [0, 0]
    for i in range(rank):
        reach = how["dilations"][i] * (kernel[i] - 1)
        low.append(reach - how["low"][i])
        high.append(reach - how["high"][i] + how["output_padding"][i])
    # A negative pad takes away.
    kept = spread_out
    for axis in range(2, 2 + rank):
        size = kept.type.shape[axis]
        start, end = max(-low[axis], 0), max(-high[axis], 0)
        kept = node.slice_axis(kept, axis, start, size - start - end)
    pads = [tuple(max(p, 0) for p in side) for side in (low, high)]
    kept = node.emit("pad", kept, low=pads[0], high=pads[1])
    # [in, out / groups, ...] to [out, in / groups, ...], each filter from its end.
    filters = node.reshape(weight, [groups, inner // groups, outer, *kernel])
    filters = node.reshape(node.swap(filters, 1, 2), [groups * outer, inner // groups, *kernel])
    for axis, extent in enumerate(kernel, 2):
        place = node.emit("iota", size=extent, dtype=I64, start=extent - 1, step=-1)
        filters = node.emit("gather", filters, place, axis=axis)
    none = (0,) * rank
    return node.emit(
        "conv", kept, filters, *bias, strides=(1,) * rank, low=none, high=none,
        dilations=how["dilations"], groups=groups,
    )  # fmt: skip


def _with_zeros(node: Node, x: Value, axis: int, stride: int) -> Value:
    """Elements of an axis `stride` apart, with zeros between: n become stride * (n - 1) + 1."""
    extent, shape = x.type.shape[axis], list(x.type.shape)
    apart = node.unsqueeze(x, (axis + 1,))
    rank = apart.type.rank
    high = tuple(stride - 1 if a == axis + 1 else 0 for a in range(rank))
    apart = node.emit("pad", apart, low=(0,) * rank, high=high)
    shape[axis] = extent * stride
    return node.slice_axis(node.reshape(apart, shape), axis, 0, extent * stride - stride + 1)


def conv_transpose(node: Node) -> Value:
    x, weight, bias = node.x("input"), node.x("weight"), node.maybe("bias")
    rank = weight.type.rank - 2
    image = batched(node, x, rank)
    padding = spread(node.arg("padding"), rank)
    out = transposed_convolution(
        node,
        *([image, weight] + ([bias] if bias is not None else [])),
        strides=spread(node.arg("stride"), rank, 1),
        low=padding,
        high=padding,
        dilations=spread(node.arg("dilation"), rank, 1),
        groups=node.arg("groups"),
        output_padding=spread(node.arg("output_padding"), rank),
    )
    return out if image is x else node.reshape(out, out.type.shape[1:])


def named_padding(
    name: str, kernel: Sequence[Dim], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads of "valid" and "same" (for stride 1): the odd one comes last."""
    if name == "valid":
        return (0,) * len(kernel), (0,) * len(kernel)
    known = known_sizes(kernel, "its padding is 'same' for a kernel of unknown size")
    total = [d * (k - 1) for d, k in zip(dilations, known, strict=True)]
    low = tuple(t // 2 for t in total)
    return low, tuple(t - b for t, b in zip(total, low, strict=True))


def _window(node: Node, rank: int) -> dict[str, object]:
    kernel = spread(node.arg("kernel_size"), rank)
    stride = node.arg("stride")
    padding = spread(node.arg("padding"), rank)
    return {
        "kernel": kernel,
        "strides": kernel if not stride else spread(stride, rank),
        "low": padding,
        "high": padding,
        "dilations": spread(node.arg("dilation"), rank, 1)
        if "dilation" in node._given
        else (1,) * rank,
        "ceil_mode": bool(node.arg("ceil_mode")),
    }


def max_pool(rank: int, *, indices: bool = False) -> Compose:
    """Indices count within each plane."""

    def compose(node: Node) -> Value | Sequence[Value | None]:
        x = node.x()
        image = batched(node, x, rank)
        window = _window(node, rank)
        out = node.emit("max_pool", image, **window)
        shape = out.type.shape if image is x else out.type.shape[1:]
        values = node.reshape(out, shape)
        if not indices:
            return values
        if not any(user.args[1] == 1 for user in node.fx.users):
            return [values, None]
        places = node.emit("arg_max_pool", image, **window)
        plane = node.elements(image, range(2, rank + 2))
        within = node.emit("mod", places, node.size(plane, I64), fmod=False)
        return [values, node.reshape(within, shape)]

    return compose


def average_pool(rank: int) -> Compose:
    def compose(node: Node) -> Value:
        x = node.x()
        divisor = node.arg("divisor_override") if "divisor_override" in node._given else None
        image = batched(node, x, rank)
        window = _window(node, rank)
        counted = bool(node.arg("count_include_pad"))
        if divisor is not None:
            return _sums(node, x, image, window, divisor)
        out = node.emit("average_pool", image, **window, count_include_pad=counted)
        return node.reshape(out, out.type.shape if image is x else out.type.shape[1:])

    return compose


def _sums(node: Node, x: Value, image: Value, window: dict[str, object], divisor: int) -> Value:
    """Window sums over a fixed divisor: padding with zeros makes every window whole."""
    if window["ceil_mode"]:
        raise Refusal("its divisor_override with ceil_mode is not supported")
    kernel = window["kernel"]
    assert isinstance(kernel, tuple)
    count = 1
    for k in kernel:
        count *= k
    out = node.emit("average_pool", image, **window, count_include_pad=True)
    out = node.emit("mul", out, node.scalar(count / divisor, x.type.dtype))
    return node.reshape(out, out.type.shape if image is x else out.type.shape[1:])


def adaptive_average_pool(rank: int) -> Compose:
    """Windows from floor(i * n / m) to ceil((i + 1) * n / m); equal ones where m divides n."""

    def compose(node: Node) -> Value:
        x = node.x()
        image = batched(node, x, rank)
        sizes = spread(node.arg("output_size"), rank)
        extents = image.type.shape[2:]
        if all(s == 1 for s in sizes):
            out = node.emit("reduce_mean", image, axes=tuple(range(2, 2 + rank)), keepdims=True)
        elif all(isinstance(n, int) and n % s == 0 for n, s in zip(extents, sizes, strict=True)):
            kernel = tuple(n // s for n, s in zip(extents, sizes, strict=True))
            none = (0,) * rank
            out = node.emit(
                "average_pool",
                image,
                kernel=kernel,
                strides=kernel,
                low=none,
                high=none,
                dilations=(1,) * rank,
                ceil_mode=False,
                count_include_pad=False,
            )
        else:
            out = image
            for i, size in enumerate(sizes):
                out = _averages(node, out, 2 + i, size)
        return node.reshape(out, node.out_shape)

    return compose


def _averages(node: Node, x: Value, axis: int, size: int) -> Value:
    """Means of windows of unequal length along an axis, as a product with their weights."""
    n = x.type.shape[axis]
    if isinstance(n, int):
        rows: list[list[float]] = []
        for i in range(size):
            start, end = i * n // size, -(-(i + 1) * n // size)
            rows.append([1 / (end - start) if start <= j < end else 0.0 for j in range(n)])
        table = node.array(rows, x.type.dtype)
    else:
        table = _weights(node, n, size, x.type.dtype)
    last = x.type.rank - 1
    out = node.emit("matmul", node.swap(x, axis, last), node.transpose(table, (1, 0)))
    return node.swap(out, axis, last)


def _weights(node: Node, n: Dim, size: int, dtype: DType) -> Value:
    """[size, n]: the weights of `_averages` for an extent that is known when it runs."""
    steps, length = np.arange(size), node.size(n)
    parts = node.scalar(size, I64)
    start = node.emit("div", node.emit("mul", node.array(steps[:, None]), length), parts)
    end = node.emit("mul", node.array(steps[:, None] + 1), length)
    end = node.emit("div", node.emit("add", end, node.scalar(size - 1, I64)), parts)
    place = node.iota_along(n, 1, 2)
    inside = node.emit(
        "logical_and", node.emit("less_or_equal", start, place), node.emit("less", place, end)
    )
    count = node.cast(node.emit("sub", end, start), dtype)
    return node.emit("div", node.cast(inside, dtype), count)


def adaptive_max_pool(rank: int) -> Compose:
    def compose(node: Node) -> Sequence[Value | None]:
        x = node.x()
        image = batched(node, x, rank)
        sizes = spread(node.arg("output_size"), rank)
        extents = image.type.shape[2:]
        known = [n for n in extents if isinstance(n, int)]
        if len(known) < rank or any(n % s for n, s in zip(known, sizes, strict=True)):
            return _unequal_maxima(node, image, sizes)
        kernel = tuple(n // s for n, s in zip(known, sizes, strict=True))
        window = {
            "kernel": kernel,
            "strides": kernel,
            "low": (0,) * rank,
            "high": (0,) * rank,
            "dilations": (1,) * rank,
            "ceil_mode": False,
        }
        out = node.emit("max_pool", image, **window)
        places = node.emit("arg_max_pool", image, **window)
        plane = node.size(node.elements(image, range(2, rank + 2)), I64)
        shape = node.shape_of(node.out[0])
        return [
            node.reshape(out, shape),
            node.reshape(node.emit("mod", places, plane, fmod=False), shape),
        ]

    return compose


def _unequal_maxima(node: Node, x: Value, sizes: Sequence[int]) -> Sequence[Value | None]:
    """Largest elements of windows of unequal length; a shorter window repeats its last element."""
    if any(user.args[1] == 1 for user in node.fx.users):
        raise Refusal("it tells indices in windows of unequal lengths", "use equal windows")
    for i, size in enumerate(sizes):
        axis, n = 2 + i, x.type.shape[2 + i]
        if not isinstance(n, int):
            raise Refusal(f"it makes {size} of an axis of {n}", "fix the axis")
        spans = [(k * n // size, -(-(k + 1) * n // size)) for k in range(size)]
        longest = max(end - start for start, end in spans)
        table = [[min(a + j, b - 1) for j in range(longest)] for a, b in spans]
        windows = node.emit("gather", x, node.array(table, I64), axis=axis)
        x = node.emit("reduce_max", windows, axes=(axis + 1,), keepdims=False)
    return [node.reshape(x, node.shape_of(node.out[0])), None]


def columns_to_image(node: Node) -> Value:
    """col2im: columns [N, C * kernel, positions] added where they came from, as a transposed
    convolution with filters that copy one element each.
    """
    x = node.x()
    image = x if x.type.rank == 3 else node.unsqueeze(x, (0,))
    size, kernel, dilation, padding, stride = (
        tuple(node.arg(n)) for n in ("output_size", "kernel_size", "dilation", "padding", "stride")
    )
    counts = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    taps = kernel[0] * kernel[1]
    n, wide, _ = image.type.shape
    channels = wide // taps
    planes = node.reshape(image, [n * channels, taps, *counts])
    extra = [
        size[i] + 2 * padding[i] - (stride[i] * (counts[i] - 1) + dilation[i] * (kernel[i] - 1) + 1)
        for i in range(2)
    ]
    unit = [
        [[[float(t == i * kernel[1] + j) for j in range(kernel[1])] for i in range(kernel[0])]]
        for t in range(taps)
    ]
    out = node.emit(
        "conv_transpose",
        planes,
        node.array(unit, x.type.dtype),
        strides=stride,
        low=padding,
        high=padding,
        dilations=dilation,
        groups=1,
        output_padding=tuple(extra),
    )
    return node.reshape(out, node.out_shape)


def image_to_columns(node: Node) -> Value:
    """im2col: the windows as columns, by index tensors for rows and columns."""
    x = node.x()
    image = x if x.type.rank == 4 else node.unsqueeze(x, (0,))
    kernel, dilation, padding, stride = (
        tuple(node.arg(n)) for n in ("kernel_size", "dilation", "padding", "stride")
    )
    if any(padding):
        pads = (0, 0, *padding)
        image = node.emit("pad", image, low=pads, high=pads)
    for i in range(2):
        axis = 2 + 2 * i
        extent = image.type.shape[axis]
        count = (extent - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        taps = node.emit(
            "mul", node.reshape(node.iota(kernel[i]), [kernel[i], 1]), node.scalar(dilation[i], I64)
        )
        starts = node.emit(
            "mul", node.reshape(node.iota(count), [1, count]), node.scalar(stride[i], I64)
        )
        image = node.emit("gather", image, node.emit("add", taps, starts), axis=axis)
    # [N, C, kh, rows, kw, columns] -> [N, C * kh * kw, rows * columns]
    image = node.transpose(image, (0, 1, 2, 4, 3, 5))
    return node.reshape(image, node.out_shape)


COMPOSE: dict[str, Compose] = {
    "convolution.default": convolution,
    "_convolution.default": convolution,
    **{f"conv{n}d.{o}": convolution for n in (1, 2, 3) for o in ("default", "padding")},
    "conv_transpose1d.default": conv_transpose,
    "conv_transpose2d.input": conv_transpose,
    "conv_transpose3d.input": conv_transpose,
    "max_pool1d.default": max_pool(1),
    "max_pool2d.default": max_pool(2),
    "max_pool3d.default": max_pool(3),
    "max_pool1d_with_indices.default": max_pool(1, indices=True),
    "max_pool2d_with_indices.default": max_pool(2, indices=True),
    "max_pool3d_with_indices.default": max_pool(3, indices=True),
    **{f"avg_pool{n}d.default": average_pool(n) for n in (1, 2, 3)},
    "adaptive_avg_pool1d.default": adaptive_average_pool(1),
    "_adaptive_avg_pool2d.default": adaptive_average_pool(2),
    "_adaptive_avg_pool3d.default": adaptive_average_pool(3),
    "adaptive_avg_pool2d.default": adaptive_average_pool(2),
    "adaptive_avg_pool3d.default": adaptive_average_pool(3),
    "adaptive_max_pool1d.default": adaptive_max_pool(1),
    "adaptive_max_pool2d.default": adaptive_max_pool(2),
    "adaptive_max_pool3d.default": adaptive_max_pool(3),
    "col2im.default": columns_to_image,
    "im2col.default": image_to_columns,
}
