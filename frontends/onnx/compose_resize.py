"""Resize and Upsample, in the forms of all opsets."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.frontends.onnx.late_resize import (
    is_late,
    late_aspect,
    late_geometry,
    late_sizes_of,
    ratios_of,
)
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

_MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def resize(node: Node) -> Value:
    """Opset 10 has scales only and asymmetric coordinates; 11 on, region, scales or sizes."""
    x = node.x()
    mode = _mode(node)
    if node.opset < 11:
        if is_late(node, 1):
            return _late_legacy(node, x, 1, mode)
        return _legacy(node, x, _scales(node, 1), mode)
    rank = x.type.rank
    axes = node.axes(node.attr("axes", tuple(range(rank))), rank)
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinates": node.attr("coordinate_transformation_mode", "half_pixel"),
        "nearest": node.attr("nearest_mode", "round_prefer_floor"),
        "cubic_a": node.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(node.attr("exclude_outside", 0)),
        "extrapolation": node.attr("extrapolation_value", 0.0),
    }
    if node.attr("antialias", 0):
        attributes["antialias"] = True
    is_crop = attributes["coordinates"] == "tf_crop_and_resize"
    late_roi = is_crop and node.known(node.x(1)) is None
    if is_crop and not late_roi:
        attributes["roi"] = _region(node, rank, axes)
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    late_scales: Value | None = None
    scales: list[float]
    sizes: list[Dim]
    if _given(node, 3):
        wanted = list(node.dims(3, "the target sizes"))
        if policy != "stretch" and not _are_known(x, axes, wanted):
            sizes, late_scales = late_aspect(node, x, axes, wanted, policy)
            scales = []
        else:
            sizes, scales = _from_sizes(node, x, axes, wanted, policy)
    elif _given(node, 2) and is_late(node, 2):
        sizes, late_scales = late_sizes_of(node, x, axes, node.x(2))
        scales = []
    else:
        given = _scales(node, 2)
        if len(given) != len(axes):
            raise Refusal(f"{len(given)} scales for {len(axes)} axes")
        scales = [1.0] * rank
        for axis, scale in zip(axes, given, strict=True):
            scales[axis] = scale
        sizes = _scaled(node, x, scales)
    if late_scales is None and not late_roi:
        return node.emit("resize", x, sizes=tuple(sizes), scales=tuple(scales), **attributes)
    if late_scales is None:
        late_scales = (
            node.array(np.array(scales))
            if scales
            else ratios_of(node, sizes, x.type.shape, range(rank))
        )
    geometry = late_geometry(
        node, axes, rank, late_scales, node.x(1) if late_roi else attributes.pop("roi", None)
    )
    return node.emit("resize", x, geometry, sizes=tuple(sizes), **attributes)


def _given(node: Node, i: int) -> bool:
    """Whether an input is there and not the empty tensor that older exporters put in its place."""
    return node.has_input(i) and node.x(i).type.shape != (0,)


def _mode(node: Node) -> str:
    mode = node.attr("mode", "nearest")
    if mode not in _MODES:
        raise Refusal(f"its mode is {mode!r}, want {', '.join(_MODES)}")
    return _MODES[mode]


def _scales(node: Node, i: int) -> list[float]:
    if not _given(node, i):
        raise Refusal("it has neither scales nor sizes")
    array = node.known(node.x(i))
    if array is not None and array.dtype == object:
        raise Refusal(
            "its scales depend on a symbolic dim", "give it sizes, or fix the dims with --shape"
        )
    return [float(s) for s in node.constant(i, "scales").reshape(-1)]


def _scaled(node: Node, x: Value, scales: Sequence[float]) -> list[Dim]:
    """floor(extent * scale); a scale such as 1/3 stands for the ratio that it rounds."""
    out: list[Dim] = []
    for extent, scale in zip(x.type.shape, scales, strict=True):
        if scale <= 0:
            raise Refusal(f"its scale {scale} is not positive")
        near = Fraction(scale).limit_denominator(4096)
        exact = near if abs(float(near) - scale) <= 1e-7 * scale else Fraction(scale)
        out.append(dims.floordiv(extent * exact.numerator, exact.denominator))
    return out


def _from_sizes(
    node: Node, x: Value, axes: Sequence[int], wanted: Sequence[Dim], policy: str
) -> tuple[list[Dim], list[float]]:
    """The result's extents, and the scales where the aspect ratio sets them (else none)."""
    shape = x.type.shape
    if len(wanted) != len(axes):
        raise Refusal(f"{len(wanted)} sizes for {len(axes)} axes")
    sizes: list[Dim] = list(shape)
    if policy == "stretch":
        for axis, want in zip(axes, wanted, strict=True):
            sizes[axis] = want
        return sizes, []
    pairs = [(w, shape[a]) for a, w in zip(axes, wanted, strict=True)]
    ratios = [Fraction(int(w), int(d)) for w, d in pairs]  # type: ignore[arg-type]
    ratio = min(ratios) if policy == "not_larger" else max(ratios)
    for axis in axes:
        sizes[axis] = int(ratio * int(shape[axis]) + Fraction(1, 2))  # type: ignore[arg-type]
    return sizes, [float(ratio) if a in axes else 1.0 for a in range(x.type.rank)]


def _are_known(x: Value, axes: Sequence[int], wanted: Sequence[Dim]) -> bool:
    return all(isinstance(d, int) for d in (*wanted, *(x.type.shape[a] for a in axes)))


def _region(node: Node, rank: int, axes: Sequence[int]) -> tuple[float, ...]:
    given = [float(v) for v in node.constant(1, "the region").reshape(-1)]
    if len(given) != 2 * len(axes):
        raise Refusal(f"its region has {len(given)} numbers for {len(axes)} axes")
    starts, ends = [0.0] * rank, [1.0] * rank
    for i, axis in enumerate(axes):
        starts[axis], ends[axis] = given[i], given[i + len(axes)]
    return (*starts, *ends)


def _late_legacy(node: Node, x: Value, i: int, mode: str) -> Value:
    """The same with scales that the data decide; nearest ones are taken to grow the axes."""
    rank = x.type.rank
    sizes, scales = late_sizes_of(node, x, range(rank), node.x(i))
    if mode == "nearest":
        for size, extent in zip(sizes, x.type.shape, strict=True):
            node.require(size, ">=", extent, f"{node.type} {node.origin}: scales that only the data know are at least 1")  # fmt: skip
    return node.emit(
        "resize", x, late_geometry(node, range(rank), rank, scales, None), sizes=tuple(sizes),
        mode=mode, coordinates="asymmetric", nearest="floor",
    )  # fmt: skip


def _legacy(node: Node, x: Value, scales: Sequence[float], mode: str) -> Value:
    """Before opset 11: asymmetric coordinates; the nearest is below, or above when shrinking."""
    if len(scales) != x.type.rank:
        raise Refusal(f"{len(scales)} scales for rank {x.type.rank}")
    grows, shrinks = all(s >= 1 for s in scales), all(s <= 1 for s in scales)
    if mode == "nearest" and not (grows or shrinks):
        raise Refusal("it grows one axis and shrinks another by nearest neighbours")
    return node.emit(
        "resize",
        x,
        sizes=tuple(_scaled(node, x, scales)),
        scales=tuple(scales),
        mode=mode,
        coordinates="asymmetric",
        nearest="floor" if grows else "ceil",
    )


def upsample(node: Node) -> Value:
    if node.has("scales"):
        scales = list(node.attr("scales"))
    elif node.has("height_scale"):
        scales = [1.0, 1.0, node.attr("height_scale"), node.attr("width_scale")]
    elif is_late(node, 1):
        return _late_legacy(node, node.x(), 1, _mode(node))
    else:
        scales = _scales(node, 1)
    return _legacy(node, node.x(), scales, _mode(node))


COMPOSE = {"Resize": resize, "Upsample": upsample}
