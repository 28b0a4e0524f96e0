"""Contractions in types that the float32 templates do not cover: float64 and integers.

The contraction is written as the sum of products that it is, over index maps, and emitted as a
reduction: right in every type, without the templates' speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.types import I32, I64


def as_reduction(body: Graph, root: Op) -> Graph:
    """The body with its contraction replaced by a product and a reduce_sum."""
    out = Graph(body.name, registry=body.registry)
    out.symbols = dict(body.symbols)
    mapping: dict[Value, Value] = {v: out.add_input(v.name, v.type) for v in body.inputs}
    for op in body.ops:
        operands = [mapping[v] for v in op.operands]
        if op is root:
            mapping[op.results[0]] = _BUILDERS[root.name](out, root, operands)
            continue
        types = [r.type for r in op.results]
        twin = out.create(op.name, operands, op.attributes, types=types, origins=op.origins)
        mapping.update(zip(op.results, twin.results, strict=True))
    out.set_outputs([mapping[v] for v in body.outputs])
    return out


def can_be_reduction(root: Op) -> bool:
    """Whether `as_reduction` knows the contraction."""
    return root.name in _BUILDERS


def _one(graph: Graph, name: str, operands: Sequence[Value], **attributes: object) -> Value:
    return graph.create(name, operands, attributes).result


def _sum_of_products(graph: Graph, a: Value, b: Value, axes: Sequence[int]) -> Value:
    product = _one(graph, "mul", [a, b])
    return _one(graph, "reduce_sum", [product], axes=tuple(axes), keepdims=False)


def _matmul(graph: Graph, root: Op, operands: Sequence[Value]) -> Value:
    a, b = operands
    rows, columns = a.type.rank > 1, b.type.rank > 1
    left = a.type.shape if rows else (1, *a.type.shape)
    right = b.type.shape if columns else (*b.type.shape, 1)
    # [..., m, k, 1] * [..., 1, k, n], summed over k
    wide_a = _one(graph, "reshape", [a], shape=(*left, 1))
    wide_b = _one(graph, "reshape", [b], shape=(*right[:-2], 1, *right[-2:]))
    rank = max(len(left), len(right)) + 1
    total = _sum_of_products(graph, wide_a, wide_b, [rank - 2])
    return _shaped(graph, total, root)


def _centred(graph: Graph, value: Value, zero: Value) -> Value:
    """value - zero in 32 bits; the zero point broadcasts against it."""
    wide, less = (_one(graph, "cast", [v], dtype=I32, saturate=True) for v in (value, zero))
    return _one(graph, "sub", [wide, less])


def _matmul_integer(graph: Graph, root: Op, operands: Sequence[Value]) -> Value:
    a, b, a_zero, b_zero = operands
    return _matmul(graph, root, [_centred(graph, a, a_zero), _centred(graph, b, b_zero)])


def _conv_integer(graph: Graph, root: Op, operands: Sequence[Value]) -> Value:
    x, w, x_zero, w_zero = operands
    if w_zero.type.rank:
        shape = (w.type.shape[0], *[1] * (w.type.rank - 1))
        w_zero = _one(graph, "reshape", [w_zero], shape=shape)
    return _conv(graph, root, [_centred(graph, x, x_zero), _centred(graph, w, w_zero)])


def _shaped(graph: Graph, value: Value, root: Op) -> Value:
    shape = root.results[0].type.shape
    return value if value.type.shape == shape else _one(graph, "reshape", [value], shape=shape)


def _conv(graph: Graph, root: Op, operands: Sequence[Value]) -> Value:
    x, w = operands[:2]
    groups: int = root.attribute("groups")
    spatial = x.type.rank - 2
    out, kernel = root.results[0].type.shape, w.type.shape[2:]
    low, high = ((0, 0, *root.attribute(n)) for n in ("low", "high"))
    x = _one(graph, "pad", [x], low=low, high=high, mode="constant")
    for i in range(spatial):
        # axis 2 + 2i becomes (output position, kernel position)
        index = _positions(
            graph, out[2 + i], kernel[i], root.attribute("strides")[i],
            root.attribute("dilations")[i],
        )  # fmt: skip
        x = _one(graph, "gather", [x, index], axis=2 + 2 * i)
    # x [n, g, 1, ci, o1, k1, o2, k2, ...] * w [1, g, co, ci, 1, k1, 1, k2, ...]
    n, channels = x.type.shape[:2]
    inside = dims.floordiv(channels, groups)
    x = _one(graph, "reshape", [x], shape=(n, groups, 1, inside, *x.type.shape[2:]))
    filters = dims.floordiv(w.type.shape[0], groups)
    pairs = [d for k in kernel for d in (1, k)]
    w = _one(graph, "reshape", [w], shape=(1, groups, filters, w.type.shape[1], *pairs))
    axes = [3, *(5 + 2 * i for i in range(spatial))]
    total = _shaped(graph, _sum_of_products(graph, x, w, axes), root)
    if len(operands) == 3:
        bias = _one(
            graph, "reshape", [operands[2]], shape=(root.results[0].type.shape[1], *[1] * spatial)
        )
        total = _one(graph, "add", [total, bias])
    return total


def _positions(graph: Graph, out: Dim, kernel: Dim, stride: int, dilation: int) -> Value:
    """[out, kernel] of stride * i + dilation * j."""
    i = _one(graph, "iota", [], size=out, dtype=I64, start=0, step=stride)
    j = _one(graph, "iota", [], size=kernel, dtype=I64, start=0, step=dilation)
    return _one(graph, "add", [_one(graph, "reshape", [i], shape=(out, 1)), j])


_BUILDERS: Mapping[str, Callable[[Graph, Op, Sequence[Value]], Value]] = {
    "matmul": _matmul,
    "matmul_integer": _matmul_integer,
    "conv": _conv,
    "conv_integer": _conv_integer,
}
