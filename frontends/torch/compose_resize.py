"""Resampling: upsample in its modes and spellings, grid_sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32
from graphwright.frontends.torch.node import Compose, Node, known_sizes
from graphwright.frontends.torch.refusal import Refusal


def upsample(mode: str, *, exact: bool = False, antialias: bool = False) -> Compose:
    """Sizes are torch's.  Scale factors, where given, decide where elements lie."""

    def compose(node: Node) -> Value:
        node.ignore("output_size", "input", "self")
        x = node.x("input" if "input" in node._given else "self")
        aligned = bool(node.arg("align_corners")) if "align_corners" in node._given else False
        sizes = node.out_shape
        scales = _scales(node, len(sizes) - 2)
        attributes: dict[str, Any] = {"mode": mode, "coordinates": "half_pixel"}
        if mode == "nearest":
            attributes["nearest"] = "round_prefer_ceil" if exact else "floor"
            attributes["coordinates"] = "half_pixel" if exact else "asymmetric"
        elif aligned:
            attributes["coordinates"], scales = "align_corners", ()
        if aligned and antialias:
            # torch takes the ratio of aligned corners, and pixels in the middle of their cells.
            reason = "aligned corners with antialias of an axis of unknown extent, or 1"
            new, old = (known_sizes(s[2:], reason) for s in (sizes, x.type.shape))
            if min(*new, *old) < 2:
                raise Refusal(reason)
            scales = [(a - 1) / (b - 1) for a, b in zip(new, old, strict=True)]
            attributes["coordinates"] = "half_pixel"
        if mode == "cubic":
            attributes["cubic_a"] = -0.5 if antialias else -0.75
        if antialias:
            attributes |= {"antialias": True, "exclude_outside": True}
        if scales and any(s is None for s in scales):
            scales = ()
        all_scales = (1.0, 1.0, *scales) if scales else ()
        return node.emit("resize", x, sizes=sizes, scales=all_scales, **attributes)

    return compose


def _scales(node: Node, count: int) -> Sequence[float | None]:
    """Scale factors of the spatial axes, or () where sizes decide alone."""
    if "scale_factors" in node._given:
        given = node.arg("scale_factors")
        return () if given is None else [float(s) for s in given]
    names = ("scales",) if count == 1 else ("scales_d", "scales_h", "scales_w")[-count:]
    found = [node.arg(n) for n in names]
    if any(s is not None and not isinstance(s, int | float) for s in found):
        raise Refusal("its scale factor is not known")
    return () if all(s is None for s in found) else found


_MODES = ("linear", "nearest", "cubic")
_PADDINGS = ("zeros", "border", "reflection")


def grid_sample(node: Node) -> Value:
    x, grid = node.x("input"), node.x("grid")
    dtype = x.type.dtype
    if dtype.bits < 32:  # calculated wider, rounded once
        x, grid = node.cast(x, F32), node.cast(grid, F32)
    out = node.emit(
        "grid_sample",
        x,
        grid,
        mode=_MODES[node.whole("interpolation_mode")],
        padding=_PADDINGS[node.whole("padding_mode")],
        align_corners=bool(node.arg("align_corners")),
    )
    return node.cast(out, dtype)


def _spellings(name: str, compose: Compose) -> dict[str, Compose]:
    return {f"{name}.{o}": compose for o in ("default", "vec")}


COMPOSE: dict[str, Compose] = {
    **{
        k: v
        for n in (1, 2, 3)
        for k, v in _spellings(f"upsample_nearest{n}d", upsample("nearest")).items()
    },
    **{
        k: v
        for n in (1, 2, 3)
        for k, v in _spellings(
            f"_upsample_nearest_exact{n}d", upsample("nearest", exact=True)
        ).items()
    },
    **_spellings("upsample_linear1d", upsample("linear")),
    **_spellings("upsample_bilinear2d", upsample("linear")),
    **_spellings("upsample_trilinear3d", upsample("linear")),
    **_spellings("upsample_bicubic2d", upsample("cubic")),
    **_spellings("_upsample_bilinear2d_aa", upsample("linear", antialias=True)),
    **_spellings("_upsample_bicubic2d_aa", upsample("cubic", antialias=True)),
    "grid_sampler_2d.default": grid_sample,
    "grid_sampler_3d.default": grid_sample,
    "grid_sampler.default": grid_sample,
}
