"""Loops of the IR from a body that can be imported again and again, until its carried values fit.

A carried value has one type in all iterations.  The body is imported for the types of the initial
values first; an extent that comes out different becomes a symbol that the loop binds, a value that
comes out unchanged is no carried value but read from outside, and the body is imported anew.

A sequence is taken for one that the body only appends to, so that what it appends is stacked; when
that turns out wrong, it is carried as the tensors of its form (`forms.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Symbol, symbols_of
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.symbol_scope import binders
from graphwright.compiler.ir.types import BOOL, I64, TensorType
from graphwright.frontends.onnx.bodies import Body, Captures, operands_of
from graphwright.frontends.onnx.containers import (
    Entry,
    Growing,
    NotAppended,
    SequenceEntry,
    described,
    flatten,
    rebuilt,
)
from graphwright.frontends.onnx.forms import Form, Unlike, convert, form_of, join
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal, Tainted
from graphwright.frontends.onnx.scope import sweep

MOST_ROUNDS = 64


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an iteration yields: whether to go on (None: always), carried values, rows to stack.

    What was refused is None.
    """

    condition: Value | None
    carried: Sequence[Entry | None]
    rows: Sequence[Value | None]


# (node inside the body, counter, carried values, extra values) -> what the iteration yields
Build: TypeAlias = Callable[[Node, Value, Sequence[Entry], Sequence[Value]], Outcome]


@dataclass(frozen=True, slots=True)
class Source:
    """A body before it is imported: what it reads of names around it, and of other values there.

    `trips`: a number that its counter stays below, where that is known.
    """

    name: str
    captures: Captures
    build: Build
    extra: Sequence[Value] = ()
    trips: Dim | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A body whose carried values fit.  `fixed`: those that are read from outside instead."""

    body: Body
    initial: tuple[Entry, ...]
    fixed: frozenset[int]
    captures: Captures
    extra: Sequence[Value]
    binds: tuple[Symbol, ...]
    condition: Value | None  # None: true in every iteration
    rows: tuple[Value, ...]
    appended: tuple[tuple[int, int], ...]  # sequences, and how many of the last rows each takes

    @property
    def moving(self) -> list[int]:
        """The values that the loop carries itself."""
        still = {*self.fixed, *(k for k, _ in self.appended)}
        return [k for k in range(len(self.initial)) if k not in still]

    @property
    def carried(self) -> list[Value]:
        """The initial tensors."""
        return [v for k in self.moving for v in flatten(self.initial[k])]

    def finish(self, values: Sequence[Value]) -> list[Entry]:
        """All carried values after the loop, from its results; for sequences that were appended to
        the initial ones.
        """
        left, out = iter(values), list(self.initial)
        for k in self.moving:
            out[k] = rebuilt(out[k], [next(left) for _ in flatten(out[k])])
        return out

    @property
    def own_symbols(self) -> set[Symbol]:
        """Those that each iteration may choose anew."""
        return {*self.binds, *binders(self.body.graph)}


class Misfit(Refusal):
    """A carried value that no one type holds; an unrolled loop may have it."""


Place: TypeAlias = tuple[int, int, int]  # carried value, tensor of it, axis


@dataclass(slots=True)
class _Fitting:
    """What is assumed of carried values while the body is imported."""

    fixed: set[int] = field(default_factory=set[int])
    moving: set[int] = field(default_factory=set[int])  # never fixed
    kept: set[int] = field(default_factory=set[int])  # sequences that are more than appended to
    forms: dict[int, Form] = field(default_factory=dict[int, Form])
    group: dict[Place, tuple[str, ...]] = field(default_factory=dict[Place, "tuple[str, ...]"])
    symbols: dict[tuple[str, ...], Symbol] = field(default_factory=dict["tuple[str, ...]", Symbol])


def prepare(node: Node, source: Source, initial: Sequence[Entry]) -> Prepared:
    """Imports the body until its carried values fit.  Raises Tainted when something in it is refused,
    Misfit when a carried value changes its rank or element type.
    """
    fitting = _Fitting()
    problems = len(node.importer.problems)
    for _ in range(MOST_ROUNDS):
        del node.importer.problems[problems:]
        attempt = _Attempt(node, source, initial, fitting)
        if attempt.run() and attempt.fits():
            return attempt.prepared()
    raise Misfit("its carried values do not settle on a shape")


class _Attempt:
    def __init__(
        self, node: Node, source: Source, initial: Sequence[Entry], fitting: _Fitting
    ) -> None:
        self.node, self.source, self.fitting = node, source, fitting
        self.initial = list(initial)
        self.tokens: dict[int, object] = {}
        self.body = Body(node, source.name)
        self.inside: list[Entry] = []
        self.captures: Mapping[str, Entry] = {}
        self.after: dict[int, Entry] = {}  # in the forms assumed
        self.outcome = Outcome(None, (), ())

    def run(self) -> bool:
        """Imports the body; whether a sequence was used as assumed."""
        fitting, body = self.fitting, self.body
        counter = body.graph.add_input("i", TensorType(I64, ()))
        self.node.importer.counters[counter] = (body, self.source.trips, 0)
        inside: dict[int, Entry] = {}
        for k, entry in enumerate(self.initial):
            if k in fitting.fixed:
                continue
            if isinstance(entry, SequenceEntry) and k not in fitting.kept:
                token = self.tokens[k] = object()
                inside[k] = Growing(token, entry.dtype)
                continue
            form = fitting.forms.setdefault(k, form_of(entry))
            self.initial[k] = entry = convert(self.node, entry, form)
            parts = [
                body.graph.add_input(v.name, self._held(k, leaf, v))
                for leaf, v in enumerate(flatten(entry))
            ]
            inside[k] = rebuilt(entry, parts)
        fixed = {f"\0{k}": self.initial[k] for k in sorted(fitting.fixed)}
        self.captures = {**fixed, **self.source.captures}
        body.add_captures(self.captures)
        for k in fitting.fixed:
            inside[k] = body.scope.entry(f"\0{k}")
        extra = [body.add_input(v.name, v, is_same=True) for v in self.source.extra]
        self.inside = [inside[k] for k in range(len(self.initial))]
        try:
            self.outcome = self.source.build(body.node, counter, self.inside, extra)
        except NotAppended as wrong:
            mine = [k for k, token in self.tokens.items() if token is wrong.token]
            if not mine:
                raise
            fitting.kept.update(mine)
            return False
        return True

    def _held(self, k: int, leaf: int, value: Value) -> TensorType:
        shape: list[Dim] = list(value.type.shape)
        for axis in range(len(shape)):
            key = self.fitting.group.get((k, leaf, axis))
            if key is not None:
                if key not in self.fitting.symbols:
                    fresh = self.node.importer.fresh_symbol(f"{self.node.origin}.size")
                    self.fitting.symbols[key] = fresh
                shape[axis] = dims.of(self.fitting.symbols[key])
        return TensorType(value.type.dtype, tuple(shape))

    def fits(self) -> bool:
        """Whether the assumptions held; else they are other ones now."""
        fitting, changed = self.fitting, False
        after: dict[tuple[str, ...], dict[str, list[Place]]] = {}
        for k, (held, entry) in enumerate(zip(self.inside, self.outcome.carried, strict=True)):
            if entry is None:
                continue
            same = self._is_same(held, entry)
            if k in fitting.fixed:
                if not same:
                    fitting.fixed.remove(k)
                    fitting.moving.add(k)
                    changed = True
            elif same and k not in fitting.moving:
                fitting.fixed.add(k)
                changed = True
            elif k not in self.tokens:
                changed |= self._compare(k, held, entry, after)
            elif not self._is_appended(k, entry):
                fitting.kept.add(k)
                changed = True
        for key, found in after.items():
            # Extents that were taken for one size turn out to be several.
            for text in list(found)[1:]:
                changed = True
                for place in found[text]:
                    fitting.group[place] = (*key, text)
        return not changed

    def _is_same(self, a: Entry, b: Entry) -> bool:
        if isinstance(a, Growing) or isinstance(b, Growing):
            alike = isinstance(a, Growing) and isinstance(b, Growing) and a.token is b.token
        else:
            alike = form_of(a) == form_of(b)
        if not alike:
            return False
        first, second = flatten(a), flatten(b)
        return len(first) == len(second) and all(
            self.node.importer.is_same(x, y) for x, y in zip(first, second, strict=True)
        )

    def _compare(
        self,
        k: int,
        held: Entry,
        entry: Entry,
        after: dict[tuple[str, ...], dict[str, list[Place]]],
    ) -> bool:
        changed = False
        first = self.initial[k]
        misfit = f"its carried value {k} is {described(first)} at first, then {described(entry)}"
        try:
            form = join(self.fitting.forms[k], form_of(entry))
        except Unlike:
            raise Misfit(misfit, "make it keep its rank and element type") from None
        if form != self.fitting.forms[k]:
            self.fitting.forms[k] = form
            for place in [p for p in self.fitting.group if p[0] == k]:
                del self.fitting.group[place]
            return True
        entry = self.after[k] = convert(self.body.node, entry, form)
        for leaf, (a, b) in enumerate(zip(flatten(held), flatten(entry), strict=True)):
            for axis, (x, y) in enumerate(zip(a.type.shape, b.type.shape, strict=True)):
                place = (k, leaf, axis)
                key = self.fitting.group.get(place)
                if key is not None:
                    after.setdefault(key, {}).setdefault(str(y), []).append(place)
                elif x != y:
                    self.fitting.group[place] = (str(x),)
                    changed = True
        return changed

    def _is_appended(self, k: int, entry: Entry) -> bool:
        """Whether all that the iteration did to a sequence is to append tensors of one shape."""
        if not isinstance(entry, Growing) or entry.token is not self.tokens[k]:
            return False
        own = {*self.fitting.symbols.values(), *binders(self.body.graph)}
        types = {v.type for v in entry.appended}
        return len(types) == 1 and own.isdisjoint(symbols_of(types.pop().shape))

    def prepared(self) -> Prepared:
        outcome, importer = self.outcome, self.node.importer
        carried = [e for e in outcome.carried if e is not None]
        rows = [r for r in outcome.rows if r is not None]
        if len(carried) < len(outcome.carried) or len(rows) < len(outcome.rows):
            raise Tainted
        condition = outcome.condition
        known = None if condition is None else importer.contents.of(condition)
        if known is not None and known.dtype != object and bool(known.reshape(()).item()):
            condition = None
        used = dict.fromkeys(self.fitting.group.values())
        inside = self.body.node
        moving: list[Value] = []
        appended: list[tuple[int, int]] = []
        for k, entry in enumerate(carried):
            if k in self.tokens:
                new = flatten(entry)
                rows += new
                appended.append((k, len(new)))
            elif k not in self.fitting.fixed:
                moving += flatten(self.after[k])
        go_on = inside.scalar(True, BOOL) if condition is None else condition
        self.body.graph.set_outputs([go_on, *moving, *rows])
        self.body.graph.output_names = [str(i) for i in range(len(self.body.graph.outputs))]
        sweep(self.body.graph)
        return Prepared(
            self.body,
            tuple(self.initial),
            frozenset(self.fitting.fixed),
            self.captures,
            self.source.extra,
            tuple(self.fitting.symbols[key] for key in used),
            condition,
            tuple(rows),
            tuple(appended),
        )


def emit(
    node: Node, prepared: Prepared, *, trips: Value, condition: Value, extent: Dim
) -> tuple[Value, list[Entry], list[Value]]:
    """The loop: how many iterations ran, the carried values, `extent` rows of each stacked value."""
    initial = prepared.carried
    operands = [trips, condition, *initial, *operands_of(prepared.captures), *prepared.extra]
    attributes = {
        "carried": len(initial),
        "extent": extent,
        "binds": tuple(dims.of(s) for s in prepared.binds),
    }
    made = node.graph.create(
        "loop", operands, attributes, bodies=[prepared.body.graph], origins=(node.origin,)
    )
    iterations, *values = made.results
    return iterations, prepared.finish(values[: len(initial)]), values[len(initial) :]


def unsettled_rows(prepared: Prepared) -> list[int]:
    """The rows whose shape only an iteration knows."""
    own = prepared.own_symbols
    return [
        j
        for j, row in enumerate(prepared.rows)
        if any(s in own for s in symbols_of(row.type.shape))
    ]
