"""Reading and writing elements by index tensors."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, I64
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def embedding(node: Node) -> Value:
    node.ignore("padding_idx", "scale_grad_by_freq", "sparse")
    return node.emit("gather", node.x("weight"), node.x("indices"), axis=0)


def index_select(node: Node) -> Value:
    x, index = node.x(), node.x("index")
    if x.type.rank == 0:
        node.ignore("dim")
        return node.reshape(x, node.out_shape)
    if index.type.rank == 0:
        index = node.reshape(index, [1])
    return node.emit("gather", x, index, axis=node.axis(node.arg("dim"), x.type.rank))


def gather(node: Node) -> Value:
    node.ignore("sparse_grad")
    x, index = node.x(), node.x("index")
    if x.type.rank == 0 or index.type.rank == 0:
        node.ignore("dim")
        flat = node.reshape(x, [x.type.elements])
        found = node.emit("gather", flat, node.reshape(index, [index.type.elements]), axis=0)
        return node.reshape(found, node.out_shape)
    axis = node.axis(node.arg("dim"), x.type.rank)
    return node.emit("gather_elements", x, index, axis=axis)


class Indexing:
    """x[a, :, b] with index tensors for some axes: these brought to the front, and how to go back."""

    def __init__(self, node: Node, x: Value, raw: Sequence[Value | None]) -> None:
        self.node, self.x = node, x
        indices = [*raw]
        indices += [None] * (x.type.rank - len(indices))
        self.axes = [i for i, index in enumerate(indices) if index is not None]
        self.given = [i for i in indices if i is not None]
        self.shape = node.broadcast(*(i.type.shape for i in self.given))  # of the index tensors
        # Index axes side by side keep their place, others go to the front.
        together = self.axes == list(range(self.axes[0], self.axes[0] + len(self.axes)))
        self.place = self.axes[0] if together else 0
        rest = [a for a in range(x.type.rank) if a not in self.axes]
        self.order = [*self.axes, *rest]

    def tuples(self) -> Value:
        """The index tensors stacked along a new last axis."""
        node = self.node
        wide = [node.broadcast_to(node.cast(i, I64), self.shape) for i in self.given]
        last = len(self.shape)
        return node.concat([node.unsqueeze(i, (last,)) for i in wide], last)

    def front(self) -> Value:
        return self.node.transpose(self.x, self.order)

    def result_order(self) -> list[int]:
        """Axes of the usual result in those of (index axes, rest): a permutation."""
        count, rest = len(self.shape), self.x.type.rank - len(self.axes)
        before = list(range(count, count + self.place))
        return [*before, *range(count), *range(count + self.place, count + rest)]


def _indices(node: Node, name: str = "indices") -> list[Value | None]:
    return [v if isinstance(v, Value) else None for v in node.arg(name)]


def index(node: Node) -> Value:
    x, raw = node.x(), _indices(node)
    if all(i is None for i in raw):
        return x
    if any(i is not None and i.type.dtype is BOOL for i in raw):
        return masked_index(node, x, raw)
    at = Indexing(node, x, raw)
    if len(at.axes) == 1:
        return node.emit("gather", x, at.given[0], axis=at.axes[0])
    found = node.emit("gather_nd", at.front(), at.tuples())
    return node.transpose(found, at.result_order())


def masked_index(node: Node, x: Value, raw: Sequence[Value | None]) -> Value:
    """x[mask, ...]: the rows of the mask's axes where it is true."""
    mask = raw[0]
    if mask is None or len([i for i in raw if i is not None]) != 1:
        raise Refusal("it reads where a mask of some axes is true", "index with the mask alone")
    rows = node.reshape(x, [mask.type.elements, *x.type.shape[mask.type.rank :]])
    positions, count = node.emit_all("non_zero", mask)
    size = node.bound_size(count, mask.type.elements)
    line = node.slice_axis(positions, 0, 0, size)
    return node.emit("gather", rows, line, axis=0)


def index_put(node: Node) -> Value:
    x, raw = node.x(), _indices(node)
    values = node.cast(node.x("values"), x.type.dtype)
    node.ignore("unsafe")
    accumulate = bool(node.arg("accumulate"))
    masks = [i for i in raw if i is not None and i.type.dtype is BOOL]
    if masks:
        return _masked_put(node, x, raw, values, accumulate)
    at = Indexing(node, x, raw)
    rest = [x.type.shape[a] for a in range(x.type.rank) if a not in at.axes]
    usual = [*rest[: at.place], *at.shape, *rest[at.place :]]
    wide = node.broadcast_to(values, usual)
    if x.type.dtype is BOOL and accumulate:
        raise Refusal("it adds to bools")
    if len(at.axes) == 1 and len(at.shape) <= 1:
        reduction = "add" if accumulate else "none"
        return put_along(node, x, at.axes[0], at.given[0], wide, reduction)
    order = at.result_order()
    back = [order.index(i) for i in range(len(order))]
    updates = node.transpose(wide, back)
    reduction = "add" if accumulate else "none"
    out = node.emit("scatter_nd", at.front(), at.tuples(), updates, reduction=reduction)
    inverse = [at.order.index(a) for a in range(x.type.rank)]
    return node.transpose(out, inverse)


def _masked_put(
    node: Node, x: Value, raw: Sequence[Value | None], values: Value, accumulate: bool
) -> Value:
    """x[mask] = value: one value for all elements, or a row of them for all rows."""
    mask = raw[0]
    if mask is None or len([i for i in raw if i is not None]) != 1:
        raise Refusal("it writes where a mask of some axes is true", "use torch.where")
    rest = x.type.rank - mask.type.rank
    if values.type.rank > rest and values.type.shape[: values.type.rank - rest] not in ((1,), ()):
        return masked_rows(node, x, mask, values, accumulate)
    if values.type.rank > rest:
        values = node.reshape(values, values.type.shape[values.type.rank - rest :])
    wide = node.reshape(mask, [*mask.type.shape, *[1] * rest])
    new = node.emit("add", x, values) if accumulate else values
    return node.broadcast_to(node.where(wide, new, x), x.type.shape)


def masked_rows(node: Node, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    """The k-th row where the mask is true takes the k-th of the values."""
    if accumulate:
        raise Refusal("it adds a list of values where a mask is true")
    flat_mask = node.reshape(mask, [mask.type.elements])
    numbers = node.emit("cumsum", node.cast(flat_mask, I64), axis=0, exclusive=True)
    last = node.size(values.type.shape[0] - 1)
    numbers = node.emit("minimum", numbers, node.emit("maximum", last, node.scalar(0, I64)))
    rows = node.emit("gather", values, numbers, axis=0)
    rows = node.reshape(rows, x.type.shape)
    wide = node.reshape(mask, [*mask.type.shape, *[1] * (x.type.rank - mask.type.rank)])
    return node.where(wide, rows, x)


def masked_scatter(node: Node) -> Value:
    """The k-th element where the mask is true takes the k-th element of the source."""
    shape = node.broadcast(node.x().type.shape, node.x("mask").type.shape)
    x, mask = (node.broadcast_to(v, shape) for v in (node.x(), node.x("mask")))
    source = node.x("source")
    flat = node.reshape(source, [source.type.elements])
    return node.reshape(
        masked_rows(
            node,
            node.reshape(x, [x.type.elements]),
            node.reshape(mask, [x.type.elements]),
            flat,
            False,
        ),
        shape,
    )


def masked_fill(node: Node) -> Value:
    x, mask = node.x(), node.x("mask")
    value = node.operand("value", x.type.dtype)
    shape = node.broadcast(x.type.shape, mask.type.shape)
    return node.broadcast_to(node.where(mask, value, x), shape)


def masked_select(node: Node) -> Value:
    shape = node.broadcast(node.x().type.shape, node.x("mask").type.shape)
    x, mask = (node.broadcast_to(v, shape) for v in (node.x(), node.x("mask")))
    return masked_index(node, x, [mask])


_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


def scatter(node: Node) -> Value:
    """Elements along one axis; a number for all of them, or a tensor of theirs."""
    x, indices = node.x(), node.x("index")
    name = "value" if "value" in node._given else "src"
    raw = node.arg(name)
    updates = (
        node.cast(raw, x.type.dtype)
        if isinstance(raw, Value)
        else node.number(node.raw(name), x.type.dtype)
    )
    reduction = node.arg("reduce") if "reduce" in node._given else None
    ours = "none" if reduction is None else _REDUCTIONS[reduction]
    return scattered(node, x, indices, updates, ours)


def scatter_add(node: Node) -> Value:
    x = node.x()
    return scattered(node, x, node.x("index"), node.cast(node.x("src"), x.type.dtype), "add")


def scattered(node: Node, x: Value, indices: Value, updates: Value, reduction: str) -> Value:
    shape = x.type.shape
    flat = x.type.rank == 0
    if flat:
        x = node.reshape(x, [1])
    if indices.type.rank < x.type.rank:
        indices = node.reshape(
            indices, [indices.type.elements] if x.type.rank == 1 else indices.type.shape
        )
    if updates.type.rank == 0:
        updates = node.broadcast_to(updates, indices.type.shape)
    else:
        for axis, extent in enumerate(indices.type.shape):
            updates = node.slice_axis(updates, axis, 0, extent)
    axis = node.axis(node.arg("dim"), x.type.rank)
    if x.type.dtype is BOOL and reduction != "none":
        raise Refusal("it combines bools")
    out = node.emit("scatter_elements", x, indices, updates, axis=axis, reduction=reduction)
    return node.reshape(out, shape)


def scatter_reduce(node: Node) -> Value:
    """With `include_self` false, what is written to does not count the old element."""
    x, indices = node.x(), node.x("index")
    updates = node.cast(node.x("src"), x.type.dtype)
    mode, include = node.arg("reduce"), bool(node.arg("include_self"))
    dtype = x.type.dtype
    if dtype is BOOL:
        raise Refusal("it combines bools")
    count = None
    if not include or mode == "mean":
        ones = node.full(1, I64, indices.type.shape)
        none = node.full(0, I64, x.type.shape)
        count = scattered(node, none, indices, ones, "add")
    base = x
    if not include:
        assert count is not None
        neutral = _neutral(node, mode, x)
        base = node.where(node.emit("greater", count, node.scalar(0, I64)), neutral, x)
    if mode != "mean":
        return scattered(node, base, indices, updates, _REDUCTIONS[mode])
    assert count is not None
    sums = scattered(node, base, indices, updates, "add")
    if include:
        count = node.emit("add", count, node.scalar(1, I64))
    least = node.emit("maximum", count, node.scalar(1, I64))
    if dtype.is_float:
        return node.emit("div", sums, node.cast(node.cast(least, F32), dtype))
    divisor = node.cast(least, dtype)
    rest = node.emit("mod", sums, divisor, fmod=False)
    return node.emit("div", node.emit("sub", sums, rest), divisor)


def _neutral(node: Node, mode: str, x: Value) -> Value:
    dtype = x.type.dtype
    if mode in ("sum", "mean"):
        return node.scalar(0, dtype)
    if mode == "prod":
        return node.scalar(1, dtype)
    if dtype.is_float:
        return node.scalar(float("-inf") if mode == "amax" else float("inf"), dtype)
    low = -(2 ** (dtype.bits - 1)) if dtype.kind == "int" else 0
    high = 2 ** (dtype.bits - (dtype.kind == "int")) - 1
    return node.scalar(low if mode == "amax" else high, dtype)


def index_write(reduction: str) -> Compose:
    """index_copy and index_add: whole slices of an axis."""

    def compose(node: Node) -> Value:
        x, indices = node.x(), node.x("index")
        updates = node.cast(node.x("source"), x.type.dtype)
        alpha = node.raw("alpha") if "alpha" in node._given else None
        if alpha is not None and alpha != 1:
            updates = node.emit("mul", updates, node.number(alpha, x.type.dtype))
        return put_slices(node, x, indices, updates, reduction)

    return compose


def put_slices(node: Node, x: Value, indices: Value, updates: Value, reduction: str) -> Value:
    shape = x.type.shape
    if x.type.rank == 0:
        x = node.reshape(x, [1])
        updates = node.reshape(updates, [indices.type.elements])
    axis = node.axis(node.arg("dim"), x.type.rank)
    return node.reshape(put_along(node, x, axis, indices, updates, reduction), shape)


def put_along(
    node: Node, x: Value, axis: int, indices: Value, updates: Value, reduction: str
) -> Value:
    """x with slices of an axis, by an index vector, written or combined; x keeps its order."""
    count: Dim = indices.type.elements
    wide = [count if i == axis else d for i, d in enumerate(x.type.shape)]
    line = node.reshape(indices, [count if i == axis else 1 for i in range(x.type.rank)])
    return node.emit(
        "scatter_elements", x, node.broadcast_to(line, wide), node.reshape(updates, wide),
        axis=axis, reduction=reduction,
    )  # fmt: skip


def index_fill(node: Node) -> Value:
    x, indices = node.x(), node.x("index")
    axis = node.axis(node.arg("dim"), x.type.rank)
    value = node.operand("value", x.type.dtype)
    extents = x.type.shape or (1,)
    shape = [indices.type.elements if i == axis else d for i, d in enumerate(extents)]
    return put_slices(node, x, indices, node.broadcast_to(value, shape), "none")


def take(node: Node) -> Value:
    x = node.x()
    flat = node.reshape(x, [x.type.elements])
    return node.emit("gather", flat, node.x("index"), axis=0)


def diagonal_scatter(node: Node) -> Value:
    x, source = node.x(), node.cast(node.x("src"), node.x().type.dtype)
    offset = node.static("offset")
    a, b = (node.axis(node.arg(n), x.type.rank) for n in ("dim1", "dim2"))
    rows = node.iota_along(x.type.shape[a], a, x.type.rank)
    columns = node.iota_along(x.type.shape[b], b, x.type.rank)
    on = node.emit("equal", columns, node.emit("add", rows, node.scalar(offset, I64)))
    count = source.type.shape[-1]
    if count == 0:
        return x
    start = node.emit("add", rows, node.scalar(min(offset, 0), I64))
    number = node.emit("clip", start, node.scalar(0, I64), node.size(count - 1))
    line = node.reshape(number, [x.type.shape[a]])
    wide = node.emit("gather", source, line, axis=source.type.rank - 1)
    # The rows' axis is last now: back to where it belongs, and one of extent 1 for the columns.
    rest = [i for i in range(x.type.rank) if i not in (a, b)]
    order = [rest.index(i) if i in rest else len(rest) for i in range(x.type.rank) if i != b]
    wide = node.unsqueeze(node.transpose(wide, order), (b,))
    return node.where(on, wide, x)


def embedding_bag(node: Node) -> Sequence[Value | None]:
    """Bags of equal or unequal length: rows of the weight summed, averaged or maximised."""
    node.ignore("scale_grad_by_freq", "sparse", "padding_idx")
    weight, indices, offsets = node.x("weight"), node.x("indices"), node.x("offsets")
    mode, include_last = node.static("mode"), bool(node.arg("include_last_offset"))
    if node.arg("padding_idx") not in (None, -1):
        raise Refusal("its padding_idx is not supported")
    if mode == 2:
        raise Refusal("its mode is max", "use sum or mean")
    rows = node.emit("gather", weight, indices, axis=0)
    per_sample = node.maybe("per_sample_weights")
    if per_sample is not None:
        rows = node.emit("mul", rows, node.unsqueeze(per_sample, (1,)))
    bags = offsets.type.shape[0] - (1 if include_last else 0)
    starts = node.slice_axis(node.cast(offsets, I64), 0, 0, bags)
    place = node.iota_along(indices.type.shape[0], 1, 2)
    begun = node.emit("greater_or_equal", place, node.unsqueeze(starts, (1,)))
    counts = node.emit("reduce_sum", node.cast(begun, I64), axes=(0,), keepdims=True)
    bag = node.emit("sub", counts, node.scalar(1, I64))
    mine = node.emit("equal", bag, node.reshape(node.iota(bags), [bags, 1]))
    table = node.cast(mine, rows.type.dtype)
    out = node.emit("matmul", table, rows)
    if mode == 1:
        size = node.emit("reduce_sum", table, axes=(1,), keepdims=True)
        out = node.emit("div", out, node.emit("maximum", size, node.scalar(1, size.type.dtype)))
    return [out, None, None, None]


def one_hot(node: Node) -> Value:
    x = node.x()
    depth: Dim = node.out_shape[-1]
    places = node.iota_along(depth, x.type.rank, x.type.rank + 1)
    return node.cast(node.emit("equal", node.unsqueeze(x, (x.type.rank,)), places), I64)


def searchsorted(node: Node) -> Value:
    """How many elements of the sorted sequence are below (or not above) each value."""
    node.ignore("out_int32", "side", "right")
    flat = node.x("sorted_sequence" if "sorted_sequence" in node._given else "boundaries")
    x = node.x()
    if flat.type.rank != 1:
        raise Refusal("its sorted sequence has several axes")
    right = bool(node.arg("right")) or node.arg("side") == "right"
    op = "less_or_equal" if right else "less"
    line = node.reshape(flat, [*[1] * x.type.rank, flat.type.shape[0]])
    below = node.emit(op, line, node.unsqueeze(node.cast(x, flat.type.dtype), (x.type.rank,)))
    count = node.emit("reduce_sum", node.cast(below, I64), axes=(x.type.rank,), keepdims=False)
    return node.cast(count, node.out_dtype)


COMPOSE: dict[str, Compose] = {
    "embedding.default": embedding,
    "index_select.default": index_select,
    "gather.default": gather,
    "index.Tensor": index,
    "_unsafe_index.Tensor": index,
    "index_put.default": index_put,
    "_unsafe_index_put.default": index_put,
    "masked_scatter.default": masked_scatter,
    "masked_fill.Scalar": masked_fill,
    "masked_fill.Tensor": masked_fill,
    "masked_select.default": masked_select,
    "scatter.src": scatter,
    "scatter.value": scatter,
    "scatter.reduce": scatter,
    "scatter.value_reduce": scatter,
    "scatter_add.default": scatter_add,
    "scatter_reduce.two": scatter_reduce,
    "index_copy.default": index_write("none"),
    "index_add.default": index_write("add"),
    "index_fill.int_Scalar": index_fill,
    "index_fill.int_Tensor": index_fill,
    "take.default": take,
    "diagonal_scatter.default": diagonal_scatter,
    "_embedding_bag.default": embedding_bag,
    "_embedding_bag_forward_only.default": embedding_bag,
    "one_hot.default": one_hot,
    "searchsorted.Tensor": searchsorted,
    "bucketize.Tensor": searchsorted,
}
