"""From a scheduled graph to kernels and launches: dispatch by the op's kind or name, and target.

There is no fallback: an op without an emitter raises UnsupportedError that names it and where it
came from, and every such op of a graph is listed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

from graphwright.compiler.codegen.control import Checks, EmitBody, emit_bind, emit_check, emit_if
from graphwright.compiler.codegen.cpp import TABLE as CPP
from graphwright.compiler.codegen.cpp.custom import emit_custom
from graphwright.compiler.codegen.cpp.loop_steps import emit_loop
from graphwright.compiler.codegen.kernel import Step
from graphwright.compiler.codegen.repetition import Repetition
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.target import Target
from graphwright.errors import Problem, UnsupportedError

Emitter = Callable[[Op], Sequence[Step]]


def _emit_loop_triton(op: Op, emit_body: EmitBody) -> list[Step]:
    from graphwright.compiler.codegen.triton.loop_steps import emit_loop as emit_for_gpu

    return emit_for_gpu(op, emit_body)


# Control flow is a matter of the replay: native jumps on a CPU, the host between graphs on a GPU.
CONTROL: Mapping[str, Mapping[str, Callable[[Op, EmitBody], list[Step]]]] = {
    "cpu": {"if": emit_if, "bind": emit_bind, "check": emit_check, "loop": emit_loop},
    "cuda": {"if": emit_if, "bind": emit_bind, "check": emit_check, "loop": _emit_loop_triton},
}


def emit(op: Op, target: Target) -> Sequence[Step]:
    """The launches of one op.  Looked up as `region:NAME` for regions, by name, then by kind."""
    table, context = CPP, nullcontext()
    if target.kind == "cuda":  # nobody else waits for its import
        from graphwright.compiler.codegen.triton import TABLE as table
        from graphwright.compiler.codegen.triton import check_types
        from graphwright.compiler.codegen.triton.arch import emitting_for

        check_types(op)
        context = emitting_for(target)
    elif target.kind != "cpu":
        raise UnsupportedError(f"target {target}: no code generation for {target.kind}")
    keys = [op.name, f"kind:{op.kind}"]
    if op.name == "fused":
        keys = [f"region:{op.attribute('region')}"]
    if op.definition.cpp_source and target.kind == "cpu":
        return emit_custom(op)
    for key in keys:
        if key in table:
            with context:
                return table[key](op)
    where = ", ".join(op.origins) or f"op #{op.id}"
    raise UnsupportedError(
        f"no kernel for {op.name} on {target.kind}",
        [Problem(node=where, op=op.name, reason=f"there is no {target.kind} emitter for it")],
    )


def emit_graph(
    graph: Graph,
    target: Target,
    *,
    skip: Callable[[Op], bool] = lambda op: False,
    is_body: bool = False,
    repetition: Repetition | None = None,
    emitter: Callable[[Op, Target], Sequence[Step]] = emit,
) -> list[Step]:
    """The launches of a graph in op order; `skip` says which ops need none (constants, views).

    `is_body`: the graph's constraints are checked by its steps.  `repetition` knows what graphs
    around this one have emitted, `emitter` makes the steps of an op.  Raises one UnsupportedError
    with the problems of every op that has no kernel.
    """
    known = Repetition() if repetition is None else repetition

    def emit_body(body: Graph) -> list[Step]:
        return emit_graph(body, target, skip=skip, is_body=True, repetition=known, emitter=emitter)

    checks = Checks(graph, is_body=is_body)
    steps: list[Step] = []
    checks.add(steps, None)
    problems: list[Problem] = []
    for op in graph.ops:
        if op.name == "constant" or skip(op):
            continue
        try:
            control = CONTROL.get(target.kind, {}).get(op.name)
            if control is None:
                steps += known.emit(op, lambda op: emitter(op, target))
            else:
                steps += control(op, emit_body)
        except UnsupportedError as error:
            if not error.problems:
                raise
            problems += error.problems
        if op.kind is Kind.CONTROL:
            checks.add(steps, op)
    if problems:
        raise UnsupportedError(f"{len(problems)} ops have no kernel on {target}", problems)
    return steps
