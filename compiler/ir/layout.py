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
    """

    order: tuple[int, ...]
    blocks: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if sorted(self.order) != list(range(len(self.order))):
            raise ValueError(f"layout order {self.order} is not a permutation")

    @property
    def is_row_major(self) -> bool:
        return not self.blocks and self.order == tuple(range(len(self.order)))

    def __str__(self) -> str:
        text = ",".join(map(str, self.order))
        return text + "".join(f"/{axis}:{size}" for axis, size in self.blocks)


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


def strides_of(shape: Sequence[Dim], layout: Layout | None) -> Shape:
    """Element strides of each logical axis of an unblocked layout."""
    if layout is not None and layout.blocks:
        raise ValueError("a blocked layout has no single stride per axis")
    strides: list[Dim] = [1] * len(shape)
    step: Dim = 1
    for axis in reversed(order_of(layout, len(shape))):
        strides[axis] = step
        step = multiply(step, shape[axis])
    return tuple(strides)


def storage_elements(shape: Sequence[Dim], layout: Layout | None) -> Dim:
    """How many elements the storage holds, padding of blocks included."""
    total: Dim = 1
    blocks = dict(layout.blocks) if layout is not None else {}
    for axis, extent in enumerate(shape):
        size = blocks.get(axis)
        total = multiply(total, extent if size is None else multiply(ceildiv(extent, size), size))
    return total
