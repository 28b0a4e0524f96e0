"""Calls of a compiled graph with torch tensors, by their addresses: no arrays, no checks twice.

Dynamo's guards have checked types, shapes and strides before a call arrives.  Left to do: find what
was prepared for the shapes, write addresses into its table, allocate the results, enter native code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C._dynamo.guards import _empty_strided_cpu as empty_strided

from graphwright.errors import ArtifactError
from graphwright.frontends.torch.program import InputSpec, Program
from graphwright.runtime.executor import ALIGNMENT, CpuExecutor, Prepared, Replay
from graphwright.runtime.model import CompiledModel

Run = Callable[[list[Any]], list[Any]]


def prepare_call(
    program: Program, model: CompiledModel, constants: Sequence[torch.Tensor],
    again: Callable[[Sequence[Any]], Run],
) -> Run:  # fmt: skip
    """The function that Dynamo calls.  `constants` are what was compiled in: when one of them has been
    written to since, the graph is compiled `again`.
    """
    executor = model._executor
    call: Run
    if isinstance(executor, CpuExecutor) and not executor.program.checks:
        by_address = _AddressCall(program, executor)
        call = by_address.steady() if by_address.takes_addresses else by_address.run
    else:
        call = _array_call(program, model)
    kept = [t for t in constants if not t.is_inference()]
    versions = [t._version for t in kept]
    renewed: list[Run] = []

    def run(arguments: list[Any]) -> list[Any]:
        if [t._version for t in kept] != versions:
            if not renewed:
                renewed.append(again(arguments))
            return renewed[0](arguments)
        return call(arguments)

    return run if kept else call


class _AddressCall:
    """Everything that does not depend on the arguments of a call."""

    def __init__(self, program: Program, executor: CpuExecutor) -> None:
        self.executor = executor
        given = [s for s in program.inputs if s.kind in ("user", "size")]
        inputs = executor.artifact.manifest.inputs
        by_name = {s.name: s for s in given}
        self.specs: list[InputSpec] = [by_name[t.name] for t in inputs]
        self.positions = [s.position for s in self.specs]
        self.orders = [s.order for s in self.specs]
        self.numbers = [s.kind == "size" for s in self.specs]
        self.plain = not any(self.numbers) and not any(self.orders)
        self.idle: list[Any] = []
        self.results, self.updates = _places(program)
        dtypes = [getattr(torch, t.dtype) for t in executor.artifact.manifest.outputs]
        orders = {o: order for o, _, order in self.results if o is not None}
        orders |= {o: order for o, _, order in self.updates}
        self.outputs = [(dtypes[o], orders.get(o)) for o in range(len(dtypes))]
        homes = [t.in_place for t in executor.artifact.manifest.outputs]
        # What may be made where its argument lies is, when both lie in the same order.
        of_input = [s.order for s in self.specs]
        self.homes = [
            None if j is None or (orders.get(o) or None) != of_input[j] else j
            for o, j in enumerate(homes)
        ]
        self.native = executor.library.replay
        self.pool = executor.pool
        symbols = executor.artifact.manifest.symbols
        self.fixed = not symbols and self.plain
        self.ready: list[Any] = []  # of fixed calls: (prepared, table, and what `_steady` reads)
        self.takes_addresses = (
            self.fixed and not self.updates and not any(order for _, _, order in self.results)
        )

    def steady(self) -> Run:
        """`run` for one set of shapes, no updates and no orders: nothing is looked up twice."""
        ready, native, pool, run = self.ready, self.native, self.pool, self.run
        positions, results = tuple(self.positions), tuple(self.results)
        plain = all(o == i for i, (o, _, _) in enumerate(results))
        allocate = empty_strided

        def call(arguments: list[Any]) -> list[Any]:
            try:
                entry = ready.pop()
            except IndexError:
                return run(arguments)
            table, inputs, outputs, address, count, _ = entry
            for position, patches in zip(positions, inputs, strict=True):
                start = arguments[position].data_ptr()
                if start & (ALIGNMENT - 1):
                    ready.append(entry)
                    return run(arguments)
                for at, offset in patches:
                    table[at] = start + offset
            made: list[Any] = []
            for shape, strides, dtype, patches in outputs:
                output = allocate(shape, strides, dtype)
                start = output.data_ptr()
                for at, offset in patches:
                    table[at] = start + offset
                made.append(output)
            if not pool.started:
                pool.start()
            stopped = native(address, count, pool.pointer)
            ready.append(entry)
            if stopped:
                raise ArtifactError("the native replay stopped at a malformed launch")
            arguments.clear()
            if plain:
                return made
            return [constant if o is None else made[o] for o, constant, _ in results]

        return call

    def _keep(self, prepared: Prepared, replay: Replay) -> None:
        """Puts a context by for calls by address alone, once it has run."""
        outputs = tuple(
            (replay.output_shapes[i], replay.output_strides[i], self.outputs[i][0], patches)
            for i, patches in enumerate(replay.outputs)
        )
        self.ready.append(
            (replay.table, replay.inputs, outputs, replay.launches_address, replay.count, prepared)
        )

    def run(self, arguments: list[Any]) -> list[Any]:
        """One call; empties the list of arguments, as its caller expects."""
        tensors = [arguments[p] for p in self.positions]
        if not self.plain:
            tensors = [
                torch.tensor(t) if n else t if o is None else t.permute(o)
                for t, n, o in zip(tensors, self.numbers, self.orders, strict=True)
            ]
        try:
            prepared: Prepared = self.idle.pop()
        except IndexError:
            prepared = self.executor.prepared()
        try:
            replay = prepared.replay
            if not self.fixed or replay is None:
                replay = prepared.find(tuple([tuple(t.shape) for t in tensors]))
            table = replay.table
            kept = None
            for i, patches in enumerate(replay.inputs):
                tensor = tensors[i]
                start = tensor.data_ptr()
                if start % ALIGNMENT or not tensor.is_contiguous():
                    tensor = tensor.clone(memory_format=torch.contiguous_format)
                    kept = [tensor] if kept is None else [*kept, tensor]
                    start = tensor.data_ptr()
                for position, offset in patches:
                    table[position] = start + offset
            outputs: list[torch.Tensor] = []
            for i, patches in enumerate(replay.outputs):
                home = self.homes[i]
                if home is not None and kept is None:
                    output = tensors[home]
                else:
                    shape = replay.output_shapes[i]
                    output = empty_strided(shape, replay.output_strides[i], self.outputs[i][0])
                start = output.data_ptr()
                for position, offset in patches:
                    table[position] = start + offset
                outputs.append(output)
            pool = self.pool
            if not pool.started:
                pool.start()
            if self.native(replay.launches_address, replay.count, pool.pointer):
                raise ArtifactError("the native replay stopped at a malformed launch")
            if self.takes_addresses and kept is None:
                self._keep(prepared, replay)
            else:
                self.idle.append(prepared)
        except BaseException:
            self.idle.append(prepared)
            raise
        if self.updates:
            for o, position, order in self.updates:
                target = arguments[position]
                if outputs[o].data_ptr() != target.data_ptr():
                    target.copy_(restored(outputs[o], order))
                elif target.numel() and not target.is_inference():
                    torch.autograd.graph.increment_version(target)
        arguments.clear()
        return [
            constant if o is None else outputs[o] if order is None else restored(outputs[o], order)
            for o, constant, order in self.results
        ]


def restored(tensor: torch.Tensor, order: tuple[int, ...] | None) -> torch.Tensor:
    """A tensor whose axes come from the outermost in memory to the innermost, in its own order."""
    if order is None:
        return tensor
    return tensor.permute([order.index(a) for a in range(len(order))])


Place = tuple[int | None, Any, tuple[int, ...] | None]


def _places(program: Program) -> tuple[list[Place], list[tuple[int, int, tuple[int, ...] | None]]]:
    """For each result (output, constant, order); for each update (output, argument, order)."""
    raws = program.module.graph.output_node().args[0]
    results: list[Place] = []
    updates: list[tuple[int, int, tuple[int, ...] | None]] = []
    count = 0
    for raw, spec in zip(raws, program.outputs, strict=True):  # type: ignore[arg-type]
        if not isinstance(raw, torch.fx.Node):
            results.append((None, raw, None))
            continue
        if spec.kind == "user":
            results.append((count, None, spec.order))
        else:
            updates.append((count, spec.target, spec.order))
        count += 1
    return results, updates


def _array_call(program: Program, model: CompiledModel) -> Run:
    """The same through the executor's own call: for other devices, and sizes that the data decide."""
    results, updates = _places(program)
    by_name = {s.name: s for s in program.inputs if s.kind in ("user", "size")}
    specs = [by_name[t.name] for t in model.manifest.inputs]

    def run(arguments: list[Any]) -> list[Any]:
        given: list[Any] = []
        for spec in specs:
            value = arguments[spec.position]
            if spec.kind == "size":
                value = torch.tensor(value)
            given.append(value if spec.order is None else value.permute(spec.order))
        outputs = model._call(given, None)
        outputs = [o if isinstance(o, torch.Tensor) else torch.from_numpy(o) for o in outputs]
        for o, position, order in updates:
            arguments[position].copy_(restored(outputs[o], order))
        arguments.clear()
        return [
            constant if o is None else restored(outputs[o], order) for o, constant, order in results
        ]

    return run
