"""Normalisations."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import DType
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def _per_channel(node: Node, v: Value, rank: int) -> Value:
    """A vector shaped to broadcast along axis 1."""
    return node.reshape(v, (v.type.shape[0], *[1] * (rank - 2)))


def batch_norm(node: Node) -> Sequence[Value | None]:
    """With running statistics; in training mode with those of the batch, which update the running ones."""
    node.ignore("consumed_inputs")
    x = node.ranked(0, 2, or_more=True)
    scale, bias, mean, variance = (node.ranked(i, 1) for i in range(1, 5))
    epsilon, momentum = node.attr("epsilon", 1e-5), node.attr("momentum", 0.9)
    if not node.attr("spatial", 1) and x.type.rank > 2:
        raise Refusal("spatial=0 (statistics an element) is not supported")
    if node.opset < 7 and not node.attr("is_test", 0) and node.outputs > 1:
        raise Refusal("it trains (is_test is 0)", "export the model for inference")
    if not node.attr("training_mode", 0):
        if any(node.wants(i) for i in range(1, node.outputs)) and node.opset >= 14:
            return (_normalise(node, x, scale, bias, mean, variance, epsilon), mean, variance)
        return (_normalise(node, x, scale, bias, mean, variance, epsilon),)
    axes = tuple(a for a in range(x.type.rank) if a != 1)
    batch_mean = node.emit("reduce_mean", x, axes=axes, keepdims=False)
    spread = node.emit("sub", x, _per_channel(node, batch_mean, x.type.rank))
    batch_variance = node.emit(
        "reduce_mean", node.emit("mul", spread, spread), axes=axes, keepdims=False
    )

    def running(old: Value, new: Value) -> Value:
        kept = node.emit("mul", old, node.scalar(momentum, old.type.dtype))
        added = node.emit(
            "mul", node.cast(new, old.type.dtype), node.scalar(1 - momentum, old.type.dtype)
        )
        return node.emit("add", kept, added)

    y = _normalise(node, x, scale, bias, batch_mean, batch_variance, epsilon)
    return (y, running(mean, batch_mean), running(variance, batch_variance))


def _normalise(
    node: Node, x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    """Statistics may be of a wider type than x: then all is computed in theirs."""
    wide = mean.type.dtype
    args = [node.cast(v, wide) for v in (x, scale, bias, mean, variance)]
    return node.cast(node.emit("batch_norm", *args, epsilon=epsilon), x.type.dtype)


def instance_norm(node: Node) -> Value:
    node.ignore("consumed_inputs")
    return node.emit(
        "instance_norm", node.x(0), node.x(1), node.x(2), epsilon=node.attr("epsilon", 1e-5)
    )


def group_norm(node: Node) -> Value:
    """Scale and bias are one an element of a group's channel from opset 21 on, one a group before."""
    x, scale, bias = node.ranked(0, 2, or_more=True), node.ranked(1, 1), node.ranked(2, 1)
    groups, channels = node.attr("num_groups"), x.type.shape[1]
    if node.opset < 21:
        scale, bias = (_spread_groups(node, v, groups, channels) for v in (scale, bias))
    node.ignore("stash_type")  # the op calculates 16-bit floats in float32
    return node.emit(
        "group_norm", x, scale, bias, groups=groups, epsilon=node.attr("epsilon", 1e-5)
    )


def _spread_groups(node: Node, v: Value, groups: int, channels: dims.Dim) -> Value:
    each = dims.floordiv(channels, groups)
    return node.reshape(
        node.broadcast_to(node.reshape(v, (groups, 1)), (groups, each)), (channels,)
    )


def _stash_type(node: Node, default: int = 1) -> DType:
    return node.dtype(node.attr("stash_type", default))


def layer_norm(node: Node) -> Sequence[Value]:
    """Also gives the mean and the inverse deviation when asked for, in the stash type."""
    x, scale, bias = node.x(0), node.x(1), node.maybe(2)
    axis = node.axis(node.attr("axis", -1), x.type.rank)
    epsilon, stash = node.attr("epsilon", 1e-5), _stash_type(node)
    tail = x.type.shape[axis:]
    parts = [node.broadcast_to(v, tail) for v in (scale, bias) if v is not None]
    y = node.emit("layer_norm", x, *parts, axis=axis, epsilon=epsilon)
    if node.outputs < 2:
        return (y,)
    axes = tuple(range(axis, x.type.rank))
    wide = node.cast(x, stash)
    mean = node.emit("reduce_mean", wide, axes=axes, keepdims=True)
    spread = node.emit("sub", wide, mean)
    variance = node.emit("reduce_mean", node.emit("mul", spread, spread), axes=axes, keepdims=True)
    inverse = node.emit("rsqrt", node.emit("add", variance, node.scalar(epsilon, stash)))
    return (y, mean, inverse)


def rms_norm(node: Node) -> Value:
    x, scale = node.x(0), node.x(1)
    axis = node.axis(node.attr("axis", -1), x.type.rank)
    node.ignore("stash_type")  # the op calculates 16-bit floats in float32
    scale = node.broadcast_to(scale, x.type.shape[axis:])
    return node.emit("rms_norm", x, scale, axis=axis, epsilon=node.attr("epsilon", 1e-5))


def lp_normalize(node: Node) -> Value:
    x = node.x()
    axis = node.axis(node.attr("axis", -1), x.type.rank)
    return node.emit("lp_normalize", x, axis=axis, p=node.attr("p", 2))


def lrn(node: Node) -> Value:
    return node.emit(
        "lrn",
        node.x(),
        size=node.attr("size"),
        alpha=node.attr("alpha", 1e-4),
        beta=node.attr("beta", 0.75),
        bias=node.attr("bias", 1.0),
    )


def mean_variance_norm(node: Node) -> Value:
    """(x - mean) / (deviation + 1e-9) over the axes, as the specification's function body has it."""
    x = node.x()
    axes = node.axes(node.attr("axes", (0, 2, 3)), x.type.rank)
    mean = node.emit("reduce_mean", x, axes=axes, keepdims=True)
    spread = node.emit("sub", x, mean)
    square = node.emit("reduce_mean", node.emit("mul", x, x), axes=axes, keepdims=True)
    variance = node.emit("sub", square, node.emit("mul", mean, mean))
    deviation = node.emit("sqrt", variance)
    return node.emit("div", spread, node.emit("add", deviation, node.scalar(1e-9, x.type.dtype)))


COMPOSE = {
    "BatchNormalization": batch_norm,
    "GroupNormalization": group_norm,
    "InstanceNormalization": instance_norm,
    "LRN": lrn,
    "LayerNormalization": layer_norm,
    "LpNormalization": lp_normalize,
    "MeanVarianceNormalization": mean_variance_norm,
    "RMSNormalization": rms_norm,
}
