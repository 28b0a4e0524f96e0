"""What a compose function sees: one ONNX node's inputs and attributes, and how to make IR ops.

A compose function takes a `Node` and returns the values of the node's outputs in order (one value,
or a sequence; None for an output that it does not make).  It tells opset versions apart by what the
node holds (`node.has("axes")`) or by `node.opset`.  An attribute that a function never looks at is
reported, so that nothing is ignored silently; `node.ignore` names those that do not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from onnx import AttributeProto

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Comparison, Dim, Expr
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Constraint, Inference
from graphwright.compiler.ir.types import BOOL, I64, DType
from graphwright.frontends.onnx.containers import Entry
from graphwright.frontends.onnx.late import late_sizes, undecided_axes, undecided_number
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.tensors import element_type

if TYPE_CHECKING:
    from graphwright.frontends.onnx.importer import Importer, Scope


class Node:
    """One node being imported; everything made through it carries its origin."""

    def __init__(
        self, importer: Importer, scope: Scope, proto: onnx.NodeProto, origin: str
    ) -> None:
        self.importer, self.scope, self.proto, self.origin = importer, scope, proto, origin
        self.graph: Graph = scope.graph
        self._read: set[str] = set()
        self._attributes: dict[str, AttributeProto] = {}
        for attribute in proto.attribute:
            found = attribute
            if attribute.ref_attr_name:
                given = scope.attributes.get(attribute.ref_attr_name)
                if given is None:
                    continue
                found = given
            self._attributes[attribute.name] = found

    # -- reading

    @property
    def type(self) -> str:
        return self.proto.op_type

    @property
    def opset(self) -> int:
        """The version of the node's domain that the model (or function) imports."""
        return self.scope.opset(self.proto.domain)

    @property
    def outputs(self) -> int:
        """How many outputs the node declares, trailing unused ones not counted."""
        names = list(self.proto.output)
        while names and not names[-1]:
            names.pop()
        return len(names)

    def wants(self, output: int) -> bool:
        return output < len(self.proto.output) and bool(self.proto.output[output])

    def has(self, attribute: str) -> bool:
        return attribute in self._attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute as int, float, str, tuple, Literal or GraphProto; `default` when absent."""
        self._read.add(name)
        attribute = self._attributes.get(name)
        return default if attribute is None else self._plain(name, attribute)

    def _plain(self, name: str, a: AttributeProto) -> Any:
        kind = AttributeProto.AttributeType
        match a.type:
            case kind.INT:
                return a.i
            case kind.FLOAT:
                return a.f
            case kind.STRING:
                return a.s.decode("utf-8", "replace")
            case kind.INTS:
                return tuple(a.ints)
            case kind.FLOATS:
                return tuple(a.floats)
            case kind.STRINGS:
                return tuple(s.decode("utf-8", "replace") for s in a.strings)
            case kind.TENSOR:
                return self.importer.tensors.literal(a.t, f"attribute {name} of {self.origin}")
            case kind.GRAPH:
                return a.g
            case _:
                what = AttributeProto.AttributeType.Name(a.type).lower()
                raise Refusal(f"the attribute {name} is of the kind {what}, which is not supported")

    def ignore(self, *names: str) -> None:
        """Says that these attributes do not change the result."""
        self._read.update(names)

    def unread(self) -> list[AttributeProto]:
        return [a for n, a in self._attributes.items() if n not in self._read]

    @property
    def attribute_protos(self) -> dict[str, AttributeProto]:
        return dict(self._attributes)

    def has_input(self, i: int) -> bool:
        return (
            i < len(self.proto.input)
            and bool(self.proto.input[i])
            and not self.scope.is_absent(self.proto.input[i])
        )

    @property
    def inputs(self) -> list[Value]:
        """All inputs, none of which may be absent."""
        return [self.x(i) for i in range(len(self.proto.input))]

    def x(self, i: int = 0) -> Value:
        """Input `i`, which must be there."""
        if not self.has_input(i):
            raise Refusal(f"its input {i} is missing, which {self.type} needs")
        return self.importer.as_sizes(self.scope.value(self.proto.input[i]))

    def entry(self, i: int = 0) -> Entry:
        """Input `i`, which must be there: a tensor, a sequence or an optional value."""
        if not self.has_input(i):
            raise Refusal(f"its input {i} is missing, which {self.type} needs")
        found = self.scope.entry(self.proto.input[i])
        return self.importer.as_sizes(found) if isinstance(found, Value) else found

    def ranked(self, i: int, rank: int, *, or_more: bool = False) -> Value:
        """Input `i`, which must have this rank (at least)."""
        value = self.x(i)
        if value.type.rank != rank and not (or_more and value.type.rank > rank):
            raise Refusal(
                f"its input {i} is {value.type}, want rank {rank}{' or more' if or_more else ''}"
            )
        return value

    def maybe(self, i: int) -> Value | None:
        return self.x(i) if self.has_input(i) else None

    # -- inputs that must be known at import

    def constant(self, i: int, what: str) -> np.ndarray:
        """The numbers of input `i`.  Raises Refusal when they depend on data or on a symbolic dim."""
        array = self.importer.contents.of(self.x(i))
        if array is None or array.dtype == object:
            raise self._unknown(i, what, array)
        return array

    def one(self, i: int, what: str) -> int | float | bool:
        """The only number of input `i`."""
        array = self.constant(i, what)
        if array.size != 1:
            raise Refusal(
                f"{what} (input {self.proto.input[i]!r}) has {array.size} elements, want 1"
            )
        return array.reshape(()).item()

    def ints(self, i: int, what: str) -> tuple[int, ...]:
        array = self.constant(i, what)
        if array.dtype.kind not in "iu":
            raise Refusal(f"{what} (input {self.proto.input[i]!r}) is {array.dtype}, want integers")
        return tuple(int(e) for e in array.reshape(-1))

    def dims(self, i: int, what: str) -> tuple[Dim, ...]:
        """The elements of input `i` as dims; those that depend on data are sizes bound in mid-run."""
        return self.dims_of(self.x(i), f"{what} (input {self.proto.input[i]!r})")

    def dims_of(self, value: Value, what: str) -> tuple[Dim, ...]:
        array = self.importer.contents.of(value)
        if array is None or any(not isinstance(e, int | Expr | np.integer) for e in array.flat):
            late = None
            if not self.importer.default_under(value):
                late = late_sizes(self, value, array)
            if late is None:
                raise self._depends_on_data(value, what)
            return late
        return tuple(e if isinstance(e, Expr) else int(e) for e in array.reshape(-1))

    def axes_at(
        self, i: int, rank: int, *, ordered: bool = False, among: Sequence[int] | None = None
    ) -> tuple[int, ...]:
        """Input `i` as axes of a tensor of this rank.  Raises Undecided when only the data know them;
        `ordered` says that their order matters, `among` which may be chosen (default all).
        """
        x = self.x(i)
        known = self.importer.contents.of(x)
        count = x.type.elements
        if known is None and x.type.dtype.is_integer and not self.importer.default_under(x):
            if isinstance(count, Expr):
                reason = f"{self.type} {self.origin}: how many axes it names must be known"
                self.require(count, "==", 0, f"{reason}, or there are none")
                return ()
            from_axes = range(rank) if among is None else among
            undecided = undecided_axes(
                i, count, rank, x.type.dtype.numpy, ordered=ordered, among=from_axes
            )
            if undecided is not None:
                raise undecided
        return self.ints(i, "axes")

    def number_at(self, i: int, what: str, among: Sequence[int]) -> int:
        """The only number of input `i`.  Raises Undecided, over `among`, when only the data know it."""
        x = self.x(i)
        known = self.importer.contents.of(x)
        if known is None and x.type.elements == 1 and not self.importer.default_under(x):
            shape = list(x.type.sizes)
            raise undecided_number(i, among, shape, x.type.dtype.numpy)
        return int(self.one(i, what))

    def known(self, value: Value) -> np.ndarray | None:
        """The value's contents when small and computable at import (see contents.py)."""
        return self.importer.contents.of(value)

    def _unknown(self, i: int, what: str, array: np.ndarray | None) -> Refusal:
        if array is not None and all(e is not None for e in array.flat):
            text = ", ".join(str(e) for e in array.flat)
            return Refusal(
                f"{what} (input {self.proto.input[i]!r}) must be known, it is [{text}]",
                "fix the dims with --shape",
            )
        return self._depends_on_data(self.x(i), f"{what} (input {self.proto.input[i]!r})")

    def _depends_on_data(self, value: Value, what: str) -> Refusal:
        default = self.importer.default_under(value)
        if default:
            return Refusal(
                f"{what} comes from the graph input {default!r}, whose initializer a caller may "
                "override",
                "allow 'freeze-initializers' if nobody overrides it",
            )
        return Refusal(
            f"{what} depends on data, so that its value is only known at run time",
            "make it a constant or compute it from shapes",
        )

    # -- dims and types

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis.  Raises Refusal when out of range."""
        if not -rank <= axis < rank:
            raise Refusal(f"the axis {axis} does not fit rank {rank}")
        return axis + rank if axis < 0 else axis

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        out = tuple(self.axis(int(a), rank) for a in axes)
        if len(set(out)) != len(out):
            raise Refusal(f"the axes {list(axes)} hold one axis twice")
        return out

    def require(self, left: Dim, relation: Comparison, right: Dim, reason: str) -> None:
        """Proves a relation between dims, or has it checked at each call."""
        inference = Inference()
        inference.require(left, relation, right, reason)
        self._constrain(inference.constraints)

    def certain(self, left: Dim, right: Dim) -> bool:
        """Whether left >= right holds for all sizes that calls may have.

        Either provable, or implied by a constraint that is checked at each call anyway.
        """
        if (known := dims.prove(left, ">=", right)) is not None:
            return known
        for c in self.graph.constraints:
            if c.relation in (">=", ">"):
                spare = (left - right) - (c.left - c.right)
            elif c.relation in ("<=", "<"):
                spare = (left - right) - (c.right - c.left)
            else:
                continue
            if dims.prove(spare, ">=", 0):
                return True
        return False

    def larger(self, a: Dim, b: Dim) -> Dim:
        """max(a, b), simplified by what is certain."""
        return a if self.certain(a, b) else b if self.certain(b, a) else dims.maximum(a, b)

    def smaller(self, a: Dim, b: Dim) -> Dim:
        return b if self.certain(a, b) else a if self.certain(b, a) else dims.minimum(a, b)

    def broadcast(self, a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...]:
        inference = Inference()
        out = inference.broadcast_shapes([tuple(a), tuple(b)], f"{self.type} {self.origin}")
        self._constrain(inference.constraints)
        return out

    def _constrain(self, constraints: Sequence[Constraint]) -> None:
        self.graph.constrain(constraints, self.origin)

    def dtype(self, number: int) -> DType:
        return element_type(number, f"{self.type} {self.origin}")

    # -- making ops

    def emit_all(self, op: str, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
        made = self.graph.create(op, operands, attributes, origins=(self.origin,))
        return made.results

    def emit(self, op: str, *operands: Value, **attributes: Any) -> Value:
        return self.graph.create(op, operands, attributes, origins=(self.origin,)).result

    def literal(self, literal: Literal) -> Value:
        return self.emit("constant", value=literal)

    def weight(self, literal: Literal) -> Value:
        """The node's output as a constant of its own name, which weight swapping can replace."""
        name = self.scope.prefix + self.proto.output[0]
        return self.emit("constant", value=literal, recipe=Recipe(source=name))

    def array(self, array: Any, dtype: DType | None = None) -> Value:
        return self.literal(Literal.dense(np.asarray(array, dtype and dtype.numpy)))

    def scalar(self, number: Any, dtype: DType) -> Value:
        """A rank-0 constant."""
        return self.literal(Literal.dense(np.asarray(number).astype(dtype.numpy)))

    def full(self, number: Any, dtype: DType, shape: Sequence[Dim]) -> Value:
        self._check_extents(shape)
        if all(isinstance(d, int) for d in shape):
            return self.literal(Literal.splat(number, dtype, tuple(shape)))  # type: ignore[arg-type]
        return self.emit(
            "full", value=np.asarray(number, dtype.numpy).item(), dtype=dtype, shape=tuple(shape)
        )

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.type.dtype is dtype else self.emit("cast", x, dtype=dtype)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        return x if x.type.shape == tuple(shape) else self.emit("reshape", x, shape=tuple(shape))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        if tuple(permutation) == tuple(range(x.type.rank)):
            return x
        return self.emit("transpose", x, permutation=tuple(permutation))

    def _check_extents(self, shape: Sequence[Dim]) -> None:
        if any(dims.prove(d, "<", 0) for d in shape):
            raise Refusal(f"it makes a tensor of the shape [{', '.join(map(str, shape))}]")

    def broadcast_to(self, x: Value, shape: Sequence[Dim]) -> Value:
        self._check_extents(shape)
        if x.type.shape == tuple(shape):
            return x
        return self.emit("broadcast_to", x, shape=tuple(shape))

    def unsqueeze(self, x: Value, axes: Sequence[int]) -> Value:
        """Puts axes of extent 1 in; `axes` are positions in the result."""
        rank = x.type.rank + len(axes)
        rest = iter(x.type.shape)
        at = self.axes(axes, rank)
        return self.reshape(x, [1 if i in at else next(rest) for i in range(rank)])

    def squeeze(self, x: Value, axes: Sequence[int]) -> Value:
        for a in axes:
            self.require(x.type.shape[a], "==", 1, f"{self.type} removes axis {a}")
        return self.reshape(x, [d for i, d in enumerate(x.type.shape) if i not in axes])

    def slice_axis(self, x: Value, axis: int, start: Dim, size: Dim, step: int = 1) -> Value:
        shape = x.type.shape
        if start == 0 and size == shape[axis] and step == 1:
            return x
        rank = x.type.rank
        return self.emit(
            "slice",
            x,
            starts=tuple(start if i == axis else 0 for i in range(rank)),
            sizes=tuple(size if i == axis else d for i, d in enumerate(shape)),
            steps=tuple(step if i == axis else 1 for i in range(rank)),
        )

    def iota(self, size: Dim, dtype: DType = I64) -> Value:
        return self.emit("iota", size=size, dtype=dtype, start=0, step=1)

    def sizes(self, extents: Sequence[Dim]) -> Value:
        """An i64 vector of sizes as data."""
        return self.emit("from_dims", dims=tuple(extents), scalar=False)

    def size(self, extent: Dim, dtype: DType = I64) -> Value:
        """One size as a rank-0 tensor of `dtype`."""
        if isinstance(extent, int):
            return self.scalar(extent, dtype)
        return self.cast(self.emit("from_dims", dims=(extent,), scalar=True), dtype)

    def gather(self, x: Value, indices: Value, axis: int) -> Value:
        return self.emit("gather", x, indices, axis=axis)

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        return self.emit("where", self.cast(condition, BOOL), x, y)

    def matrix(self, x: Value, axis: int) -> Value:
        """x flattened to two axes: those before `axis` and those from it on."""
        shape = x.type.shape
        return self.reshape(x, [dims.product(shape[:axis]), dims.product(shape[axis:])])
