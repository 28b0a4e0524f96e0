"""Normalisations, which run whole.  Statistics that only training needs are not made."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32
from graphwright.frontends.torch.compose_reduce import moments, reduce
from graphwright.frontends.torch.dtypes import element_type
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def _parameters(node: Node, x: Value, *names: str) -> list[Value | None]:
    return [None if (v := node.maybe(n)) is None else node.cast(v, x.type.dtype) for n in names]


def normalized(node: Node, x: Value, weight: Value | None, bias: Value | None) -> Value:
    axis = x.type.rank - len(node.arg("normalized_shape"))
    eps = float(node.static("eps"))
    if x.type.rank == axis:
        raise Refusal("it normalises no axis")
    operands = [x]
    if weight is not None or bias is not None:
        shape = x.type.shape[axis:]
        operands.append(weight if weight is not None else node.full(1, x.type.dtype, shape))
    if bias is not None:
        operands.append(bias)
    return node.emit("layer_norm", *operands, axis=axis, epsilon=eps)


def layer_norm(node: Node) -> Value:
    node.ignore("cudnn_enable")
    x = node.x("input")
    return normalized(node, x, *_parameters(node, x, "weight", "bias"))


def native_layer_norm(node: Node) -> Sequence[Value | None]:
    """The norm, and mean and 1 / deviation where somebody reads them."""
    x = node.x("input")
    out = normalized(node, x, *_parameters(node, x, "weight", "bias"))
    if not _wants(node, 1, 2):
        return [out, None, None]
    axes = tuple(range(x.type.rank - len(node.arg("normalized_shape")), x.type.rank))
    return [out, *_statistics(node, x, axes)]


def _wants(node: Node, *results: int) -> bool:
    return any(user.args[1] in results for user in node.fx.users if len(user.args) > 1)


def _statistics(node: Node, x: Value, axes: tuple[int, ...]) -> list[Value]:
    """Mean and reciprocal deviation, in float32 at least."""
    wide = node.cast(x, F32) if x.type.dtype.bits < 32 else x
    squares, mean = moments(node, wide, axes)
    spread = reduce(node, "reduce_mean", squares, axes, True)
    eps = node.scalar(float(node.static("eps")), wide.type.dtype)
    rstd = node.emit("rsqrt", node.emit("add", spread, eps))
    return [node.cast(v, element_type(node.out[i].dtype)) for i, v in ((1, mean), (2, rstd))]


def rms_norm(node: Node) -> Value:
    x = node.x("input")
    axis = x.type.rank - len(node.arg("normalized_shape"))
    (weight,) = _parameters(node, x, "weight")
    given = node.arg("eps")
    eps = {16: 0.0009765625, 32: 1.1920928955078125e-07, 64: 2.220446049250313e-16}[
        x.type.dtype.bits
    ]
    if x.type.dtype.name == "bf16":
        eps = 0.0078125
    operands = [x] if weight is None else [x, weight]
    return node.emit("rms_norm", *operands, axis=axis, epsilon=eps if given is None else given)


def fused_rms_norm(node: Node) -> Sequence[Value | None]:
    return [rms_norm(node), None]


def group_norm(node: Node) -> Value:
    node.ignore("cudnn_enabled")
    return _grouped(node, node.x("input"), node.whole("num_groups"))


def native_group_norm(node: Node) -> Sequence[Value | None]:
    node.ignore("N", "C", "HxW")
    x, groups = node.x("input"), node.whole("group")
    out = _grouped(node, x, groups)
    if not _wants(node, 1, 2):
        return [out, None, None]
    rows = node.reshape(
        x, [x.type.shape[0], groups, node.elements(x, range(1, x.type.rank)) // groups]
    )
    return [out, *(node.squeeze(v, (2,)) for v in _statistics(node, rows, (2,)))]


def _grouped(node: Node, x: Value, groups: int) -> Value:
    weight, bias = _parameters(node, x, "weight", "bias")
    channels = [x.type.shape[1]]
    scale = weight if weight is not None else node.full(1, x.type.dtype, channels)
    shift = bias if bias is not None else node.full(0, x.type.dtype, channels)
    return node.emit(
        "group_norm", x, scale, shift, groups=groups, epsilon=float(node.static("eps"))
    )


def instance_norm(node: Node) -> Value:
    node.ignore("cudnn_enabled", "momentum")
    x = node.x("input")
    if not node.arg("use_input_stats"):
        return _by_statistics(node, x, node.x("running_mean"), node.x("running_var"))
    if node.has("running_mean") or node.has("running_var"):
        raise Refusal("it changes running statistics", "call .eval() on the module")
    weight, bias = _parameters(node, x, "weight", "bias")
    channels = [x.type.shape[1]]
    scale = weight if weight is not None else node.full(1, x.type.dtype, channels)
    shift = bias if bias is not None else node.full(0, x.type.dtype, channels)
    return node.emit("instance_norm", x, scale, shift, epsilon=float(node.static("eps")))


def _by_statistics(node: Node, x: Value, mean: Value, variance: Value) -> Value:
    """Parameters in another (wider) type than x make the calculation as wide."""
    dtype = x.type.dtype
    wide = F32 if dtype.bits < 32 and mean.type.dtype is not dtype else dtype
    weight, bias = (node.maybe(n) for n in ("weight", "bias"))
    channels = [x.type.shape[1]]
    scale = weight if weight is not None else node.full(1, wide, channels)
    shift = bias if bias is not None else node.full(0, wide, channels)
    parameters = [node.cast(v, wide) for v in (scale, shift, mean, variance)]
    eps = float(node.static("eps"))
    return node.cast(node.emit("batch_norm", node.cast(x, wide), *parameters, epsilon=eps), dtype)


def batch_norm(node: Node) -> Value:
    node.ignore("momentum", "cudnn_enabled")
    if node.arg("training"):
        raise Refusal("it is in training mode", "call .eval() on the module")
    return _by_statistics(node, node.x("input"), node.x("running_mean"), node.x("running_var"))


def batch_norm_with_statistics(node: Node) -> Sequence[Value | None]:
    """By the running statistics: those of the batch are empty, the running ones stay."""
    node.ignore("momentum", "training")
    x, mean, variance = node.x("input"), node.x("running_mean"), node.x("running_var")
    empty = [node.full(0, element_type(held.dtype), [0]) for held in node.out[1:3]]
    kept = [
        node.cast(v, element_type(held.dtype))
        for v, held in zip((mean, variance), node.out[3:], strict=False)
    ]
    return [_by_statistics(node, x, mean, variance), *empty, *kept]


def native_batch_norm(node: Node) -> Sequence[Value | None]:
    if not node.arg("training"):
        return batch_norm_with_statistics(node)
    return _over_batch(node)


def batch_norm_of_batch(node: Node) -> Sequence[Value | None]:
    """Without running statistics: those of the batch."""
    node.ignore("momentum", "training")
    return _over_batch(node)


def _over_batch(node: Node) -> Sequence[Value | None]:
    """Normalised by the batch's own statistics; new running ones where the graph keeps them."""
    x = node.x("input")
    dtype = x.type.dtype
    axes = tuple(a for a in range(x.type.rank) if a != 1)
    wide = node.cast(x, F32) if dtype.bits < 32 else x
    squares, mean = moments(node, wide, axes)
    spread = reduce(node, "reduce_mean", squares, axes, True)
    eps = node.scalar(float(node.static("eps")), wide.type.dtype)
    rstd = node.emit("rsqrt", node.emit("add", spread, eps))
    out = node.emit("mul", node.emit("sub", wide, mean), rstd)
    shape = [x.type.shape[1] if a == 1 else 1 for a in range(x.type.rank)]
    for name, op in (("weight", "mul"), ("bias", "add")):
        parameter = node.maybe(name)
        if parameter is not None:
            out = node.emit(op, out, node.reshape(node.cast(parameter, wide.type.dtype), shape))
    flat_mean, flat_rstd = (node.reshape(v, [x.type.shape[1]]) for v in (mean, rstd))
    kept = [element_type(node.out[i].dtype) for i in (1, 2)]
    results: list[Value | None] = [
        node.cast(out, dtype), node.cast(flat_mean, kept[0]), node.cast(flat_rstd, kept[1]),
    ]  # fmt: skip
    running = [node.maybe(n) for n in ("running_mean", "running_var")] if "running_mean" in node._given else []  # fmt: skip
    if len(node.out) == 3:
        if any(r is not None for r in running):
            raise Refusal("it changes running statistics in place", "call .eval() on the module")
        return results
    # New running statistics: the variance there is the unbiased one.
    momentum = float(node.static("momentum"))
    count = node.elements(x, axes)
    unbiased = reduce(node, "reduce_sum", squares, axes, True)
    divisor = node.emit("sub", node.size(count, wide.type.dtype), node.scalar(1, wide.type.dtype))
    for old, new in zip(running, (mean, node.emit("div", unbiased, divisor)), strict=True):
        assert old is not None
        kept = node.emit("mul", old, node.scalar(1 - momentum, old.type.dtype))
        flat = node.cast(node.reshape(new, [x.type.shape[1]]), old.type.dtype)
        moved = node.emit("mul", flat, node.scalar(momentum, old.type.dtype))
        running_type = element_type(node.out[len(results)].dtype)
        results.append(node.cast(node.emit("add", kept, moved), running_type))
    return results


COMPOSE: dict[str, Compose] = {
    "layer_norm.default": layer_norm,
    "native_layer_norm.default": native_layer_norm,
    "rms_norm.default": rms_norm,
    "_fused_rms_norm.default": fused_rms_norm,
    "group_norm.default": group_norm,
    "native_group_norm.default": native_group_norm,
    "instance_norm.default": instance_norm,
    "batch_norm.default": batch_norm,
    "_native_batch_norm_legit_no_training.default": batch_norm_with_statistics,
    "_native_batch_norm_legit.default": native_batch_norm,
    "_native_batch_norm_legit_functional.default": native_batch_norm,
    "_native_batch_norm_legit.no_stats": batch_norm_of_batch,
    "native_batch_norm.default": native_batch_norm,
    "cudnn_batch_norm.default": native_batch_norm,
}
