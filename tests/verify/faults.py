"""Faults of the kinds that compilers have, planted by seed in a rewrite or in a kernel."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from graphwright.compiler import driver
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import InferenceError
from graphwright.compiler.passes.base import Group, Journal, Pass, PassResult, Pipeline, Rewrite
from graphwright.compiler.target import Target

Fault = Callable[[Op, np.random.Generator], Op | None]  # a wrong op to take the place of one


def swapped_operands(op: Op, rng: np.random.Generator) -> Op | None:
    """a - b for b - a."""
    if op.name not in ("sub", "div", "pow", "less", "matmul") or len(op.operands) != 2:
        return None
    a, b = op.operands
    return None if a is b else _twin(op, operands=[b, a])


def another_op(op: Op, rng: np.random.Generator) -> Op | None:
    """add for sub, min for max, one activation for another."""
    table = {
        "add": "sub", "sub": "add", "mul": "add", "maximum": "minimum", "relu": "neg",
        "gelu": "silu", "silu": "relu", "sigmoid": "tanh", "tanh": "sigmoid", "neg": "abs",
        "hard_swish": "relu", "reduce_sum": "reduce_max", "reduce_mean": "reduce_max", "relayout": "neg",
    }  # fmt: skip
    return _twin(op, name=table[op.name]) if op.name in table else None


def wrong_axis(op: Op, rng: np.random.Generator) -> Op | None:
    """Along the next axis, where the shapes allow it."""
    attributes = dict(op.attributes)
    rank = op.operands[0].type.rank if op.operands else 0
    if op.name in ("softmax", "concat", "cumsum") and "axis" in attributes and rank > 1:
        return _twin(op, attributes=attributes | {"axis": (attributes["axis"] + 1) % rank})
    if op.name == "transpose":
        permutation = list(attributes["permutation"])
        shape = op.operands[0].type.shape
        for i, j in itertools.combinations(range(rank), 2):
            if shape[permutation[i]] == shape[permutation[j]]:
                permutation[i], permutation[j] = permutation[j], permutation[i]
                return _twin(op, attributes=attributes | {"permutation": tuple(permutation)})
    return None


def dropped_bias(op: Op, rng: np.random.Generator) -> Op | None:
    """x for x + b; a convolution without its third operand."""
    if op.name == "conv" and len(op.operands) == 3:
        return _twin(op, operands=op.operands[:2])
    if op.name == "add" and op.operands[0].type == op.result.type:
        return _twin(op, name="abs", operands=[op.operands[0]], attributes={})
    return None


def off_by_one(op: Op, rng: np.random.Generator) -> Op | None:
    """A bound, a pad or a constant's last element that is one too far."""
    attributes = dict(op.attributes)
    if op.name == "conv" and sum(attributes["low"]) and sum(attributes["high"]):
        low, high = (list(attributes[n]) for n in ("low", "high"))
        low[0], high[0] = low[0] - 1, high[0] + 1
        return _twin(op, attributes=attributes | {"low": tuple(low), "high": tuple(high)})
    if op.name == "constant":
        array = np.array(attributes["value"].array())
        if array.size < 2 or array.dtype.kind != "f" or np.array_equal(array, np.roll(array, 1)):
            return None
        rolled = Literal.dense(np.roll(array.reshape(-1), 1).reshape(array.shape))
        return _twin(op, attributes=attributes | {"value": rolled, "recipe": None})
    return None


def lost_cast(op: Op, rng: np.random.Generator) -> Op | None:
    """A rounding or a change of type that no longer happens."""
    if op.name == "cast" and op.operands[0].op is not None:
        inner = op.operands[0].op
        if inner.name == "cast" and inner.operands[0].type == op.result.type:
            return _twin(op, name="abs", operands=[inner.operands[0]], attributes={})
    if op.name not in ("floor", "ceil", "round", "trunc", "clip"):
        return None
    return _twin(op, name="abs", operands=[op.operands[0]], attributes={})


FAULTS: dict[str, Fault] = {
    f.__name__: f
    for f in (swapped_operands, another_op, wrong_axis, dropped_bias, off_by_one, lost_cast)
}


def _twin(
    op: Op,
    *,
    name: str | None = None,
    operands: Any = None,
    attributes: Any = None,
) -> Op | None:
    """A new op before `op`, or None when it does not fit in its place."""
    given = op.attributes if attributes is None else attributes
    if name is not None and attributes is None:
        known = op.graph.registry[name].attributes
        given = {k: v for k, v in given.items() if k in known}
    try:
        twin = op.graph.create(
            name or op.name, op.operands if operands is None else operands, given, before=op
        )
    except (InferenceError, ValueError, KeyError):
        return None
    if [r.type.shape for r in twin.results] != [r.type.shape for r in op.results] or [
        r.type.dtype for r in twin.results
    ] != [r.type.dtype for r in op.results]:
        op.graph.erase(twin)
        return None
    for old, new in zip(op.results, twin.results, strict=True):
        new.type = old.type
    return twin


def plant(op: Op, rng: np.random.Generator) -> str | None:
    """Puts a wrong op in the place of `op`, or of one in its body; the kind of fault, or None."""
    candidates = [op, *(inner for body in op.bodies for inner in body.ops)]
    for index in rng.permutation(len(candidates)):
        target = candidates[index]
        for kind in rng.permutation(list(FAULTS)):
            wrong = FAULTS[kind](target, rng)
            if wrong is None:
                continue
            for old, new in zip(target.results, wrong.results, strict=True):
                target.graph.replace_uses(old, new)
            target.graph.erase(target)
            return str(kind)
    return None


@dataclass
class Planted:
    """What was planted where."""

    kind: str
    rewrite: Rewrite
    pass_name: str


@dataclass(frozen=True)
class Sabotaged:
    """A pass that makes one of its rewrites wrong: the `number`-th of all in the pipeline."""

    inner: Pass
    counter: list[int]
    number: int
    seed: int
    planted: list[Planted] = field(default_factory=list)
    name: ClassVar[str] = ""

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        assert journal is not None
        usual = journal.on_rewrite

        def listen(rewrite: Rewrite) -> None:
            # A step that was not paid for is another one than the full run's of this number.
            paid = journal.fuel is None or journal.fuel >= 0
            if self.counter[0] == self.number and graph.name == rewrite.graph and paid:
                rng = np.random.default_rng(self.seed)
                for produced in rewrite.produced:
                    kind = plant(graph.op_by_id(produced), rng) if graph.has_op(produced) else None
                    if kind is not None:
                        self.planted.append(Planted(kind, rewrite, self.inner.name))
                        break
            self.counter[0] += 1
            if usual is not None:
                usual(rewrite)

        journal.on_rewrite = listen
        try:
            return self.inner.run(graph, target, journal)
        finally:
            journal.on_rewrite = usual


class Saboteur:
    """Builds the pipeline anew for every run: each counts its rewrites from the start."""

    def __init__(self, text: str, number: int, seed: int) -> None:
        self.text, self.number, self.seed = text, number, seed
        self.planted: list[Planted] = []

    def run(self, graph: Graph, target: Target, **options: Any) -> Any:
        counter = [0]

        def wrap(item: Pass | Group) -> Any:
            if isinstance(item, Group):
                return Group(tuple(map(wrap, item.items)), item.limit)
            wrapped = Sabotaged(item, counter, self.number, self.seed, self.planted)
            object.__setattr__(wrapped, "name", item.name)
            return wrapped

        return Pipeline(tuple(map(wrap, Pipeline.parse(self.text).items))).run(
            graph, target, **options
        )


LOOP = re.compile(r"(for \((?:int64_t|int) \w+ = [^;]+; \w+ < )([\w.]+)(; \+\+\w+\))")


def off_by_one_bound(steps: list[Any], rng: np.random.Generator) -> tuple[list[Any], str] | None:
    """One loop of one kernel ends an iteration too early, wherever the kernel is launched."""
    kernels = {s.kernel.name: s.kernel for s in steps if isinstance(s, EmittedLaunch)}
    names = [n for n, k in kernels.items() if LOOP.search(k.source)]
    if not names:
        return None
    name = names[int(rng.integers(len(names)))]
    loops = list(LOOP.finditer(kernels[name].source))
    at = loops[int(rng.integers(len(loops)))]
    source = kernels[name].source
    wrong = f"{source[: at.start()]}{at[1]}{at[2]} - 1{at[3]}{source[at.end() :]}"
    changed = [
        replace(s, kernel=replace(s.kernel, source=wrong))
        if isinstance(s, EmittedLaunch) and s.kernel.name == name
        else s
        for s in steps
    ]
    return changed, name


def stale_buffer(steps: list[Any], rng: np.random.Generator) -> tuple[list[Any], str] | None:
    """One launch reads an older value of the same type than it should."""
    for index in rng.permutation(len(steps)):
        step = steps[index]
        if not isinstance(step, EmittedLaunch):
            continue
        older = [
            s.arguments[w] for s in steps[:index] if isinstance(s, EmittedLaunch) for w in s.writes
        ]
        for place, argument in enumerate(step.arguments):
            if place in step.writes or not isinstance(argument, Value):
                continue
            same = [v for v in older if isinstance(v, Value) and v is not argument
                    and v.type == argument.type and v not in step.arguments]  # fmt: skip
            if same:
                arguments = list(step.arguments)
                arguments[place] = same[int(rng.integers(len(same)))]
                wrong = replace(step, arguments=tuple(arguments), in_place=())
                return [*steps[:index], wrong, *steps[index + 1 :]], str(step.ops)
    return None


LAUNCH_FAULTS = {"off_by_one_bound": off_by_one_bound, "stale_buffer": stale_buffer}


@contextmanager
def wrong_launch(kind: str, seed: int, planted: list[tuple[str, list[int]]]) -> Iterator[None]:
    """Within it, kernels' sources or launches are wrong; `planted` gets (what, ids of its ops)."""
    emit = driver.emit_graph

    def sabotaged(graph: Graph, *rest: Any, **more: Any) -> Any:
        steps = emit(graph, *rest, **more)
        found = LAUNCH_FAULTS[kind](steps, np.random.default_rng(seed))
        assert found is not None, f"no place for {kind}"
        wrong, what = found
        ids = [i for a, b in zip(steps, wrong, strict=True) if a is not b for i in a.ops]
        planted.append((what, ids))
        return wrong

    driver.emit_graph = sabotaged
    try:
        yield
    finally:
        driver.emit_graph = emit


@contextmanager
def wrong_kernel(seed: int, kinds: list[str], ids: list[int]) -> Iterator[None]:
    """Within it, one region of a compiled graph is emitted as another than the graph says."""
    emit = driver.emit_graph

    def sabotaged(graph: Graph, *rest: Any, **more: Any) -> Any:
        rng = np.random.default_rng(seed)
        ops = [op for op in graph.ops if op.bodies and op.name == "fused"]
        for index in rng.permutation(len(ops)):
            op = ops[index]
            right = op.bodies
            op.bodies = tuple(b.clone() for b in right)
            inner = [o for body in op.bodies for o in body.ops]
            for k in rng.permutation(len(inner)):
                kind = plant(inner[k], rng)
                if kind is not None:
                    kinds.append(kind)
                    ids.append(op.id)
                    try:
                        return emit(graph, *rest, **more)
                    finally:
                        op.bodies = right
            op.bodies = right
        raise AssertionError("no region could be made wrong")

    driver.emit_graph = sabotaged
    try:
        yield
    finally:
        driver.emit_graph = emit
