"""Scalar code: what one element of a region's output is, as a graph of small immutable nodes.

`lower.py` makes nodes, interned so that equal ones are one object; a target prints them.  Small
floats (f16, bf16, f8) are loaded into float32, calculated there and rounded where they are stored
or cast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import OpDef
from graphwright.compiler.ir.types import F32, DType


@dataclass(frozen=True, slots=True, eq=False)
class Load:
    """The element `offset` (in elements of the storage) of a body input."""

    source: Value
    offset: Dim
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Number:
    """A literal; `value` is a Python bool, int or float."""

    value: Any
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """An index expression used as data, converted to dtype."""

    value: Dim
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """A pointwise op on scalars; its spelling is a template of the op table.

    `op`: where it comes from, for messages; None for one that code generation adds.
    """

    definition: OpDef
    attributes: tuple[tuple[str, Any], ...]
    op: Op | None
    arguments: tuple[Node, ...]
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Choose:
    """`then` where left < right for every condition, `otherwise` elsewhere; only one is evaluated."""

    conditions: tuple[tuple[Dim, Dim], ...]
    then: Node
    otherwise: Node
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Wrapped:
    """An index that was loaded: negative ones count from `extent`; kept inside [0, extent)."""

    index: Node
    extent: Dim
    dtype: DType


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """A scalar that the surrounding kernel provides under this name: a sum, an element of a tile."""

    name: str
    dtype: DType


Node: TypeAlias = Load | Number | Index | Apply | Choose | Wrapped | Given


def compute_dtype(dtype: DType) -> DType:
    """The type that arithmetic on this element type uses: float32 for the smaller floats."""
    return F32 if dtype.is_float and dtype.bits < 32 else dtype


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that this one is computed from, guarded ones included."""
    match node:
        case Apply():
            return node.arguments
        case Choose():
            return (node.then, node.otherwise)
        case Wrapped():
            return (node.index,)
        case _:
            return ()


def index_dims(node: Node) -> tuple[Dim, ...]:
    """The index expressions that a node itself mentions."""
    match node:
        case Load():
            return (node.offset,)
        case Index():
            return (node.value,)
        case Wrapped():
            return (node.extent,)
        case Choose():
            return tuple(d for pair in node.conditions for d in pair)
        case _:
            return ()


def walk(roots: tuple[Node, ...], domain: Domain) -> Iterator[Node]:
    """Every node under the roots once, also those behind loaded indices; operands come first."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack += [(c, False) for c in reversed(dependencies(node, domain))]


def dependencies(node: Node, domain: Domain) -> list[Node]:
    """Children, and the loaded indices that this node's own index expressions use."""
    out = list(children(node))
    for dim in index_dims(node):
        out += data_nodes(dim, domain)
    return out


def data_nodes(dim: Dim, domain: Domain) -> list[Node]:
    """The nodes behind the loaded indices in a dim."""
    out: list[Node] = []
    for variable in domain.variables_of(dim):
        out += _data_of(variable, domain)
    return out


def _data_of(variable: Symbol, domain: Domain) -> list[Node]:
    definition = domain.definitions.get(variable)
    if definition is None:
        return []
    if definition.operator == "data":
        node = definition.node
        assert isinstance(node, Wrapped)
        return [node]
    return data_nodes(definition.dividend, domain)
