"""deform_columns and max_roi_pool: calls of gw/deform.h."""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.call import Call
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.ir.graph import Op

HEADER = "gw/deform.h"


def emit_deform_columns(op: Op) -> list[EmittedLaunch]:
    """The columns of a deformed convolution."""
    x, offset = op.operands[:2]
    call = Call(op, HEADER)
    pointers = [*(call.operand(i) for i in range(3)), call.result()]
    names = ("images", "channels", "height", "width", "rows", "columns")
    sizes = dict(zip(names, (*x.type.shape, *offset.type.shape[2:]), strict=True))
    lines = ["gw::DeformColumns d;"]
    lines += [f"d.{name} = {call.size(name, value)};" for name, value in sizes.items()]
    lines.append(f"d.groups = {op.attribute('groups')};")
    for name in ("kernel", "strides", "low", "dilations"):
        lines += [f"d.{name}[{i}] = {v};" for i, v in enumerate(op.attribute(name))]
    type = "float" if x.type.dtype.bits == 32 else "double"
    lines.append(f"gw::deform_columns<{type}>(d, {', '.join(pointers)}, pool);")
    return call.launch(lines)


def emit_max_roi_pool(op: Op) -> list[EmittedLaunch]:
    """Maxima of the bins of regions."""
    x, rois = op.operands
    call = Call(op, HEADER)
    pointers = [call.operand(0), call.operand(1), call.result()]
    names = ("images", "channels", "rows", "columns", "regions")
    sizes = dict(zip(names, (*x.type.shape, rois.type.shape[0]), strict=True))
    lines = ["gw::MaxRoiPool m;"]
    lines += [f"m.{name} = {call.size(name, value)};" for name, value in sizes.items()]
    lines += [f"m.{name} = {op.attribute(name)};" for name in ("height", "width")]
    lines.append(f"m.scale = {float(op.attribute('scale'))!r};")
    lines.append(f"gw::max_roi_pool(m, {', '.join(pointers)}, pool);")
    return call.launch(lines)
