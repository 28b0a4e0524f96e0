"""Max and average pooling in C++: gw/pool2d.h over channels-last tensors."""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.convolution import (
    AXIS_NAMES,
    channels_last,
    spatial_tiling,
)
from graphwright.compiler.codegen.cpp.pointwise import emit_pointwise
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import as_region, problem
from graphwright.compiler.codegen.scalar import compute_dtype
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import F32


def emit_pool(op: Op) -> list[EmittedLaunch]:
    """max_pool or average_pool, alone or as the root of a region, as one launch."""
    body, operands = as_region(op)
    (root,) = (o for o in body.ops if o.name in ("max_pool", "average_pool"))
    if compute_dtype(root.result.type.dtype) is not F32:
        return emit_pointwise(op)  # the window written out
    region = ContractionRegion(op, body, operands, root)
    x = root.operands[0]
    spatial = x.type.rank - 2
    if spatial > 3:
        raise problem(root, f"{spatial} spatial axes, want at most 3")
    source = channels_last(region, x)
    epilogue = region.epilogue(spatial_tiling(root))
    lines = [f"const auto epilogue = {epilogue};", "gw::Pooling q;"]
    lines.append(f"q.x = {region.address(source)};")

    def put(field: str, name: str, value: Dim, default: Dim) -> None:
        if value != default:
            lines.append(f"q.{field} = {region.scalar(name, value)};")

    put("n", "images", x.type.shape[0], 1)
    put("channels", "channels", x.type.shape[1], 0)
    put("xn", "xn", source.strides[0], 0)
    counted = root.attributes.get("count_include_pad", False)
    for i in range(spatial):
        axis = 3 - spatial + i
        letter = AXIS_NAMES[axis]
        put(f"in[{axis}]", f"in_{letter}", x.type.shape[2 + i], 1)
        put(f"out[{axis}]", f"out_{letter}", root.result.type.shape[2 + i], 1)
        put(f"kernel[{axis}]", f"kernel_{letter}", root.attribute("kernel")[i], 1)
        put(f"stride[{axis}]", f"stride_{letter}", root.attribute("strides")[i], 1)
        put(f"dilation[{axis}]", f"dilation_{letter}", root.attribute("dilations")[i], 1)
        put(f"pad[{axis}]", f"pad_{letter}", root.attribute("low")[i], 0)
        if counted:
            put(f"pad_end[{axis}]", f"pad_end_{letter}", root.attribute("high")[i], 0)
        put(f"xs[{axis}]", f"xs_{letter}", source.strides[2 + i], 0)
    if counted:
        lines.append("q.count_include_pad = true;")
    region.builder.body += [*lines, f"gw::{root.name}(q, epilogue, pool);"]
    return [region.launch("gw/pool2d.h")]
