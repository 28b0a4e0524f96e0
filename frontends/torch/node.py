"""What a compose function sees: one call of an ATen op, and how to make IR ops.

A compose function takes a `Node` and returns the values of the call's results (one value, or a
sequence; None for a result that it does not make).  Arguments are read by their names in the op's
schema: `x` gives a tensor, `arg` anything else with sizes as dims.  An argument that a function never
looks at and that is not its default is reported, so that nothing is ignored silently; `node.ignore`
names those that do not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import sympy
import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Comparison, Dim
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Constraint, Inference
from graphwright.compiler.ir.types import BOOL, I64, DType
from graphwright.frontends.torch.dtypes import element_type, promoted
from graphwright.frontends.torch.refusal import Refusal, Tainted

if TYPE_CHECKING:
    from graphwright.frontends.torch.importer import Importer

Sym = torch.SymInt | torch.SymFloat | torch.SymBool
# Where a tensor lies, and hints that change no number.
SILENT = ("layout", "device", "pin_memory", "non_blocking", "memory_format", "requires_grad")


class Node:
    """One call being imported; everything made through it carries its origin."""

    def __init__(self, importer: Importer, fx: torch.fx.Node, origin: str) -> None:
        self.importer, self.fx, self.origin = importer, fx, origin
        self.graph: Graph = importer.graph
        self._given: dict[str, Any] = {}
        self._defaults: dict[str, Any] = {}
        self._read: set[str] = set(SILENT)
        target = fx.target
        if isinstance(target, torch._ops.OpOverload):
            schema = target._schema.arguments
            for i, argument in enumerate(schema):
                default = argument.default_value if argument.has_default_value() else None
                given = fx.args[i] if i < len(fx.args) else fx.kwargs.get(argument.name, default)
                self._given[argument.name], self._defaults[argument.name] = given, default

    # -- reading

    @property
    def type(self) -> str:
        """The op as people write it: `add.Tensor`."""
        return op_name(self.fx.target)

    @property
    def out(self) -> Any:
        """torch's own stand-in for the result: its type, shape and strides."""
        return self.fx.meta["val"]

    @property
    def out_dtype(self) -> DType:
        return element_type(self.out.dtype)

    @property
    def out_shape(self) -> tuple[Dim, ...]:
        return self.shape_of(self.out)

    def shape_of(self, fake: torch.Tensor) -> tuple[Dim, ...]:
        return tuple(self.importer.symbols.dim(d) for d in fake.shape)

    def raw(self, name: str) -> Any:
        """The argument as the graph has it: fx nodes, numbers, lists."""
        self._read.add(name)
        return self._given.get(name)

    def fake(self, name: str) -> Any:
        """torch's stand-in for a tensor argument (numbers as they are)."""
        return _fakes(self.raw(name))

    def arg(self, name: str) -> Any:
        """The argument with values for tensors and dims for symbolic integers."""
        return self.resolve(self.raw(name))

    def resolve(self, raw: Any) -> Any:
        if isinstance(raw, torch.fx.Node):
            held = raw.meta.get("val")
            if isinstance(held, torch.SymInt):
                return self.importer.symbols.dim(held)
            if isinstance(held, torch.SymFloat | torch.SymBool | int | float):
                return held
            return self.importer.value_of(raw)
        if isinstance(raw, list | tuple):
            return [self.resolve(r) for r in raw]
        if isinstance(raw, torch.SymInt):
            return self.importer.symbols.dim(raw)
        return raw

    def ignore(self, *names: str) -> None:
        """Says that these arguments do not change the result."""
        self._read.update(names)

    def unread(self) -> list[str]:
        """Arguments that nobody looked at and that differ from their defaults."""
        return [
            n for n, given in self._given.items()
            if n not in self._read and given is not None and given != self._defaults[n]
        ]  # fmt: skip

    def has(self, name: str) -> bool:
        return self.raw(name) is not None

    def x(self, name: str = "self") -> Value:
        """A tensor argument, which must be there; a number becomes a scalar of torch's type for it."""
        raw = self.raw(name)
        if raw is None:
            raise Refusal(f"its argument {name} is missing")
        found = self.resolve(raw)
        if isinstance(found, Value):
            return found
        if isinstance(found, list | tuple):
            raise Refusal(f"its argument {name} is a list, want a tensor")
        return self.number(raw, element_type(_number_type(raw)))

    def maybe(self, name: str) -> Value | None:
        return self.x(name) if self.has(name) else None

    def tensors(self, name: str) -> list[Value]:
        """A list of tensors, none of which may be absent."""
        found = self.arg(name)
        if not all(isinstance(v, Value) for v in found):
            raise Refusal(f"its argument {name} holds something other than tensors")
        return list(found)

    def number(self, raw: Any, dtype: DType) -> Value:
        """A number (perhaps symbolic, or calculated by `item`) as a rank-0 tensor."""
        if isinstance(raw, torch.fx.Node):
            return self.cast(self.importer.scalar_of(self, raw), dtype)
        if isinstance(raw, Sym):
            return self.cast(self.importer.scalar_of(self, raw), dtype)
        return self.scalar(raw, dtype)

    def static(self, name: str) -> int | float | bool:
        """A number that must be known now."""
        found = self.arg(name)
        if isinstance(found, Sym) or not isinstance(found, int | float):
            raise Refusal(f"its argument {name} is {found}, which must be a known number")
        return found

    def whole(self, name: str) -> int:
        """`static` of a whole number."""
        found = self.static(name)
        if not isinstance(found, int):
            raise Refusal(f"its argument {name} is {found}, which must be a whole number")
        return found

    # -- types

    def promoted(self, *names: str, kind: PROMOTION = PROMOTION.DEFAULT) -> list[Value]:
        """The operands in the type that torch calculates in."""
        computed, _ = promoted([self.fake(n) for n in names], kind)
        return [self.operand(n, computed) for n in names]

    def operand(self, name: str, dtype: DType) -> Value:
        """An argument (tensor or number) in an element type."""
        raw = self.raw(name)
        found = self.resolve(raw)
        return self.cast(found, dtype) if isinstance(found, Value) else self.number(raw, dtype)

    # -- dims

    def axis(self, axis: int, rank: int) -> int:
        """A non-negative axis; of a scalar, 0 and -1 are its only one."""
        most = max(rank, 1)
        if not -most <= axis < most:
            raise Refusal(f"the axis {axis} does not fit rank {rank}")
        return axis + most if axis < 0 else axis

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

    def broadcast(self, *shapes: Sequence[Dim]) -> tuple[Dim, ...]:
        inference = Inference()
        out = inference.broadcast_shapes([tuple(s) for s in shapes], f"{self.type} {self.origin}")
        self._constrain(inference.constraints)
        return out

    def _constrain(self, constraints: Sequence[Constraint]) -> None:
        self.graph.constraints += [c for c in constraints if c not in self.graph.constraints]

    # -- making ops

    def emit_all(self, op: str, *operands: Value, **attributes: Any) -> tuple[Value, ...]:
        made = self.graph.create(op, operands, attributes, origins=(self.origin,))
        return made.results

    def emit(self, op: str, *operands: Value, **attributes: Any) -> Value:
        return self.graph.create(op, operands, attributes, origins=(self.origin,)).result

    def literal(self, literal: Literal) -> Value:
        return self.emit("constant", value=literal)

    def array(self, array: Any, dtype: DType | None = None) -> Value:
        return self.literal(Literal.dense(np.asarray(array, dtype and dtype.numpy)))

    def scalar(self, number: Any, dtype: DType) -> Value:
        """A rank-0 constant; integers wrap into the type, as torch's do."""
        with np.errstate(all="ignore"):
            return self.literal(Literal.dense(np.asarray(number).astype(dtype.numpy)))

    def full(self, number: Any, dtype: DType, shape: Sequence[Dim]) -> Value:
        known = [d for d in shape if isinstance(d, int)]
        if len(known) == len(shape):
            return self.literal(Literal.splat(number, dtype, tuple(known)))
        value = np.asarray(number).astype(dtype.numpy).item()
        return self.emit("full", value=value, dtype=dtype, shape=tuple(shape))

    def cast(self, x: Value, dtype: DType) -> Value:
        return x if x.type.dtype is dtype else self.emit("cast", x, dtype=dtype)

    def reshape(self, x: Value, shape: Sequence[Dim]) -> Value:
        return x if x.type.shape == tuple(shape) else self.emit("reshape", x, shape=tuple(shape))

    def transpose(self, x: Value, permutation: Sequence[int]) -> Value:
        if tuple(permutation) == tuple(range(x.type.rank)):
            return x
        return self.emit("transpose", x, permutation=tuple(permutation))

    def swap(self, x: Value, a: int, b: int) -> Value:
        """Two axes exchanged."""
        order = list(range(x.type.rank))
        order[a], order[b] = order[b], order[a]
        return self.transpose(x, order)

    def broadcast_to(self, x: Value, shape: Sequence[Dim]) -> Value:
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
        """Takes axes of extent 1 out."""
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

    def concat(self, parts: Sequence[Value], axis: int) -> Value:
        return parts[0] if len(parts) == 1 else self.emit("concat", *parts, axis=axis)

    def iota(self, size: Dim, dtype: DType = I64) -> Value:
        return self.emit("iota", size=size, dtype=dtype, start=0, step=1)

    def iota_along(self, size: Dim, axis: int, rank: int, dtype: DType = I64) -> Value:
        """0, 1, 2, ... along an axis of a tensor of this rank whose other extents are 1."""
        return self.reshape(
            self.iota(size, dtype), [size if i == axis else 1 for i in range(rank)]
        )  # fmt: skip

    def size(self, extent: Dim, dtype: DType = I64) -> Value:
        """One size as a rank-0 tensor of `dtype`."""
        if isinstance(extent, int):
            return self.scalar(extent, dtype)
        return self.cast(self.emit("from_dims", dims=(extent,), scalar=True), dtype)

    def bound_size(self, count: Value, most: Dim) -> Dim:
        """The size that torch does not know in its first result, bound to `count` in mid-run."""
        first = self.out[0] if isinstance(self.out, list | tuple) else self.out
        for extent in first.shape:
            if isinstance(extent, torch.SymInt) and isinstance(extent.node.expr, sympy.Symbol):
                symbol = extent.node.expr
                if free_unbacked_symbols(symbol) and symbol not in self.importer.bound:
                    return self.importer.declare_size(symbol, count, most)
        if all(isinstance(d, int) for d in first.shape):  # torch was told the size
            return first.shape[0]
        raise Refusal("its result has no size that could be bound")

    def where(self, condition: Value, x: Value, y: Value) -> Value:
        return self.emit("where", self.cast(condition, BOOL), x, y)

    def elements(self, x: Value, axes: Sequence[int]) -> Dim:
        return dims.product(x.type.shape[a] for a in axes)


Compose = Callable[[Node], "Value | Sequence[Value | None]"]


def known_sizes(sizes: Sequence[Dim], reason: str) -> list[int]:
    """Sizes that must be known now; a refusal for `reason` when one is not."""
    known = [d for d in sizes if isinstance(d, int)]
    if len(known) != len(sizes):
        raise Refusal(reason)
    return known


def op_name(target: Any) -> str:
    """`add.Tensor`, `prims.fma.default`, or the name of a function."""
    if isinstance(target, torch._ops.OpOverload):
        text = str(target)
        return text.removeprefix("aten.")
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name()
    return getattr(target, "__name__", str(target))


def _number_type(raw: Any) -> torch.dtype:
    held = raw.meta.get("val") if isinstance(raw, torch.fx.Node) else raw
    if isinstance(held, bool | torch.SymBool):
        return torch.bool
    if isinstance(held, int | torch.SymInt):
        return torch.int64
    if isinstance(held, float | torch.SymFloat):
        return torch.get_default_dtype()
    raise Refusal(f"{held!r} is not a number that is supported here")


def _fakes(raw: Any) -> Any:
    if isinstance(raw, torch.fx.Node):
        if "val" not in raw.meta:
            raise Tainted
        return raw.meta["val"]
    if isinstance(raw, list | tuple):
        return [_fakes(r) for r in raw]
    return raw


def is_symbolic(value: Any) -> bool:
    """Whether a number of torch's holds symbols."""
    return isinstance(value, Sym) and bool(free_symbols(value))
