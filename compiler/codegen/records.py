"""From emitted steps to the manifest's records: storage, memory plan, kernels, launches, weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphwright.compiler.codegen.kernel import (
    EmittedBranch,
    EmittedKernel,
    EmittedLaunch,
    Packed,
    Step,
    Workspace,
)
from graphwright.compiler.ir.dims import Dim, symbols_of, to_json
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.passes import storage
from graphwright.compiler.passes.plan_memory import MemoryPlan, plan_memory, standard_bindings
from graphwright.errors import CompileError
from graphwright.runtime import manifest

Weight: TypeAlias = Value | Packed  # a constant as it is, or rearranged
_LIMIT = 2**63 - 1


class WeightTable:
    """The weights of an artifact in order of first use; variants that need the same share it."""

    def __init__(self) -> None:
        self._indices: dict[Any, int] = {}
        self.weights: list[Weight] = []

    def index(self, weight: Weight) -> int:
        """The index of a constant (by its contents) or a packed weight; a new one is appended."""
        key: Any = weight
        if isinstance(weight, Value):
            assert weight.op is not None
            key = (weight.op.attribute("value"), "constant")
        if key not in self._indices:
            self._indices[key] = len(self.weights)
            self.weights.append(weight)
        return self._indices[key]


@dataclass(frozen=True, slots=True)
class Records:
    """One variant's part of the manifest, and the plans that it was made from, for reports."""

    kernels: tuple[EmittedKernel, ...]
    launches: tuple[manifest.Launch, ...]
    plan: manifest.Plan
    storage: storage.Storage
    memory: MemoryPlan


def make_records(
    graph: Graph,
    steps: Sequence[Step],
    weights: WeightTable,
    *,
    bindings: Mapping[str, Mapping[str, int]] | None = None,
    effort: int = 400_000,
) -> Records:
    """Assigns storage, plans memory (judged at `bindings`, default: the graph's symbols at min, opt
    and max) and turns the steps into launches.  Kernels are in order of first use.
    """
    accesses = [accessed_by(s) for s in steps]
    stored = storage.assign_storage(graph, accesses)
    storage.check_storage(graph, accesses, stored)
    memory = plan_memory(
        stored.buffers,
        bindings=bindings or standard_bindings(tuple(graph.symbols.values())),
        effort=effort,
    )
    position = {request: at for at, request in enumerate(memory.order)}
    kernels: dict[str, int] = {}
    emitted: list[EmittedKernel] = []

    def pointer(at: int, argument: Any, workspace: int) -> manifest.Pointer:
        if isinstance(argument, Workspace):
            return manifest.Pointer("arena", position[stored.workspaces[at, workspace]])
        if isinstance(argument, Packed):
            return manifest.Pointer("weight", weights.index(argument))
        place = stored.places[argument]
        index = place.index
        if place.space == "arena":
            index = position[index]
        elif place.space == "weight":
            index = weights.index(stored.weights[index])
        return manifest.Pointer(place.space, index, to_json(place.offset))

    launches: list[manifest.Launch] = []
    for at, step in enumerate(steps):
        if isinstance(step, EmittedLaunch):
            if step.kernel.name not in kernels:
                kernels[step.kernel.name] = len(emitted)
                emitted.append(step.kernel)
            pointers: list[manifest.Pointer] = []
            workspace = 0
            for argument in step.arguments:
                pointers.append(pointer(at, argument, workspace))
                workspace += isinstance(argument, Workspace)
            launches.append(
                manifest.Launch(
                    kernel=kernels[step.kernel.name],
                    pointers=tuple(pointers),
                    scalars=tuple(to_json(s) for s in step.scalars),
                    grid=tuple(to_json(g) for g in step.grid),
                    writes=step.writes,
                    ops=step.ops,
                    origins=step.origins,
                )
            )
        elif isinstance(step, EmittedBranch):
            launches.append(
                manifest.Launch(
                    "branch",
                    pointers=(pointer(at, step.condition, 0),),
                    jump=step.skip,
                    ops=step.ops,
                    origins=step.origins,
                )
            )
        else:
            launches.append(
                manifest.Launch("jump", jump=step.skip, ops=step.ops, origins=step.origins)
            )
    return Records(tuple(emitted), tuple(launches), plan_record(memory), stored, memory)


def accessed_by(step: Step) -> storage.Step:
    """What a step reads and writes, for storage assignment."""
    if isinstance(step, EmittedBranch):
        return storage.Step(reads=(step.condition,))
    if not isinstance(step, EmittedLaunch):
        return storage.Step()
    for i in step.writes:
        if isinstance(step.arguments[i], Packed):
            raise CompileError(f"kernel {step.kernel.name} writes its weight argument {i}")
    written = {i for i in step.writes if isinstance(step.arguments[i], Value)}
    return storage.Step(
        reads=tuple(
            a for i, a in enumerate(step.arguments) if isinstance(a, Value) and i not in written
        ),
        writes=tuple(a for i in step.writes if isinstance(a := step.arguments[i], Value)),
        workspaces=tuple(a.bytes for a in step.arguments if isinstance(a, Workspace)),
        in_place=tuple(
            (a, b)
            for i, j in step.in_place
            if isinstance(a := step.arguments[i], Value)
            and isinstance(b := step.arguments[j], Value)
        ),
    )


def plan_record(plan: MemoryPlan) -> manifest.Plan:
    """A memory plan as the manifest stores it: buffers in placement order."""
    position = {request: at for at, request in enumerate(plan.order)}
    buffers = tuple(
        manifest.Buffer(
            to_json(r.size),
            tuple(sorted(position[j] for j in plan.after[i])),
            r.values,
            r.first,
            r.last,
        )
        for i, r in ((i, plan.requests[i]) for i in plan.order)
    )
    return manifest.Plan(
        buffers,
        plan.alignment,
        {n: min(b, _LIMIT) for n, b in plan.lower_bounds.items()},
        {n: min(s, _LIMIT) for n, s in plan.sizes.items()},
    )


def signature_records(
    graph: Graph, defaults: Mapping[str, int] | None = None
) -> tuple[
    tuple[manifest.SymbolSpec, ...],
    tuple[manifest.TensorSpec, ...],
    tuple[manifest.TensorSpec, ...],
    tuple[manifest.ConstraintSpec, ...],
]:
    """Symbols, inputs, outputs, constraints.  `defaults`: input name -> weight index.

    A symbol is bound by the first input axis that is exactly it.
    """
    bound: dict[str, tuple[int, int]] = {}
    for i, value in enumerate(graph.inputs):
        for axis, dim in enumerate(value.type.shape):
            symbol = None if isinstance(dim, int) else dim.symbol
            if symbol is not None:
                bound.setdefault(symbol.name, (i, axis))
    used: list[Dim] = [d for v in (*graph.inputs, *graph.outputs) for d in v.type.shape]
    names = {s.name for s in symbols_of(used)} | set(graph.symbols)
    symbols = tuple(
        manifest.SymbolSpec(s.name, s.min, s.max, s.multiple_of, s.typical, bound.get(s.name))
        for s in graph.symbols.values()
        if s.name in names
    )
    given = defaults or {}

    def tensor(name: str, value: Value, default: int | None = None) -> manifest.TensorSpec:
        shape = tuple(to_json(d) for d in value.type.shape)
        return manifest.TensorSpec(name, value.type.dtype.long_name, shape, default)

    inputs = tuple(tensor(v.name, v, given.get(v.name)) for v in graph.inputs)
    outputs = tuple(tensor(n, v) for n, v in zip(graph.output_names, graph.outputs, strict=True))
    constraints = tuple(
        manifest.ConstraintSpec(to_json(c.left), c.relation, to_json(c.right), c.reason)
        for c in graph.constraints
    )
    return symbols, inputs, outputs, constraints
