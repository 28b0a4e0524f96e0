"""grid_sample, roi_align and determinant: calls of gw/sampling.h."""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.call import Call
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Op

HEADER = "gw/sampling.h"


def emit_grid_sample(op: Op) -> list[EmittedLaunch]:
    x, grid = op.operands
    call = Call(op, HEADER)
    pointers = [call.operand(0), call.operand(1), call.result()]
    axes = x.type.rank - 2
    aligned = "true" if op.attribute("align_corners") else "false"
    lines = [
        "gw::GridSample g;",
        f"g.images = {call.size('images', x.type.shape[0])};",
        f"g.channels = {call.size('channels', x.type.shape[1])};",
        f"g.positions = {call.size('positions', dims.product(grid.type.shape[1:-1]))};",
        f"g.axes = {axes};",
        *(
            f"g.extent[{3 - axes + i}] = {call.size(f'extent_{i}', d)};"
            for i, d in enumerate(x.type.shape[2:])
        ),
        f"g.mode = gw::Sampling::{op.attribute('mode')};",
        f"g.padding = gw::Padding::{op.attribute('padding')};",
        f"g.align_corners = {aligned};",
        f"gw::grid_sample(g, {', '.join(pointers)}, pool);",
    ]
    return call.launch(lines)


def emit_roi_align(op: Op) -> list[EmittedLaunch]:
    x, _, indices = op.operands
    call = Call(op, HEADER)
    pointers = [*(call.operand(i) for i in range(3)), call.result()]
    names = ("images", "channels", "rows", "columns", "regions")
    sizes = dict(zip(names, (*x.type.shape, indices.type.shape[0]), strict=True))
    lines = ["gw::RoiAlign a;"]
    lines += [f"a.{name} = {call.size(name, value)};" for name, value in sizes.items()]
    lines += [f"a.{name} = {op.attribute(name)};" for name in ("height", "width", "sampling")]
    lines.append(f"a.scale = {op.attribute('scale')!r};")
    lines.append(f"a.half_pixel = {'true' if op.attribute('half_pixel') else 'false'};")
    lines.append(f"a.maximum = {'true' if op.attribute('mode') == 'max' else 'false'};")
    lines.append(f"gw::roi_align(a, {', '.join(pointers)}, pool);")
    return call.launch(lines)


def emit_determinant(op: Op) -> list[EmittedLaunch]:
    shape = op.operands[0].type.shape
    call = Call(op, HEADER)
    pointers = [call.operand(0), call.result()]
    n = call.size("n", shape[-1])
    matrices = call.size("matrices", dims.product(shape[:-2]))
    space = call.workspace("space", "double", dims.multiply(shape[-1], shape[-1]), 8)
    arguments = ", ".join([*pointers, matrices, n, space])
    return call.launch([f"gw::determinants({arguments});"])
