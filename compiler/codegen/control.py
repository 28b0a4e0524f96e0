"""Control flow as steps of the replay: branches, jumps, loops, sizes bound in mid-run.

Bodies are emitted by the caller.  What a body's ops need of sizes is checked inside it, where control
flow gets there; the whole model's own constraints are checked by the runtime without a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from graphwright.compiler.codegen.kernel import (
    EmittedBind,
    EmittedBranch,
    EmittedCheck,
    EmittedJump,
    EmittedLoop,
    Step,
)
from graphwright.compiler.ir.dims import Comparison, Dim, Expr, Symbol, prove, symbols_of
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Constraint
from graphwright.compiler.ir.symbol_scope import binders, is_sized_by
from graphwright.errors import Problem, UnsupportedError

EmitBody = Callable[[Graph], list[Step]]


def emit_if(op: Op, emit_body: EmitBody) -> list[Step]:
    """Branch, then-steps, jump, else-steps: the replay skips the branch not taken.

    A branch ends by giving its sizes to the symbols that the op binds and moving the results of
    these sizes to where they are read.
    """
    then, otherwise = emit_bodies(op, emit_body)
    if op.definition.binds(op.attributes):
        then.append(bind_extents(op, op.bodies[0].outputs, op.results))
        otherwise.append(bind_extents(op, op.bodies[1].outputs, op.results))
    ops = (op.id,)
    jump = [EmittedJump(len(otherwise), ops, op.origins)] if otherwise else []
    branch = EmittedBranch(op.operands[0], len(then) + len(jump), ops, op.origins)
    return [branch, *then, *jump, *otherwise]


def bind_extents(op: Op, sources: Sequence[Value], targets: Sequence[Value]) -> EmittedBind:
    """Gives the symbols that an op binds the extents of `sources`, where `targets` have them, and
    moves those sources to their targets.
    """
    symbols = op.definition.binds(op.attributes)
    sizes: dict[Symbol, Dim] = {}
    for source, target in zip(sources, targets, strict=True):
        for size, dim in zip(source.type.shape, target.type.shape, strict=True):
            if isinstance(dim, Expr) and dim.symbol is not None and dim.symbol in symbols:
                sizes.setdefault(dim.symbol, size)
    return EmittedBind(
        symbols,
        sizes=tuple(sizes[s] for s in symbols),
        moves=tuple(
            (source, target)
            for source, target in zip(sources, targets, strict=True)
            if is_sized_by(op, target)
        ),
        ops=(op.id,),
        origins=op.origins,
    )


def emit_bind(op: Op, emit_body: EmitBody) -> list[Step]:
    """The sizes are read where they lie."""
    reason = f"{', '.join(op.origins) or op.name}: more than there can be"
    limits = zip(op.attribute("symbols"), op.attribute("at_most"), strict=False)
    checks = needed([Constraint(size, "<=", most, reason) for size, most in limits])
    symbols = op.definition.binds(op.attributes)
    return [EmittedBind(symbols, op.operands, checks=checks, ops=(op.id,), origins=op.origins)]


def emit_check(op: Op, emit_body: EmitBody) -> list[Step]:
    """Branch, jump over what cannot hold, the check of that."""
    never = Constraint(0, "==", 1, op.attribute("reason"))
    known = (op.id,)
    return [
        EmittedBranch(op.operands[0], 1, known, op.origins),
        EmittedJump(1, known, op.origins),
        EmittedCheck((never,), known, op.origins),
    ]


class Checks:
    """Constraints of a graph by the op after which they can be checked (None: at the start).

    Those of a whole model that need no size bound in mid-run are the runtime's.
    """

    def __init__(self, graph: Graph, *, is_body: bool) -> None:
        bound = binders(graph) if graph.constraints else {}
        position = {op: i for i, op in enumerate(dict.fromkeys(bound.values()))}
        self._after: dict[Op | None, list[Constraint]] = {}
        for c in graph.constraints:
            ops = [bound[s] for s in symbols_of((c.left, c.right)) if s in bound]
            last = max(ops, key=lambda op: position[op]) if ops else None
            if last is not None or is_body:
                self._after.setdefault(last, []).append(c)

    def add(self, steps: list[Step], op: Op | None) -> None:
        """Appends, behind the steps of an op, what checks the constraints that can be checked now."""
        checks = needed(self._after.get(op, ()))
        if not checks:
            return
        last = steps[-1] if steps else None
        if op is not None and op.name == "bind" and isinstance(last, EmittedBind):
            steps[-1] = replace(last, checks=(*last.checks, *checks))
            return
        known = (op.id,) if op is not None else ()
        steps.append(EmittedCheck(checks, known, op.origins if op is not None else ()))


def needed(constraints: Sequence[Constraint]) -> tuple[Constraint, ...]:
    """Those that do not certainly hold."""
    return tuple(c for c in constraints if c.relation == "broadcast" or not _proven(c))


def _proven(c: Constraint) -> bool:
    return prove(c.left, cast(Comparison, c.relation), c.right) is True


def emit_bodies(op: Op, emit_body: EmitBody) -> list[list[Step]]:
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


def why_not_captured(steps: Sequence[Step]) -> str:
    """Why a call is not one CUDA graph: what splits it, and where it came from; "" when it is one."""
    words: dict[type, str] = {
        EmittedBranch: "a branch",
        EmittedLoop: "a loop",
        EmittedBind: "sizes known only in mid-run",
        EmittedCheck: "a check of sizes",
    }
    found: dict[str, None] = {}
    for step in steps:
        word = words.get(type(step))
        if word is not None:
            where = ", ".join(step.origins)
            found[f"{word} ({where})" if where else word] = None
    if not found:
        return ""
    listed = list(found)
    more = f" and {len(listed) - 8} more" if len(listed) > 8 else ""
    return f"the host steps between graphs: {'; '.join(listed[:8])}{more}"
