"""Ops whose results have as many elements as the data say.

None has such a result itself: it fills the front of a result of the largest size that is possible
and tells how much of it.  `bind` turns numbers that were calculated into sizes of symbols; a slice of
that size is then what the source framework calls the result.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim, Symbol, minimum, product
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Effect,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import (
    check_length,
    check_number,
    check_rank,
    distinct_symbols,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import results
from graphwright.compiler.ir.types import BOOL, I64, TensorType


class Bind(OpDef):
    """Gives each of `symbols` the size that is the operand, an i64 scalar; has no result.

    A size outside the symbol's range, or above its entry of `at_most` (one for each symbol, or
    none), is an error of the input.  An op that mentions one of the symbols comes after this one,
    in its graph or in a body below.
    """

    name = "bind"
    kind = Kind.CONTROL
    effect = Effect.BINDS
    operands = ("sizes*",)
    attributes = {"symbols": Attribute("dims"), "at_most": Attribute("dims", ())}
    results = ()

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        for t in types:
            if t.dtype is not I64 or t.rank:
                raise InferenceError(f"bind: a size is {t}, want an i64 scalar")
        check_length("bind", "symbols", attributes["symbols"], len(types))
        if attributes["at_most"]:
            check_length("bind", "at_most", attributes["at_most"], len(types))
        distinct_symbols("bind", attributes["symbols"])
        return []

    def binds(self, attributes: Attributes) -> tuple[Symbol, ...]:
        return distinct_symbols("bind", attributes["symbols"])

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        symbols = self.binds(attributes)
        for symbol, array in zip(symbols, arrays, strict=True):
            context.bind(symbol, int(array.item()))
        for symbol, most in zip(symbols, attributes["at_most"], strict=False):
            if context.binding[symbol.name] > context.size(most):
                raise ValueError(
                    f"the data make {symbol.name} = {context.binding[symbol.name]}, more than {most}"
                )
        return []


class Check(OpDef):
    """Ends the call with an error, which says `reason`, unless the condition, a scalar bool, is true.

    Where that is not possible (inside a captured CUDA graph) nothing is checked.  Ops after it must
    be safe without it.
    """

    name = "check"
    kind = Kind.CONTROL
    effect = Effect.CHECKS
    operands = ("condition",)
    attributes = {"reason": Attribute("str")}
    results = ()

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        if types[0].dtype is not BOOL or types[0].rank:
            raise InferenceError(f"check: condition is {types[0]}, want a bool scalar")
        return []

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        if not arrays[0].item():
            raise ValueError(attributes["reason"])
        return []


class NonZero(OpDef):
    """Where x is not zero: `positions` in row-major order, ascending, then zeros; `count` of them.

    NaN is not zero.
    """

    name = "non_zero"
    operands = ("x",)
    results = ("positions", "count")

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        return [TensorType(I64, (types[0].elements,)), TensorType(I64, ())]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        found = np.flatnonzero(arrays[0])
        positions = np.zeros(arrays[0].size, np.int64)
        positions[: found.size] = found
        return results([positions, np.array(found.size)], context)


class Unique(OpDef):
    """The different rows of x: [n, m].

    They are numbered by their first occurrence or, with `sorted`, in lexicographic order (NaN is
    equal to itself and above every number).  Results: `first` row of each number and `counts` of its
    rows, zeros beyond the last; the number (`inverse`) of every row; how many there are (`count`).
    """

    name = "unique"
    operands = ("x",)
    attributes = {"sorted": Attribute("bool", True)}
    results = ("first", "inverse", "counts", "count")

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_rank(self.name, "x", types[0], 2)
        if types[0].dtype.kind not in ("int", "uint", "float", "bool"):
            raise InferenceError(f"unique: x is {types[0]}, want numbers")
        n = types[0].shape[0]
        each = TensorType(I64, (n,))
        return [each, each, each, TensorType(I64, ())]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x = arrays[0]
        n, m = x.shape
        wide = x.astype(np.float64) if x.dtype.kind not in "iub" else x
        # Stable: of equal rows the first stays first.  Column 0 decides first.
        order = np.lexsort([wide[:, c] for c in reversed(range(m))]) if m else np.arange(n)
        rows = wide[order]
        same = (rows[1:] == rows[:-1]) | ((rows[1:] != rows[1:]) & (rows[:-1] != rows[:-1]))
        group = np.concatenate([np.zeros(min(n, 1), np.int64), np.cumsum(~same.all(axis=1))])
        count = int(group[-1]) + 1 if n else 0
        starts = order[np.searchsorted(group, np.arange(count))]
        number = np.arange(count)  # of each group
        if not attributes["sorted"]:
            number[np.argsort(starts)] = np.arange(count)
        first, counts, inverse = (np.zeros(n, np.int64) for _ in range(3))
        first[number] = starts
        inverse[order] = number[group]
        counts[:count] = np.bincount(inverse, minlength=count) if n else 0
        return results([first, inverse, counts, np.array(count)], context)


class NonMaxSuppression(OpDef):
    """Boxes [B, n, 4] chosen greedily by scores [B, C, n], for each batch and class by itself.

    In order of falling score (of equal ones the first) a box is taken unless its score is not above
    `score_threshold`, or its overlap (intersection over union) with a taken one is above
    `iou_threshold`; at most `most` (i64) and `limit`.  A box is two opposite corners (y, x), or with
    `centered` x and y of its center, width, height.  Results: rows (batch, class, box), batch by
    batch, zeros after the last; their `count`.
    """

    name = "non_max_suppression"
    operands = ("boxes", "scores", "most", "iou_threshold", "score_threshold")
    attributes = {"limit": Attribute("dim"), "centered": Attribute("bool", False)}
    results = ("selected", "count")

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        boxes, scores, most, *thresholds = types
        check_rank(self.name, "boxes", boxes, 3)
        check_rank(self.name, "scores", scores, 3)
        check_number(self.name, boxes)
        batches, n, _ = boxes.shape
        classes = scores.shape[1]
        require_shape(inference, self.name, "boxes", boxes, (batches, n, 4))
        require_shape(inference, self.name, "scores", scores, (batches, classes, n))
        if most.dtype is not I64 or most.elements != 1:
            raise InferenceError(f"{self.name}: most is {most}, want one i64")
        for t in thresholds:
            if not t.dtype.is_float or t.elements != 1:
                raise InferenceError(f"{self.name}: a threshold is {t}, want one float")
        rows: Dim = product((batches, classes, minimum(attributes["limit"], n)))
        return [TensorType(I64, (rows, 3)), TensorType(I64, ())]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        boxes, scores = arrays[0].astype(np.float32), arrays[1].astype(np.float32)
        most = min(max(int(arrays[2].item()), 0), context.size(attributes["limit"]))
        overlap, least = (np.float32(a.item()) for a in arrays[3:])
        found: list[tuple[int, int, int]] = []
        for b in range(scores.shape[0]):
            low, high = _corners(boxes[b], centered=attributes["centered"])
            for c in range(scores.shape[1]):
                taken: list[int] = []
                for i in np.argsort(-scores[b, c], kind="stable"):
                    if len(taken) >= most or not scores[b, c, i] > least:
                        break
                    if all(_overlap(low, high, i, j) <= overlap for j in taken):
                        taken.append(int(i))
                found += [(b, c, i) for i in taken]
        selected = np.zeros((context.size(context.results[0].shape[0]), 3), np.int64)
        if found:
            selected[: len(found)] = found
        return results([selected, np.array(len(found))], context)


def _corners(boxes: np.ndarray, *, centered: bool) -> tuple[np.ndarray, np.ndarray]:
    a, b = boxes[:, :2], boxes[:, 2:]
    if centered:
        half = b / np.float32(2)
        return a - half, a + half
    return np.minimum(a, b), np.maximum(a, b)


def _overlap(low: np.ndarray, high: np.ndarray, i: int, j: int) -> np.float32:
    zero = np.float32(0)
    shared = np.maximum(np.minimum(high[i], high[j]) - np.maximum(low[i], low[j]), zero)
    common = shared[0] * shared[1]
    areas = [(high[k] - low[k])[0] * (high[k] - low[k])[1] for k in (i, j)]
    union = areas[0] + areas[1] - common
    return common / union if min(areas) > 0 and union > 0 else zero


OPS: tuple[OpDef, ...] = (Bind(), Check(), NonZero(), Unique(), NonMaxSuppression())
