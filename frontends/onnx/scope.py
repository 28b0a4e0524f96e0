"""Names and what they stand for while a graph, a branch or a function body is imported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from onnx import AttributeProto

from graphwright.compiler.ir.dims import Symbol, symbols_of
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Effect
from graphwright.compiler.ir.symbol_scope import binders, bound_by, mentioned
from graphwright.errors import InvalidModelError
from graphwright.frontends.onnx.containers import Entry, described, flatten, rebuilt
from graphwright.frontends.onnx.refusal import Refusal, Tainted
from graphwright.frontends.onnx.structure import domain_of


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """An initializer: becomes one `constant` op in each graph that uses it."""

    literal: Literal
    name: str
    made: dict[Graph, Value] = field(default_factory=dict[Graph, Value])

    def value_in(self, graph: Graph) -> Value:
        if graph not in self.made:
            made = graph.create(
                "constant",
                (),
                {"value": self.literal, "recipe": Recipe(source=self.name)},
                origins=(self.name,),
                names=(self.name,),
            )
            made.result.equals = self.name
            self.made[graph] = made.result
        return self.made[graph]


class _Marker:
    """A name without a value."""


TAINTED = _Marker()  # a result of a node that was refused
ABSENT = _Marker()  # a function's parameter that the call leaves out

Named: TypeAlias = Entry | Weight | _Marker


class Scope:
    """The names of one ONNX graph or function body while it is imported into `graph`.

    Names that are not found are looked for in `parent`, the scope around a subgraph.  Where that
    one fills another IR graph, only constants cross; all else must be in `names` as a capture.
    """

    def __init__(
        self,
        graph: Graph,
        opsets: Mapping[str, int],
        *,
        parent: Scope | None = None,
        attributes: Mapping[str, AttributeProto] | None = None,
        prefix: str = "",
    ) -> None:
        self.graph, self.opsets, self.parent, self.prefix = graph, opsets, parent, prefix
        self.attributes: Mapping[str, AttributeProto] = attributes or {}
        self.names: dict[str, Named] = {}

    def opset(self, domain: str) -> int:
        return self.opsets.get(domain_of(domain), 0)

    def find(self, name: str) -> Named:
        """What a name stands for.  Structure checks have made sure that it exists."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.names.get(name)
            if found is not None:
                return found
            scope = scope.parent
        raise InvalidModelError(f"nothing makes the value {name!r}")

    def __contains__(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.parent
        return False

    def is_absent(self, name: str) -> bool:
        return self.find(name) is ABSENT

    def value(self, name: str) -> Value:
        """The tensor of a name in this scope's graph.  Raises Tainted after a refused node, Refusal
        for a sequence or an optional value.
        """
        found = self.entry(name)
        if not isinstance(found, Value):
            raise Refusal(f"{name!r} is {described(found)}, want a tensor")
        return found

    def entry(self, name: str) -> Entry:
        """What a name stands for, in this scope's graph.  Raises Tainted after a refused node."""
        found = self.find(name)
        if isinstance(found, Weight):
            return found.value_in(self.graph)
        if isinstance(found, _Marker):
            raise Tainted
        parts = flatten(found)
        if any(v.graph is not self.graph for v in parts):
            self.names[name] = found = rebuilt(found, [self._here(v, name) for v in parts])
        return found

    def _here(self, value: Value, name: str) -> Value:
        if value.graph is self.graph:
            return value
        # Only constants reach here; every other outer value is a capture.
        op = value.op
        assert op is not None and op.name == "constant", f"{name} is not captured"
        twin = self.graph.create(
            "constant", (), op.attributes, origins=op.origins, names=(value.name,)
        )
        return twin.result


def sweep(graph: Graph) -> None:
    """Erases ops without uses: what is left of shape subgraphs and of constants read at import.

    An op that binds sizes stays while something after it mentions them.
    """
    late = binders(graph)
    used: set[Symbol] = set()
    for op in graph.ops_reversed:
        kept = (Effect.WRITES, Effect.CHECKS)
        idle = op.definition.effect not in kept and not any(r.uses for r in op.results)
        if idle and used.isdisjoint(bound_by(op)):
            graph.erase(op)
        elif late:
            used.update(mentioned(op))
    gone = {s for s, op in late.items() if op.is_erased}
    if gone:
        graph.constraints = [
            c for c in graph.constraints if gone.isdisjoint(symbols_of((c.left, c.right)))
        ]
        for symbol in gone:
            del graph.symbols[symbol.name]
