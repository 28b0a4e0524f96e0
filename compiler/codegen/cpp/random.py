"""random_uniform and random_normal: calls of gw/random.h."""

from __future__ import annotations

from graphwright.compiler.codegen.cpp.function import KernelBuilder
from graphwright.compiler.codegen.cpp.types import scalar_type, stored
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import problem
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.ops.random import UNIFORM_BITS, key_of


def emit_random(op: Op) -> list[EmittedLaunch]:
    """One launch; without a seed it takes a stream of its own each time."""
    type = op.result.type
    if type.layout is not None:
        raise problem(op, f"its result is {type}, want a row-major tensor")
    builder = KernelBuilder(op, op.name)
    builder.includes.append("gw/random.h")
    out = builder.tensor("out0", op.result, written=True)
    uniform = op.name == "random_uniform"
    if uniform:
        low, high = float(op.attribute("low")), float(op.attribute("high"))
        value = f"{low!r} + v * {high - low!r}"
    else:
        value = f"{float(op.attribute('mean'))!r} + v * {float(op.attribute('scale'))!r}"
    number = stored(type.dtype, f"static_cast<{scalar_type(type.dtype)}>({value})")
    seed = op.attribute("seed")
    key = key_of(seed)
    stream = "gw::next_stream()" if seed is None else "0"
    count = builder.scalar("count", type.elements)
    bits = f"<{UNIFORM_BITS.get(type.dtype.name, 24)}>" if uniform else ""
    builder.body = [
        f"const gw::RandomKey key = {{{key[0]}u, {key[1]}u, {stream}}};",
        f"gw::{op.name}{bits}(pool, {count}, key, [=](int64_t i, double v) {{ {out}[i] = {number}; }});",
    ]
    return [builder.launch(None, op.operands)]
