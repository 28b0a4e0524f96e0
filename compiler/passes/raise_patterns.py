"""raise-patterns: written-out activations, norms and selections become the ops they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.passes import raise_activations, raise_norms
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.match import literal_of, op_named
from graphwright.compiler.passes.raise_attention import attention_for
from graphwright.compiler.passes.rewrite import Rewriter, Rule, apply_rules, rule, rules_of
from graphwright.compiler.target import Target


def _indices_of_one_hot(value: Value) -> Value | None:
    """Integers i such that value[..., k] is 1 where i == k and else 0, for k from 0 on."""
    cast = op_named(value, "cast")
    equal = op_named(cast.operands[0], "equal") if cast is not None else None
    if equal is None:
        return None
    indices, ramp = equal.operands
    literal = literal_of(ramp)
    if literal is None or not ramp.type.dtype.is_integer or indices.type.rank == 0:
        return None
    depth = value.type.shape[-1]
    if literal.elements != depth or not ramp.type.shape or ramp.type.shape[-1] != depth:
        return None
    if indices.type.shape[-1] != 1 or indices.type.rank != value.type.rank:
        return None
    if not np.array_equal(literal.array().reshape(-1), np.arange(literal.elements)):
        return None
    return indices


@rule("matmul")
def select_rows(op: Op, rw: Rewriter) -> bool | None:
    """matmul(one_hot(i), w) => the rows w[i], zero where i is no index; w constant and finite.

    Exact: every other term of the product is 0 times a finite number.
    """
    a, w = op.operands
    indices = _indices_of_one_hot(a)
    literal = literal_of(w)
    if indices is None or literal is None or w.type.rank != 2:
        return None
    if not np.isfinite(literal.array()).all():
        return rw.fail("0 times a weight that is not finite is not 0")
    rows = literal.shape[0]
    dtype = indices.type.dtype
    if rows - 1 > np.iinfo(dtype.numpy).max or rows == 0:
        return None
    inside = rw.value("clip", indices, rw.scalar(0, dtype), rw.scalar(rows - 1, dtype))
    flat = rw.value("reshape", inside, shape=indices.type.shape[:-1])
    chosen = rw.value("gather", w, flat, axis=0)
    known = rw.value("equal", indices, inside)
    zero = rw.scalar(0.0, w.type.dtype)
    return rw.replace_by("where", known, chosen, zero)


RULES: tuple[Rule, ...] = (
    *rules_of(raise_norms),
    *rules_of(raise_activations),
    select_rows,
)


@dataclass(frozen=True, slots=True)
class RaisePatterns:
    """Recognises what exporters write out: layer and RMS norms, softmax, means, GELU by erf and by
    tanh, SiLU, sigmoid, hard-swish, hard-sigmoid, mish, rows selected by a product with one-hot,
    and attention where it has a kernel.

    Each has one kernel and one rounding instead of several; constants are matched to within the
    precision that exporters write them in.  Requires canonical form (constants on the right, small
    powers as products).  Changes results within rounding.

        %0 = sigmoid(%x)       =>   %0 = silu(%x)
        %1 = mul(%x, %0)
    """

    name: ClassVar[str] = "raise-patterns"
    half_attention: bool = False  # attention of 16-bit floats only

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in ops."""
        attention = attention_for(target, half_only=self.half_attention)
        return apply_rules(graph, (*RULES, attention), self.name, journal)
