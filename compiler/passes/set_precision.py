"""set-precision: which ops of a float32 graph calculate in a narrower type."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.types import BF16, F16, F32, DType
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.eliminate_dead import graphs_of
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.target import Target
from graphwright.errors import CompileError, InputError

NARROW: dict[str, DType] = {"fp16": F16, "bf16": BF16}

# Functions whose results leave the range or the accuracy of 16 bits: they calculate in float32.
WIDE_FUNCTIONS = frozenset(
    {"exp", "expm1", "log", "log1p", "pow", "sinh", "cosh", "tan", "reciprocal", "rsqrt", "softplus",
     "quantize", "dequantize", "cast"}
)  # fmt: skip
# Reductions whose kernels widen every element, and whose results stay in their operand's range.
NARROW_REDUCTIONS = frozenset(
    {"softmax", "layer_norm", "rms_norm", "instance_norm", "group_norm", "reduce_max", "reduce_min"}
)
NARROW_OPAQUE = frozenset({"max_pool", "average_pool", "resize"})
TENSOR_FLOATS = frozenset({"matmul", "conv", "conv_transpose"})
# By kind of target: attention's kernel on the CPU is for float32 alone.
NARROW_CONTRACTIONS = {"cpu": TENSOR_FLOATS, "cuda": TENSOR_FLOATS | {"attention"}}


@dataclass(frozen=True, slots=True)
class SetPrecision:
    """Inserts casts so that contractions and what follows them run in `to`: fp16, bf16, or tf32.

    Why: halves the bytes and lets matrix units work; numbers are float32 wherever a range or a long
    sum needs it.  fp16 and bf16: contractions take 16-bit operands and add in float32; pointwise and
    movement ops, norms, softmax (which calculate in float32 and round once) follow their operands;
    sums, powers, exponentials stay float32.  What is calculated without any contraction (masks, tables
    of positions) is float32, and so is what is calculated with it, up to the next contraction: masks
    are written with the least float32, which no 16-bit type holds with a score added.  Weights become constants of the narrow type.  `keep`: patterns of node names, or names of ops, that stay
    float32.  tf32: float32 everywhere, with contractions marked.  Inputs and outputs keep their types.
    Raises CompileError for an fp16 constant out of range, naming its node.

        %1 = matmul(%x, %w) : f32[..]     =>   %0 = cast(%x) {dtype = f16}
                                               %1 = matmul(%0, %w16) : f16[..]
                                               %2 = cast(%1) {dtype = f32}
    """

    name: ClassVar[str] = "set-precision"
    to: str = "fp16"
    keep: tuple[str, ...] = ()

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        if self.to != "tf32" and self.to not in NARROW:
            raise InputError(f"set-precision: to is {self.to!r}, want fp16, bf16 or tf32")
        changed = 0
        kept: set[str] = set()
        for current in graphs_of(graph):
            with Rewriter(current, self.name, journal, required=True) as rw:
                narrowing = Narrowing(rw, self.to, self.keep, NARROW_CONTRACTIONS[target.kind])
                for op in current.ops:
                    if op.kind not in (Kind.CONTROL, Kind.FUSED):
                        narrowing.visit(op)
                changed += rw.steps
                kept |= narrowing.matched
        unused = [p for p in self.keep if p not in kept]
        notes = tuple(f"keep_fp32 {p!r} names no op that would be narrowed" for p in unused)
        return PassResult(changed > 0, notes, {"narrowed": changed} if changed else {})


def _is_added(op: Op, index: int) -> bool:
    """Whether an operand is added to sums in float32: the bias of attention, a mask as a rule."""
    return op.name == "attention" and index == 3


class Narrowing:
    """The state of one graph: which values exist in the narrow type."""

    def __init__(
        self, rw: Rewriter, to: str, keep: tuple[str, ...], contractions: frozenset[str]
    ) -> None:
        self.rw, self.to, self.keep, self.contractions = rw, to, keep, contractions
        self.narrow: dict[
            Value, Value
        ] = {}  # float32 value -> the 16-bit value it was widened from
        self.cast: dict[Value, Value] = {}  # what operands had to be narrowed for
        self.matched: set[str] = set()

    def visit(self, op: Op) -> None:
        if len(op.results) != 1 or op.result.type.dtype != F32 or op.kind is Kind.SOURCE:
            return
        if self._is_kept(op):
            return
        if self.to == "tf32":
            if "tf32" in op.definition.attributes:
                with self.rw.step("use-tf32", op):
                    made = self.rw.create(op.name, op.operands, {**op.attributes, "tf32": True})
                    made.result.name = op.result.name
                    self.rw.replace(made.result)
            return
        floats = [v for v in op.operands if v.type.dtype == F32]
        if self._narrows(op, floats):
            self._rewrite(op)

    def _is_kept(self, op: Op) -> bool:
        names = (op.name, *op.origins)
        found = [p for p in self.keep if any(fnmatch.fnmatchcase(n, p) for n in names)]
        self.matched.update(found)
        return bool(found)

    def _narrows(self, op: Op, floats: list[Value]) -> bool:
        if op.kind is Kind.CONTRACTION:
            return op.name in self.contractions
        if op.name == "gather":  # a table of embeddings is a weight
            table = op.operands[0]
            if table.op is not None and table.op.name == "constant" and floats:
                return True
        if not any(v in self.narrow for v in floats) or not all(map(self._may_narrow, floats)):
            return False
        return (
            (op.kind is Kind.POINTWISE and op.name not in WIDE_FUNCTIONS)
            or op.kind is Kind.MOVEMENT
            or op.name in NARROW_REDUCTIONS
            or op.name in NARROW_OPAQUE
        )

    def _may_narrow(self, value: Value) -> bool:
        """Whether pointwise ops may read the value in 16 bits: not what was calculated wide."""
        op = value.op
        return value in self.narrow or op is None or op.name == "constant"

    def _rewrite(self, op: Op) -> None:
        with self.rw.step("narrow", op):
            operands = [
                self._narrowed(v, op)
                if v.type.dtype == F32 and (v in self.narrow or not _is_added(op, i))
                else v
                for i, v in enumerate(op.operands)
            ]
            attributes: dict[str, Any] = dict(op.attributes)
            made = self.rw.create(op.name, operands, attributes).result
            made.name, made.equals = op.result.name, op.result.equals
            widened = self.rw.value("cast", made, dtype=F32)
            self.narrow[widened] = made
            self.rw.replace(widened)

    def _narrowed(self, value: Value, user: Op) -> Value:
        """The value in the narrow type, made before `user` unless there is one."""
        known = self.narrow.get(value) or self.cast.get(value)
        if known is not None:
            return known
        dtype = NARROW[self.to]
        if value.op is not None and value.op.name == "constant":
            self._check_range(value.op, user)
        anchor = self.rw.value("cast", value, dtype=dtype)
        self.cast[value] = anchor
        return anchor

    def _check_range(self, op: Op, user: Op) -> None:
        literal = op.attribute("value")
        if NARROW[self.to] is not F16 or not literal.elements:
            return
        array = np.asarray(literal.splat_value if literal.is_splat else literal.array())
        finite = np.abs(array[np.isfinite(array)]) if array.ndim else np.abs(array)
        largest = float(finite.max()) if finite.size else 0.0
        if np.isfinite(largest) and largest >= 65520.0:
            node = ", ".join(user.origins) or f"op #{user.id}"
            raise CompileError(
                f"precision=fp16: a constant of {user.name} ({node}) holds {largest:g}, beyond "
                f"fp16's 65504; use bf16, or keep_fp32={user.origins[0] if user.origins else user.name!r}"
            )
