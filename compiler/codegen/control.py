"""Control flow as steps of the replay: branches, jumps, loops; bodies are emitted by the caller."""

from __future__ import annotations

from collections.abc import Callable

from graphwright.compiler.codegen.kernel import EmittedBranch, EmittedJump, Step
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.errors import Problem, UnsupportedError

EmitBody = Callable[[Graph], list[Step]]


def emit_if(op: Op, emit_body: EmitBody) -> list[Step]:
    """Branch, then-steps, jump, else-steps: the replay skips the branch not taken."""
    then, otherwise = _bodies(op, emit_body)
    known = {"ops": (op.id,), "origins": op.origins}
    jump = [EmittedJump(len(otherwise), **known)] if otherwise else []
    branch = EmittedBranch(op.operands[0], len(then) + len(jump), **known)
    return [branch, *then, *jump, *otherwise]


def _bodies(op: Op, emit_body: EmitBody) -> list[list[Step]]:
    """The steps of each body.  Raises one UnsupportedError with the problems of all of them."""
    steps: list[list[Step]] = []
    problems: list[Problem] = []
    for body in op.bodies:
        try:
            steps.append(emit_body(body))
        except UnsupportedError as error:
            if not error.problems:
                raise
            problems += error.problems
    if problems:
        raise UnsupportedError(
            f"{len(problems)} ops in bodies of {op.name} have no kernel", problems
        )
    return steps
