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
from graphwright.frontends.onnx.refusal import Tainted
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

Entry: TypeAlias = Value | Weight | _Marker


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
        self.names: dict[str, Entry] = {}

    def opset(self, domain: str) -> int:
        return self.opsets.get(domain_of(domain), 0)

    def find(self, name: str) -> Entry:
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
        """The value of a name in this scope's graph.  Raises Tainted after a refused node."""
        found = self.find(name)
        if isinstance(found, Weight):
            return found.value_in(self.graph)
        if not isinstance(found, Value):
            raise Tainted
        if found.graph is not self.graph:
            # Only constants reach here; every other outer value is a capture.
            op = found.op
            assert op is not None and op.name == "constant", f"{name} is not captured"
            twin = self.graph.create(
                "constant", (), op.attributes, origins=op.origins, names=(found.name,)
            )
            self.names[name] = twin.result
            return twin.result
        return found


def sweep(graph: Graph) -> None:
    """Erases ops without uses: what is left of shape subgraphs and of constants read at import.

    An op that binds sizes stays while something after it mentions them.
    """
    late = binders(graph)
    used: set[Symbol] = set()
    for op in graph.ops_reversed:
        idle = op.definition.effect != Effect.WRITES and not any(r.uses for r in op.results)
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
