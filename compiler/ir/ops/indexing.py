"""Ops that address elements by index tensors.  Negative indices count from the end everywhere.

An index outside the tensor is an error of the input: references raise IndexError.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
from graphwright.compiler.ir.ops.checks import (
    check_axis,
    check_choice,
    check_indices,
    check_minimum_rank,
    check_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import results, widen
from graphwright.compiler.ir.types import TensorType


def _positive(indices: np.ndarray, extent: int, op: str) -> np.ndarray:
    """Indices as int64 in [0, extent).  Raises IndexError outside [-extent, extent)."""
    wide = indices.astype(np.int64)
    if wide.size and (wide.min() < -extent or wide.max() >= extent):
        bad = wide.min() if wide.min() < -extent else wide.max()
        raise IndexError(f"{op}: index {bad} is outside an axis of {extent}")
    return np.where(wide < 0, wide + extent, wide)


class Gather(OpDef):
    """The slices of x along `axis` that the indices name; their shape takes the axis' place."""

    name = "gather"
    kind = Kind.MOVEMENT
    operands = ("x", "indices")
    attributes = {"axis": Attribute("int", 0)}
    imports = {"onnx": ("Gather",)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, indices = types
        axis: int = attributes["axis"]
        check_axis("gather", axis, x.rank)
        check_indices("gather", indices)
        return [x.with_shape((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, axis = arrays[0], attributes["axis"]
        return [np.take(x, _positive(arrays[1], x.shape[axis], "gather"), axis=axis)]


class GatherElements(OpDef):
    """result[i, j, k] = x[i, indices[i, j, k], k] for axis 1; the indices give the shape."""

    name = "gather_elements"
    kind = Kind.MOVEMENT
    operands = ("x", "indices")
    attributes = {"axis": Attribute("int", 0)}
    imports = {"onnx": ("GatherElements",)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, indices = types
        check_axis("gather_elements", attributes["axis"], x.rank)
        check_indices("gather_elements", indices)
        check_rank("gather_elements", "indices", indices, x.rank)
        for axis in range(x.rank):
            if axis != attributes["axis"]:
                reason = f"gather_elements: axis {axis} of the indices"
                inference.require(indices.shape[axis], "<=", x.shape[axis], reason)
        return [x.with_shape(indices.shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, axis = arrays[0], attributes["axis"]
        indices = _positive(arrays[1], x.shape[axis], "gather_elements")
        part = tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(indices.shape))
        return [np.take_along_axis(x[part], indices, axis=axis)]


def _tuple_size(op: str, indices: TensorType, rank: int) -> int:
    """How many axes an index tuple (the last axis of the indices) addresses."""
    check_minimum_rank(op, "indices", indices, 1)
    count = indices.shape[-1]
    if not isinstance(count, int):
        raise InferenceError(f"{op}: the last axis of the indices is {count}, want a known size")
    if count > rank:
        raise InferenceError(f"{op}: index tuples of {count} for {rank} axes")
    return count


def _tuples(indices: np.ndarray, extents: Sequence[int], op: str) -> tuple[np.ndarray, ...]:
    return tuple(_positive(indices[..., i], n, op) for i, n in enumerate(extents))


class GatherNd(OpDef):
    """The slices of x that the tuples in the last axis of the indices name.

    With `batch_dims` b the first b axes are common to x and the indices.
    """

    name = "gather_nd"
    kind = Kind.MOVEMENT
    operands = ("x", "indices")
    attributes = {"batch_dims": Attribute("int", 0)}
    imports = {"onnx": ("GatherND",)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, indices = types
        batch: int = attributes["batch_dims"]
        check_indices("gather_nd", indices)
        if not 0 <= batch < max(min(x.rank, indices.rank), 1):
            raise InferenceError(f"gather_nd: batch_dims {batch} for {x} and {indices}")
        count = _tuple_size("gather_nd", indices, x.rank - batch)
        for axis in range(batch):
            reason = f"gather_nd: batch axis {axis}"
            inference.require(x.shape[axis], "==", indices.shape[axis], reason)
        return [x.with_shape((*indices.shape[:-1], *x.shape[batch + count :]))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, indices = arrays
        batch, count = attributes["batch_dims"], indices.shape[-1]
        tuples = _tuples(indices, x.shape[batch : batch + count], "gather_nd")
        rank = indices.ndim - 1
        lead = [
            np.arange(n).reshape([-1 if a == i else 1 for a in range(rank)])
            for i, n in enumerate(x.shape[:batch])
        ]
        if not lead and not tuples:  # empty tuples: the whole of x for each
            return [np.broadcast_to(x, (*indices.shape[:-1], *x.shape))]
        where = np.broadcast_arrays(*lead, *tuples)
        return [x[tuple(where)]]


_REDUCTIONS = ("none", "add", "mul", "max", "min")


def _scatter(out: np.ndarray, where: Any, updates: np.ndarray, reduction: str) -> None:
    """Updates in place.  "none" with a repeated index keeps the last update in row-major order."""
    functions = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    if reduction == "none":
        out[where] = updates
    else:
        functions[reduction].at(out, where, updates)


class ScatterElements(OpDef):
    """x with result[i, indices[i, j, k], k] = updates[i, j, k] for axis 1.

    `reduction` none (the last one wins), or add, mul, max, min of old and new values.
    """

    name = "scatter_elements"
    kind = Kind.OPAQUE
    operands = ("x", "indices", "updates")
    attributes = {"axis": Attribute("int", 0), "reduction": Attribute("str", "none")}
    imports = {"onnx": ("ScatterElements", "Scatter")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, indices, updates = types
        check_axis(self.name, attributes["axis"], x.rank)
        check_choice(self.name, "reduction", attributes["reduction"], _REDUCTIONS)
        check_indices(self.name, indices)
        check_rank(self.name, "indices", indices, x.rank)
        check_same_dtype(self.name, [x, updates])
        require_shape(inference, self.name, "updates", updates, indices.shape)
        for axis in range(x.rank):
            if axis != attributes["axis"]:
                reason = f"{self.name}: axis {axis} of the indices"
                inference.require(indices.shape[axis], "<=", x.shape[axis], reason)
        return [x.with_shape(x.shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, axis = arrays[0], attributes["axis"]
        indices = _positive(arrays[1], x.shape[axis], self.name)
        out = widen(x, context).copy()
        where = list(np.indices(indices.shape, sparse=True))
        where[axis] = indices
        _scatter(out, tuple(where), widen(arrays[2], context), attributes["reduction"])
        return results([out], context)


class ScatterNd(OpDef):
    """x with the slices that the tuples in the last axis of the indices name replaced by updates.

    `reduction` as in scatter_elements.
    """

    name = "scatter_nd"
    kind = Kind.OPAQUE
    operands = ("x", "indices", "updates")
    attributes = {"reduction": Attribute("str", "none")}
    imports = {"onnx": ("ScatterND",)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, indices, updates = types
        check_choice(self.name, "reduction", attributes["reduction"], _REDUCTIONS)
        check_indices(self.name, indices)
        check_same_dtype(self.name, [x, updates])
        count = _tuple_size(self.name, indices, x.rank)
        shape = (*indices.shape[:-1], *x.shape[count:])
        require_shape(inference, self.name, "updates", updates, shape)
        return [x.with_shape(x.shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, indices, updates = arrays
        out = widen(x, context).copy()
        count = indices.shape[-1]
        where = _tuples(indices.reshape(-1, count), x.shape[:count], self.name)
        rows = widen(updates, context).reshape(-1, *x.shape[count:])
        if count:
            _scatter(out, where, rows, attributes["reduction"])
        else:  # empty tuples: each update replaces the whole of x
            for row in rows:
                _scatter(out, ..., row, attributes["reduction"])
        return results([out], context)


class OneHot(OpDef):
    """A new axis of `depth` at `axis` that holds values[1] where its index is named, else values[0].

    An index outside [-depth, depth) names nothing: its row is all values[0].
    """

    name = "one_hot"
    kind = Kind.OPAQUE
    operands = ("indices", "values")
    attributes = {"axis": Attribute("int"), "depth": Attribute("dim")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        indices, values = types
        axis, depth = attributes["axis"], attributes["depth"]
        check_axis(self.name, axis, indices.rank + 1)
        require_shape(inference, self.name, "values", values, (2,))
        inference.require(depth, ">=", 0, "one_hot: depth")
        shape: tuple[Dim, ...] = (*indices.shape[:axis], depth, *indices.shape[axis:])
        return [values.with_shape(shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        axis, depth = attributes["axis"], context.size(attributes["depth"])
        indices = np.expand_dims(arrays[0].astype(np.int64), axis)
        indices = np.where(indices < 0, indices + depth, indices)
        places = np.arange(depth).reshape([-1 if a == axis else 1 for a in range(indices.ndim)])
        return [np.where(indices == places, arrays[1][1], arrays[1][0])]


OPS: tuple[OpDef, ...] = (
    Gather(), GatherElements(), GatherNd(), ScatterElements(), ScatterNd(), OneHot(),
)  # fmt: skip
