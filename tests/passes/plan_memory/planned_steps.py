"""Steps of a graph for storage tests: what code generation would launch, one step an op."""

from __future__ import annotations

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.passes.storage import Step
from graphwright.compiler.passes.views import view_of


def one_step_an_op(graph: Graph) -> list[Step]:
    """Each op that is neither constant nor view is one launch; pointwise ops work in place."""
    steps: list[Step] = []
    for op in graph.ops:
        if op.name == "constant" or view_of(op) is not None:
            continue
        if op.name == "if":
            then, other = (one_step_an_op(b) for b in op.bodies)
            steps += [Step(reads=(op.operands[0],)), *then, Step(), *other]
            continue
        pairs = tuple((op.result, v) for v in op.operands) if op.kind == "pointwise" else ()
        steps.append(Step(op.operands, op.results, (), pairs))
    return steps
