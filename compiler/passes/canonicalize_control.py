"""Canonicalize, control flow: a conditional whose condition is known becomes its branch."""

from __future__ import annotations

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.passes.match import uniform_of
from graphwright.compiler.passes.rewrite import Rewriter, rule


def inline(rw: Rewriter, body: Graph, arguments: tuple[Value, ...]) -> list[Value]:
    """Copies a body's ops before the current op; the values that stand for its outputs."""
    known: dict[Value, Value] = dict(zip(body.inputs, arguments, strict=True))
    for op in body.ops:
        twin = rw.create(
            op.name,
            [known[v] for v in op.operands],
            op.attributes,
            bodies=[b.clone() for b in op.bodies],
            names=[r.name for r in op.results],
            origins=op.origins,
        )
        known.update(zip(op.results, twin.results, strict=True))
    return [known[v] for v in body.outputs]


@rule("if")
def if_of_constant(op: Op, rw: Rewriter) -> bool | None:
    """if(true) => the ops of then_body."""
    condition = uniform_of(op.operands[0])
    if condition is None:
        return None
    body = op.bodies[0 if condition else 1]
    values = inline(rw, body, op.operands[1:])
    known = rw.graph.constraints
    known += [c for c in body.constraints if c not in known]
    if any(v.type != r.type for v, r in zip(values, op.results, strict=True)):
        return rw.fail("the branch's result types are not those of the conditional")
    return rw.replace(*values)
