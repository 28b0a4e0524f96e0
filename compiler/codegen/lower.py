"""From a region's body to scalar code: `Lowering.at(value, coordinates)` is one element of a value.

Target-independent.  Pointwise ops become scalar ops with broadcast coordinates; movement ops become
index maps and vanish.  Coordinates are dims over the variables of a `Domain`, which simplifies them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.scalar import (
    Apply,
    Choose,
    Given,
    Index,
    Load,
    Node,
    Number,
    Wrapped,
    compute_dtype,
)
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import origin_of, spans_of
from graphwright.compiler.ir.op import Kind, OpDef
from graphwright.compiler.ir.types import I64, DType, TensorType
from graphwright.errors import Problem, UnsupportedError

Coordinates = tuple[Dim, ...]
N = TypeVar("N", Load, Number, Index, Apply, Choose, Wrapped, Given)


def problem(op: Op, reason: str, fix: str = "") -> UnsupportedError:
    """The error for an op that code generation cannot handle, with its origins."""
    where = ", ".join(op.origins) or f"op #{op.id}"
    return UnsupportedError(
        f"no kernel for {op.name}", [Problem(node=where, op=op.name, reason=reason, fix=fix)]
    )


def as_region(op: Op) -> tuple[Graph, tuple[Value, ...]]:
    """The body and operands of a region; a lone op gets a body of itself."""
    if op.name == "fused":
        return op.bodies[0], op.operands
    body = Graph(op.name, registry=op.graph.registry)
    body.symbols = dict(op.graph.symbols)
    inputs = [body.add_input(f"a{i}", v.type) for i, v in enumerate(op.operands)]
    inner = body.create(
        op.name,
        inputs,
        op.attributes,
        origins=op.origins,
        types=[r.type for r in op.results],
    )
    body.set_outputs(inner.results)
    return body, op.operands


def offset_of(type: TensorType, coordinates: Sequence[Dim], domain: Domain) -> Dim:
    """The storage offset, in elements, of a logical coordinate."""
    order = tuple(range(type.rank)) if type.layout is None else type.layout.order
    blocks = () if type.layout is None else type.layout.blocks
    sizes = dict(blocks)
    spans = spans_of(type.shape, type.layout)
    offset: Dim = 0 if type.layout is None else origin_of(type.shape, type.layout)
    within: Dim = 0
    for axis in order:
        extent, coordinate = spans[axis], coordinates[axis]
        if type.dtype.bits < 8 and axis == order[-1]:
            each = type.dtype.per_byte  # rows end at whole bytes
            extent = dims.ceildiv(extent, each) * each
        if axis in sizes:
            extent = dims.ceildiv(extent, sizes[axis])
            coordinate = domain.quotient(coordinate, sizes[axis])
        within = dims.multiply(within, extent) + coordinate
    for axis, size in blocks:
        within = dims.multiply(within, size) + domain.remainder(coordinates[axis], size)
    return domain.recombine(offset + within)


class Lowering:
    """Scalar code of one region over one domain.

    `given(value, coordinates)` may return a node for a value that the kernel computes otherwise (a
    reduction's result in its epilogue), or None.
    """

    def __init__(
        self,
        domain: Domain,
        *,
        given: Callable[[Value, Coordinates], Node | None] | None = None,
    ) -> None:
        self.domain = domain
        self._given = given
        self._memo: dict[tuple[Value, Coordinates], Node] = {}
        self._interned: dict[tuple[Any, ...], Node] = {}

    # -- nodes

    def node(self, made: N) -> N:
        """The one object for this node's content."""
        key: tuple[Any, ...] = (type(made),)
        for name in made.__slots__:
            value = getattr(made, name)
            if name == "op":
                continue  # two ops of one definition and equal attributes are one scalar function
            if isinstance(value, OpDef):
                key += (value.name,)
            elif name == "attributes":
                key += (repr(value),)
            elif isinstance(value, Load | Number | Index | Apply | Choose | Wrapped | Given):
                key += (id(value),)
            elif name == "arguments":
                key += tuple(id(a) for a in value)
            elif name == "value":
                key += (type(value), repr(value))
            else:
                key += (value,)
        found = self._interned.setdefault(key, made)
        assert isinstance(found, type(made))
        return found

    def apply(self, definition: OpDef, *arguments: Node, **attributes: Any) -> Node:
        """A pointwise op that no graph holds, on nodes of one type."""
        complete = tuple(definition.complete(attributes).items())
        return self.node(Apply(definition, complete, None, arguments, arguments[0].dtype))

    def load(self, value: Value, coordinates: Coordinates) -> Node:
        """An element of a value in memory."""
        offset = offset_of(value.type, coordinates, self.domain)
        return self.node(Load(value, offset, compute_dtype(value.type.dtype)))

    def choose(
        self,
        conditions: Sequence[tuple[Dim, Dim]],
        then: Callable[[], Node],
        otherwise: Callable[[], Node],
    ) -> Node:
        """`then` where every left < right; branches that can not happen are never made."""
        open_conditions: list[tuple[Dim, Dim]] = []
        for left, right in conditions:
            known = self.domain.below(left, right)
            if known is False:
                return otherwise()
            if known is None:
                open_conditions.append((left, right))
        if not open_conditions:
            return then()
        a, b = then(), otherwise()
        return a if a is b else self.node(Choose(tuple(open_conditions), a, b, a.dtype))

    def wrapped(self, index: Node, extent: Dim, hint: str) -> Dim:
        """A loaded index as a coordinate in [0, extent)."""
        if (
            isinstance(index, Index)
            and self.domain.at_least(index.value, 0)
            and self.domain.below(index.value, extent)
        ):
            return index.value
        node = self.node(Wrapped(index, extent, I64))
        return self.domain.data(hint, extent, node)

    # -- values

    def at(self, value: Value, coordinates: Coordinates) -> Node:
        """The element of `value` at logical coordinates."""
        key = (value, coordinates)
        found = self._memo.get(key)
        if found is None:
            found = self._memo[key] = self._at(value, coordinates)
        return found

    def _at(self, value: Value, coordinates: Coordinates) -> Node:
        if self._given is not None:
            node = self._given(value, coordinates)
            if node is not None:
                return node
        op = value.op
        if op is None:
            return self.load(value, coordinates)
        if op.kind is Kind.POINTWISE:
            arguments = tuple(
                self.at(v, self.broadcast(coordinates, value.type.shape, v.type.shape))
                for v in op.operands
            )
            dtype = compute_dtype(value.type.dtype)
            index = _index_arithmetic(op.name, arguments, dtype)
            if index is not None:
                return self.node(Index(index, dtype))
            return self.node(
                Apply(op.definition, tuple(op.attributes.items()), op, arguments, dtype)
            )
        rule = _rules().get(op.name)
        if rule is None:
            raise problem(op, "it cannot be part of a fused region")
        return rule(self, op, coordinates)

    def broadcast(self, coordinates: Coordinates, shape: Shape, operand: Shape) -> Coordinates:
        """Coordinates of an operand that broadcasts to `shape`; a stride of 0 where it has extent 1."""
        skipped = len(shape) - len(operand)
        out: list[Dim] = []
        for coordinate, whole, extent in zip(
            coordinates[skipped:], shape[skipped:], operand, strict=True
        ):
            if extent == 1:
                out.append(0)
            elif extent == whole or dims.prove(extent, ">", 1):
                out.append(coordinate)
            else:  # perhaps 1, known only when the symbol is bound: multiply by min(extent - 1, 1)
                out.append(dims.multiply(coordinate, dims.minimum(extent - 1, 1)))
        return tuple(out)


def _index_arithmetic(name: str, arguments: Sequence[Node], dtype: DType) -> Dim | None:
    """Sums and products of coordinates as one index expression, where the type holds them all."""
    if dtype is not I64 or not all(isinstance(a, Index | Number) for a in arguments):
        return None
    if name == "cast" and isinstance(arguments[0], Index):
        return arguments[0].value if arguments[0].dtype.is_integer else None
    if name not in ("add", "sub", "mul") or not any(isinstance(a, Index) for a in arguments):
        return None
    a, b = (x.value if isinstance(x, Index | Number) else 0 for x in arguments)
    return a + b if name == "add" else a - b if name == "sub" else dims.multiply(a, b)


Rule = Callable[[Lowering, Op, Coordinates], Node]


def _rules() -> Mapping[str, Rule]:
    from graphwright.compiler.codegen.lower_opaque import RULES
    from graphwright.compiler.codegen.lower_sampling import RULES as SAMPLING

    return {**MOVEMENT, **RULES, **SAMPLING}


def reshape_coordinates(
    coordinates: Sequence[Dim], shape: Shape, source: Shape, domain: Domain
) -> Coordinates:
    """Coordinates in `source` of the element that has `coordinates` in `shape` (equal elements).

    Works on the finest groups of axes with equal products, so that div and mod appear only inside
    a group that really mixes axes.
    """
    out: list[Dim] = []
    for to, of in _groups(shape, source):
        linear: Dim = 0
        for axis in to:
            linear = dims.multiply(linear, shape[axis]) + coordinates[axis]
        parts: list[Dim] = []
        for axis in reversed(of[1:]):
            parts.append(domain.remainder(linear, source[axis]))
            linear = domain.quotient(linear, source[axis])
        if of:
            parts.append(linear)
        out += reversed(parts)
    return tuple(out)


def _groups(a: Shape, b: Shape) -> list[tuple[list[int], list[int]]]:
    """Consecutive axes of a and b with equal products; every axis of both is in one group."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left: list[int] = []
        right: list[int] = []
        p: Dim = 1
        q: Dim = 1
        while (not left and not right) or p != q:
            take_left = i < len(a) and (j >= len(b) or _comes_first(p, q, bool(left)))
            if take_left:
                p, i = dims.multiply(p, a[i]), i + 1
                left.append(i - 1)
            elif j < len(b):
                q, j = dims.multiply(q, b[j]), j + 1
                right.append(j - 1)
            else:  # products that are equal only as constraints say
                break
        if p == q == 1 and (not left or not right) and groups and not (left and right):
            # lone axes of extent 1 join the group before
            groups[-1][0].extend(left)
            groups[-1][1].extend(right)
            continue
        groups.append((left, right))
    return groups


def _comes_first(p: Dim, q: Dim, has_left: bool) -> bool:
    if not has_left or p == q:
        return not has_left
    known = dims.prove(p, "<", q)
    if known is not None:
        return known
    typical = {s: s.typical for s in dims.symbols_of([p, q])}
    small, large = dims.substitute(p, dict(typical)), dims.substitute(q, dict(typical))
    return bool(small < large)  # type: ignore[operator]


def _reshape(low: Lowering, op: Op, at: Coordinates) -> Node:
    source = op.operands[0]
    shape = op.result.type.shape
    return low.at(source, reshape_coordinates(at, shape, source.type.shape, low.domain))


def _transpose(low: Lowering, op: Op, at: Coordinates) -> Node:
    permutation: tuple[int, ...] = op.attribute("permutation")
    source: list[Dim] = [0] * len(at)
    for i, axis in enumerate(permutation):
        source[axis] = at[i]
    return low.at(op.operands[0], tuple(source))


def _broadcast_to(low: Lowering, op: Op, at: Coordinates) -> Node:
    source = op.operands[0]
    return low.at(source, low.broadcast(at, op.result.type.shape, source.type.shape))


def _slice(low: Lowering, op: Op, at: Coordinates) -> Node:
    starts, steps = op.attribute("starts"), op.attribute("steps")
    source = tuple(s + dims.multiply(c, t) for c, s, t in zip(at, starts, steps, strict=True))
    return low.at(op.operands[0], source)


def _relayout(low: Lowering, op: Op, at: Coordinates) -> Node:
    return low.at(op.operands[0], at)


def _concat(low: Lowering, op: Op, at: Coordinates) -> Node:
    axis: int = op.attribute("axis")

    def part(index: int, start: Dim) -> Node:
        value = op.operands[index]
        stop = start + value.type.shape[axis]

        def here() -> Node:
            return low.at(value, (*at[:axis], at[axis] - start, *at[axis + 1 :]))

        if index + 1 == len(op.operands):
            return here()
        if value.type.shape[axis] == 0:
            return part(index + 1, stop)
        return low.choose([(at[axis], stop)], here, lambda: part(index + 1, stop))

    return part(0, 0)


def _pad(low: Lowering, op: Op, at: Coordinates) -> Node:
    source, mode = op.operands[0], op.attribute("mode")
    shape = source.type.shape
    shifted = tuple(c - before for c, before in zip(at, op.attribute("low"), strict=True))
    if mode == "constant":
        inside: list[tuple[Dim, Dim]] = []
        for c, before, after, n in zip(
            shifted, op.attribute("low"), op.attribute("high"), shape, strict=True
        ):
            if before != 0:
                inside.append((-1, c))
            if after != 0:
                inside.append((c, n))
        fill = (
            (lambda: low.at(op.operands[1], (0,) * op.operands[1].type.rank))
            if len(op.operands) > 1
            else lambda: low.node(Number(0, compute_dtype(source.type.dtype)))
        )
        return low.choose(inside, lambda: low.at(source, shifted), fill)
    clamp = {"edge": _edge, "reflect": _reflect, "wrap": _wrap}.get(mode)
    if clamp is None:
        raise problem(op, f"pad mode {mode!r} has no index map")
    moved = [
        c if before == 0 and after == 0 else clamp(c, n)
        for c, before, after, n in zip(
            shifted, op.attribute("low"), op.attribute("high"), shape, strict=True
        )
    ]
    return low.at(source, tuple(moved))


def _edge(c: Dim, n: Dim) -> Dim:
    return dims.minimum(dims.maximum(c, 0), n - 1)


def _reflect(c: Dim, n: Dim) -> Dim:
    # Period 2(n - 1), which for n == 1 must still divide.
    period = dims.maximum(2 * n - 2, 1)
    inside = dims.modulo(c, period)
    return dims.minimum(inside, 2 * n - 2 - inside)


def _wrap(c: Dim, n: Dim) -> Dim:
    return dims.modulo(c, n)


def _gather(low: Lowering, op: Op, at: Coordinates) -> Node:
    source, indices = op.operands
    axis: int = op.attribute("axis")
    rank = indices.type.rank
    index = low.at(indices, at[axis : axis + rank])
    row = low.wrapped(index, source.type.shape[axis], "row")
    return low.at(source, (*at[:axis], row, *at[axis + rank :]))


def _gather_elements(low: Lowering, op: Op, at: Coordinates) -> Node:
    source, indices = op.operands
    axis: int = op.attribute("axis")
    row = low.wrapped(low.at(indices, at), source.type.shape[axis], "row")
    return low.at(source, (*at[:axis], row, *at[axis + 1 :]))


def _gather_nd(low: Lowering, op: Op, at: Coordinates) -> Node:
    source, indices = op.operands
    batch: int = op.attribute("batch_dims")
    depth = indices.type.shape[-1]
    if not isinstance(depth, int):
        raise problem(op, f"the last extent of its indices is {depth}, want a known number")
    lead = indices.type.rank - 1
    rows = [
        low.wrapped(low.at(indices, (*at[:lead], k)), source.type.shape[batch + k], f"row{k}")
        for k in range(depth)
    ]
    return low.at(source, (*at[:batch], *rows, *at[lead:]))


def _constant(low: Lowering, op: Op, at: Coordinates) -> Node:
    literal = op.attribute("value")
    if literal.elements != 1 and not literal.is_splat:
        raise problem(op, "a constant of several elements inside a region must be its operand")
    value = literal.splat_value if literal.is_splat else literal.item()
    plain = value.item() if hasattr(value, "item") else value
    if literal.dtype.is_float:
        plain = float(plain)
    return low.node(Number(plain, compute_dtype(literal.dtype)))


def _full(low: Lowering, op: Op, at: Coordinates) -> Node:
    dtype = compute_dtype(op.result.type.dtype)
    value = op.attribute("value")
    return low.node(Number(float(value) if dtype.is_float else value, dtype))


MOVEMENT: Mapping[str, Rule] = {
    "reshape": _reshape,
    "transpose": _transpose,
    "broadcast_to": _broadcast_to,
    "slice": _slice,
    "relayout": _relayout,
    "concat": _concat,
    "pad": _pad,
    "gather": _gather,
    "gather_elements": _gather_elements,
    "gather_nd": _gather_nd,
    "constant": _constant,
    "full": _full,
}
