"""Control flow as steps of the replay: branches, jumps, loops; bodies are emitted by the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from graphwright.compiler.codegen.kernel import EmittedBranch, EmittedCheck, EmittedJump, Step
from graphwright.compiler.ir.dims import Comparison, prove
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.op import Constraint
from graphwright.errors import Problem, UnsupportedError

EmitBody = Callable[[Graph], list[Step]]


def emit_if(op: Op, emit_body: EmitBody) -> list[Step]:
    """Branch, then-steps, jump, else-steps: the replay skips the branch not taken."""
    then, otherwise = _bodies(op, emit_body)
    ops = (op.id,)
    jump = [EmittedJump(len(otherwise), ops, op.origins)] if otherwise else []
    branch = EmittedBranch(op.operands[0], len(then) + len(jump), ops, op.origins)
    return [branch, *then, *jump, *otherwise]


def _checks(op: Op, body: Graph) -> list[Step]:
    """What a body's ops need of sizes; the whole model's constraints are checked at the call."""
    outer = op.graph.constraints
    open_ones = [
        c
        for c in body.constraints
        if c not in outer and (c.relation == "broadcast" or not _proven(c))
    ]
    if not open_ones:
        return []
    return [EmittedCheck(tuple(open_ones), ops=(op.id,), origins=op.origins)]


def _proven(c: Constraint) -> bool:
    return prove(c.left, cast(Comparison, c.relation), c.right) is True


def _bodies(op: Op, emit_body: EmitBody) -> list[list[Step]]:
    """The steps of each body.  Raises one UnsupportedError with the problems of all of them."""
    steps: list[list[Step]] = []
    problems: list[Problem] = []
    for body in op.bodies:
        try:
            steps.append([*_checks(op, body), *emit_body(body)])
        except UnsupportedError as error:
            if not error.problems:
                raise
            problems += error.problems
    if problems:
        raise UnsupportedError(
            f"{len(problems)} ops in bodies of {op.name} have no kernel", problems
        )
    return steps
