"""`import_program`: the whole way from a program to a graph, or every problem at once."""

from __future__ import annotations

import json
from typing import Any

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.op import Registry
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.errors import Problem, UnsupportedError
from graphwright.frontends.torch.importer import Importer
from graphwright.frontends.torch.program import Program
from graphwright.frontends.torch.tensors import literal_of
from graphwright.runtime.calling import CALL


def import_program(
    program: Program, *, allow: frozenset[str] = frozenset(), registry: Registry = REGISTRY
) -> Graph:
    """The graph of a program.  Raises UnsupportedError with every problem."""
    importer = Importer(program, registry=registry, allow=allow)
    graph = importer.run()
    if importer.problems:
        raise UnsupportedError(
            f"{program.name} uses what is not supported:", tuple(importer.problems)
        )
    _describe_call(program, graph)
    return graph


def check_program(
    program: Program, *, allow: frozenset[str] = frozenset(), registry: Registry = REGISTRY
) -> tuple[Problem, ...]:
    """What of a program is not supported."""
    importer = Importer(program, registry=registry, allow=allow)
    importer.run()
    return tuple(importer.problems)


def _describe_call(program: Program, graph: Graph) -> None:
    """Tells the runtime what graph inputs and outputs are to the caller (see runtime/calling.py)."""
    inputs: list[Any] = []
    numbers: dict[str, Any] = {}
    known = {v.name: i for i, v in enumerate(graph.inputs)}
    places: dict[int, int] = {}
    # What a caller passes: weights are no arguments, sizes that shapes tell need not be given.
    passed = [
        s.position
        for s in program.inputs
        if s.kind in ("user", "number") or (s.kind == "size" and s.name in known)
    ]
    flat = {position: i for i, position in enumerate(sorted(passed))}
    for index, spec in enumerate(program.inputs):
        if spec.kind == "number":
            numbers[str(flat[spec.position])] = spec.constant
        elif spec.kind == "size" and spec.name not in known:
            pass  # known from a shape
        elif spec.kind == "state":
            places[index] = known[spec.name]
            inputs.append({"state": spec.name})
            assert spec.tensor is not None
            graph.input_defaults[spec.name] = literal_of(spec.tensor)
        elif spec.kind in ("user", "size") and spec.name in known:
            places[index] = known[spec.name]
            inputs.append({"argument": flat[spec.position]})
    outputs: list[Any] = []
    constants: dict[str, Any] = {}
    results = program.module.graph.output_node().args[0]
    position = 0
    for spec, raw in zip(program.outputs, results, strict=True):  # type: ignore[arg-type]
        is_value = hasattr(raw, "meta")
        if spec.kind == "user":
            if is_value:
                outputs.append({"result": position})
            else:
                constants[str(position)] = raw
            position += 1
        else:
            outputs.append({"input": places[spec.target]})
    graph.updates = {o: entry["input"] for o, entry in enumerate(outputs) if "input" in entry}
    graph.metadata[CALL] = json.dumps(
        {
            "inputs": inputs, "outputs": outputs, "numbers": numbers, "constants": constants,
            "arguments": json.loads(program.arguments or "null"),
            "results": json.loads(program.results or "null"),
        },
        separators=(",", ":"),
    )  # fmt: skip
