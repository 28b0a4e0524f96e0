"""Products with packed weights in C++: gw/matmul_packed.h reads them as the model stores them."""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import U8


def emit_matmul_packed(op: Op) -> list[EmittedLaunch]:
    """One product as one launch; a's rows are rearranged in a workspace."""
    a, b = op.operands[:2]
    if any(v.type.layout is not None for v in (*op.operands, op.result)):
        raise problem(op, "an operand or its result has a layout")
    builder = KernelBuilder(op, op.name)
    bits, block = op.attribute("bits"), op.attribute("block")
    lines = ["gw::PackedProduct c;"]
    names = ["a", "b", "scales"]
    if len(op.operands) > 3:
        names.append("packed_zeros" if op.operands[3].type.dtype is U8 else "zeros")
    for name, value in zip(names, op.operands, strict=True):
        lines.append(f"c.{name} = {builder.tensor(name, value)};")
    lines.append(f"c.out = {builder.tensor('out0', op.result, written=True)};")
    rows = dims.product(a.type.shape[:-1])
    count, blocks = b.type.shape[:2]
    floats = dims.product((rows, blocks, block))
    space = builder.pointer("space", "float", Workspace(dims.multiply(floats, 4)), written=True)
    lines.append(f"c.workspace = {space};")
    sizes: dict[str, Dim] = {
        "m": rows, "n": count, "k": a.type.shape[-1], "blocks": blocks, "block": block,
    }  # fmt: skip
    lines += [f"c.{name} = {builder.scalar(name, value)};" for name, value in sizes.items()]
    builder.body += [*lines, f"gw::matmul_packed<{bits}>(c, pool);"]
    builder.includes.append("gw/matmul_packed.h")
    return [builder.launch(None, op.operands)]
