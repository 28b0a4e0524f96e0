"""Activations that become several ops, or whose attributes need converting."""

from __future__ import annotations

from graphwright.compiler.ir.graph import Value
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def hardtanh(node: Node) -> Value:
    x = node.x()
    low, high = (node.number(node.raw(n), x.type.dtype) for n in ("min_val", "max_val"))
    return node.emit("clip", x, low, high)


def relu6(node: Node) -> Value:
    x = node.x()
    return node.emit("clip", x, node.scalar(0, x.type.dtype), node.scalar(6, x.type.dtype))


def elu(node: Node) -> Value:
    x = node.x()
    alpha, scale, inner = (float(node.static(n)) for n in ("alpha", "scale", "input_scale"))
    if scale == 1 and inner == 1:
        return node.emit("elu", x, alpha=alpha)
    if inner == 1:
        return node.emit("selu", x, alpha=alpha, gamma=scale)
    dtype = x.type.dtype
    low = node.emit("expm1", node.emit("mul", x, node.scalar(inner, dtype)))
    low = node.emit("mul", low, node.scalar(alpha * scale, dtype))
    high = node.emit("mul", x, node.scalar(scale, dtype))
    return node.where(node.emit("greater", x, node.scalar(0, dtype)), high, low)


def celu(node: Node) -> Value:
    return node.emit("celu", node.x(), alpha=float(node.static("alpha")))


def selu(node: Node) -> Value:
    return node.emit("selu", node.x())


def leaky_relu(node: Node) -> Value:
    return node.emit("leaky_relu", node.x(), alpha=float(node.static("negative_slope")))


def prelu(node: Node) -> Value:
    """The slope has one element, or one a channel (axis 1)."""
    x, slope = node.x(), node.x("weight")
    if slope.type.rank == 1 and x.type.rank > 1:
        slope = node.reshape(
            slope, [slope.type.shape[0] if a == 1 else 1 for a in range(x.type.rank)]
        )
    return node.emit("prelu", x, slope)


def rrelu(node: Node) -> Value:
    """In eval mode the slope is the mean of its limits."""
    if node.arg("training"):
        raise Refusal("it is in training mode", "call .eval() on the module")
    node.ignore("noise", "generator")
    lower, upper = (float(node.static(n)) for n in ("lower", "upper"))
    return node.emit("leaky_relu", node.x(), alpha=(lower + upper) / 2)


def hard_sigmoid(node: Node) -> Value:
    return node.emit("hard_sigmoid", node.x(), alpha=1 / 6, beta=0.5)


def softplus(node: Node) -> Value:
    """torch leaves x alone where beta * x is above the threshold."""
    x = node.x()
    dtype = x.type.dtype
    beta, threshold = float(node.static("beta")), float(node.static("threshold"))
    scaled = x if beta == 1 else node.emit("mul", x, node.scalar(beta, dtype))
    soft = node.emit("softplus", scaled)
    if beta != 1:
        soft = node.emit("div", soft, node.scalar(beta, dtype))
    return node.where(node.emit("greater", scaled, node.scalar(threshold, dtype)), x, soft)


def shrink(soft: bool) -> Compose:
    def compose(node: Node) -> Value:
        x, limit = node.x(), float(node.static("lambd"))
        dtype = x.type.dtype
        out = node.emit("shrink", x, lambd=limit, bias=limit if soft else 0.0)
        nan = node.emit("is_nan", x)
        return node.where(nan, x, out) if dtype.is_float else out

    return compose


def threshold(node: Node) -> Value:
    x = node.x()
    limit, value = (node.number(node.raw(n), x.type.dtype) for n in ("threshold", "value"))
    return node.where(node.emit("less_or_equal", x, limit), value, x)


def log_sigmoid(node: Node) -> Value:
    """min(x, 0) - log1p(exp(-|x|))"""
    x = node.x()
    dtype = x.type.dtype
    small = node.emit("exp", node.emit("neg", node.emit("abs", x)))
    low = node.emit("minimum", x, node.scalar(0, dtype))
    return node.emit("sub", low, node.emit("log1p", small))


def glu(node: Node) -> Value:
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank)
    half = x.type.shape[axis] // 2
    a, b = (node.slice_axis(x, axis, start, half) for start in (0, half))
    return node.emit("mul", a, node.emit("sigmoid", b))


COMPOSE: dict[str, Compose] = {
    "hardtanh.default": hardtanh,
    "relu6.default": relu6,
    "elu.default": elu,
    "celu.default": celu,
    "selu.default": selu,
    "leaky_relu.default": leaky_relu,
    "prelu.default": prelu,
    "_prelu_kernel.default": prelu,
    "rrelu.default": rrelu,
    "rrelu_with_noise.default": rrelu,
    "rrelu_with_noise_functional.default": rrelu,
    "hardsigmoid.default": hard_sigmoid,
    "softplus.default": softplus,
    "softshrink.default": shrink(soft=True),
    "hardshrink.default": shrink(soft=False),
    "threshold.default": threshold,
    "log_sigmoid.default": log_sigmoid,
    "log_sigmoid_forward.default": lambda node: [log_sigmoid(node), None],
    "glu.default": glu,
}
