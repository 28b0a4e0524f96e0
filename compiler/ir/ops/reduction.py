"""Reductions over whole axes, softmax, and the scans and selections along one axis.

Float sums are made in float64 and rounded once; integer sums and products wrap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops import numerics
from graphwright.compiler.ir.ops.checks import (
    check_axes,
    check_axis,
    check_float,
    check_minimum_rank,
    check_number,
)
from graphwright.compiler.ir.ops.precision import accumulate, results, widen
from graphwright.compiler.ir.types import BOOL, I64, TensorType


def _reduced(type: TensorType, axes: Sequence[int], keepdims: bool) -> TensorType:
    shape: list[Dim] = []
    for axis, extent in enumerate(type.shape):
        if axis not in axes:
            shape.append(extent)
        elif keepdims:
            shape.append(1)
    return type.with_shape(tuple(shape))


def _mean(x: np.ndarray, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    count = np.prod([x.shape[a] for a in axis], dtype=np.int64)
    return numerics.divide(np.asarray(total), np.asarray(count).astype(x.dtype))


def _extreme(function: Any, sign: int) -> Callable[..., Any]:
    def compute(x: np.ndarray, *, axis: tuple[int, ...], keepdims: bool) -> Any:
        if x.dtype.kind == "f":
            start: Any = -sign * np.inf
        else:
            limits = np.iinfo(x.dtype)
            start = limits.min if sign > 0 else limits.max
        return function(x, axis=axis, keepdims=keepdims, initial=start)

    return compute


def _sum(x: np.ndarray, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def _product(x: np.ndarray, *, axis: tuple[int, ...], keepdims: bool) -> Any:
    return np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


@dataclass(frozen=True, eq=False)
class Reduce(OpDef):
    """Combines all elements along `axes` (a tuple; none: x itself) with one function.

    `combine` is the pairwise step that kernels use: add, mul, maximum, minimum, logical_and,
    logical_or, and `identity` its neutral element: the result over no elements ("lowest" and
    "highest" stand for the type's infinities or limits).
    """

    name: str = ""
    compute: Callable[..., Any] = np.sum
    combine: str = ""
    identity: int | Literal["lowest", "highest"] = 0
    logical: bool = False
    kind: Kind = Kind.REDUCTION
    operands: tuple[str, ...] = ("x",)
    attributes: Mapping[str, Attribute] = field(
        default_factory=lambda: {
            "axes": Attribute("ints"),
            "keepdims": Attribute("bool", False),
        }
    )

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        check_axes(self.name, attributes["axes"], x.rank)
        if not self.logical:
            check_number(self.name, x)
        elif x.dtype is not BOOL:
            raise InferenceError(f"{self.name}: operand is {x}, want bool")
        return [_reduced(x, attributes["axes"], attributes["keepdims"])]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x = accumulate(arrays[0], context)
        with np.errstate(all="ignore"):
            out = self.compute(x, axis=tuple(attributes["axes"]), keepdims=attributes["keepdims"])
        return results([np.asarray(out)], context)


class _ArgExtreme(OpDef):
    """The index of the extreme element along an axis, i64; a NaN is more extreme than any number.

    Of equal elements the first, or with `select_last` the last.
    """

    kind = Kind.REDUCTION
    operands = ("x",)
    attributes = {
        "axis": Attribute("int", 0),
        "keepdims": Attribute("bool", True),
        "select_last": Attribute("bool", False),
    }
    renames = {"select_last_index": "select_last"}
    function: Callable[..., Any]

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        axis = attributes["axis"]
        check_number(self.name, x)
        check_axis(self.name, axis, x.rank)
        inference.require(x.shape[axis], ">", 0, f"{self.name}: extent of axis {axis}")
        return [TensorType(I64, _reduced(x, [axis], attributes["keepdims"]).shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, axis = widen(arrays[0], context), attributes["axis"]
        if attributes["select_last"]:
            found = x.shape[axis] - 1 - type(self).function(np.flip(x, axis), axis=axis)
        else:
            found = type(self).function(x, axis=axis)
        found = np.asarray(found)
        return results([np.expand_dims(found, axis) if attributes["keepdims"] else found], context)


class ArgMax(_ArgExtreme):
    __doc__ = _ArgExtreme.__doc__
    name = "arg_max"
    imports = {"onnx": ("ArgMax",)}
    function = np.argmax


class ArgMin(_ArgExtreme):
    __doc__ = _ArgExtreme.__doc__
    name = "arg_min"
    imports = {"onnx": ("ArgMin",)}
    function = np.argmin


class _AlongAxis(OpDef):
    """Floats normalised along one axis; shape and type stay."""

    kind = Kind.REDUCTION
    operands = ("x",)
    attributes = {"axis": Attribute("int")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_float(self.name, types[0])
        check_axis(self.name, attributes["axis"], types[0].rank)
        return [types[0].with_shape(types[0].shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x = accumulate(arrays[0], context)
        with np.errstate(all="ignore"):
            return results([self.compute(x, attributes) if x.size else x], context)

    def compute(self, x: np.ndarray, attributes: Attributes) -> np.ndarray:
        """The result along the axis; each op has its own."""
        raise NotImplementedError(f"{self.name}: compute")


class Softmax(_AlongAxis):
    """exp(x - max) / sum of exp(x - max) along the axis; a row of minus infinities is NaN."""

    name = "softmax"

    def compute(self, x: np.ndarray, attributes: Attributes) -> np.ndarray:
        power = np.exp(x - x.max(axis=attributes["axis"], keepdims=True))
        return power / power.sum(axis=attributes["axis"], keepdims=True)


class LogSoftmax(_AlongAxis):
    """x - max - log(sum of exp(x - max)) along the axis."""

    name = "log_softmax"

    def compute(self, x: np.ndarray, attributes: Attributes) -> np.ndarray:
        shifted = x - x.max(axis=attributes["axis"], keepdims=True)
        return shifted - np.log(np.exp(shifted).sum(axis=attributes["axis"], keepdims=True))


class LpNormalize(_AlongAxis):
    """x / (sum of |x| ** p) ** (1 / p) along the axis, p 1 or 2; 0 where the norm is 0."""

    name = "lp_normalize"
    attributes = {"axis": Attribute("int"), "p": Attribute("int", 2)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        if attributes["p"] not in (1, 2):
            raise InferenceError(f"lp_normalize: p is {attributes['p']}, want 1 or 2")
        return super().infer(types, attributes, inference)

    def compute(self, x: np.ndarray, attributes: Attributes) -> np.ndarray:
        if attributes["p"] == 1:
            norm = np.abs(x).sum(axis=attributes["axis"], keepdims=True)
        else:
            norm = np.sqrt((x * x).sum(axis=attributes["axis"], keepdims=True))
        return np.where(norm == 0, 0.0, x / norm)


class _Cumulative(OpDef):
    kind = Kind.OPAQUE
    operands = ("x",)
    attributes = {
        "axis": Attribute("int"),
        "exclusive": Attribute("bool", False),
        "reverse": Attribute("bool", False),
    }
    combine: ClassVar[np.ufunc] = np.add

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_number(self.name, types[0])
        check_axis(self.name, attributes["axis"], types[0].rank)
        return [types[0].with_shape(types[0].shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, axis = accumulate(arrays[0], context), attributes["axis"]
        if attributes["reverse"]:
            x = np.flip(x, axis)
        total = self.combine.accumulate(x, axis=axis, dtype=x.dtype)
        if attributes["exclusive"]:
            shifted = np.full_like(total, self.combine.identity)
            one = [slice(None)] * x.ndim
            into, out_of = one.copy(), one.copy()
            into[axis], out_of[axis] = slice(1, None), slice(None, -1)
            shifted[tuple(into)] = total[tuple(out_of)]
            total = shifted
        return results([np.flip(total, axis) if attributes["reverse"] else total], context)


class Cumsum(_Cumulative):
    """Sums of the elements up to each one along an axis.

    `exclusive` leaves the element itself out; `reverse` sums from the end.
    """

    name = "cumsum"


class Cumprod(_Cumulative):
    """Products of the elements up to each one along an axis, otherwise as cumsum."""

    name = "cumprod"
    combine = np.multiply


class TopK(OpDef):
    """The k largest (or smallest) elements along an axis, in order, and their indices (i64).

    Of equal elements the one with the lower index comes first; NaN is larger than any number.
    `sorted` False leaves the order open.
    """

    name = "top_k"
    kind = Kind.OPAQUE
    operands = ("x",)
    results = ("values", "indices")
    attributes = {
        "k": Attribute("dim"),
        "axis": Attribute("int"),
        "largest": Attribute("bool", True),
        "sorted": Attribute("bool", True),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        axis, k = attributes["axis"], attributes["k"]
        check_number(self.name, x)
        check_axis(self.name, axis, x.rank)
        inference.require(k, ">=", 0, "top_k: k")
        inference.require(k, "<=", x.shape[axis], f"top_k: k against the extent of axis {axis}")
        shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
        return [x.with_shape(shape), TensorType(I64, shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, axis = widen(arrays[0], context), attributes["axis"]
        if attributes["largest"]:
            # Backwards twice: descending, with the lower index first among equals.
            order = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
            order = x.shape[axis] - 1 - np.flip(order, axis)
        else:
            order = np.argsort(x, axis=axis, kind="stable")
        first = np.take(order, np.arange(context.size(attributes["k"])), axis=axis)
        return results([np.take_along_axis(x, first, axis=axis), first], context)


class Trilu(OpDef):
    """The upper (or lower) triangle of the last two axes, zero elsewhere.

    Kept are column - row >= k (upper) or <= k (lower).
    """

    name = "trilu"
    kind = Kind.OPAQUE
    operands = ("x",)
    attributes = {"upper": Attribute("bool", True), "k": Attribute("int", 0)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        check_minimum_rank(self.name, "x", types[0], 2)
        return [types[0].with_shape(types[0].shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, k = arrays[0], attributes["k"]
        distance = np.arange(x.shape[-1]) - np.arange(x.shape[-2])[:, None]
        keep = distance >= k if attributes["upper"] else distance <= k
        return [np.where(keep, x, np.zeros((), x.dtype))]


OPS: tuple[OpDef, ...] = (
    Reduce("reduce_sum", _sum, "add"),
    Reduce("reduce_mean", _mean, "add"),
    Reduce("reduce_prod", _product, "mul", 1),
    Reduce("reduce_max", _extreme(np.max, 1), "maximum", "lowest"),
    Reduce("reduce_min", _extreme(np.min, -1), "minimum", "highest"),
    Reduce("reduce_and", np.all, "logical_and", 1, logical=True),
    Reduce("reduce_or", np.any, "logical_or", logical=True),
    ArgMax(), ArgMin(), Softmax(), LogSoftmax(), LpNormalize(), Cumsum(), Cumprod(), TopK(), Trilu(),
)  # fmt: skip
