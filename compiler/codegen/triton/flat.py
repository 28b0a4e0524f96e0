"""Kernels of one flat loop that no scalar op spells: random numbers, and bits read as another type."""

from __future__ import annotations

from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.scalar import Given, compute_dtype
from graphwright.compiler.codegen.triton.kernels import Extra, FlatLoop, Region
from graphwright.compiler.codegen.triton.printing import triton_type
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.ops.random import UNIFORM_BITS, key_of
from graphwright.compiler.ir.types import U8

BLOCK = 1024


class _Flat(FlatLoop):
    """The loop over the elements of an op's one result."""

    def __init__(self, op: Op) -> None:
        region = Region(op)
        self.op, self.result = op, region.outputs[0]
        super().__init__(region, region.printer(), self.result, BLOCK)

    def store_text(self, text: str) -> None:
        node = Given(text, compute_dtype(self.result.type.dtype))
        self.store("p_out0", self.result, node, self.coordinates)


def emit_bitcast(op: Op) -> list[EmittedLaunch]:
    flat = _Flat(op)
    p, dtype = flat.printer, flat.result.type.dtype
    bits = p.stored(Lowering(flat.region.domain).load(flat.region.inputs[0], flat.coordinates))
    if "bool" in (dtype.kind, op.attribute("source").kind):  # a byte in memory, one bit elsewhere
        bits = f"{bits}.to({triton_type(U8)})"
        text = f"({bits} != 0)" if dtype.kind == "bool" else bits
        p.line(f"whole = {text}.to({triton_type(dtype)})")
    else:
        p.line(f"whole = {bits}.to({triton_type(dtype)}, bitcast=True)")
    flat.store_text("whole")
    summary = f"bits of {op.attribute('source')} as {dtype}, {flat.total} elements"
    return [flat.region.launch("bitcast", summary, p, flat.grid)]


def emit_random(op: Op) -> list[EmittedLaunch]:
    """random_uniform and random_normal by Philox4x32-10, word for word as the reference.

    Without a seed a launch counts its runs in memory of its own, which is the stream, and its op's
    number is the counter's last word: draws differ from each other and from run to run.
    """
    type = op.result.type
    if type.layout is not None:
        raise problem(op, f"its result is {type}, want a row-major tensor")
    flat = _Flat(op)
    p, seed = flat.printer, op.attribute("seed")
    extra: list[Extra] = []
    stream, which = "0", 0
    if seed is None:
        # (counters are 32 bits: programs that have read the stream, and the stream)
        extra, which = [Extra("p_counters", "*i32", "zeros:8")], op.id
        p.line("stream = tl.load(p_counters + 1, volatile=True)")
        p.line("tl.debug_barrier()")
        p.line("arrived = tl.atomic_add(p_counters, 1, sem='acq_rel', scope='gpu')")
        p.line("if arrived == tl.num_programs(0) - 1:")
        p.line("    tl.store(p_counters, 0)")
        p.line("    tl.store(p_counters + 1, stream + 1)")
        stream = "stream"
    low, high = key_of(seed)
    wide = op.name == "random_uniform" and type.dtype.bits == 64
    first = "i // 2" if wide else "i // 4"
    p.line(f"place = ({first}).to(tl.int64)")
    p.line("block_low = place.to(tl.uint32)")
    p.line("block_high = (place >> 32).to(tl.uint32)")
    p.line("others = tl.zeros_like(block_low)")
    key = low | high << 32
    p.line(f"a, b, c, d = tl.philox({key}, block_low, block_high, others + {stream}, "
           f"others + {which})")  # fmt: skip
    if op.name == "random_uniform":
        _uniform(flat, wide)
    else:
        _normal(flat)
    summary = f"{op.name}, {flat.total} elements"
    return [flat.region.launch(op.name, summary, p, flat.grid, extra=extra)]


def _uniform(flat: _Flat, wide: bool) -> None:
    p, op, dtype = flat.printer, flat.op, flat.result.type.dtype
    bits = UNIFORM_BITS.get(dtype.name, 24)
    if wide:
        p.line("upper = tl.where(i % 2 == 0, a, c) >> 5")
        p.line("lower = tl.where(i % 2 == 0, b, d) >> 6")
        p.line(f"unit = (upper.to(tl.float64) * {2.0**26} + lower.to(tl.float64)) * {2.0**-53}")
    else:
        p.line("word = tl.where(i % 4 < 2, tl.where(i % 4 == 0, a, b), tl.where(i % 4 == 2, c, d))")
        p.line(f"unit = (word >> {32 - bits}).to(tl.float64) * {2.0**-bits}")
    low, high = float(op.attribute("low")), float(op.attribute("high"))
    p.line(f"whole = {low!r} + unit * {high - low!r}")
    flat.store_text("whole")


def _normal(flat: _Flat) -> None:
    p, op = flat.printer, flat.op
    p.line("first = tl.where(i % 4 < 2, a, c).to(tl.float64)")
    p.line("second = tl.where(i % 4 < 2, b, d).to(tl.float64)")
    p.line(f"radius = libdevice.sqrt(-2.0 * libdevice.log((first + 1.0) * {2.0**-32}))")
    p.line(f"angle = {2 * 3.141592653589793!r} * (second * {2.0**-32})")
    p.line("turned = tl.where(i % 2 == 0, libdevice.cos(angle), libdevice.sin(angle))")
    mean, scale = float(op.attribute("mean")), float(op.attribute("scale"))
    p.line(f"whole = {mean!r} + radius * turned * {scale!r}")
    flat.store_text("whole")
