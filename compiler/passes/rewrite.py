"""The one rewriting API: rules, the Rewriter they change the graph through, the worklist driver.

A rule is a function `(op, rw) -> bool | None` under `@rule("name", ...)`: guards first, then the
rewrite, then `return True`.  Ops that a rule creates stand before the op it was called for; when
it returns anything falsy they are removed again, so a rule may build first and decide later.
A step ends by erasing what became dead, and what it produced inherits the origins of all that it
consumed.  Legality belongs in rules; profit is asked from the target by whoever selects rules.
"""

from __future__ import annotations

import inspect
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.ir.symbol_scope import bound_by
from graphwright.compiler.ir.types import DType
from graphwright.compiler.passes.base import Journal, PassResult, Rewrite
from graphwright.errors import CompileError

RuleFunction = Callable[[Op, "Rewriter"], bool | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """A rewriting rule: called for ops of these names or kinds."""

    name: str
    function: RuleFunction
    ops: tuple[str, ...]
    kinds: tuple[Kind, ...]
    where: str

    def __call__(self, op: Op, rw: Rewriter) -> bool | None:
        return self.function(op, rw)


def rule(*ops: str, kinds: Iterable[Kind] = ()) -> Callable[[RuleFunction], Rule]:
    """Makes a function a rule for these ops or kinds; its name with dashes is the rule's name."""

    def decorate(function: RuleFunction) -> Rule:
        code = function.__code__
        where = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        return Rule(function.__name__.replace("_", "-"), function, ops, tuple(kinds), where)

    return decorate


def rules_of(module: Any) -> tuple[Rule, ...]:
    """The rules of a module in the order they are written."""
    found = [r for _, r in inspect.getmembers(module, lambda m: isinstance(m, Rule))]
    return tuple(sorted(found, key=lambda r: r.function.__code__.co_firstlineno))


def is_pure(op: Op) -> bool:
    """Whether the op and all its bodies are pure: only such ops are folded, shared or removed."""
    if not op.bodies:
        return op.definition.effect is Effect.PURE
    pending = [op]
    while pending:
        current = pending.pop()
        if current.definition.effect is not Effect.PURE:
            return False
        for body in current.bodies:
            pending.extend(body.ops)
    return True


_KEPT = (Effect.WRITES, Effect.CHECKS)


def is_dead(op: Op) -> bool:
    """Whether nothing uses the op's results and it may vanish (an unused random draw may too).

    An op that binds symbols is not: who mentions them is known to eliminate-dead only.
    Nor is one that checks something.
    """
    for result in op.results:
        if result.is_used:
            return False
    if not op.bodies:
        return op.definition.effect not in _KEPT and not bound_by(op)
    if bound_by(op):
        return False
    pending = [op]
    while pending:
        current = pending.pop()
        if current.definition.effect in _KEPT:
            return False
        for body in current.bodies:
            pending.extend(body.ops)
    return True


class Rewriter:
    """The only way passes change a graph.  Used as a context: `with Rewriter(graph, name) as rw`.

    Every change happens in a step: the driver opens one around a rule; a pass without rules says
    `with rw.step("merge", op):`.  A step that changes nothing is not recorded and costs no fuel.
    `required`: the graph cannot be compiled without these steps, so fuel neither bounds nor pays
    for them.
    """

    def __init__(
        self,
        graph: Graph,
        pass_name: str,
        journal: Journal | None = None,
        *,
        required: bool = False,
    ) -> None:
        self.graph, self.pass_name, self.required = graph, pass_name, required
        self.journal = Journal() if journal is None else journal
        self.steps = 0
        self._rule, self._where, self._reason = "", "", ""
        self._current: Op | None = None
        self._created: list[Op] = []
        self._erased: list[Op] = []
        self._touched = False
        self._constraints = 0

    def __enter__(self) -> Rewriter:
        self.graph.listeners.append(self._on_change)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.graph.listeners.remove(self._on_change)

    # -- steps

    @property
    def exhausted(self) -> bool:
        """No fuel is left: stop rewriting."""
        return self.journal.exhausted and not self.required

    @property
    def current(self) -> Op:
        """The op that the step is about; new ops go before it."""
        assert self._current is not None, "outside a step"
        return self._current

    def step(self, name: str, op: Op) -> _Step:
        """A context for the changes of one named step at `op`."""
        frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
        return _Step(self, name, where, op)

    def attempt(self, rule: Rule, op: Op) -> bool:
        """Calls a rule for an op; undoes what it created when it declines."""
        self._begin(rule.name, rule.where, op)
        try:
            applied = bool(rule.function(op, self))
        except CompileError:
            raise
        except Exception as error:
            raise CompileError(
                f"rule {rule.name} ({rule.where}) failed on {op!r}: {type(error).__name__}: {error}"
            ) from error
        if applied:
            return self._end(True)
        if self._changed:  # most rules decline before they do anything
            self._roll_back(rule)
        self._current = None
        return False

    @property
    def _changed(self) -> bool:
        return bool(
            self._created
            or self._erased
            or self._touched
            or len(self.graph.constraints) != self._constraints
        )

    def _begin(self, name: str, where: str, op: Op) -> None:
        self._rule, self._where, self._reason = name, where, ""
        self._current, self._created, self._erased, self._touched = op, [], [], False
        self._constraints = len(self.graph.constraints)

    def _roll_back(self, rule: Rule) -> None:
        made = {op.id for op in self._created}
        if self._touched or any(op.id not in made for op in self._erased):
            raise CompileError(
                f"rule {rule.name} ({rule.where}) changed the graph but did not return True"
            )
        for op in reversed(self._created):
            if not op.is_erased:
                self.graph.erase(op)
        del self.graph.constraints[self._constraints :]

    def _end(self, applied: bool) -> bool:
        op = self.current
        if applied and (self._created or self._erased or self._touched):
            self._erase_dead(op)
            made = {o.id for o in self._created}
            consumed = [o for o in self._erased if o.id not in made]
            produced = [o for o in self._created if not o.is_erased]
            about = consumed if op.is_erased else [op, *consumed]
            origins = dict.fromkeys(o for source in about for o in source.origins)
            for new in produced:
                new.origins = tuple(dict.fromkeys((*new.origins, *origins)))
            self.steps += 1
            self.journal.add(
                Rewrite(
                    self.pass_name,
                    self._rule,
                    self._where,
                    tuple(o.id for o in about),
                    tuple(o.id for o in produced),
                    self._reason,
                    self.graph.name,
                    self.required,
                ),
                free=self.required,
            )
        self._current = None
        return applied

    def _erase_dead(self, op: Op) -> None:
        pending = [*self._created, op]
        pending += [v.op for e in self._erased for v in e.operands if v.op is not None]
        while pending:
            candidate = pending.pop()
            if candidate.is_erased or not is_dead(candidate):
                continue
            pending += [v.op for v in candidate.operands if v.op is not None]
            self.graph.erase(candidate)

    def _on_change(self, event: str, op: Op | None) -> None:
        if event == "added" and op is not None:
            self._created.append(op)
        elif event == "erased" and op is not None:
            self._erased.append(op)
        else:
            self._touched = True

    # -- what rules say

    def fail(self, reason: str) -> None:
        """Notes why a rule that nearly applied did not; returns None, so `return rw.fail(...)`."""
        self.journal.refuse(self.pass_name, self._rule, reason, (self.current.id,))

    def because(self, reason: str) -> None:
        """Adds a reason to the step's record."""
        self._reason = reason

    # -- what rules do

    def create(
        self,
        name: str,
        operands: Sequence[Value] = (),
        attributes: Mapping[str, Any] | None = None,
        *,
        before: Op | None = None,
        bodies: Sequence[Graph] = (),
        names: Sequence[str] = (),
        origins: Iterable[str] = (),
    ) -> Op:
        """An op before the current one (or before `before`), with the current op's origins."""
        anchor = self.current if before is None else before
        return self.graph.create(
            name,
            operands,
            attributes,
            before=anchor,
            bodies=bodies,
            names=names,
            origins=(*origins, *self.current.origins),
        )

    def value(self, name: str, *operands: Value, **attributes: Any) -> Value:
        """The single result of a new op: `rw.value("transpose", x, permutation=(1, 0))`."""
        return self.create(name, operands, attributes).result

    def constant(self, value: Literal | np.ndarray, recipe: Recipe | None = None) -> Value:
        """A new constant."""
        literal = value if isinstance(value, Literal) else Literal.dense(value)
        return self.value("constant", value=literal, recipe=recipe)

    def scalar(self, value: Any, dtype: DType, shape: tuple[int, ...] = ()) -> Value:
        """A new constant of one repeated value."""
        return self.constant(Literal.splat(value, dtype, shape))

    def replace(self, *values: Value, op: Op | None = None) -> bool:
        """Replaces the results of the current op (or of `op`) by values of the same types.

        The op is erased.  Returns True, so a rule may end with `return rw.replace(x)`.
        """
        op = self.current if op is None else op
        if len(values) != len(op.results):
            raise CompileError(
                f"{self._rule}: {len(values)} values for {op!r}, want {len(op.results)}"
            )
        for old, new in zip(op.results, values, strict=True):
            if old.type != new.type:
                raise CompileError(
                    f"{self._rule} ({self._where}) would change the type of {op!r}: "
                    f"{old.type} became {new.type}"
                )
        for old, new in zip(op.results, values, strict=True):
            self.graph.replace_uses(old, new)
        self.graph.erase(op)
        return True

    def replace_by(self, name: str, *operands: Value, **attributes: Any) -> bool:
        """Replaces the current op by one new op: `return rw.replace_by("neg", x)`."""
        return self.replace(self.value(name, *operands, **attributes))

    def replace_value(self, old: Value, new: Value) -> None:
        """Every use of `old` becomes a use of `new`, which must have the same type."""
        if old.type != new.type:
            raise CompileError(f"{self._rule}: {old.type} cannot be replaced by {new.type}")
        self.graph.replace_uses(old, new)

    def set_operand(self, op: Op, index: int, value: Value) -> None:
        """Replaces one operand of an op; the types must be such that its results keep theirs."""
        op.set_operand(index, value)

    def erase(self, op: Op) -> None:
        """Removes an op whose results are unused."""
        self.graph.erase(op)

    def move_before(self, op: Op, anchor: Op | None) -> None:
        """Moves an op; the caller makes sure that operands stay before users."""
        self.graph.move_before(op, anchor)
        self._touched = True

    def merge_origins(self, into: Op, source: Op) -> None:
        """`into` now also stands for what `source` came from."""
        into.origins = tuple(dict.fromkeys((*into.origins, *source.origins)))


class _Step:
    __slots__ = ("_name", "_op", "_rw", "_where")

    def __init__(self, rw: Rewriter, name: str, where: str, op: Op) -> None:
        self._rw, self._name, self._where, self._op = rw, name, where, op

    def __enter__(self) -> Rewriter:
        self._rw._begin(self._name, self._where, self._op)  # pyright: ignore[reportPrivateUsage]
        return self._rw

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self._rw._end(True)  # pyright: ignore[reportPrivateUsage]


def apply_rules(
    graph: Graph,
    rules: Sequence[Rule],
    pass_name: str,
    journal: Journal | None = None,
    *,
    required: bool = False,
) -> PassResult:
    """Applies rules to all ops until none applies; time is linear in ops and rewrites.

    Ops are visited in order; after a step the ops it made, the users of what it replaced and the
    producers and lone remaining users of what it dropped are visited again.  Bodies of control-flow
    ops are rewritten too, innermost last, by the same journal.  Raises CompileError when the rules
    do not come to an end.
    """
    with_body: list[Graph] = [graph]
    changed = 0
    fired: Counter[str] = Counter()
    at = 0
    while at < len(with_body):
        current = with_body[at]
        at += 1
        changed += _apply(current, rules, pass_name, journal, fired, required)
        for op in current.ops:
            if op.kind is Kind.CONTROL:
                with_body.extend(op.bodies)
    return PassResult(changed > 0, statistics=dict(sorted(fired.items())))


def _has_layout(op: Op) -> bool:
    """Rules are written for row-major tensors; a chosen layout is not theirs to undo."""
    for value in op.operands:
        if value.type.layout is not None:
            return True
    return any(value.type.layout is not None for value in op.results)


def _apply(
    graph: Graph,
    rules: Sequence[Rule],
    pass_name: str,
    journal: Journal | None,
    fired: Counter[str],
    required: bool,
) -> int:
    by_name: dict[str, list[Rule]] = {}
    by_kind: dict[Kind, list[Rule]] = {}
    for r in rules:
        for name in r.ops:
            by_name.setdefault(name, []).append(r)
        for kind in r.kinds:
            by_kind.setdefault(kind, []).append(r)
    applicable: dict[str, tuple[Rule, ...]] = {}
    pending: deque[Op] = deque(graph.ops)
    queued = {op.id for op in pending}
    budget = 1000 + 40 * len(pending)

    events: list[tuple[str, Op]] = []

    def on_change(event: str, op: Op | None) -> None:
        if op is not None:
            events.append((event, op))

    def push(op: Op | None) -> None:
        if op is not None and op.id not in queued and not op.is_erased:
            queued.add(op.id)
            pending.append(op)

    def push_affected() -> None:
        for event, op in events:
            if event != "erased":
                push(op)
                for result in op.results:
                    for user in result.users:
                        push(user)
                continue
            for operand in op.operands:
                push(operand.op)
                if len(operand.uses) == 1:  # guards on a single use may hold now
                    for user in operand.users:
                        push(user)

    graph.listeners.append(on_change)
    try:
        with Rewriter(graph, pass_name, journal, required=required) as rw:
            while pending and not rw.exhausted:
                op = pending.popleft()
                queued.discard(op.id)
                if op.is_erased or is_dead(op) or _has_layout(op):
                    continue
                if op.name not in applicable:
                    applicable[op.name] = (*by_name.get(op.name, ()), *by_kind.get(op.kind, ()))
                for r in applicable[op.name]:
                    events.clear()
                    if not rw.attempt(r, op):
                        continue
                    fired[r.name] += 1
                    if rw.steps > budget:
                        worst = ", ".join(f"{n} ({c})" for n, c in fired.most_common(3))
                        raise CompileError(
                            f"{pass_name} does not come to an end after {rw.steps} steps; most "
                            f"frequent rules: {worst}"
                        )
                    push_affected()
                    push(op)  # another rule, or this one again
                    break
            return rw.steps
    finally:
        graph.listeners.remove(on_change)
