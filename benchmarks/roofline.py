"""A floor for the time of a model: what the arithmetic or the compulsory traffic alone would take.

FLOPs are those of contractions and recurrent layers; bytes are weights, inputs and outputs read or
written once, and count only where they do not fit into the last-level cache, which keeps them from
run to run otherwise.  The machine's rates are measured: a large matrix product and a large copy in
numpy.  A real run cannot be faster than the larger of the two, but for algorithms that multiply
less; it is slower by what happens in between.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.machine import Machine
from graphwright.compiler.report import every_op

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


def graph_flops(graph: Graph, feed: Mapping[str, np.ndarray]) -> int:
    """Multiplications and additions of contractions and recurrent layers at a feed's shapes.

    A lower bound: what is in branches and loops, or has sizes that data decides, does not
    count, nor do products of integers, whose rate is another.
    """
    from graphwright.compiler.ir.evaluate import bind_symbols

    binding = bind_symbols(graph, [feed[v.name] for v in graph.inputs])

    def shape(value: Any) -> tuple[int, ...]:
        return tuple(dims.evaluate(d, binding) for d in value.type.shape)

    total = 0
    for op in graph.ops:  # those of bodies may not run
        with contextlib.suppress(dims.DimError):  # a size that only a run can tell
            total += op_flops(op, shape)
    return total


def op_flops(op: Op, shape: Any) -> int:
    """Of one op; 0 for what moves or combines elements without multiplying them in sums."""
    if op.name == "matmul":
        return 2 * math.prod(shape(op.result)) * shape(op.operands[0])[-1]
    if op.name == "conv":
        return 2 * math.prod(shape(op.result)) * math.prod(shape(op.operands[1])[1:])
    if op.name == "conv_transpose":
        return 2 * math.prod(shape(op.operands[0])) * math.prod(shape(op.operands[1])[1:])
    if op.name in ("lstm", "gru", "rnn"):
        steps, batch, _ = shape(op.operands[0])
        weights = math.prod(shape(op.operands[1])) + math.prod(shape(op.operands[2]))
        return 2 * steps * batch * weights
    return 0


def weight_bytes(graph: Graph) -> int:
    """Bytes of the constants, as the model has them."""
    constants = (op for op in every_op(graph) if op.name == "constant")
    return sum(op.attribute("value").array().nbytes for op in constants)


def cache_bytes() -> int:
    """The size of the last-level cache; 0 where the system does not say."""
    sizes = [p.read_text().strip() for p in CACHES.glob("index*/size")]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max((int(s[:-1]) * units[s[-1]] for s in sizes if s[-1:] in units), default=0)


def floor_ms(flops: int, moved: int, machine: Machine) -> float:
    """Milliseconds that no run can beat."""
    traffic = moved if moved > cache_bytes() else 0
    return 1e3 * max(flops / machine.flops, traffic / machine.bandwidth)
