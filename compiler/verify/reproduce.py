"""A small graph that shows the same fault: what was around it, cut out of the whole."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.printer import INLINE
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.target import Target
from graphwright.compiler.verify.rewrites import Feed, PassFault, find_pass
from graphwright.errors import GraphwrightError

NEIGHBOURS = 3  # how many steps around the culprit are tried, the nearest first


def cut_out(graph: Graph, ids: Iterable[int], around: int = 0) -> Graph | None:
    """A graph of these ops and of those within `around` steps of them, in the same order.

    What they read from outside becomes an input, constants that print whole are copied; what is
    read outside, or by nobody, becomes an output.  Inputs and outputs of a graph lie in row-major
    order: a relayout gives those of another layout theirs.  None when none of the ops is there.
    """
    chosen: dict[Op, None] = {graph.op_by_id(i): None for i in ids if graph.has_op(i)}
    if not chosen:
        return None
    for _ in range(around):
        for op in list(chosen):
            chosen |= dict.fromkeys(v.op for v in op.operands if v.op is not None)
            chosen |= dict.fromkeys(u for r in op.results for u in r.users)
    small = Graph("case", registry=graph.registry)
    values: dict[Value, Value] = {}
    for op in graph.ops:
        if op not in chosen or op.name == "constant":
            continue
        for operand in op.operands:
            if operand in values:
                continue
            producer = operand.op
            if producer is None or (producer not in chosen and producer.name != "constant"):
                values[operand] = _input(small, operand)
            elif producer.name == "constant":
                values[operand] = _constant(small, producer)
        twin = small.create(
            op.name,
            [values[v] for v in op.operands],
            op.attributes,
            bodies=[b.clone() for b in op.bodies],
            types=[r.type for r in op.results],
            origins=op.origins,
        )
        values.update(zip(op.results, twin.results, strict=True))
    outputs = [
        values[r]
        for op in chosen
        for r in op.results
        if r in values and op.name != "constant"
        and (r.is_output or not r.uses or any(u not in chosen for u in r.users))
    ]  # fmt: skip
    if not outputs:
        return None
    for constraint in graph.constraints:
        small.constraints.append(constraint)
    outputs = [
        v if v.type.layout is None else small.create("relayout", [v]).result for v in outputs
    ]
    small.set_outputs(outputs, [f"y{n}" for n in range(len(outputs))])
    return small


def _constant(small: Graph, op: Op) -> Value:
    literal = op.attributes["value"]
    if literal.is_splat or literal.elements <= INLINE:
        return small.create("constant", (), {"value": literal}).result
    return _input(small, op.result)


def _input(small: Graph, value: Value) -> Value:
    made = small.add_input(f"x{len(small.inputs)}", value.type.with_layout(None))
    layout = value.type.layout
    return made if layout is None else small.create("relayout", [made], {"layout": layout}).result


def reproduce_rewrite(fault: PassFault, target: Target, tolerance: float) -> tuple[Graph, bool]:
    """(graph, whether it is small) such that the pass alone goes wrong on it; the graph that the
    pass was given when no part of it shows the fault on random inputs.
    """
    from graphwright.compiler.numeric_check import random_feed

    pipeline = Pipeline.parse(fault.name)
    if fault.rewrite is not None:
        for around in range(NEIGHBOURS + 1):
            small = cut_out(fault.before, fault.rewrite.consumed, around)
            if small is None:
                break
            try:
                feed: Feed = random_feed(small, 0)
                again = find_pass(small, pipeline, target, feed, tolerance=tolerance)
            except (GraphwrightError, ValueError, np.linalg.LinAlgError):
                continue
            if again is not None:
                return small, True
    return fault.before, False
