"""The verifier: what every graph must satisfy after every pass.

Rules (numbers are stable and appear in messages):
 1. An op's operands are defined before it in the same graph, or are the graph's inputs.
 2. Use lists and operands agree, in both directions.
 3. Result types are what `infer` says, layouts excepted; extents never certainly differ.
 4. Every symbol in a type is declared in the graph, under one range.
 5. Outputs are values of the graph, and each has a name.
 6. Bodies are isolated: their values belong to them alone.
 7. Op ids are unique, and below the graph's counter.
 8. Attributes are exactly the declared ones, and are immutable values.
 9. A layout fits its value's rank, blocked layouts only where an op declares them.
10. A fused region holds what its kind allows: one reduction, one contraction, or neither.
11. After a write through an alias, the older version of the operand is not read.
12. Graph inputs and outputs of the top level are row-major.
13. A symbol is bound by one op at most and, when it is, mentioned only after that op, in its graph or
    in a body below.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from graphwright.compiler.ir.dims import Dim, Symbol, prove, symbols_of
from graphwright.compiler.ir.graph import Graph, Op, Use, Value
from graphwright.compiler.ir.op import Effect, Inference, InferenceError, Kind
from graphwright.compiler.ir.printer import print_op
from graphwright.compiler.ir.symbol_scope import bound_by, dims_in
from graphwright.compiler.ir.types import TensorType


class VerifyError(ValueError):
    """A graph breaks a rule: `rule` is its number."""

    def __init__(self, rule: int, message: str) -> None:
        super().__init__(f"rule {rule}: {message}")
        self.rule = rule


def verify(graph: Graph) -> None:
    """Raises VerifyError for the first broken rule of the module's list."""
    _verify(graph, graph, top=True)
    late = _late_symbols(graph)
    if late:
        _check_scopes(graph, late, set())


def _late_symbols(graph: Graph) -> set[Symbol]:
    """The symbols that ops bind."""
    found: set[Symbol] = set()
    graphs = [graph]
    for at in graphs:
        for op in at.ops:
            if op.kind is not Kind.CONTROL:
                continue
            graphs.extend(op.bodies)
            for symbol in bound_by(op):
                if symbol in found:
                    raise VerifyError(13, f"{print_op(op)}: {symbol} is bound already")
                found.add(symbol)
    return found


def _check_scopes(graph: Graph, late: set[Symbol], scope: set[Symbol]) -> None:
    scope = set(scope)

    def require(dims: Iterable[Dim], what: Op | Graph) -> None:
        for symbol in symbols_of(dims):
            if symbol in late and symbol not in scope:
                where = print_op(what) if isinstance(what, Op) else f"graph {what.name}"
                raise VerifyError(13, f"{where}: {symbol} is not bound before")

    require([d for v in graph.inputs for d in v.type.shape], graph)
    for op in graph.ops:
        inside = scope | set(bound_by(op)) if op.bodies else scope
        for body in op.bodies:
            _check_scopes(body, late, inside)
        scope.update(bound_by(op))
        require(dims_in(op.attributes.values()), op)
        require([d for r in op.results for d in r.type.shape], op)


def _verify(graph: Graph, owner: Graph, *, top: bool) -> None:
    defined: set[Value] = set()
    seen_ids: set[int] = set()
    positions: dict[Op, int] = {}
    for i, value in enumerate(graph.inputs):
        if value.graph is not graph or value.op is not None or value.index != i:
            raise VerifyError(6, f"input {value!r} does not belong to graph {graph.name}")
        _check_type(value.type, owner, value)
        if top and value.type.layout is not None:
            raise VerifyError(12, f"input {value.name!r} has the layout {value.type.layout}")
        defined.add(value)
    for position, op in enumerate(graph.ops):
        positions[op] = position
        if op.graph is not graph:
            raise VerifyError(6, f"{print_op(op)} belongs to another graph")
        if op.id in seen_ids or op.id >= graph.next_id:
            raise VerifyError(7, f"{print_op(op)} has the id {op.id}, used before or too large")
        seen_ids.add(op.id)
        for index, value in enumerate(op.operands):
            if value not in defined:
                raise VerifyError(1, f"{print_op(op)}: operand {index} is not defined before it")
            if not value.has_use(Use(op, index)):
                raise VerifyError(2, f"{print_op(op)}: operand {index} does not list this use")
        _check_attributes(op)
        _check_types(op, owner)
        for body in op.bodies:
            if body is graph:
                raise VerifyError(6, f"{print_op(op)} contains itself")
            _verify(body, owner, top=False)
        if op.kind is Kind.FUSED:
            _check_region(op)
        defined.update(op.results)
    for i, value in enumerate(graph.outputs):
        if value not in defined:
            raise VerifyError(5, f"output {i} of {graph.name} is not a value of it")
        if not value.has_use(Use(graph, i)):
            raise VerifyError(2, f"output {i} of {graph.name} does not list this use")
        if top and value.type.layout is not None:
            raise VerifyError(12, f"output {i} has the layout {value.type.layout}")
    if len(graph.output_names) != len(graph.outputs):
        raise VerifyError(5, f"{len(graph.outputs)} outputs, {len(graph.output_names)} names")
    _check_uses(graph, defined)
    _check_writes(graph, positions)


def _check_uses(graph: Graph, values: Iterable[Value]) -> None:
    outputs = graph.outputs
    for value in values:
        for use in value.uses:
            if isinstance(use.user, Op):
                operands = () if use.user.is_erased else use.user.operands
                good = use.index < len(operands) and operands[use.index] is value
            else:
                good = use.index < len(outputs) and outputs[use.index] is value
            if not good:
                raise VerifyError(2, f"{value!r} lists a use that is none: {use.user!r}")


def _check_type(type: TensorType, owner: Graph, what: Value) -> None:
    for symbol in symbols_of(type.shape):
        if owner.symbols.get(symbol.name) != symbol:
            raise VerifyError(
                4, f"{_words(what)}: symbol {symbol.name} of {type} is not declared so"
            )
    if type.layout is not None and len(type.layout.order) != type.rank:
        raise VerifyError(9, f"{_words(what)}: layout {type.layout} does not fit {type}")


def _words(value: Value) -> str:
    return f"input {value.name!r}" if value.op is None else print_op(value.op)


def _check_types(op: Op, owner: Graph) -> None:
    attributes = dict(op.attributes)
    if op.bodies:
        attributes["bodies"] = op.bodies
    try:
        inferred = op.definition.infer([v.type for v in op.operands], attributes, Inference())
    except InferenceError as e:
        raise VerifyError(3, f"{print_op(op)}: {e}") from e
    if len(inferred) != len(op.results):
        raise VerifyError(3, f"{print_op(op)}: {len(op.results)} results, want {len(inferred)}")
    for want, result in zip(inferred, op.results, strict=True):
        got = result.type
        fits = want.dtype == got.dtype and want.rank == got.rank
        if not fits or any(
            prove(a, "==", b) is False for a, b in zip(want.shape, got.shape, strict=True)
        ):
            raise VerifyError(3, f"{print_op(op)}: inferred {want}")
        _check_type(got, owner, result)
        if got.layout is not None and got.layout.blocks:
            raise VerifyError(9, f"{print_op(op)}: blocked layouts are not in use")


def _immutable(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_immutable, value))
    return isinstance(value, Hashable)


def _check_attributes(op: Op) -> None:
    if list(op.attributes) != list(op.definition.attributes):
        raise VerifyError(
            8, f"{print_op(op)}: attributes {list(op.attributes)}, declared "
            f"{list(op.definition.attributes)}"
        )  # fmt: skip
    for name, value in op.attributes.items():
        if not _immutable(value):
            raise VerifyError(8, f"{print_op(op)}: attribute {name} is not immutable")


# Regions of several roots, by the names that these may have (passes fuse-products and so on).
_JOINED: dict[str, tuple[str, ...]] = {
    "products": ("matmul", "rms_norm"),
    "attention_step": ("attention", "scatter_elements"),
}
_ALLOWED: dict[str, tuple[Kind, ...]] = {
    "pointwise": (),
    "reduction": (Kind.REDUCTION,),
    "contraction": (Kind.CONTRACTION,),
}


def _check_region(op: Op) -> None:
    region = op.attributes["region"]
    free = (Kind.POINTWISE, Kind.MOVEMENT, Kind.SOURCE)
    roots = [o for o in op.bodies[0].ops if o.kind not in free]
    joined = _JOINED.get(region)
    if joined is not None:
        if not roots or any(o.name not in joined for o in roots):
            inside = ", ".join(o.name for o in roots) or "none"
            raise VerifyError(10, f"{print_op(op)}: a {region} region with the root ops {inside}")
        return
    if region not in _ALLOWED:
        raise VerifyError(10, f"{print_op(op)}: unknown region {region!r}")
    want = _ALLOWED[region]
    if len(roots) != len(want) or any(o.kind not in want for o in roots):
        inside = ", ".join(o.name for o in roots) or "none"
        raise VerifyError(10, f"{print_op(op)}: a {region} region with the root ops {inside}")


def _check_writes(graph: Graph, positions: dict[Op, int]) -> None:
    for op in positions:
        if op.definition.effect is not Effect.WRITES:
            continue
        for operand_index in op.definition.aliases.values():
            source = op.operands[operand_index]
            for user in source.users:
                if user is not op and positions.get(user, -1) > positions[op]:
                    raise VerifyError(
                        11, f"{print_op(user)} reads a version that {print_op(op)} overwrote"
                    )
            if source.is_output:
                raise VerifyError(11, f"{print_op(op)} overwrites a graph output")
