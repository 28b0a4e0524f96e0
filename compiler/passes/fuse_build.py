"""Makes a `fused` op out of the ops of a region.

The body works on logical tensors: layouts stay on its inputs and outputs, so a `relayout` vanishes
into the output that it made.  Constants of one element are copied into the body, as are sources
that are functions of coordinates; equal ops in a body become one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.fuse_region import Region, is_generated, is_single_constant
from graphwright.compiler.passes.rewrite import Rewriter


def merge_equal(rw: Rewriter, ops: Sequence[Op]) -> list[Op]:
    """The ops (in graph order) without those that repeat an earlier one, which are erased."""
    known: dict[Hashable, Op] = {}
    kept: list[Op] = []
    for op in ops:
        types = tuple(r.type for r in op.results)
        twin = known.setdefault((op.name, tuple(op.attributes.items()), op.operands, types), op)
        if twin is op:
            kept.append(op)
            continue
        for old, new in zip(op.results, twin.results, strict=True):
            rw.replace_value(old, new)
        rw.erase(op)
    return kept


def build_region(rw: Rewriter, ops: Sequence[Op], region: Region) -> Op:
    """Replaces the ops (in graph order) by one `fused` op before the last of them."""
    body = Graph("body", registry=rw.graph.registry)
    inside = set(ops)
    operands: list[Value] = []
    values: dict[Value, Value] = {}

    generated = {v for op in ops for v in op.operands if is_generated(v)}
    if region.kind == "contraction":  # its operands lie in memory, also behind movement
        generated -= {
            v for op in ops for v in op.operands if op.kind in (Kind.CONTRACTION, Kind.MOVEMENT)
        }

    def take(value: Value) -> Value:
        found = values.get(value)
        if found is not None:
            return found
        assert value.op not in inside, "ops of a region are in order"
        if value.op is not None and (is_single_constant(value) or value in generated):
            source = value.op
            copy = body.create(
                source.name, (), source.attributes, origins=source.origins, names=[value.name]
            )
            made = copy.result
        else:
            operands.append(value)
            made = body.add_input(value.name, value.type)
        made.equals = value.equals
        values[value] = made
        return made

    outputs = set(region.outputs)
    claimed: dict[Value, Value] = {}  # body value -> the output that decided its layout
    for op in ops:
        given = [take(v) for v in op.operands]
        if op.name == "relayout":
            (result,) = op.results
            free = given[0].op is not None and given[0] not in claimed
            if result not in outputs or free:
                values[result] = given[0]
                if result in outputs:
                    claimed[given[0]] = result
                    given[0].type = given[0].type.with_layout(result.type.layout)
                    given[0].equals = result.equals or given[0].equals
                continue
        plain = [r.type if r in outputs else r.type.with_layout(None) for r in op.results]
        copy = body.create(
            op.name,
            given,
            op.attributes,
            origins=op.origins,
            types=plain,
            names=[r.name for r in op.results],
        )
        for old, new in zip(op.results, copy.results, strict=True):
            new.equals = old.equals
            values[old] = new
            if old in outputs:
                claimed[new] = old
    body.constraints.clear()  # the graph has them already
    body.set_outputs([values[v] for v in region.outputs], [v.name for v in region.outputs])
    fused = rw.create(
        "fused",
        operands,
        {"region": region.kind},
        before=ops[-1],
        bodies=[body],
        names=[v.name for v in region.outputs],
        origins=dict.fromkeys(o for op in ops for o in op.origins),
    )
    for old, new in zip(region.outputs, fused.results, strict=True):
        new.equals = old.equals
        rw.replace_value(old, new)
    for op in reversed(ops):
        rw.erase(op)
    return fused
