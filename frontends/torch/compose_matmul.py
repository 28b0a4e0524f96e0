"""Matrix products and what is made of them."""

from __future__ import annotations

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, I64
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def product(node: Node, a: Value, b: Value) -> Value:
    """The product; of no columns at all, zeros."""
    if a.type.dtype is BOOL:
        raise Refusal("it multiplies bools")
    return node.emit("matmul", a, b)


def matmul(first: str = "self", second: str = "mat2") -> Compose:
    def compose(node: Node) -> Value:
        return product(node, node.x(first), node.x(second))

    return compose


def dot(node: Node) -> Value:
    return product(node, node.x(), node.x("tensor"))


def outer(node: Node) -> Value:
    a, b = node.x(), node.x("vec2")
    return node.emit("mul", node.unsqueeze(a, (1,)), b)


def linear(node: Node) -> Value:
    x, weight, bias = node.x("input"), node.x("weight"), node.maybe("bias")
    if weight.type.rank == 1:
        out = product(node, x, weight)
    else:
        out = product(node, x, node.transpose(weight, (1, 0)))
    return out if bias is None else node.emit("add", out, bias)


def scaled(node: Node, x: Value, name: str) -> Value | None:
    """x times a number; None where the number is 0, which makes even infinities nothing."""
    factor = node.raw(name)
    if factor is None or factor == 1:
        return x
    if factor == 0:
        return None
    return node.emit("mul", x, node.number(factor, x.type.dtype))


def add_product(first: str, second: str, *, summed: bool = False) -> Compose:
    """beta * self + alpha * (first @ second)."""

    def compose(node: Node) -> Value:
        out = product(node, node.x(first), node.x(second))
        if summed:
            out = node.emit("reduce_sum", out, axes=(0,), keepdims=False)
        right = scaled(node, out, "alpha")
        left = scaled(node, node.x(), "beta")
        if right is None:
            right = node.full(0, out.type.dtype, out.type.shape)
        return right if left is None else node.emit("add", right, left)

    return compose


def bilinear(node: Node) -> Value:
    """x1[b, i] w[o, i, j] x2[b, j] + bias[o]"""
    a, b, weight, bias = (node.maybe(n) for n in ("input1", "input2", "weight", "bias"))
    assert a is not None and b is not None and weight is not None
    out_features, rows, columns = weight.type.shape
    lead = a.type.shape[:-1]
    left = node.reshape(a, [*lead, 1, 1, rows])
    part = node.emit("matmul", left, weight)  # [..., o, 1, j]
    right = node.reshape(b, [*lead, 1, columns, 1])
    out = node.reshape(node.emit("matmul", part, right), [*lead, out_features])
    return out if bias is None else node.emit("add", out, bias)


def trilinear(node: Node) -> Value:
    """Products of three tensors with axes put in, summed over some axes."""
    node.ignore("unroll_dim")
    parts = [
        node.unsqueeze(node.x(f"i{i}"), node.arg(f"expand{i}")) for i in (1, 2, 3)
    ]  # fmt: skip
    product = node.emit("mul", node.emit("mul", parts[0], parts[1]), parts[2])
    axes = node.axes(node.arg("sumdim"), product.type.rank)
    return node.emit("reduce_sum", product, axes=axes, keepdims=False)


def cross(node: Node) -> Value:
    a, b = node.promoted("self", "other")
    shape = node.out_shape
    a, b = node.broadcast_to(a, shape), node.broadcast_to(b, shape)
    axis = node.axis(node.arg("dim"), len(shape))

    def part(x: Value, i: int) -> Value:
        return node.slice_axis(x, axis, i % 3, 1)

    parts = [
        node.emit(
            "sub",
            node.emit("mul", part(a, i + 1), part(b, i + 2)),
            node.emit("mul", part(a, i + 2), part(b, i + 1)),
        )
        for i in range(3)
    ]
    return node.concat(parts, axis)


def distances(node: Node, a: Value, b: Value, p: float) -> Value:
    """(sum over the last axis of |a - b|^p)^(1/p)"""
    gap = node.emit("abs", node.emit("sub", a, b))
    axis, dtype = (gap.type.rank - 1,), gap.type.dtype

    def total(x: Value) -> Value:
        return node.emit("reduce_sum", x, axes=axis, keepdims=False)

    if p == 0:
        return total(node.cast(node.emit("not_equal", gap, node.scalar(0, dtype)), dtype))
    if p == 1:
        return total(gap)
    if p == float("inf"):
        return node.emit("reduce_max", gap, axes=axis, keepdims=False)
    if p == 2:
        return node.emit("sqrt", total(node.emit("mul", gap, gap)))
    powers = total(node.emit("pow", gap, node.scalar(p, dtype)))
    return node.emit("pow", powers, node.scalar(1 / p, dtype))


def cdist(node: Node) -> Value:
    node.ignore("compute_mode")
    a, b = node.x("x1"), node.x("x2")
    left = node.unsqueeze(a, (a.type.rank - 1,))
    right = node.unsqueeze(b, (b.type.rank - 2,))
    return distances(node, left, right, float(node.static("p")))


def pdist(node: Node) -> Value:
    x = node.x()
    n = x.type.shape[0]
    if not isinstance(n, int):
        raise Refusal("the number of its rows is not known", "fix it")
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    if not pairs:
        return node.full(0, x.type.dtype, [0])
    a, b = (node.emit("gather", x, node.array([p[k] for p in pairs], I64), axis=0) for k in (0, 1))
    return distances(node, a, b, float(node.static("p")))


def integer_product(node: Node) -> Value:
    a, b = node.x(), node.x("mat2")
    zero = [node.scalar(0, v.type.dtype) for v in (a, b)]
    return node.emit("matmul_integer", a, b, *zero)


def cosine(node: Node) -> Value:
    """The cosine of the angle along an axis; lengths below eps count as eps."""
    a, b = node.promoted("x1", "x2")
    shape = node.broadcast(a.type.shape, b.type.shape)
    a, b = node.broadcast_to(a, shape), node.broadcast_to(b, shape)
    dtype = a.type.dtype
    if dtype.bits < 32:
        a, b = node.cast(a, F32), node.cast(b, F32)
    axis, eps = (
        node.axis(node.arg("dim"), len(shape)),
        node.scalar(node.static("eps"), a.type.dtype),
    )

    def total(x: Value, y: Value) -> Value:
        product = node.emit("mul", x, y)
        return node.emit("reduce_sum", product, axes=(axis,), keepdims=False)

    lengths = [node.emit("maximum", node.emit("sqrt", total(v, v)), eps) for v in (a, b)]
    out = node.emit("div", total(a, b), node.emit("mul", *lengths))
    return node.cast(out, dtype)


COMPOSE: dict[str, Compose] = {
    "mm.default": matmul(),
    "bmm.default": matmul(),
    "matmul.default": matmul("self", "other"),
    "mv.default": matmul("self", "vec"),
    "dot.default": dot,
    "vdot.default": matmul("self", "other"),
    "outer.default": outer,
    "linear.default": linear,
    "addmm.default": add_product("mat1", "mat2"),
    "addmv.default": add_product("mat", "vec"),
    "baddbmm.default": add_product("batch1", "batch2"),
    "addbmm.default": add_product("batch1", "batch2", summed=True),
    "bilinear.default": bilinear,
    "_trilinear.default": trilinear,
    "linalg_cross.default": cross,
    "_cdist_forward.default": cdist,
    "_pdist_forward.default": pdist,
    "_int_mm.default": integer_product,
    "cosine_similarity.default": cosine,
}
