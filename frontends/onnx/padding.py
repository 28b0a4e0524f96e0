"""Windows over spatial axes: kernels, strides, dilations and pads, explicit or automatic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


@dataclass(frozen=True, slots=True)
class Window:
    """One entry for each spatial axis; pads are dims (never negative), all else are ints."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    low: tuple[Dim, ...]
    high: tuple[Dim, ...]

    @property
    def has_static_pads(self) -> bool:
        return all(isinstance(p, int) for p in (*self.low, *self.high))


def read_window(node: Node, extents: Sequence[Dim], kernel: Sequence[int]) -> Window:
    """The window of a convolution or pooling node over axes of `extents`."""
    rank = len(extents)
    strides = _per_axis(node, "strides", rank, 1)
    dilations = _per_axis(node, "dilations", rank, 1)
    if len(kernel) != rank:
        raise Refusal(f"its kernel has {len(kernel)} axes, its input {rank} spatial ones")
    mode = node.attr("auto_pad", "NOTSET")
    pads = node.attr("pads", (0,) * (2 * rank))
    if mode in ("NOTSET", ""):
        if len(pads) != 2 * rank:
            raise Refusal(f"it has {len(pads)} pads, want {2 * rank}")
        return Window(tuple(kernel), strides, dilations, tuple(pads[:rank]), tuple(pads[rank:]))
    if mode == "VALID":
        return Window(tuple(kernel), strides, dilations, (0,) * rank, (0,) * rank)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise Refusal(f"its auto_pad is {mode!r}, want NOTSET, VALID, SAME_UPPER or SAME_LOWER")
    totals = [same_total(extents[i], kernel[i], strides[i], dilations[i]) for i in range(rank)]
    low, high = split_same(totals, upper=mode == "SAME_UPPER")
    return Window(tuple(kernel), strides, dilations, low, high)


def _per_axis(node: Node, name: str, rank: int, default: int) -> tuple[int, ...]:
    values = node.attr(name, (default,) * rank)
    if len(values) != rank:
        raise Refusal(f"its attribute {name} has {len(values)} entries, want {rank}")
    if any(v < 1 for v in values):
        raise Refusal(f"its attribute {name} is {list(values)}, want positive numbers")
    return tuple(values)


def same_total(extent: Dim, kernel: int, stride: int, dilation: int) -> Dim:
    """Padding for which the output extent is ceil(extent / stride)."""
    reach = (kernel - 1) * dilation + 1
    if stride == 1:
        return reach - 1
    covered = (dims.ceildiv(extent, stride) - 1) * stride + reach
    return dims.maximum(covered - extent, 0)


def split_same(totals: Sequence[Dim], *, upper: bool) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """(low, high) with the odd element at the end (upper) or at the start."""
    less = tuple(dims.floordiv(t, 2) for t in totals)
    more = tuple(t - s for t, s in zip(totals, less, strict=True))
    return (less, more) if upper else (more, less)


def pad_explicitly(
    node: Node, x: Value, window: Window, fill: Value | None
) -> tuple[Value, Window]:
    """Pads as an op of their own (symbolic ones cannot be attributes of a window), none left."""
    lead = x.type.rank - len(window.kernel)
    operands = (x,) if fill is None else (x, fill)
    padded = node.emit(
        "pad",
        *operands,
        low=(0,) * lead + window.low,
        high=(0,) * lead + window.high,
        mode="constant",
    )
    none = (0,) * len(window.kernel)
    return padded, Window(window.kernel, window.strides, window.dilations, none, none)
