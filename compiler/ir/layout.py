"""Memory layouts: in which order, and in which blocks, the axes of a tensor lie in memory.

A tensor's shape is logical and never changes with its layout; index maps of kernels turn logical
coordinates into addresses through it.  `None` stands for row-major everywhere a layout is optional.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from graphwright.compiler.ir.dims import Dim, Shape, ceildiv, multiply


@dataclass(frozen=True, slots=True)
class Layout:
    """`order[i]` is the logical axis at physical position i, outermost first; no gaps.

    `blocks`: (axis, size) pairs split off and stored innermost, in that order; the extent of a
    blocked axis is rounded up to a multiple of its size.  NHWC of an NCHW tensor is (0, 2, 3, 1).
    `windows`: (axis, start, whole) says that the tensor is a part of a larger one, whose extent
    along the axis is `whole` and in which it begins at `start`; the storage is the larger tensor's.
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()
    windows: tuple[tuple[int, Dim, Dim], ...] = ()

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"layout order {self.order} is not a permutation")
        axes = [axis for axis, _, _ in self.windows]
        in_order = sorted(set(axes)) == axes and set(axes) <= set(self.order)
        if not in_order or (self.blocks and axes):
            raise ValueError(f"layout windows {self.windows}: want axes in order, and no blocks")

    @property
    def is_row_major(self) -> bool:
        in_order = self.order == tuple(range(len(self.order)))
        return in_order and not self.blocks and not self.windows

    def __str__(self) -> str:
        text = ",".join(map(str, self.order))
        text += "".join(f"/{axis}:{size}" for axis, size in self.blocks)
        return text + "".join(f"@{axis}:{start}:{whole}" for axis, start, whole in self.windows)


def channels_last(rank: int) -> Layout | None:
    """N, spatial axes, C for a tensor whose logical axes are N, C, spatial axes."""
    order = (0, *range(2, rank), 1)
    return canonical(Layout(order)) if rank > 2 else None


def canonical(layout: Layout | None) -> Layout | None:
    """None for row-major, the layout otherwise."""
    return None if layout is None or layout.is_row_major else layout


def order_of(layout: Layout | None, rank: int) -> tuple[int, ...]:
    """The physical order of the logical axes."""
    return tuple(range(rank)) if layout is None else layout.order


def spans_of(shape: Sequence[Dim], layout: Layout | None) -> Shape:
    """The extents in memory: of the larger tensor along axes with a window."""
    spans = list(shape)
    if layout is not None:
        for axis, _, whole in layout.windows:
            spans[axis] = whole
    return tuple(spans)


def strides_of(shape: Sequence[Dim], layout: Layout | None) -> Shape:
    """Element strides of each logical axis of an unblocked layout."""
    if layout is not None and layout.blocks:
        raise ValueError("a blocked layout has no single stride per axis")
    spans = spans_of(shape, layout)
    strides: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for axis in reversed(order_of(layout, len(shape))):
        strides[axis] = step
        step = multiply(step, spans[axis])
    return tuple(strides)


def origin_of(shape: Sequence[Dim], layout: Layout | None) -> Dim:
    """How many elements into its storage the first element of an unblocked tensor lies."""
    if layout is None or not layout.windows:
        return 0
    strides = strides_of(shape, layout)
    origin: Dim = 0
    for axis, start, _ in layout.windows:
        origin = origin + multiply(start, strides[axis])
    return origin


def window_in(layout: Layout | None, shape: Sequence[Dim], axis: int, start: Dim) -> Layout:
    """The layout of a part, from `start` on along an axis, of a tensor that lies as given."""
    order = order_of(layout, len(shape))
    windows = {a: (s, w) for a, s, w in layout.windows} if layout is not None else {}
    before, whole = windows.get(axis, (0, shape[axis]))
    windows[axis] = (before + start, whole)
    return Layout(order, windows=tuple((a, *windows[a]) for a in sorted(windows)))


def storage_elements(shape: Sequence[Dim], layout: Layout | None) -> Dim:
    """How many elements the storage holds, padding of blocks and all around windows included."""
    total: Dim = 1
    blocks = dict(layout.blocks) if layout is not None else {}
    for axis, extent in enumerate(spans_of(shape, layout)):
        size = blocks.get(axis)
        total = multiply(total, extent if size is None else multiply(ceildiv(extent, size), size))
    return total
