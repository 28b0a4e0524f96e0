"""Random graphs run in planned memory: numpy does each step's work on bytes at the planned places.

The arena starts poisoned, the result must equal the evaluator's, for several bindings of the symbol.
Any overlap of live values, a wrong view offset, a value overwritten too early shows as a mismatch.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from planned_steps import one_step_an_op

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Symbol, evaluate
from graphwright.compiler.ir.evaluate import evaluate as evaluate_graph
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Reference
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import BOOL, F32, TensorType
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.plan_memory import check_plan, plan_memory
from graphwright.compiler.passes.separate_outputs import SeparateOutputs
from graphwright.compiler.passes.storage import Storage, assign_storage, check_storage
from graphwright.compiler.target import Target

N = dims.of(Symbol("N", 2, 40, opt=16))
FULL = TensorType(F32, (N, 16))


def random_body(
    graph: Graph, pool: list[Value], rng: random.Random, count: int, depth: int
) -> None:
    """Appends ops on values of shape [N, 16] (and views of other shapes) to `graph` and `pool`."""
    condition = graph.inputs[0]
    for _ in range(count):
        a, b = rng.choice(pool), rng.choice(pool)
        kind = rng.randrange(9)
        if kind <= 1:
            value = graph.create("tanh", [a]).result
        elif kind <= 3:
            value = graph.create(rng.choice(("add", "maximum")), [a, b]).result
        elif kind == 4:
            value = graph.create("softmax", [a], {"axis": 1}).result
        elif kind == 5:  # two views there and back
            flat = graph.create("reshape", [a], {"shape": (dims.multiply(N, 16),)}).result
            value = graph.create("reshape", [flat], {"shape": (N, 16)}).result
        elif kind == 6:  # part of the rows, at an offset, made whole again
            part = graph.create(
                "slice", [a], {"starts": (1, 0), "sizes": (N - 1, 16), "steps": (1, 1)}
            ).result
            row = graph.create(
                "slice", [b], {"starts": (0, 0), "sizes": (1, 16), "steps": (1, 1)}
            ).result
            value = graph.create("concat", [part, row], {"axis": 0}).result
        elif kind == 7:
            data = np.asarray([[rng.random() for _ in range(16)]], np.float32)
            constant = graph.create("constant", [], {"value": Literal.dense(data)}).result
            value = graph.create("add", [a, constant]).result
        elif depth:
            captures = [condition, a, b]
            bodies: list[Graph] = []
            for _ in range(2):
                body = Graph("body", registry=REGISTRY)
                inner = [body.add_input(f"c{i}", v.type) for i, v in enumerate(captures)]
                inside = inner[1:]
                random_body(body, inside, rng, rng.randrange(4), depth - 1)
                body.set_outputs([rng.choice(inside), inside[-1]])
                bodies.append(body)
            made = graph.create("if", [condition, *captures], bodies=bodies)
            pool.append(made.results[0])
            value = made.results[1]
        else:
            continue
        pool.append(value)


def random_graph(seed: int) -> Graph:
    rng = random.Random(seed)
    graph = Graph("random", registry=REGISTRY)
    graph.add_input("condition", TensorType(BOOL, ()))
    pool = [graph.add_input(f"x{i}", FULL) for i in range(2)]
    random_body(graph, pool, rng, rng.randint(3, 25), 2)
    outputs = [rng.choice(pool) for _ in range(rng.randint(1, 4))]
    graph.set_outputs(outputs, [f"o{i}" for i in range(len(outputs))])
    return graph


class Memory:
    """The four spaces as bytes, and typed access to values by their places."""

    def __init__(
        self, storage: Storage, feed: list[np.ndarray], graph: Graph, binding: dict[str, int]
    ) -> None:
        plan = plan_memory(storage.buffers, effort=2000)
        check_plan(plan, binding)
        self.offsets, size = plan.offsets(binding)
        self.storage, self.binding = storage, binding
        self.arena = np.full(size, 0xFF, np.uint8)  # 0xFFFFFFFF is a NaN
        sizes = [evaluate(v.type.storage_bytes, binding) for v in graph.outputs]
        self.spaces = {
            "input": [np.ascontiguousarray(a).reshape(-1).view(np.uint8).copy() for a in feed],
            "output": [np.full(n, 0xFF, np.uint8) for n in sizes],
            "weight": [
                np.ascontiguousarray(v.op.attribute("value").array()).reshape(-1).view(np.uint8)
                for v in storage.weights
                if v.op is not None
            ],
        }

    def bytes_of(self, value: Value) -> np.ndarray:
        place = self.storage.places[value]
        size = evaluate(value.type.storage_bytes, self.binding)
        start = evaluate(place.offset, self.binding)
        if place.space == "arena":
            start += self.offsets[place.index]
            memory = self.arena
        else:
            memory = self.spaces[place.space][place.index]
        assert start + size <= len(memory)
        return memory[start : start + size]

    def read(self, value: Value) -> np.ndarray:
        shape = tuple(evaluate(d, self.binding) for d in value.type.shape)
        return self.bytes_of(value).copy().view(value.type.dtype.numpy).reshape(shape)

    def write(self, value: Value, array: np.ndarray) -> None:
        self.bytes_of(value)[...] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def run_op(op: Op, memory: Memory) -> None:
    arrays = [memory.read(v) for v in op.operands]
    if op.name == "fused":  # only the copies of separate-outputs
        memory.write(op.result, arrays[0])
        return
    context = Reference(binding=memory.binding, results=[v.type for v in op.results])
    for value, array in zip(
        op.results, op.definition.reference(arrays, op.attributes, context), strict=True
    ):
        memory.write(value, array)


def run_graph(graph: Graph, memory: Memory) -> None:
    from graphwright.compiler.passes.views import view_of

    for op in graph.ops:
        if op.name == "if":
            taken = bool(memory.read(op.operands[0]))
            run_graph(op.bodies[0 if taken else 1], memory)
        elif op.name != "constant" and view_of(op) is None:
            run_op(op, memory)


@pytest.mark.parametrize("seed", range(60))
def test_planned_memory_gives_the_evaluators_results(seed: int) -> None:
    graph = random_graph(seed)
    SeparateOutputs().run(graph, Target.parse("cpu"))
    verify(graph)
    steps = one_step_an_op(graph)
    storage = assign_storage(graph, steps)
    check_storage(graph, steps, storage)
    rng = np.random.default_rng(seed)
    for n, condition in ((2, True), (17, False), (40, True)):
        x = [rng.standard_normal((n, 16)).astype(np.float32) for _ in range(2)]
        feed = [np.asarray(condition), *x]
        memory = Memory(storage, feed, graph, {"N": n})
        run_graph(graph, memory)
        want = evaluate_graph(graph, feed)
        for i, (value, expected) in enumerate(zip(graph.outputs, want, strict=True)):
            got = memory.read(value)
            assert not np.isnan(got).any(), f"output {i} has bytes that nobody wrote"
            np.testing.assert_array_equal(got, expected)


def test_in_place_reuse_happens() -> None:
    """The random graphs do exercise in-place pairs, views at offsets and branches."""
    reused = offsets = branches = 0
    for seed in range(60):
        graph = random_graph(seed)
        SeparateOutputs().run(graph, Target.parse("cpu"))
        storage = assign_storage(graph, one_step_an_op(graph))
        reused += len(storage.reused)
        offsets += sum(p.space == "arena" and p.offset != 0 for p in storage.places.values())
        branches += sum(op.name == "if" for op in graph.ops)
    assert reused > 20 and offsets > 20 and branches > 20
