"""Attention as matrix products, a mask and a softmax, for whoever needs it written out.

`decompose` does where there is no kernel; frontends do where a result between the parts is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.ops.attention import may_be_empty
from graphwright.compiler.ir.types import BOOL, I64

Emit = Callable[..., Value]  # (op, *operands, **attributes): makes an op


class AttentionParts:
    """The parts of an attention op, each made by `emit`; `scalar(number, dtype)` makes a constant.

    Scores are [B, H, S, T].  Operands are of 32 bits or more (the caller widens 16-bit floats);
    `attributes` are complete.
    """

    def __init__(
        self, emit: Emit, scalar: Callable[[Any, Any], Value], operands: list[Value],
        attributes: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.emit, self.scalar, self.attributes = emit, scalar, attributes
        self.q, self.k, self.v = operands[:3]
        self.bias = operands[3] if len(operands) > 3 else None
        self.lengths = operands[4] if len(operands) > 4 else None
        self.types = [v.type for v in operands]
        (self.batch, self.heads, self.steps, _), (_, self.groups, self.length, _) = (
            self.q.type.shape,
            self.k.type.shape,
        )

    def _product(self, a: Value, b: Value) -> Value:
        """a @ b for each head of a; heads that share one of b are rows of one product."""
        if self.heads == self.groups:
            return self.emit("matmul", a, b)
        rows = self.heads // self.groups * self.steps
        shared = (self.batch, self.groups, rows, a.type.shape[3])
        out = self.emit("matmul", self.emit("reshape", a, shape=shared), b)
        shape = (self.batch, self.heads, self.steps, b.type.shape[3])
        return self.emit("reshape", out, shape=shape)

    def scores(self) -> Value:
        """scale * q k'."""
        dtype = self.q.type.dtype
        turned = self.emit("transpose", self.k, permutation=(0, 1, 3, 2))
        scores = self._product(self.q, turned)
        return self.emit("mul", scores, self.scalar(self.attributes["scale"], dtype))

    def capped(self, scores: Value) -> Value:
        """The scores within softcap."""
        if cap := self.attributes["softcap"]:
            limit = self.scalar(cap, scores.type.dtype)
            scores = self.emit("mul", self.emit("tanh", self.emit("div", scores, limit)), limit)
        return scores

    def masked(self, scores: Value) -> Value:
        """The scores with the bias, and -inf for the pairs that do not take part."""
        if self.bias is not None and self.bias.type.dtype not in (BOOL, scores.type.dtype):
            scores = self.emit("cast", scores, dtype=self.bias.type.dtype)
        dtype = scores.type.dtype
        if self.bias is not None and self.bias.type.dtype == BOOL:
            fill = self.scalar(self.attributes["fill"], dtype)
            scores = self.emit("where", self.bias, scores, fill)
        elif self.bias is not None:
            scores = self.emit("add", scores, self.bias)
        taking = self._taking_part()
        if taking is not None:
            scores = self.emit("where", taking, scores, self.scalar(-math.inf, dtype))
        return scores

    def _row(self, size: Dim, *, start: Dim = 0, shape: tuple[Dim, ...]) -> Value:
        row = self.emit("iota", size=size, dtype=I64, start=start, step=1)
        return self.emit("reshape", row, shape=shape)

    def _taking_part(self) -> Value | None:
        """Bools that broadcast to [B, H, S, T]; None when every pair does."""
        a = self.attributes
        left, right = a["window"]
        right = 0 if a["causal"] else right
        if self.lengths is None and left < 0 and right < 0:
            return None
        keys = self._row(self.length, shape=(1, 1, 1, self.length))
        taking: list[Value] = []
        ends = None
        if self.lengths is not None:
            ends = self.emit("cast", self.lengths, dtype=I64)
            ends = self.emit("reshape", ends, shape=(self.batch, 1, 1, 1))
            taking.append(self.emit("less", keys, ends))
        if left >= 0 or right >= 0:
            first: Dim = a["offset"]
            if a["align"] == "end":
                first = first - self.steps + (self.length if ends is None else 0)
            place = self._row(self.steps, start=first, shape=(1, 1, self.steps, 1))
            if a["align"] == "end" and ends is not None:
                place = self.emit("add", place, ends)
            distance = self.emit("sub", keys, place)
            if right >= 0:
                taking.append(self.emit("less_or_equal", distance, self.scalar(right, I64)))
            if left >= 0:
                least = self.scalar(-left, I64)
                taking.append(self.emit("greater_or_equal", distance, least))
        out = taking[0]
        for more in taking[1:]:
            out = self.emit("logical_and", out, more)
        return out

    def weights(self, scores: Value) -> Value:
        """The softmax of each row; what `empty` says for rows of -inf."""
        weights = self.emit("softmax", scores, axis=3)
        if self.attributes["empty"] == "zero" and may_be_empty(self.types, self.attributes):
            dtype = scores.type.dtype
            largest = self.emit("reduce_max", scores, axes=(3,), keepdims=True)
            empty = self.emit("equal", largest, self.scalar(-math.inf, dtype))
            weights = self.emit("where", empty, self.scalar(0.0, dtype), weights)
        return weights

    def values(self, weights: Value) -> Value:
        """weights @ v, [B, H, S, E]; v from `lengths` on does not matter."""
        v = self.v
        if weights.type.dtype != v.type.dtype:
            weights = self.emit("cast", weights, dtype=v.type.dtype)
        if self.lengths is not None:
            ends = self.emit("cast", self.lengths, dtype=I64)
            ends = self.emit("reshape", ends, shape=(self.batch, 1, 1, 1))
            keys = self._row(self.length, shape=(1, 1, self.length, 1))
            zero = self.scalar(0.0, v.type.dtype)
            v = self.emit("where", self.emit("less", keys, ends), v, zero)
        return self._product(weights, v)

    def result(self) -> Value:
        """What the op gives."""
        return self.values(self.weights(self.masked(self.capped(self.scores()))))
