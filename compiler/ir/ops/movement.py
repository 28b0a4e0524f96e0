"""Ops that move elements without calculating: each result element is one element of an operand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import Dim, product, prove
from graphwright.compiler.ir.layout import Layout
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Constraint,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import (
    check_axis,
    check_choice,
    check_length,
    check_rank,
    check_same_dtype,
)
from graphwright.compiler.ir.types import TensorType


class Reshape(OpDef):
    """The elements of x in row-major order, in another shape with as many elements."""

    name = "reshape"
    kind = Kind.MOVEMENT
    operands = ("x",)
    attributes = {"shape": Attribute("dims")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        shape: tuple[Dim, ...] = attributes["shape"]
        for d in shape:
            inference.require(d, ">=", 0, "reshape: extent")
        inference.require(types[0].elements, "==", product(shape), "reshape: number of elements")
        return [types[0].with_shape(shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return [arrays[0].reshape(context.sizes(attributes["shape"]))]


class Transpose(OpDef):
    """Axis i of the result is axis `permutation[i]` of x."""

    name = "transpose"
    kind = Kind.MOVEMENT
    operands = ("x",)
    attributes = {"permutation": Attribute("ints")}
    imports = {"onnx": ("Transpose",), "aten": ("permute.default",)}
    renames = {"perm": "permutation", "dims": "permutation"}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        permutation: tuple[int, ...] = attributes["permutation"]
        if sorted(permutation) != list(range(types[0].rank)):
            raise InferenceError(
                f"transpose: {permutation} is not a permutation of the axes of {types[0]}"
            )
        return [types[0].with_shape(tuple(types[0].shape[p] for p in permutation))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return [arrays[0].transpose(attributes["permutation"])]


class BroadcastTo(OpDef):
    """x repeated along axes of extent 1 and along new leading axes, until it has `shape`."""

    name = "broadcast_to"
    kind = Kind.MOVEMENT
    operands = ("x",)
    attributes = {"shape": Attribute("dims")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        shape: tuple[Dim, ...] = attributes["shape"]
        new = len(shape) - x.rank
        if new < 0:
            raise InferenceError(f"broadcast_to: {x} has more axes than the {len(shape)} asked for")
        for axis, extent in enumerate(x.shape):
            want = shape[new + axis]
            reason = f"broadcast_to: axis {axis}"
            if extent == 1 or extent == want:
                continue
            if want == 1 or prove(extent, "!=", 1):
                inference.require(extent, "==", want, reason)
            else:
                inference.constraints.append(Constraint(extent, "broadcast", want, reason))
        return [x.with_shape(shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return [np.broadcast_to(arrays[0], context.sizes(attributes["shape"]))]


class Slice(OpDef):
    """Element i along an axis is element start + i * step of x, for i below the axis' size.

    All three attributes have one entry an axis; every element taken lies inside x.
    """

    name = "slice"
    kind = Kind.MOVEMENT
    operands = ("x",)
    attributes = {
        "starts": Attribute("dims"),
        "sizes": Attribute("dims"),
        "steps": Attribute("ints"),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,) = types
        starts, sizes, steps = (attributes[n] for n in ("starts", "sizes", "steps"))
        for name in ("starts", "sizes", "steps"):
            check_length("slice", name, attributes[name], x.rank)
        for axis in range(x.rank):
            start, size, step, extent = starts[axis], sizes[axis], steps[axis], x.shape[axis]
            reason = f"slice: axis {axis}"
            if not isinstance(step, int) or step == 0:
                raise InferenceError(f"{reason}: step {step}, want an int other than 0")
            inference.require(size, ">=", 0, f"{reason}: size")
            if size == 0:
                continue
            last = start + (size - 1) * step
            low, high = (start, last) if step > 0 else (last, start)
            inference.require(low, ">=", 0, f"{reason}: first element")
            inference.require(high, "<", extent, f"{reason}: last element")
        return [x.with_shape(sizes)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        starts, sizes = context.sizes(attributes["starts"]), context.sizes(attributes["sizes"])
        index: list[slice] = []
        for start, size, step in zip(starts, sizes, attributes["steps"], strict=True):
            stop = start + size * step
            # Going down to the first element needs no stop: -1 would mean the last one.
            index.append(slice(start, None if stop < 0 else stop, step) if size else slice(0, 0))
        return [arrays[0][tuple(index)]]


class Concat(OpDef):
    """The inputs one after another along an axis."""

    name = "concat"
    kind = Kind.MOVEMENT
    operands = ("inputs*",)
    attributes = {"axis": Attribute("int")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        if not types:
            raise InferenceError("concat: no inputs, want at least one")
        axis: int = attributes["axis"]
        first = types[0]
        check_axis("concat", axis, first.rank)
        check_same_dtype("concat", types)
        total: Dim = first.shape[axis]
        for i, t in enumerate(types[1:], 1):
            check_rank("concat", f"input {i}", t, first.rank)
            for a in range(first.rank):
                if a != axis:
                    inference.require(
                        t.shape[a], "==", first.shape[a], f"concat: axis {a} of input {i}"
                    )
            total = total + t.shape[axis]
        return [first.with_shape((*first.shape[:axis], total, *first.shape[axis + 1 :]))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return [np.concatenate(arrays, axis=attributes["axis"])]


class Pad(OpDef):
    """`low` elements before and `high` after each axis; both are dims, none negative.

    mode constant: `value` (one element; absent: zero); edge: the nearest element; reflect: mirrored
    at the edge element, which is not repeated (pads below the extent); wrap: periodic (pads up to
    the extent).
    """

    name = "pad"
    kind = Kind.MOVEMENT
    operands = ("x", "value?")
    attributes = {
        "low": Attribute("dims"),
        "high": Attribute("dims"),
        "mode": Attribute("str", "constant"),
    }

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x, mode = types[0], attributes["mode"]
        check_choice("pad", "mode", mode, ("constant", "edge", "reflect", "wrap"))
        if len(types) == 2:
            check_same_dtype("pad", types)
            inference.require(types[1].elements, "==", 1, "pad: the value is one element")
        shape: list[Dim] = []
        for side in ("low", "high"):
            check_length("pad", side, attributes[side], x.rank)
        for axis, extent in enumerate(x.shape):
            for side in ("low", "high"):
                pad: Dim = attributes[side][axis]
                reason = f"pad: {side} of axis {axis}"
                inference.require(pad, ">=", 0, reason)
                if pad == 0 or mode == "constant":
                    continue
                if mode == "reflect":
                    inference.require(pad, "<", extent, f"{reason}, reflected")
                elif mode == "wrap":
                    inference.require(pad, "<=", extent, f"{reason}, wrapped")
                else:
                    inference.require(extent, ">", 0, f"{reason}, from an edge")
            shape.append(attributes["low"][axis] + extent + attributes["high"][axis])
        return [x.with_shape(tuple(shape))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x = arrays[0]
        low, high = context.sizes(attributes["low"]), context.sizes(attributes["high"])
        if attributes["mode"] != "constant":
            mode: Any = attributes["mode"]
            return [np.pad(x, list(zip(low, high, strict=True)), mode=mode)]
        shape = tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True))
        out = np.zeros(shape, x.dtype)
        if len(arrays) == 2:
            out[...] = arrays[1].reshape(())
        out[tuple(slice(a, a + n) for a, n in zip(low, x.shape, strict=True))] = x
        return [out]


class Relayout(OpDef):
    """The same tensor with another memory layout (None: row-major)."""

    name = "relayout"
    kind = Kind.MOVEMENT
    operands = ("x",)
    attributes = {"layout": Attribute("layout", None)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        layout: Layout | None = attributes["layout"]
        if layout is not None and len(layout.order) != types[0].rank:
            raise InferenceError(f"relayout: layout {layout} does not fit {types[0]}")
        return [types[0].with_layout(layout)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        return [arrays[0]]


class Bitcast(OpDef):
    """The bits of elements of the type `source` read as `dtype`, which is as wide.

    Opaque: what is not an arithmetic value of the type (a NaN's payload) has to survive.
    """

    name = "bitcast"
    kind = Kind.OPAQUE
    operands = ("x",)
    attributes = {"source": Attribute("dtype"), "dtype": Attribute("dtype")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        (x,), dtype = types, attributes["dtype"]
        if attributes["source"] is not x.dtype:
            raise InferenceError(f"bitcast: source is {attributes['source']}, x is {x.dtype}")
        if dtype.bits != x.dtype.bits:
            raise InferenceError(
                f"bitcast: {x.dtype} has {x.dtype.bits} bits and {dtype} {dtype.bits}, want as many"
            )
        return [TensorType(dtype, x.shape)]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        dtype = attributes["dtype"]
        x = np.array(arrays[0], attributes["source"].numpy, order="C")
        if dtype.bits >= 8:
            return [x.view(dtype.numpy)]
        # numpy keeps one element a byte: integers by value, floats by code.
        codes = x.view(np.uint8) & np.uint8(2**dtype.bits - 1)
        if dtype.kind == "int":
            half = np.int8(2 ** (dtype.bits - 1))
            return [((codes.astype(np.int8) ^ half) - half).astype(dtype.numpy)]
        return [codes.astype(dtype.numpy) if dtype.kind == "uint" else codes.view(dtype.numpy)]


OPS: tuple[OpDef, ...] = (
    Reshape(), Transpose(), BroadcastTo(), Slice(), Concat(), Pad(), Relayout(), Bitcast(),
)  # fmt: skip
