"""The SSA graph: a flat, mutable list of ops over values with explicit use lists.

Iteration over `graph.ops` is safe under mutation: it continues after the current op even when that
op is erased, sees ops inserted after it and does not see ops inserted before it.  Every op has an
id that is never reused in its graph, and origins (frontend node names, source lines) that rewrites
union.  Types, attributes and dims are immutable values; ops and values have identity.
"""

# The three classes share their links and use lists; nobody else touches these.
# pyright: reportPrivateUsage=false
from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from graphwright.compiler.ir.dims import Symbol, symbols_of
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Constraint, Inference, InferenceError, Kind, OpDef, Registry
from graphwright.compiler.ir.symbol_scope import dims_in
from graphwright.compiler.ir.types import TensorType


class Use(NamedTuple):
    """Operand `index` of an op, or output `index` of a graph."""

    user: Op | Graph
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]


class Value:
    """A graph input or an op's result.  `name` is a hint for people; identity is the object."""

    __slots__ = ("_uses", "equals", "graph", "index", "name", "op", "type")

    def __init__(
        self, type: TensorType, graph: Graph, op: Op | None, index: int, name: str = ""
    ) -> None:
        self.type, self.graph, self.op, self.index, self.name = type, graph, op, index, name
        # The frontend's name of the tensor that this value equals exactly, for per-layer verify.
        self.equals = ""
        self._uses: dict[Use, None] = {}

    @property
    def uses(self) -> tuple[Use, ...]:
        return tuple(self._uses)

    @property
    def is_used(self) -> bool:
        return bool(self._uses)

    def has_use(self, use: Use) -> bool:
        return use in self._uses

    @property
    def users(self) -> tuple[Op, ...]:
        """The ops that use this value, once each, in order of first use."""
        return tuple(dict.fromkeys(u.user for u in self._uses if isinstance(u.user, Op)))

    @property
    def is_output(self) -> bool:
        return any(isinstance(u.user, Graph) for u in self._uses)

    def __repr__(self) -> str:
        who = f"{self.op.name}#{self.op.id}" if self.op else "input"
        return f"<value {self.name or self.index} of {who}: {self.type}>"


class Op:
    """One operation.  Made by `Graph.create`; `attributes` is read-only."""

    __slots__ = (
        "_next", "_operands", "_previous", "attributes", "attributes_key", "bodies", "definition",
        "graph", "id", "is_erased", "kind", "origins", "results",
    )  # fmt: skip

    def __init__(self, definition: OpDef, graph: Graph, id: int) -> None:
        self.definition, self.graph, self.id = definition, graph, id
        self.kind = Kind(definition.kind)
        self.attributes: Mapping[str, Any] = MappingProxyType({})
        self.attributes_key: Hashable = None  # kept by ir/structure.py
        self.bodies: tuple[Graph, ...] = ()
        self.origins: tuple[str, ...] = ()
        self.results: tuple[Value, ...] = ()
        self.is_erased = False
        self._operands: list[Value] = []
        self._previous: Op | None = None
        self._next: Op | None = None

    @property
    def name(self) -> str:
        return self.definition.name

    @property
    def operands(self) -> tuple[Value, ...]:
        return tuple(self._operands)

    @property
    def result(self) -> Value:
        """The only result.  Raises ValueError for an op that has another number."""
        (value,) = self.results
        return value

    @property
    def following(self) -> Op | None:
        """The op after this one in its graph, or None; for an erased op the one after it then."""
        op = self._next
        while op is not None and op.is_erased:
            op = op._next
        return op

    def set_operand(self, index: int, value: Value) -> None:
        """Replaces one operand; the new value must be defined before this op."""
        self._operands[index]._uses.pop(Use(self, index))
        self._operands[index] = value
        value._uses[Use(self, index)] = None
        self.graph._notify("operand", self)

    def attribute(self, name: str) -> Any:
        return self.attributes[name]

    def __repr__(self) -> str:
        return f"<op {self.name}#{self.id}>"


class Graph:
    """Inputs, ops in order, outputs.  Also the body of a fused or control-flow op.

    `symbols` holds every symbol by name; `constraints` what ops needed and nobody could prove.
    `listeners` are told ("added" | "erased" | "operand" | "outputs", op or None) after each change.
    """

    def __init__(self, name: str, *, registry: Registry) -> None:
        self.name, self.registry = name, registry
        self.inputs: list[Value] = []
        self.symbols: dict[str, Symbol] = {}
        self.constraints: list[Constraint] = []
        # Values of inputs that a call may leave out, and what the model's author wrote beside it.
        self.input_defaults: dict[str, Literal] = {}
        # The model's weights by name, also those that left no constant; None: nothing reads it.
        self.sources: dict[str, Literal | None] = {}
        self.metadata: dict[str, str] = {}
        # Output -> input: the new value of what the caller passed, which may be written there.
        self.updates: dict[int, int] = {}
        self.listeners: list[Callable[[str, Op | None], None]] = []
        self._outputs: list[Value] = []
        self.output_names: list[str] = []
        self._ops: dict[int, Op] = {}
        self._first: Op | None = None
        self._last: Op | None = None
        self._next_id = 0

    # -- reading

    @property
    def ops(self) -> Iterator[Op]:
        """Ops in order; see the module's contract on mutation."""
        op = self._first
        while op is not None:
            if not op.is_erased:
                yield op
            op = op._next

    @property
    def ops_reversed(self) -> Iterator[Op]:
        """Ops from last to first; safe when the current op or earlier ones are erased."""
        op = self._last
        while op is not None:
            if not op.is_erased:
                yield op
            op = op._previous

    def __len__(self) -> int:
        return len(self._ops)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(self._outputs)

    @property
    def next_id(self) -> int:
        """The id that the next op gets: larger than every id so far."""
        return self._next_id

    def op_by_id(self, id: int) -> Op:
        return self._ops[id]

    def has_op(self, id: int) -> bool:
        return id in self._ops

    # -- inputs and outputs

    def add_symbol(self, symbol: Symbol) -> Symbol:
        """Makes a symbol known.  Raises ValueError when another one has its name."""
        known = self.symbols.setdefault(symbol.name, symbol)
        if known != symbol:
            raise ValueError(f"symbol {symbol.name} is declared twice with different ranges")
        return known

    def add_input(self, name: str, type: TensorType) -> Value:
        """Adds a graph input; its symbols become known."""
        for symbol in symbols_of(type.shape):
            self.add_symbol(symbol)
        value = Value(type, self, None, len(self.inputs), name)
        self.inputs.append(value)
        return value

    def set_outputs(self, values: Sequence[Value], names: Sequence[str] | None = None) -> None:
        """Declares the outputs and, unless None, their names (kept when the number fits)."""
        for i, old in enumerate(self._outputs):
            old._uses.pop(Use(self, i), None)
        self._outputs = list(values)
        for i, value in enumerate(self._outputs):
            value._uses[Use(self, i)] = None
        if names is not None:
            self.output_names = list(names)
        elif len(self.output_names) != len(values):
            self.output_names = [v.name or f"output{i}" for i, v in enumerate(values)]
        self._notify("outputs", None)

    # -- changing

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
        *,
        before: Op | None = None,
        origins: Iterable[str] = (),
        bodies: Sequence[Graph] = (),
        types: Sequence[TensorType] | None = None,
        names: Sequence[str] = (),
    ) -> Op:
        """Makes an op, infers its result types and inserts it (`before` an op, default: last).

        `types` overrides inferred layouts only; a mismatch in dtype or rank raises InferenceError,
        as do operands or attributes that do not fit the declaration.
        """
        definition = self.registry.get(name)
        if definition is None:
            raise InferenceError(f"there is no op {name!r}")
        least, most = definition.minimum_operands, definition.maximum_operands
        if len(operands) < least or (most is not None and len(operands) > most):
            want = f"{least}" if least == most else f"{least} to {most or 'any number of'}"
            raise InferenceError(f"{name}: {len(operands)} operands, want {want}")
        if len(bodies) != len(definition.bodies):
            raise InferenceError(f"{name}: {len(bodies)} bodies, want {len(definition.bodies)}")
        complete = definition.complete(attributes or {})
        inference = Inference()
        if bodies:
            complete_for_infer = complete | {"bodies": tuple(bodies)}
        else:
            complete_for_infer = complete
        inferred = tuple(
            definition.infer([v.type for v in operands], complete_for_infer, inference)
        )
        if types is not None:
            for want, got in zip(types, inferred, strict=True):
                if want.dtype != got.dtype or want.rank != got.rank:
                    raise InferenceError(f"{name}: inferred {got}, declared {want}")
            inferred = tuple(types)
        op = Op(definition, self, self._next_id)
        self._next_id += 1
        op.attributes = MappingProxyType(complete)
        op.bodies, op.origins = tuple(bodies), tuple(dict.fromkeys(origins))
        op._operands = list(operands)
        for i, value in enumerate(operands):
            value._uses[Use(op, i)] = None
        hints = [*names, *[""] * len(inferred)]
        op.results = tuple(Value(t, self, op, i, hints[i]) for i, t in enumerate(inferred))
        for symbol in symbols_of(d for t in inferred for d in t.shape):
            self.add_symbol(symbol)
        for symbol in symbols_of(dims_in(complete.values())):
            self.add_symbol(symbol)
        for body in bodies:
            for symbol in body.symbols.values():
                self.add_symbol(symbol)
        if inference.constraints:
            self.constrain(inference.constraints, next(iter(op.origins), ""))
        self._ops[op.id] = op
        self._link(op, before)
        self._notify("added", op)
        return op

    def constrain(self, constraints: Iterable[Constraint], node: str = "") -> None:
        """Adds what is new among them; `node` needed it, which the reason then says first."""
        known = {(c.left, c.relation, c.right) for c in self.constraints}
        for c in constraints:
            key = (c.left, c.relation, c.right)
            if key in known:
                continue
            known.add(key)
            told = c.reason if not node or node in c.reason else f"{node}: {c.reason}"
            self.constraints.append(Constraint(*key, told))

    def replace_uses(self, old: Value, new: Value) -> None:
        """Every use of `old`, graph outputs included, becomes a use of `new`."""
        if old is new:
            return
        for use in old.uses:
            old._uses.pop(use)
            if isinstance(use.user, Op):
                use.user._operands[use.index] = new
            else:
                use.user._outputs[use.index] = new
            new._uses[use] = None
            user = use.user if isinstance(use.user, Op) else None
            self._notify("operand" if user else "outputs", user)
        if not new.name:
            new.name = old.name
        if not new.equals:
            new.equals = old.equals

    def erase(self, op: Op) -> None:
        """Removes an op none of whose results is used.  Raises ValueError otherwise."""
        for value in op.results:
            if value._uses:
                user = next(iter(value._uses)).user
                raise ValueError(f"{op!r} cannot be erased: its result is used by {user!r}")
        for i, value in enumerate(op._operands):
            value._uses.pop(Use(op, i))
        del self._ops[op.id]
        op.is_erased = True
        if op._previous is not None:
            op._previous._next = op._next
        else:
            self._first = op._next
        if op._next is not None:
            op._next._previous = op._previous
        else:
            self._last = op._previous
        # op keeps its own links, so that an iterator that stands on it finds its way on.
        self._notify("erased", op)

    def move_before(self, op: Op, anchor: Op | None) -> None:
        """Moves an op before another (None: to the end)."""
        if op is anchor:
            return
        if op._previous is not None:
            op._previous._next = op._next
        else:
            self._first = op._next
        if op._next is not None:
            op._next._previous = op._previous
        else:
            self._last = op._previous
        self._link(op, anchor)

    def _link(self, op: Op, before: Op | None) -> None:
        if before is None:
            op._previous, op._next = self._last, None
            if self._last is not None:
                self._last._next = op
            else:
                self._first = op
            self._last = op
            return
        op._previous, op._next = before._previous, before
        if before._previous is not None:
            before._previous._next = op
        else:
            self._first = op
        before._previous = op

    def _notify(self, event: str, op: Op | None) -> None:
        for listener in self.listeners:
            listener(event, op)

    # -- copying

    def clone(self, values: Mapping[Value, Value] | None = None) -> Graph:
        """A deep copy with the same op ids; `values` (old to new) is filled when it is a dict."""
        copy = Graph(self.name, registry=self.registry)
        mapping: dict[Value, Value] = values if isinstance(values, dict) else {}
        copy.symbols = dict(self.symbols)
        copy.constraints = list(self.constraints)
        copy.input_defaults, copy.metadata = dict(self.input_defaults), dict(self.metadata)
        copy.updates = dict(self.updates)
        copy.sources = self.sources
        for value in self.inputs:
            mapping[value] = new = copy.add_input(value.name, value.type)
            new.equals = value.equals
        for op in self.ops:
            self._next_id, copy._next_id = self._next_id, op.id
            twin = copy.create(
                op.name,
                [mapping[v] for v in op.operands],
                op.attributes,
                origins=op.origins,
                bodies=[b.clone() for b in op.bodies],
                types=[r.type for r in op.results],
                names=[r.name for r in op.results],
            )
            for old, new in zip(op.results, twin.results, strict=True):
                mapping[old] = new
                new.equals = old.equals
        copy._next_id = self._next_id
        copy.set_outputs([mapping[v] for v in self._outputs], list(self.output_names))
        return copy

    def __repr__(self) -> str:
        return f"<graph {self.name}: {len(self._ops)} ops>"
