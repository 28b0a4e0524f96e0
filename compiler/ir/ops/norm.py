"""Normalisation over groups of elements by their mean and variance, in float64 and rounded once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

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
    check_float,
    check_minimum_rank,
    check_same_dtype,
    require_shape,
)
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import TensorType


def _normalize(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    # The variance around the mean, never the mean of squares less the square of the mean.
    centred = x - x.mean(axis=axes, keepdims=True)
    variance = (centred * centred).mean(axis=axes, keepdims=True)
    return centred / np.sqrt(variance + epsilon)


class _TrailingNorm(OpDef):
    """Over the axes from `axis` to the last; parameters broadcast to x."""

    kind = Kind.REDUCTION

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x = types[0]
        check_float(self.name, x)
        check_same_dtype(self.name, types)
        check_axis(self.name, attributes["axis"], x.rank)
        for parameter in types[1:]:
            if parameter.rank > x.rank:
                raise InferenceError(
                    f"{self.name}: parameter {parameter} does not broadcast to {x}"
                )
            for i, extent in enumerate(parameter.shape, x.rank - parameter.rank):
                if extent != 1:
                    inference.require(
                        extent, "==", x.shape[i], f"{self.name}: parameter along axis {i}"
                    )
        return [x.with_shape(x.shape)]


class LayerNorm(_TrailingNorm):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` on."""

    name = "layer_norm"
    operands = ("x", "scale?", "bias?")
    attributes = {"axis": Attribute("int"), "epsilon": Attribute("float", 1e-5)}

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, *parameters = (accumulate(a, context) for a in arrays)
        out = _normalize(x, tuple(range(attributes["axis"], x.ndim)), attributes["epsilon"])
        if parameters:
            out = out * parameters[0]
        if len(parameters) == 2:
            out = out + parameters[1]
        return results([out], context)


class RmsNorm(_TrailingNorm):
    """x / sqrt(mean of squares + epsilon) * scale over the axes from `axis` on."""

    name = "rms_norm"
    operands = ("x", "scale?")
    attributes = {"axis": Attribute("int"), "epsilon": Attribute("float", 1e-5)}

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, *scale = (accumulate(a, context) for a in arrays)
        axes = tuple(range(attributes["axis"], x.ndim))
        out = x / np.sqrt((x * x).mean(axis=axes, keepdims=True) + attributes["epsilon"])
        return results([out * scale[0] if scale else out], context)


class _ChannelNorm(OpDef):
    """Parameters hold one element a channel (axis 1)."""

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        x = types[0]
        check_float(self.name, x)
        check_same_dtype(self.name, types)
        check_minimum_rank(self.name, "x", x, 2)
        for name, t in zip(self.operands[1:], types[1:], strict=True):
            require_shape(inference, self.name, name, t, (x.shape[1],))
        return [x.with_shape(x.shape)]

    @staticmethod
    def channels(arrays: Sequence[np.ndarray], context: Reference) -> list[np.ndarray]:
        """x and the parameters, these shaped to broadcast along axis 1."""
        x, *parameters = (accumulate(a, context) for a in arrays)
        return [x, *(p.reshape(-1, *[1] * (x.ndim - 2)) for p in parameters)]


class InstanceNorm(_ChannelNorm):
    """Each channel of each image normalised over its spatial axes, times scale, plus bias."""

    name = "instance_norm"
    kind = Kind.REDUCTION
    operands = ("x", "scale", "bias")
    attributes = {"epsilon": Attribute("float", 1e-5)}
    imports = {"onnx": ("InstanceNormalization",)}

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, scale, bias = self.channels(arrays, context)
        out = _normalize(x, tuple(range(2, x.ndim)), attributes["epsilon"])
        return results([out * scale + bias], context)


class GroupNorm(_ChannelNorm):
    """Each of `groups` runs of neighbouring channels of each image normalised, as instance_norm."""

    name = "group_norm"
    kind = Kind.REDUCTION
    operands = ("x", "scale", "bias")
    attributes = {"groups": Attribute("int"), "epsilon": Attribute("float", 1e-5)}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        out = super().infer(types, attributes, inference)
        if attributes["groups"] < 1:
            raise InferenceError(f"group_norm: {attributes['groups']} groups, want 1 or more")
        rest = types[0].shape[1] % attributes["groups"]
        inference.require(rest, "==", 0, "group_norm: groups divide the channels")
        return out

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, scale, bias = self.channels(arrays, context)
        grouped = x.reshape(x.shape[0], attributes["groups"], -1)
        out = _normalize(grouped, (2,), attributes["epsilon"]).reshape(x.shape)
        return results([out * scale + bias], context)


class BatchNorm(_ChannelNorm):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias with given statistics of each channel.

    Opaque, since its parameters do not broadcast as numpy's do; `decompose` makes a multiply and an
    add of it.
    """

    name = "batch_norm"
    kind = Kind.OPAQUE
    operands = ("x", "scale", "bias", "mean", "variance")
    attributes = {"epsilon": Attribute("float", 1e-5)}

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        x, scale, bias, mean, variance = self.channels(arrays, context)
        out = (x - mean) / np.sqrt(variance + attributes["epsilon"]) * scale + bias
        return results([out], context)


OPS: tuple[OpDef, ...] = (LayerNorm(), RmsNorm(), InstanceNorm(), GroupNorm(), BatchNorm())
