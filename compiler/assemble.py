"""From emitted steps to what a manifest stores: places, the memory plan, launch records, weights.

The steps name IR values; `passes/storage.py` decides where each lies and `passes/plan_memory.py`
packs the arena; here both become the runtime's records.  No decision is made here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from graphwright.compiler import precision
from graphwright.compiler.codegen.cpp.packing import PanelShape
from graphwright.compiler.codegen.kernel import (
    EmittedBind,
    EmittedBranch,
    EmittedCheck,
    EmittedJump,
    EmittedLaunch,
    EmittedLoop,
    EmittedNext,
    Packed,
    Step,
    Workspace,
)
from graphwright.compiler.codegen.package import WeightData
from graphwright.compiler.codegen.segments import plan_by_segment
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr, symbols_of
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Constraint
from graphwright.compiler.ir.structure import attribute_key
from graphwright.compiler.ir.symbol_scope import binders
from graphwright.compiler.passes import storage
from graphwright.compiler.passes.plan_memory import MemoryPlan, standard_bindings
from graphwright.compiler.refit_table import Origin, RefitTable, packed_origin
from graphwright.compiler.tune.selection import Tuning
from graphwright.errors import CompileError
from graphwright.runtime.manifest import (
    Buffer,
    ConstraintSpec,
    Expression,
    Launch,
    Move,
    Plan,
    Pointer,
    SymbolSpec,
    TensorSpec,
    WeightSpec,
)

LARGEST = 2**63 - 1  # an undeclared dim's largest binding overflows what a manifest may say


@dataclass(frozen=True, slots=True)
class Assembly:
    """Steps with their places and plan.  `order[i]` is the plan's request at manifest buffer i."""

    graph: Graph
    steps: Sequence[Step]
    storage: storage.Storage
    memory: MemoryPlan
    tuning: Tuning = field(default_factory=Tuning)

    @property
    def plan(self) -> Plan:
        """The plan as the runtime replays it, buffers in an order in which offsets follow."""
        new = {old: i for i, old in enumerate(self.memory.order)}
        buffers = [
            Buffer(
                size=dims.to_json(self.memory.requests[i].size),
                after=tuple(sorted(new[j] for j in self.memory.after[i])),
                values=self.memory.requests[i].values,
                first=self.memory.requests[i].first,
                last=self.memory.requests[i].last,
            )
            for i in self.memory.order
        ]
        return Plan(
            tuple(buffers),
            self.memory.alignment,
            {n: min(b, LARGEST) for n, b in self.memory.lower_bounds.items()},
            {n: min(b, LARGEST) for n, b in self.memory.sizes.items()},
        )

    def launches(self, kernels: Mapping[str, int], weights: Weights) -> tuple[Launch, ...]:
        """Launch records for a table of kernels (name to index) and weights."""
        buffer = {old: i for i, old in enumerate(self.memory.order)}

        def pointer(value: Value) -> Pointer:
            place = self.storage.places[value]
            index = place.index
            if place.space == "arena":
                index = buffer[index]
            elif place.space == "weight":
                index = weights.of_constant[self.storage.weights[index]]
            return Pointer(place.space, index, dims.to_json(place.offset))

        out: list[Launch] = []
        for at, step in enumerate(self.steps):
            if isinstance(step, EmittedBranch):
                out.append(
                    Launch("branch", pointers=(pointer(step.condition),), jump=step.skip,
                           ops=step.ops, origins=step.origins)
                )  # fmt: skip
            elif isinstance(step, EmittedJump):
                out.append(Launch("jump", jump=step.skip, ops=step.ops, origins=step.origins))
            elif isinstance(step, EmittedCheck):
                checks = tuple(map(_constraint_spec, step.constraints))
                out.append(Launch("check", checks=checks, ops=step.ops, origins=step.origins))
            elif isinstance(step, EmittedBind):
                out.append(_bind(step, pointer))
            elif isinstance(step, EmittedLoop):
                told = tuple(map(pointer, (step.counter, step.trips, step.condition)))
                out.append(
                    Launch("loop", pointers=told, jump=step.skip, ops=step.ops,
                           origins=step.origins)
                )  # fmt: skip
            elif isinstance(step, EmittedNext):
                out.append(
                    Launch("next", pointers=(pointer(step.counter),), jump=-step.back - 1,
                           writes=(0,), ops=step.ops, origins=step.origins)
                )  # fmt: skip
            else:
                scratch = 0
                pointers: list[Pointer] = []
                for argument in step.arguments:
                    if isinstance(argument, Workspace):
                        index = self.storage.workspaces[at, scratch]
                        pointers.append(Pointer("arena", buffer[index]))
                        scratch += 1
                    elif isinstance(argument, Packed):
                        pointers.append(Pointer("weight", weights.of_packed[argument]))
                    else:
                        pointers.append(pointer(argument))
                out.append(
                    Launch(
                        kernel=kernels[step.kernel.name],
                        pointers=tuple(pointers),
                        scalars=tuple(map(dims.to_json, step.scalars)),
                        grid=tuple(map(dims.to_json, step.grid)),
                        writes=step.writes,
                        ops=step.ops,
                        origins=step.origins,
                    )
                )
        return tuple(out)


def _bind(step: EmittedBind, pointer: Callable[[Value], Pointer]) -> Launch:
    values = [*step.counts, *(v for pair in step.moves for v in pair)]
    first = len(step.counts)
    moves = tuple(
        Move(first + 2 * i, first + 2 * i + 1, dims.to_json(source.type.storage_bytes))
        for i, (source, _) in enumerate(step.moves)
    )
    return Launch(
        "bind",
        pointers=tuple(map(pointer, values)),
        scalars=tuple(map(dims.to_json, step.sizes)),
        symbols=tuple(s.name for s in step.symbols),
        moves=moves,
        checks=tuple(map(_constraint_spec, step.checks)),
        ops=step.ops,
        origins=step.origins,
    )


def assemble(graph: Graph, steps: Sequence[Step]) -> Assembly:
    """Places and plan for the steps of a graph.  Raises CompileError when they do not fit it."""
    touched = [_touched(s) for s in steps]
    places = storage.assign_storage(graph, touched)
    storage.check_storage(graph, touched, places)
    bindings = standard_bindings(list(graph.symbols.values()))
    memory = plan_by_segment(places.buffers, steps, bindings)
    return Assembly(graph, steps, places, memory)


def _touched(step: Step) -> storage.Step:
    if isinstance(step, EmittedBranch):
        return storage.Step(reads=(step.condition,))
    if isinstance(step, EmittedBind):
        sources, targets = zip(*step.moves, strict=True) if step.moves else ((), ())
        return storage.Step(reads=(*step.counts, *sources), writes=targets)
    if isinstance(step, EmittedJump | EmittedCheck):
        return storage.Step()
    if isinstance(step, EmittedLoop):
        return storage.Step(reads=(step.counter, step.trips, step.condition))
    if isinstance(step, EmittedNext):
        return storage.Step(reads=(step.counter,), writes=(step.counter,), back=step.back)
    values = {i: a for i, a in enumerate(step.arguments) if isinstance(a, Value)}
    return storage.Step(
        is_copy=step.is_copy,
        reads=tuple(v for i, v in values.items() if i not in step.writes),
        writes=tuple(values[i] for i in step.writes if i in values),
        workspaces=tuple(a.bytes for a in step.arguments if isinstance(a, Workspace)),
        in_place=tuple(
            (values[w], values[r]) for w, r in step.in_place if w in values and r in values
        ),
    )


class Weights:
    """The artifact's weights, collected: constants as kernels read them, and packed ones, each once.

    A packed weight has a form, and equal forms of several variants are shared.  Arrays are made when
    they are written, one at a time.
    """

    def __init__(self) -> None:
        self.data: list[WeightData] = []
        self.refit = RefitTable()
        self.of_constant: dict[Value, int] = {}
        self.of_packed: dict[Packed, int] = {}
        self._index: dict[tuple[object, ...], int] = {}

    def for_variant(self) -> Weights:
        """The same table of data, with packed weights chosen anew."""
        other = Weights()
        other.data, other._index, other.refit = self.data, self._index, self.refit
        other.of_constant = self.of_constant
        return other

    def add_constant(self, value: Value) -> None:
        """A constant that kernels read as it is, in its type's layout."""
        assert value.op is not None
        literal: Literal = value.op.attribute("value")
        layout = value.type.layout
        recipe: Recipe | None = value.op.attribute("recipe")
        # Equal weights of different names stay apart: new ones may differ.
        named = None if recipe is None else attribute_key(recipe)
        key = (literal.digest, literal.dtype.name, literal.shape, str(layout), named)

        def load() -> np.ndarray:
            array = literal.array()
            if layout is not None:
                array = array.transpose(layout.order)
            return np.asarray(array, order="C")  # keeps rank 0

        shape = literal.shape if layout is None else tuple(literal.shape[a] for a in layout.order)
        words = _recipe_text(value.op)
        made = recipe
        if made is not None and layout is not None:
            made = Recipe("transpose", (("permutation", layout.order),), (made,))
        origin = None if made is None else Origin((made,))
        self.of_constant[value] = self._add(
            key, literal.dtype.long_name, shape, words, load, origin
        )

    def add_packed(
        self,
        packed: Packed,
        form: PanelShape,
        dtype: str,
        size: int,
        pack: Callable[[Packed], np.ndarray],
    ) -> None:
        """A weight in a packed form of `size` elements, as `pack` makes it."""
        if packed in self.of_packed:
            return
        origin = packed_origin(packed, form)
        sources = tuple(
            (x.literal.digest, x.moves, attribute_key(x.recipe))
            for x in (packed.source, *packed.more)
        )
        key = (sources, packed.packing, packed.parameters, form)
        words = f"{packed} for {form}"
        self.of_packed[packed] = self._add(key, dtype, (size,), words, lambda: pack(packed), origin)

    def add_literal(self, literal: Literal, recipe: str) -> int:
        """A constant by itself, such as an input's default."""
        key = (literal.digest, literal.dtype.name, literal.shape, "None")
        return self._add(
            key, literal.dtype.long_name, literal.shape, recipe,
            lambda: np.asarray(literal.array(), order="C"),
        )  # fmt: skip

    def _add(
        self,
        key: tuple[object, ...],
        dtype: str,
        shape: Sequence[int],
        recipe: str,
        load: Callable[[], np.ndarray],
        origin: Origin | None = None,
    ) -> int:
        known = self._index.get(key)
        if known is None:
            known = self._index[key] = len(self.data)
            spec = WeightSpec(f"w{known}", dtype, tuple(int(n) for n in shape), recipe)
            self.data.append(WeightData(spec, load))
            self.refit.origins.append(origin)
        return known


def _recipe_text(op: Op) -> str:
    recipe: Recipe | None = op.attribute("recipe")
    if recipe is None:
        return ", ".join(op.origins)
    return recipe.source or f"{recipe.op}({', '.join(recipe.sources())})"


def packed_arguments(steps: Sequence[Step]) -> list[Packed]:
    """Every packed weight that the steps read, in order."""
    return [
        a
        for step in steps
        if isinstance(step, EmittedLaunch)
        for a in step.arguments
        if isinstance(a, Packed)
    ]


def macs_of(graph: Graph) -> dict[str, Expression]:
    """Multiply-accumulates by precision as the manifest records them."""
    return {name: dims.to_json(count) for name, count in precision.macs_of(graph).items()}


# -- the signature


def symbol_specs(graph: Graph) -> tuple[SymbolSpec, ...]:
    """The graph's symbols with the input axes that bind them."""
    specs: list[SymbolSpec] = []
    for s in graph.symbols.values():
        bound: tuple[int, int] | None = None
        for i, value in enumerate(graph.inputs):
            for axis, dim in enumerate(value.type.shape):
                if bound is None and isinstance(dim, Expr) and dim.symbol == s:
                    bound = (i, axis)
        specs.append(SymbolSpec(s.name, s.min, s.max, s.multiple_of, s.typical, bound))
    return tuple(specs)


def tensor_specs(
    graph: Graph, weights: Weights, updated: Sequence[tuple[int, int]] = ()
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Inputs, with defaults among the weights, and outputs, with the inputs that they may lie in."""
    inputs: list[TensorSpec] = []
    for v in graph.inputs:
        default = graph.input_defaults.get(v.name)
        index = None if default is None else weights.add_literal(default, f"default of {v.name}")
        inputs.append(TensorSpec(v.name, v.type.dtype.long_name, _shape(v.type.shape), index))
    home = dict(updated)
    outputs = [
        TensorSpec(name, v.type.dtype.long_name, _shape(v.type.shape), in_place=home.get(i))
        for i, (name, v) in enumerate(zip(graph.output_names, graph.outputs, strict=True))
    ]
    if len({t.name for t in outputs}) != len(outputs):
        raise CompileError(f"graph {graph.name}: two outputs have one name")
    return tuple(inputs), tuple(outputs)


def _shape(shape: Sequence[Dim]) -> tuple[object, ...]:
    return tuple(map(dims.to_json, shape))


def constraint_specs(graph: Graph) -> tuple[ConstraintSpec, ...]:
    """What a call must satisfy beyond the symbols' ranges; what needs sizes that are bound in
    mid-run is checked by the steps.
    """
    late = binders(graph)
    return tuple(
        _constraint_spec(c)
        for c in graph.constraints
        if late.keys().isdisjoint(symbols_of((c.left, c.right)))
    )


def _constraint_spec(c: Constraint) -> ConstraintSpec:
    return ConstraintSpec(dims.to_json(c.left), c.relation, dims.to_json(c.right), c.reason)
