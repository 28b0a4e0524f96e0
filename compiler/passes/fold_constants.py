"""fold-constants: evaluates ops whose operands are all known at compile time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Kind, OpDef, Reference
from graphwright.compiler.ir.types import TensorType
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.eliminate_dead import graphs_of
from graphwright.compiler.passes.match import literal_of, same_bits, static
from graphwright.compiler.passes.rewrite import Rewriter, is_pure
from graphwright.compiler.target import Target

_UNFOLDED = (Kind.CONTROL, Kind.FUSED)


@dataclass(frozen=True, slots=True)
class FoldConstants:
    """Replaces pure ops on constants by their value, calculated by the ops' own references.

    The value is exact in the op's element type: 64-bit integers never pass through a float.
    `limit` bounds by how many bytes folding may make the stored constants grow in one run of the
    pipeline; a constant that only the folded op used is counted as freed.  A repeated value stays one stored
    element whatever its shape, and is never materialised to be folded.  The dequantize of a
    constant of at most 8 bits is left alone unless `dequantize` is set: the integers are what should
    be stored and shipped, as long as there is hope that they are what is multiplied.  A result that
    depends on named weights carries the recipe that makes it from them.

        %0 = constant {value = splat(2.0): f32[4]}     =>   %0 = constant {value = splat(4.0): f32[4]}
        %1 = mul(%0, %0)                                    %1 = add(%x, %0)
        %2 = add(%x, %1)
    """

    name: ClassVar[str] = "fold-constants"
    limit: int = 64 * 2**20
    dequantize: bool = False

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in the number of ops, besides the work of the references."""
        del target
        journal = Journal() if journal is None else journal
        growth = journal.totals.get(self.name, 0)
        folded = 0
        notes: list[str] = []
        for current in graphs_of(graph):
            with Rewriter(current, self.name, journal) as rw:
                for op in current.ops:
                    if rw.exhausted:
                        break
                    if not is_foldable(op, dequantize=self.dequantize):
                        continue
                    if op.name == "constant":
                        _make_splat(rw, op)
                        continue
                    cost = _cost(op)
                    if cost > 0 and growth + cost > self.limit:
                        notes.append(
                            f"{op.name} of constants was not folded: {cost} more bytes would pass "
                            f"the limit of {self.limit} (fold-constants{{limit=...}})"
                        )
                        continue
                    values = fold(op)
                    if values is None:
                        continue
                    growth += cost
                    with rw.step("evaluate", op):
                        recipe = recipe_of(op)
                        rw.replace(*(rw.constant(v, recipe) for v in values))
                folded += rw.steps
        journal.totals[self.name] = growth
        statistics = {"evaluate": folded} if folded else {}
        return PassResult(folded > 0, tuple(dict.fromkeys(notes)), statistics)


def _make_splat(rw: Rewriter, op: Op) -> None:
    literal: Literal = op.attribute("value")
    if literal.is_splat or not literal.elements > 1:
        return
    compact = compacted(literal)
    if compact is not literal:
        with rw.step("one-value", op):
            rw.replace(rw.constant(compact, op.attribute("recipe")))


def is_foldable(op: Op, *, dequantize: bool = False) -> bool:
    """Whether folding applies: pure, no body, all operands known, and not to be kept as it is.

    `dequantize`: that of integers of at most 8 bits too.
    """
    if op.kind in _UNFOLDED or not op.results or not is_pure(op):
        return False
    if op.name in ("full", "iota", "relayout"):
        return False  # a recipe each, smaller than its value
    if op.name == "dequantize" and not dequantize and op.operands[0].type.dtype.bits <= 8:
        return False
    if any(not r.type.is_static or r.type.layout is not None for r in op.results):
        return False
    return all(_known(v) for v in op.operands)


def _known(value: Value) -> bool:
    if value.op is not None and value.op.name == "iota":
        return value.type.is_static and isinstance(value.op.attribute("start"), int | float)
    return literal_of(value) is not None


def _literal(value: Value) -> Literal:
    found = literal_of(value)
    if found is not None:
        return found
    assert value.op is not None
    return evaluate_op(value.op.definition, [], value.op.attributes, [value.type])[0]


def _cost(op: Op) -> int:
    if all(is_repeated(v) for v in op.operands) and op.kind in (Kind.POINTWISE, Kind.MOVEMENT):
        return 0
    made = sum(int(math.prod(static(r.type.shape) or ())) * r.type.dtype.bytes for r in op.results)
    freed = 0
    for value in dict.fromkeys(op.operands):
        if all(u.user is op for u in value.uses):
            literal = literal_of(value)
            freed += 0 if literal is None else literal.stored_bytes
    return made - freed


def is_repeated(value: Value) -> bool:
    literal = literal_of(value)
    return literal is not None and (literal.is_splat or literal.elements == 1)


def fold(op: Op) -> list[Literal] | None:
    """The op's results; None where the reference refuses the operands (a bad index, say).

    A large result is calculated when somebody reads it, so that folding needs no memory for it.
    """
    literals = [_literal(v) for v in op.operands]
    types = [r.type for r in op.results]
    try:
        return folded(op.definition, literals, op.attributes, types)
    except (ArithmeticError, IndexError, ValueError):
        return None  # the fault is the model's; it shows where the op runs


# Bytes from which a folded constant is made anew for each reader instead of being kept.
STREAMED = 2**20
_CAN_FAIL = ("gather", "gather_elements", "gather_nd")  # for a bad index


def folded(
    definition: OpDef,
    literals: Sequence[Literal],
    attributes: Mapping[str, Any],
    types: Sequence[TensorType],
) -> list[Literal]:
    """The results of an op on literals; a large one is made anew for each reader."""
    if _is_streamed(definition, literals, types):
        return [_streamed(definition, literals, attributes, types[0])]
    return evaluate_op(definition, literals, attributes, types)


def _is_streamed(
    definition: OpDef, literals: Sequence[Literal], types: Sequence[TensorType]
) -> bool:
    """Whether a value is worth deferring, and cannot turn out to have none."""
    if len(types) != 1 or definition.name in _CAN_FAIL:
        return False
    kind, type = definition.kind, types[0]
    if kind is not Kind.MOVEMENT and not (kind is Kind.POINTWISE and type.dtype.is_float):
        return False
    size = math.prod(static(type.shape) or ()) * type.dtype.bytes
    return size >= STREAMED and not all(x.is_splat or x.elements == 1 for x in literals)


def _streamed(
    definition: OpDef,
    literals: Sequence[Literal],
    attributes: Mapping[str, Any],
    type: TensorType,
) -> Literal:
    def derive() -> np.ndarray:
        context = Reference(results=[type])
        with np.errstate(all="ignore"):
            arrays = definition.reference([x.array() for x in literals], attributes, context)
        return np.ascontiguousarray(arrays[0])

    return Literal.derived(derive, type.dtype, static(type.shape) or ())


def evaluate_op(
    definition: OpDef,
    literals: Sequence[Literal],
    attributes: Mapping[str, Any],
    types: Sequence[TensorType],
) -> list[Literal]:
    """The results of an op on literals, of exactly these static types.

    Repeated values are calculated once where the op works element by element or only moves them.
    """
    shapes = [static(t.shape) or () for t in types]
    repeated = literals and all(x.is_splat or x.elements == 1 for x in literals)
    if repeated and definition.kind is Kind.MOVEMENT and definition.name not in ("pad",):
        first = literals[0].array().reshape(-1)[0]
        data = [x for x in literals if x.dtype is literals[0].dtype]
        moved = definition.name in ("reshape", "transpose", "broadcast_to", "slice", "concat")
        if moved and all(same_bits(x.array().reshape(-1)[:1], first) for x in data):
            return [Literal.splat(first, types[0].dtype, shapes[0])]
    if repeated and definition.kind is Kind.POINTWISE:
        scalars = [x.array().reshape(-1)[:1].reshape(()) for x in literals]
        context = Reference(results=[TensorType(types[0].dtype, ())])
        with np.errstate(all="ignore"):
            (one,) = definition.reference(scalars, attributes, context)
        return [Literal.splat(np.asarray(one).reshape(())[()], types[0].dtype, shapes[0])]
    context = Reference(results=list(types))
    with np.errstate(all="ignore"):
        arrays = definition.reference([x.array() for x in literals], attributes, context)
    out: list[Literal] = []
    for array, type, shape in zip(arrays, types, shapes, strict=True):
        array = np.asarray(array)
        if array.shape != shape or array.dtype != type.dtype.numpy:
            raise TypeError(
                f"{definition.name}: its reference made {array.dtype}{list(array.shape)}, want {type}"
            )
        owned = np.ascontiguousarray(array).reshape(shape)
        out.append(compacted(Literal.dense(owned)))
    return out


def compacted(literal: Literal) -> Literal:
    """The literal as one repeated value when all its elements have the same bits."""
    if literal.is_splat or literal.is_derived or literal.elements < 2:
        return literal
    flat = literal.array().reshape(-1)
    # Most weights differ within their first elements; only candidates are read through.
    if not same_bits(flat[:16], flat[0]) or not same_bits(flat, flat[0]):
        return literal
    return Literal.splat(flat[0], literal.dtype, literal.shape)


def recipe_of(op: Op) -> Recipe | None:
    """How to make the op's only result from named weights; None when it depends on none."""
    if len(op.results) != 1:
        return None
    parts: list[Recipe | Literal] = []
    for value in op.operands:
        recipe = value.op.attribute("recipe") if value.op and value.op.name == "constant" else None
        parts.append(recipe if isinstance(recipe, Recipe) else _literal(value))
    if not any(isinstance(p, Recipe) for p in parts):
        return None
    return Recipe(op.name, tuple(op.attributes.items()), tuple(parts))


def folded_value(
    rw: Rewriter, name: str, operands: Sequence[Value], attributes: Mapping[str, Any] | None = None
) -> Value:
    """The result of an op on constants as a new constant with its recipe, for other passes.

    Raises ValueError when an operand is not constant.
    """
    op = rw.create(name, operands, attributes)
    values = fold(op) if is_foldable(op) else None
    if values is None:
        raise ValueError(f"{name} cannot be evaluated at compile time")
    (literal,) = values
    result = rw.constant(literal, recipe_of(op))
    rw.erase(op)
    return result
