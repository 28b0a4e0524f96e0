"""How many bytes of intermediate values are alive at once: a pass's effect on memory, cheaply."""

from __future__ import annotations

from graphwright.compiler.ir.dims import evaluate
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.views import view_of


def live_peak(graph: Graph) -> int:
    """The most bytes of op results alive at once, at typical sizes, in the order that ops have.

    Views count as what they look at; constants, inputs and what control-flow bodies hold do not
    count.  The memory plan, which knows more, can need less (in-place results) or a little more.
    """
    sizes = {s.name: max(s.typical, 1) for s in graph.symbols.values()}
    root: dict[Value, Value] = {}
    last: dict[Value, int] = {}
    for position, op in enumerate(graph.ops):
        for operand in op.operands:
            last[root.get(operand, operand)] = position
        if op.kind is Kind.MOVEMENT and view_of(op) is not None:
            source = op.operands[0]
            root[op.result] = root.get(source, source)
    end = len(graph)
    for value in graph.outputs:
        last[root.get(value, value)] = end
    dying: dict[int, int] = {}
    peak = alive = 0
    for position, op in enumerate(graph.ops):
        if op.kind is not Kind.SOURCE:
            for result in op.results:
                if result in root or result not in last:
                    continue
                size = result.type.dtype.bits // 8 or 1
                for dim in result.type.shape:
                    size *= max(evaluate(dim, sizes), 0)
                alive += size
                dying[last[result]] = dying.get(last[result], 0) + size
        peak = max(peak, alive)
        alive -= dying.pop(position, 0)
    return peak
