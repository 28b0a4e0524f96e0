"""How an op is declared: one `OpDef` per op says everything that passes, codegen and frontends need.

A structured op is one subclass of `OpDef`, instantiated once in its family's `OPS`; pointwise ops
are rows of a table (`ops/pointwise.py`).  `Registry` maps names to declarations and is frozen once
made; custom ops extend a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphwright.compiler.ir.dims import Comparison, Dim, Shape, Symbol, evaluate, prove
from graphwright.compiler.ir.types import TensorType

if TYPE_CHECKING:
    from graphwright.compiler.ir.graph import Graph


class Kind(StrEnum):
    """What drives passes and code generation; op names never do."""

    POINTWISE = (
        "pointwise"  # each output element from the same (broadcast) coordinate of the operands
    )
    MOVEMENT = "movement"  # each output element is one input element: an index map
    REDUCTION = "reduction"  # output elements combine whole axes of the input
    CONTRACTION = "contraction"  # sums of products: matmul, convolution
    SOURCE = "source"  # no tensor operands: constant, iota, full, from_dims
    OPAQUE = "opaque"  # a kernel of its own: lstm, resize, top_k, scatter
    CONTROL = "control"  # holds bodies that run or not: if, loop
    FUSED = "fused"  # a region with a body, made by fuse


class Effect(StrEnum):
    """Only pure ops are folded, shared or moved."""

    PURE = "pure"
    RANDOM = "random"
    WRITES = "writes"  # consumes a version of the operand that a result aliases
    BINDS = "binds"  # gives symbols their sizes: what uses these comes later
    CHECKS = "checks"  # may end the call, and has no result


class InferenceError(ValueError):
    """Operand types or attributes do not fit an op; the message says what was expected."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A relation between dims that an op needs and the compiler could not prove.

    `relation` is a comparison, or "broadcast": left == right or one of them is 1.
    """

    left: Dim
    relation: Comparison | str
    right: Dim
    reason: str

    def __str__(self) -> str:
        return f"{self.left} {self.relation} {self.right} ({self.reason})"


class Inference:
    """What `infer` may ask: relations between dims, proven, refuted or recorded as constraints."""

    def __init__(self) -> None:
        self.constraints: list[Constraint] = []

    def require(self, left: Dim, relation: Comparison, right: Dim, reason: str) -> None:
        """Raises InferenceError when the relation certainly fails; records it when unknown."""
        known = prove(left, relation, right)
        if known is False:
            raise InferenceError(f"{reason}: want {left} {relation} {right}")
        if known is None:
            self.constraints.append(Constraint(left, relation, right, reason))

    def broadcast(self, left: Dim, right: Dim, reason: str) -> Dim:
        """The broadcast of two extents; unequal symbols record "equal or 1" and yield their maximum."""
        from graphwright.compiler.ir.dims import maximum

        if left == right or right == 1:
            return left
        if left == 1:
            return right
        if isinstance(left, int) and isinstance(right, int):
            raise InferenceError(f"{reason}: extents {left} and {right} do not broadcast")
        if prove(left, "==", right) is False:
            # Certainly unequal: legal only where one of them is 1.
            for one, other in ((left, right), (right, left)):
                if prove(one, ">", 1) and not prove(other, ">", 1):
                    self.constraints.append(Constraint(other, "==", 1, reason))
                    return one
            raise InferenceError(f"{reason}: extents {left} and {right} do not broadcast")
        if isinstance(left, int) and left > 1:
            self.constraints.append(Constraint(left, "broadcast", right, reason))
            return left
        if isinstance(right, int) and right > 1:
            self.constraints.append(Constraint(left, "broadcast", right, reason))
            return right
        self.constraints.append(Constraint(left, "broadcast", right, reason))
        return maximum(left, right)

    def broadcast_shapes(self, shapes: Sequence[Shape], reason: str) -> Shape:
        """The numpy broadcast of shapes, aligned at their last axes."""
        rank = max((len(s) for s in shapes), default=0)
        out: list[Dim] = [1] * rank
        for shape in shapes:
            for i, extent in enumerate(shape, rank - len(shape)):
                out[i] = self.broadcast(out[i], extent, reason)
        return tuple(out)


@dataclass(slots=True)
class Reference:
    """What a numpy `reference` may use: sizes of symbols, the result types, a wider compute type.

    `compute`: the float type to calculate in (float64 for verification); None: the operands' own.
    `run(body, arrays)` evaluates a body of a control-flow or fused op.
    """

    binding: dict[str, int] = field(default_factory=dict[str, int])
    results: Sequence[TensorType] = ()
    compute: np.dtype | None = None
    run: Callable[[Graph, Sequence[np.ndarray]], list[np.ndarray]] | None = None
    bodies: Sequence[Graph] = ()
    rng: np.random.Generator | None = None

    def size(self, dim: Dim) -> int:
        return evaluate(dim, self.binding)

    def sizes(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        return tuple(evaluate(d, self.binding) for d in dims)

    def bind(self, symbol: Symbol, size: int) -> None:
        """Gives a symbol its size from now on.  Raises ValueError outside its range."""
        if not symbol.min <= size <= symbol.max or size % symbol.multiple_of:
            raise ValueError(
                f"the data make {symbol.name} = {size}, want {symbol.min} to {symbol.max} by "
                f"{symbol.multiple_of}"
            )
        self.binding[symbol.name] = size


REQUIRED: Any = object()
Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A compile-time parameter: its type in words and its default.

    Values are ints, floats, strings, bools, DTypes, Literals, dims, None, or tuples of these.
    """

    type: str  # "int" | "float" | "bool" | "str" | "dtype" | "literal" | "dim" | "ints" | "dims" | ...
    default: Any = REQUIRED


class OpDef:
    """The declaration of one op.  Subclasses set the class variables and the two functions.

    operands: names in order; "bias?" may be absent at the end, "inputs*" takes the rest.
    imports: frontend -> spellings of ops that equal ours up to `renames` of attributes, for example
    {"onnx": ("Softmax",), "aten": ("_softmax.default",)}.
    aliases: result index -> operand index whose storage the result continues (in-place update).
    cpp_source: of a custom op, the C++ function that computes it (docs/custom-ops.md).
    """

    name: ClassVar[str] | str = ""
    kind: ClassVar[Kind] | Kind = Kind.OPAQUE
    operands: ClassVar[tuple[str, ...]] | tuple[str, ...] = ()
    attributes: ClassVar[Mapping[str, Attribute]] | Mapping[str, Attribute] = {}
    results: ClassVar[tuple[str, ...]] | tuple[str, ...] = ("result",)
    effect: ClassVar[Effect] | Effect = Effect.PURE
    aliases: ClassVar[Mapping[int, int]] | Mapping[int, int] = {}
    imports: ClassVar[Mapping[str, tuple[str, ...]]] | Mapping[str, tuple[str, ...]] = {}
    renames: ClassVar[Mapping[str, str]] | Mapping[str, str] = {}  # imported attribute -> ours
    bodies: ClassVar[tuple[str, ...]] | tuple[str, ...] = ()
    cpp_source: ClassVar[str] | str = ""

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        """Result types.  Raises InferenceError naming what was expected."""
        raise NotImplementedError(f"{self.name}: infer")

    def binds(self, attributes: Attributes) -> tuple[Symbol, ...]:
        """The symbols that an op gives their sizes, for the ops after it (and its own bodies)."""
        return ()

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        """The op's meaning, in numpy: result arrays of exactly the inferred types."""
        raise NotImplementedError(f"{self.name}: reference")

    @property
    def minimum_operands(self) -> int:
        return sum(not n.endswith(("?", "*")) for n in self.operands)

    @property
    def maximum_operands(self) -> int | None:
        """None: any number."""
        return None if any(n.endswith("*") for n in self.operands) else len(self.operands)

    def complete(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The attributes with defaults, in declared order.  Raises InferenceError for a bad name."""
        unknown = [n for n in given if n not in self.attributes]
        if unknown:
            known = ", ".join(self.attributes) or "none"
            raise InferenceError(f"{self.name} has no attribute {unknown[0]!r}; it has: {known}")
        out: dict[str, Any] = {}
        for name, attribute in self.attributes.items():
            value = given.get(name, attribute.default)
            if value is REQUIRED:
                raise InferenceError(f"{self.name} needs the attribute {name!r} ({attribute.type})")
            if attribute.type == "bool" and isinstance(value, int):
                value = bool(value)  # ONNX has no bool attributes
            elif attribute.type == "float" and isinstance(value, int):
                value = float(value)
            out[name] = tuple(value) if isinstance(value, list) else value
        return out

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Registry(Mapping[str, OpDef]):
    """Op declarations by name; frozen.  `extended` makes a larger copy."""

    def __init__(self, definitions: Iterable[OpDef]) -> None:
        self._by_name: dict[str, OpDef] = {}
        for d in definitions:
            if d.name in self._by_name:
                raise ValueError(f"op {d.name!r} is declared twice")
            self._by_name[d.name] = d

    def __getitem__(self, name: str) -> OpDef:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def extended(self, definitions: Iterable[OpDef]) -> Registry:
        return Registry([*self._by_name.values(), *definitions])

    def imported(self, frontend: str) -> dict[str, OpDef]:
        """Spelling in the frontend -> declaration."""
        return {s: d for d in self.values() for s in d.imports.get(frontend, ())}
