"""fold-batch-norm: per-channel multiplies and adds after a contraction go into its weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.decompose import scale_and_shift
from graphwright.compiler.passes.fold_constants import folded_value
from graphwright.compiler.passes.match import (
    is_cheap,
    literal_of,
    only_user,
    op_named,
    static,
    uniform_of,
)
from graphwright.compiler.passes.rewrite import Rewriter, Rule, apply_rules, rule
from graphwright.compiler.target import Target


def _contraction(value: Value, rw: Rewriter) -> Op | None:
    """The convolution or matmul with constant f32 or f64 weights that alone feeds this step."""
    op = op_named(value, "conv", "conv_transpose", "matmul")
    if op is None or any(literal_of(v) is None for v in op.operands[1:]):
        return None
    if only_user(value) is not rw.current:
        rw.fail("the contraction's result is also used without the batch norm")
        return None
    dtype = op.result.type.dtype
    if not dtype.is_float or dtype.bits < 32:
        rw.fail("folding would round 16-bit weights once more")
        return None
    if op.name == "matmul" and op.operands[1].type.rank != 2:
        return None
    return op


def _channel_axis(op: Op) -> int:
    return op.result.type.rank - 1 if op.name == "matmul" else 1


def _vector(rw: Rewriter, op: Op, factor: Value) -> Value | None:
    """A constant that differs only along the contraction's channels, as a vector [channels]."""
    axis, rank = _channel_axis(op), op.result.type.rank
    channels, shape = op.result.type.shape[axis], static(factor.type.shape)
    if not isinstance(channels, int) or channels < 1 or shape is None or len(shape) > rank:
        return None
    if literal_of(factor) is None:
        return None
    padded = (1,) * (rank - len(shape)) + shape
    if any(extent != 1 for a, extent in enumerate(padded) if a != axis):
        rw.fail("the constant differs between positions, not only between channels")
        return None
    if shape != (padded[axis],):
        factor = folded_value(rw, "reshape", [factor], {"shape": (padded[axis],)})
    if padded[axis] == channels:
        return factor
    return folded_value(rw, "broadcast_to", [factor], {"shape": (channels,)})


def _scaled_weights(rw: Rewriter, op: Op, s: Value) -> Value:
    """The weights with those of output channel c multiplied by s[c]."""
    w = op.operands[1]
    shape = static(w.type.shape)
    assert shape is not None
    if op.name == "matmul":
        return folded_value(rw, "mul", [w, s])
    ones = [1] * (len(shape) - 2)
    if op.name == "conv":
        per_filter = folded_value(rw, "reshape", [s], {"shape": (shape[0], 1, *ones)})
        return folded_value(rw, "mul", [w, per_filter])
    # conv_transpose: w is [C, M / groups, kernel...]; group g owns rows g * C / groups onward.
    groups = op.attribute("groups")
    split = (groups, shape[0] // groups, *shape[1:])
    rows = folded_value(rw, "reshape", [w], {"shape": split})
    factors = folded_value(rw, "reshape", [s], {"shape": (groups, 1, shape[1], *ones)})
    scaled = folded_value(rw, "mul", [rows, factors])
    return folded_value(rw, "reshape", [scaled], {"shape": shape})


def _rebuild(rw: Rewriter, op: Op, w: Value, bias: Value | None) -> bool | None:
    """Puts the contraction with new weights and bias in place of the current op."""
    for value in (w, bias):
        literal = literal_of(value) if value is not None else None
        if literal is not None and not np.isfinite(literal.array()).all():
            return rw.fail("the folded weights would not be finite")
    operands = [op.operands[0], w, *([bias] if bias is not None else [])]
    return rw.replace(rw.create(op.name, operands, op.attributes).result)


@rule("batch_norm")
def batch_norm_after_contraction(op: Op, rw: Rewriter) -> bool | None:
    """batch_norm(conv(x, w, b)) => conv(x, w * s, b * s + shift)."""
    inner = _contraction(op.operands[0], rw)
    if inner is None or inner.name == "matmul":
        return None
    parameters = op.operands[1:]
    if any(literal_of(v) is None for v in parameters):
        return rw.fail("the parameters of the batch norm are not constant")

    def make(name: str, a: Value, b: Value | None) -> Value:
        return folded_value(rw, name, [a] if b is None else [a, b])

    epsilon = rw.scalar(op.attribute("epsilon"), op.result.type.dtype)
    s, shift = scale_and_shift(make, epsilon, parameters)
    if len(inner.operands) == 3:
        shift = make("add", make("mul", inner.operands[2], s), shift)
    return _rebuild(rw, inner, _scaled_weights(rw, inner, s), shift)


@rule("mul", "div")
def multiply_after_contraction(op: Op, rw: Rewriter) -> bool | None:
    """conv(x, w, b) * s => conv(x, w * s, b * s), s constant and per channel."""
    inner = _contraction(op.operands[0], rw)
    if inner is None or inner.result.type != op.result.type:
        return None
    s = _vector(rw, inner, op.operands[1])
    if s is None:
        return None
    if op.name == "div":
        one = rw.scalar(1.0, s.type.dtype)
        s = folded_value(rw, "div", [one, s])
    bias = None
    if len(inner.operands) == 3:
        bias = folded_value(rw, "mul", [inner.operands[2], s])
    return _rebuild(rw, inner, _scaled_weights(rw, inner, s), bias)


@rule("add", "sub")
def add_after_convolution(op: Op, rw: Rewriter) -> bool | None:
    """conv(x, w, b) + c => conv(x, w, b + c), c constant and per channel."""
    inner = _contraction(op.operands[0], rw)
    if inner is None or inner.name == "matmul" or inner.result.type != op.result.type:
        return None
    c = _vector(rw, inner, op.operands[1])
    if c is None:
        return None
    if op.name == "sub":
        c = folded_value(rw, "neg", [c])
    if len(inner.operands) == 3:
        c = folded_value(rw, "add", [inner.operands[2], c])
    return _rebuild(rw, inner, inner.operands[1], c)


@rule("mul")
def multiply_after_biased_matmul(op: Op, rw: Rewriter) -> bool | None:
    """(matmul(x, w) + b) * s => matmul(x, w * s) + b * s, b and s constant and per column."""
    biased = op_named(op.operands[0], "add")
    if biased is None or only_user(biased.result) is not op:
        return None
    inner = op_named(biased.operands[0], "matmul")
    if inner is None or only_user(inner.result) is not biased:
        return None
    w = literal_of(inner.operands[1])
    if w is None or inner.operands[1].type.rank != 2 or op.result.type != inner.result.type:
        return None
    if not op.result.type.dtype.is_float or op.result.type.dtype.bits < 32:
        return rw.fail("folding would round 16-bit weights once more")
    b, s = _vector(rw, inner, biased.operands[1]), _vector(rw, inner, op.operands[1])
    if b is None or s is None:
        return None
    new = rw.value("matmul", inner.operands[0], _scaled_weights(rw, inner, s))
    return rw.replace_by("add", new, folded_value(rw, "mul", [b, s]))


def _scaled_below(value: Value, user: Op) -> tuple[Op, Value] | None:
    """(multiplication by one number, number) below movement ops that only `user` reads."""
    while only_user(value) is user and value.op is not None:
        op = value.op
        if op.name == "mul":
            x, s = op.operands
            scalar = isinstance(uniform_of(s), float) and x.type == value.type
            return (op, s) if scalar and op_named(s, "constant") is not None else None
        if op.kind is not Kind.MOVEMENT or len(op.operands) != 1:
            return None
        value, user = op.operands[0], op
    return None


@rule("matmul")
def scale_past_matmul(op: Op, rw: Rewriter) -> bool | None:
    """matmul(q * s, k) => matmul(q, k) * s for one number s, or matmul(q, k * s) for a constant k.

    Where q itself was only moved, the multiplication would be a kernel of its own; after the
    product it is none (the scale of attention).  Not in 16 bits: the scale may be there to keep
    the product in range.
    """
    dtype = op.result.type.dtype
    if not dtype.is_float or dtype.bits < 32:
        return None
    for value, other in (op.operands, op.operands[::-1]):
        found = _scaled_below(value, op)
        if found is None:
            continue
        mul, s = found
        x = mul.operands[0]
        number = rw.scalar(uniform_of(s), dtype)
        constant = is_cheap(other) and op_named(other, "constant") is not None
        if not constant and x.op is not None and x.op.kind is not Kind.MOVEMENT:
            return rw.fail("what is scaled has a kernel that the multiplication can join")
        if constant:
            rw.set_operand(op, op.operands.index(other), folded_value(rw, "mul", [other, number]))
            return rw.replace(x, op=mul)
        rw.replace(x, op=mul)
        return rw.replace_by("mul", rw.value("matmul", *op.operands), number)
    return None


RULES: tuple[Rule, ...] = (
    batch_norm_after_contraction,
    multiply_after_contraction,
    add_after_convolution,
    multiply_after_biased_matmul,
    scale_past_matmul,
)


@dataclass(frozen=True, slots=True)
class FoldBatchNorm:
    """Folds batch norms, and constant per-channel multiplies and adds, into convolutions.

    Only where the contraction's result has no other user, its weights are constant and the constant
    differs along channels alone.  A weight that several contractions share is not changed: each
    gets its own folded copy, with a recipe that names the sources.  Rounds the weights once more
    (relative 6e-8 in f32), so 16-bit weights are left as they are.

        %0 = conv(%x, %w)                                        =>   %0 = conv(%x, %w2, %b2)
        %1 = batch_norm(%0, %scale, %bias, %mean, %variance)
    """

    name: ClassVar[str] = "fold-batch-norm"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in ops and in the bytes of the folded weights."""
        del target
        return apply_rules(graph, RULES, self.name, journal)
