"""Makes one region of several ops and regions: what fuse-products and fuse-attention-step share."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.passes.rewrite import Rewriter


def join_regions(rw: Rewriter, ops: Sequence[Op], kind: str, outputs: Sequence[Value]) -> Op:
    """One `fused` op of a kind before the last of the ops, with copies of all their bodies.

    `ops` are in graph order.  `outputs` are results of them, which the new op's results replace; the
    ops themselves stay where something else uses them.
    """
    body = Graph("body", registry=rw.graph.registry)
    operands: list[Value] = []
    values: dict[Value, Value] = {}

    def take(value: Value) -> Value:
        found = values.get(value)
        if found is None:
            operands.append(value)
            found = values[value] = body.add_input(value.name, value.type)
            found.equals = value.equals
        return found

    def copy(op: Op, given: Sequence[Value]) -> Sequence[Value]:
        made = body.create(
            op.name,
            given,
            op.attributes,
            origins=op.origins,
            types=[r.type.with_layout(None) for r in op.results],
            names=[r.name for r in op.results],
        )
        for old, new in zip(op.results, made.results, strict=True):
            new.equals = old.equals
        return made.results

    for op in ops:
        if op.name != "fused":
            found: Sequence[Value] = copy(op, [take(v) for v in op.operands])
        else:
            within = dict(zip(op.bodies[0].inputs, map(take, op.operands), strict=True))
            for inner in op.bodies[0].ops:
                results = copy(inner, [within[v] for v in inner.operands])
                within |= zip(inner.results, results, strict=True)
            found = [within[v] for v in op.bodies[0].outputs]
        for old, new in zip(op.results, found, strict=True):
            values[old] = new
    for value in outputs:
        values[value].type = value.type
    body.constraints.clear()  # the graph has them already
    body.set_outputs([values[v] for v in outputs], [v.name for v in outputs])
    fused = rw.create(
        "fused",
        operands,
        {"region": kind},
        before=ops[-1],
        bodies=[body],
        names=[v.name for v in outputs],
        origins=dict.fromkeys(o for op in ops for o in op.origins),
    )
    for old, new in zip(outputs, fused.results, strict=True):
        new.equals = old.equals
        rw.replace_value(old, new)
    for op in reversed(ops):
        if not any(r.uses for r in op.results):
            rw.erase(op)
    return fused


def region_of(op: Op | None) -> str:
    """The kind of a region, "" for anything else."""
    return str(op.attribute("region")) if op is not None and op.name == "fused" else ""


def roots_of(op: Op, *names: str) -> list[Op]:
    """The ops of these names in a region."""
    return [o for o in op.bodies[0].ops if o.name in names]
