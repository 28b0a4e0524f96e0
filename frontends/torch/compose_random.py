"""Random numbers: torch's distributions, not torch's numbers.  They come from the model's own stream."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, F64, DType
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def drawing_type(dtype: DType) -> DType:
    """Numbers for 16-bit results are drawn in float32 and rounded once."""
    return F32 if dtype.bits < 32 or not dtype.is_float else dtype


def uniform_numbers(node: Node, shape: Sequence[Dim], dtype: DType = F32) -> Value:
    """In [0, 1)."""
    return node.emit("random_uniform", shape=tuple(shape), dtype=dtype)


def exponential_numbers(node: Node, shape: Sequence[Dim], dtype: DType = F32) -> Value:
    """-log(1 - u): of mean 1."""
    made = node.emit("neg", uniform_numbers(node, shape, dtype))
    return node.emit("neg", node.emit("log1p", made))


def random(op: str) -> Compose:
    def compose(node: Node) -> Value:
        node.ignore("size", "dtype", "generator", "self")
        dtype = node.out_dtype
        made = node.emit(op, shape=node.out_shape, dtype=drawing_type(dtype))
        return node.cast(made, dtype)

    return compose


def uniform(node: Node) -> Value:
    """uniform_: between two numbers."""
    node.ignore("self", "generator")
    dtype = node.out_dtype
    low, high = (float(node.static(n)) for n in ("from", "to"))
    made = node.emit(
        "random_uniform", shape=node.out_shape, dtype=drawing_type(dtype), low=low, high=high
    )
    return node.cast(made, dtype)


def normal(node: Node) -> Value:
    """normal_ and normal: mean and deviation are numbers or tensors."""
    node.ignore("self", "size", "dtype", "generator")
    dtype = node.out_dtype
    wide = drawing_type(dtype)
    made = node.emit("random_normal", shape=node.out_shape, dtype=wide)
    for name, op in (("std", "mul"), ("mean", "add")):
        made = node.emit(op, made, node.operand(name, wide))
    return node.cast(made, dtype)


def exponential(node: Node) -> Value:
    node.ignore("self", "generator")
    dtype = node.out_dtype
    wide = drawing_type(dtype)
    made = exponential_numbers(node, node.out_shape, wide)
    rate = node.scalar(float(node.static("lambd")), wide)
    return node.cast(node.emit("div", made, rate), dtype)


def random_integers(node: Node) -> Value:
    node.ignore("size", "dtype", "generator", "self")
    low = node.arg("low") if "low" in node._given else 0
    high = node.arg("high")
    if not isinstance(low, int) or not isinstance(high, int):
        raise Refusal("its limits are not known")
    made = node.emit(
        "random_uniform", shape=node.out_shape, dtype=F64, low=float(low), high=float(high)
    )
    return node.cast(node.emit("floor", made), node.out_dtype)


def bernoulli(node: Node) -> Value:
    node.ignore("generator")
    x = node.x()
    made = uniform_numbers(node, x.type.shape)
    p = node.arg("p") if "p" in node._given else None
    if isinstance(p, Value):
        chance = node.cast(p, F32)
    else:
        chance = node.cast(x, F32) if p is None else node.scalar(p, F32)
    return node.cast(node.emit("less", made, chance), node.out_dtype)


def permutation(node: Node) -> Value:
    """A random order: that of random numbers."""
    node.ignore("dtype", "generator")
    n = node.arg("n")
    made = uniform_numbers(node, (n,), F64)
    order = node.emit_all("top_k", made, k=n, axis=0, largest=True, sorted=True)[1]
    return node.cast(order, node.out_dtype)


def multinomial(node: Node) -> Value:
    """Categories by their weights.  Of weights over exponential numbers the largest is a draw, and the
    largest k are k draws without replacement.
    """
    node.ignore("generator")
    weights, count = node.cast(node.x(), F32), node.arg("num_samples")
    axis = weights.type.rank - 1
    if node.arg("replacement") and count != 1:
        *lead, categories = weights.type.shape
        wide = [*lead, count, categories]
        weights = node.broadcast_to(node.unsqueeze(weights, (axis,)), wide)
        score = node.emit("div", weights, exponential_numbers(node, wide))
        return node.emit("arg_max", score, axis=axis + 1, keepdims=False)
    score = node.emit("div", weights, exponential_numbers(node, weights.type.shape))
    return node.emit_all("top_k", score, k=count, axis=axis, largest=True, sorted=True)[1]


def dropout(node: Node) -> Value | list[Value | None]:
    """Nothing in eval mode; a functional call in training mode drops elements and scales the rest."""
    training = node.arg("train") if "train" in node._given else node.arg("training")
    x, dtype = node.x("input"), node.x("input").type.dtype
    is_pair = isinstance(node.out, list | tuple)
    if training is False or not node.arg("p"):
        node.ignore("p")
        return [x, node.full(True, BOOL, x.type.shape)] if is_pair else x
    p = float(node.static("p"))
    kept = node.emit("greater_or_equal", uniform_numbers(node, x.type.shape), node.scalar(p, F32))
    scale = node.scalar(1 / (1 - p) if p < 1 else 0.0, dtype)
    out = node.where(kept, node.emit("mul", x, scale), node.scalar(0, dtype))
    return [out, kept] if is_pair else out


def other_dropout(node: Node) -> Value:
    if node.arg("train") and node.arg("p"):
        raise Refusal("it is in training mode", "call .eval() on the module")
    node.ignore("p")
    return node.x("input")


COMPOSE: dict[str, Compose] = {
    "rand.default": random("random_uniform"),
    "rand_like.default": random("random_uniform"),
    "randn.default": random("random_normal"),
    "randn_like.default": random("random_normal"),
    "uniform.default": uniform,
    "normal_functional.default": normal,
    **{
        f"normal.{o}": normal
        for o in ("float_float", "Tensor_float", "float_Tensor", "Tensor_Tensor")
    },
    "exponential.default": exponential,
    "randint.default": random_integers,
    "randint.low": random_integers,
    "randint_like.default": random_integers,
    "randint_like.low_dtype": random_integers,
    "bernoulli.default": bernoulli,
    "bernoulli.p": bernoulli,
    "bernoulli.Tensor": bernoulli,
    "multinomial.default": multinomial,
    "randperm.default": permutation,
    "dropout.default": dropout,
    "native_dropout.default": dropout,
    "alpha_dropout.default": other_dropout,
    "feature_dropout.default": other_dropout,
}
