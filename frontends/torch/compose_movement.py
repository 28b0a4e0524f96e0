"""Views and copies: functional graphs hold no aliases, so that a view is the movement that it makes."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, prove
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, I64
from graphwright.frontends.torch.node import Compose, Node
from graphwright.frontends.torch.refusal import Refusal


def same(node: Node) -> Value:
    return node.x()


def to_out_dtype(node: Node) -> Value:
    node.ignore("dtype", "other", "copy")
    return converted(node, node.x())


def converted(node: Node, x: Value) -> Value:
    """The operand in the result's type.  Floats beyond an integer's range are undefined in torch."""
    return (
        node.emit("cast", x, dtype=node.out_dtype, saturate=False)
        if (
            node.out_dtype.is_float
            and node.out_dtype.bits == 8
            and x.type.dtype is not node.out_dtype
        )
        else node.cast(x, node.out_dtype)
    )


def to_out_shape(node: Node) -> Value:
    """Whatever only changes the shape: torch has worked it out."""
    node.ignore("size", "shape", "dim", "start_dim", "end_dim", "sizes")
    return node.reshape(node.x(), node.out_shape)


def expand(node: Node) -> Value:
    node.ignore("size", "implicit")
    return node.broadcast_to(node.x(), node.out_shape)


def permute(node: Node) -> Value:
    x, axes = node.x(), node.arg("dims")
    return node.transpose(x, node.axes(axes, x.type.rank) if x.type.rank else ())


def transpose(node: Node) -> Value:
    x = node.x()
    a, b = (node.axis(node.arg(n), x.type.rank) for n in ("dim0", "dim1"))
    if x.type.rank == 0:
        return x
    return node.swap(x, a, b)


def matrix_transpose(node: Node) -> Value:
    x = node.x()
    return x if x.type.rank < 2 else node.swap(x, x.type.rank - 2, x.type.rank - 1)


def repeat(node: Node) -> Value:
    """Each axis written several times: [a, b] repeated (m, n) is [m, a, n, b] broadcast."""
    x, counts = node.x(), node.arg("repeats")
    lead = len(counts) - x.type.rank
    shape = [1] * lead + list(x.type.shape)
    if all(c == 1 for c in counts):
        return node.reshape(x, shape)
    apart = node.reshape(x, [d for e in shape for d in (1, e)])
    wide = node.broadcast_to(apart, [d for c, e in zip(counts, shape, strict=True) for d in (c, e)])
    return node.reshape(wide, [dims.multiply(c, e) for c, e in zip(counts, shape, strict=True)])


def concat(node: Node) -> Value:
    """Tensors of shape [0] are skipped, as torch does for old programs' sake."""
    parts = node.tensors("tensors")
    rank = len(node.out_shape)
    kept = [node.cast(p, node.out_dtype) for p in parts if p.type.rank == rank]
    if not kept or any(p.type.rank != rank and p.type.shape != (0,) for p in parts):
        raise Refusal("its operands have different ranks")
    if rank > 1:
        kept = [p for p in kept if p.type.shape != (0,)] or kept[:1]
    return node.concat(kept, node.axis(node.arg("dim"), rank))


def stack(node: Node) -> Value:
    parts = [node.cast(p, node.out_dtype) for p in node.tensors("tensors")]
    axis = node.axis(node.arg("dim"), parts[0].type.rank + 1)
    return node.concat([node.unsqueeze(p, (axis,)) for p in parts], axis)


def bounded(start: Dim | None, extent: Dim, default: Dim) -> Dim:
    """A slice's limit as an index from 0 to the extent."""
    if start is None:
        return default
    if isinstance(start, int):
        if start >= 2**62:
            return extent
        if start < 0:
            return dims.maximum(extent + start, 0)
        return dims.minimum(start, extent) if start else 0
    if prove(start, "<", 0):
        return dims.maximum(extent + start, 0)
    # Unknown signs do not occur: torch guards on them.
    return start if prove(start, "<=", extent) else dims.minimum(start, extent)


def slice_range(node: Node, extent: Dim) -> tuple[Dim, Dim, int]:
    """(start, size, step) of slice.Tensor and slice_scatter."""
    start = bounded(node.arg("start"), extent, 0)
    end = bounded(node.arg("end"), extent, extent)
    step = node.whole("step")
    if isinstance(start, int) and isinstance(end, int):
        return start, max(-(-(end - start) // step), 0), step
    size = dims.ceildiv(end - start, step)
    if prove(size, ">=", 0) is not True:
        size = dims.maximum(size, 0)
    return start, size, step


def slice_(node: Node) -> Value:
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank)
    start, size, step = slice_range(node, x.type.shape[axis])
    told = node.out_shape[axis]
    if size != told and prove(size, "==", told) is not False:
        size = told  # torch knows more of its sizes than their ranges say
    return node.slice_axis(x, axis, start, size, step)


def select(node: Node) -> Value:
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank)
    raw = node.raw("index")
    index = node.arg("index")
    if node.importer.is_item(raw):
        place = node.number(raw, node.importer.index_type)
        return node.emit("gather", x, place, axis=axis)
    at = index if not prove(index, "<", 0) else x.type.shape[axis] + index
    return node.squeeze(node.slice_axis(x, axis, at, 1), (axis,))


def narrow(node: Node) -> Value:
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank)
    start = node.arg("start")
    if prove(start, "<", 0):
        start = x.type.shape[axis] + start
    return node.slice_axis(x, axis, start, node.arg("length"))


def parts(node: Node, sizes: Sequence[Dim]) -> list[Value]:
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank)
    out: list[Value] = []
    start: Dim = 0
    for size in sizes:
        out.append(node.slice_axis(x, axis, start, size))
        start = start + size
    return out


def split_sizes(node: Node) -> list[Value]:
    return parts(node, node.arg("split_sizes"))


def split(node: Node) -> list[Value]:
    """As many parts as torch made, all of one size but the last."""
    node.ignore("split_size", "chunks", "split_size_or_sections")
    axis = node.axis(node.arg("dim"), node.x().type.rank)
    return parts(node, [node.shape_of(part)[axis] for part in node.out])


def unbind(node: Node) -> list[Value]:
    x = node.x()
    axis = node.axis(node.arg("dim"), x.type.rank)
    count = len(node.out)
    return [node.squeeze(node.slice_axis(x, axis, i, 1), (axis,)) for i in range(count)]


def flip(node: Node) -> Value:
    x, given = node.x(), node.arg("dims")
    for axis in node.axes(given, x.type.rank) if x.type.rank else ():
        extent = x.type.shape[axis]
        x = node.slice_axis(x, axis, extent - 1, extent, -1)
    return x


def roll(node: Node) -> Value:
    x, shifts, axes = node.x(), node.arg("shifts"), node.arg("dims")
    shape = x.type.shape
    if not axes:
        x, axes = node.reshape(x, [x.type.elements]), [0]
    for shift, axis in zip(shifts, node.axes(axes, x.type.rank), strict=True):
        extent = x.type.shape[axis]
        if extent == 0:
            continue
        at = dims.modulo(-shift, extent)
        if at == 0:
            continue
        low = node.slice_axis(x, axis, at, extent - at)
        x = node.concat([low, node.slice_axis(x, axis, 0, at)], axis)
    return node.reshape(x, shape)


def pad_constant(node: Node) -> Value:
    """Pads come last axis first; negative ones cut."""
    x, pads = node.x(), node.arg("pad")
    value = node.number(node.raw("value"), x.type.dtype)
    return padded(node, x, pads, "constant", value)


def padded(
    node: Node, x: Value, pads: Sequence[Dim], mode: str, value: Value | None = None
) -> Value:
    rank = x.type.rank
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for i in range(len(pads) // 2):
        axis = rank - 1 - i
        before, after = pads[2 * i], pads[2 * i + 1]
        cut = [prove(p, "<", 0) is True for p in (before, after)]
        if any(cut) and mode == "edge":  # what is cut may be more than there is: its edge remains
            extent = x.type.shape[axis]
            line = node.iota(extent + before + after)
            place = node.emit("sub", line, node.size(before))
            last = node.emit("sub", node.size(extent), node.scalar(1, I64))
            place = node.emit("clip", place, node.scalar(0, I64), last)
            x = node.emit("gather", x, place, axis=axis)
            continue
        if any(cut):
            start = -before if cut[0] else 0
            size = x.type.shape[axis] - start + (after if cut[1] else 0)
            x = node.slice_axis(x, axis, start, size)
        low[axis], high[axis] = 0 if cut[0] else before, 0 if cut[1] else after
    if not any(p != 0 for p in (*low, *high)):
        return x
    operands = [x] if value is None else [x, value]
    return node.emit("pad", *operands, low=tuple(low), high=tuple(high), mode=mode)


def pad(mode: str) -> Compose:
    def compose(node: Node) -> Value:
        return padded(node, node.x(), node.arg("padding"), mode)

    return compose


def pad_any(node: Node) -> Value:
    x, pads, mode = node.x(), node.arg("pad"), node.arg("mode")
    ours = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
    value = node.arg("value")
    filled = node.scalar(0 if value is None else value, x.type.dtype)
    return padded(node, x, pads, ours[mode], filled if mode == "constant" else None)


def select_scatter(node: Node) -> Value:
    x, new = node.x(), node.x("src")
    axis = node.axis(node.arg("dim"), x.type.rank)
    index = node.arg("index")
    at = index if not prove(index, "<", 0) else x.type.shape[axis] + index
    return put_slice(node, x, node.unsqueeze(node.cast(new, x.type.dtype), (axis,)), axis, at, 1, 1)


def slice_scatter(node: Node) -> Value:
    x, new = node.x(), node.x("src")
    axis = node.axis(node.arg("dim"), x.type.rank)
    start, size, step = slice_range(node, x.type.shape[axis])
    told = node.shape_of(node.fake("src"))[axis]
    size = told if prove(size, "==", told) is not False else size
    return put_slice(node, x, node.cast(new, x.type.dtype), axis, start, size, step)


def put_slice(
    node: Node, x: Value, new: Value, axis: int, start: Dim, size: Dim, step: int
) -> Value:
    """x with a slice of an axis replaced: what stands before, the new part, what stands after."""
    extent = x.type.shape[axis]
    shape = list(x.type.shape)
    shape[axis] = size
    new = node.broadcast_to(new, shape)
    if size == extent and step == 1:
        return new
    if size == 0:
        return x
    if step == 1 and x in node.importer.updated:  # an argument that is written to, perhaps in place
        place = node.emit("iota", size=size, dtype=I64, start=start, step=1)
        line = node.reshape(place, [size if i == axis else 1 for i in range(x.type.rank)])
        return node.emit(
            "scatter_elements", x, node.broadcast_to(line, shape), new, axis=axis, reduction="none"
        )
    if step == 1:
        pieces = [
            node.slice_axis(x, axis, 0, start),
            new,
            node.slice_axis(x, axis, start + size, extent - start - size),
        ]
        return node.concat([p for p in pieces if p.type.shape[axis] != 0], axis)
    # Where the coordinate is one of the slice, its number in the new part.
    place = node.iota_along(extent, axis, x.type.rank)
    i64 = place.type.dtype
    offset = node.emit("sub", place, node.size(start, i64))
    number = node.emit("div", offset, node.scalar(step, i64))
    whole = node.emit("equal", node.emit("mul", number, node.scalar(step, i64)), offset)
    inside = node.emit("greater_or_equal", offset, node.scalar(0, i64))
    below = node.emit("less", number, node.size(size, i64))
    taken = node.emit("logical_and", node.emit("logical_and", whole, inside), below)
    line = node.reshape(node.where(taken, number, node.scalar(0, i64)), [extent])
    return node.where(taken, node.emit("gather", new, line, axis=axis), x)


def diagonal(node: Node) -> Value:
    """The elements (i, i + offset) of two axes, as a new last axis."""
    x, offset = node.x(), node.whole("offset")
    a, b = (node.axis(node.arg(n), x.type.rank) for n in ("dim1", "dim2"))
    order = [i for i in range(x.type.rank) if i not in (a, b)] + [a, b]
    x = node.transpose(x, order)
    *lead, rows, columns = x.type.shape
    size = node.out_shape[-1]
    if size == 0:
        return node.full(0, x.type.dtype, [*lead, 0])
    flat = node.reshape(x, [*lead, dims.multiply(rows, columns)])
    start = offset if offset >= 0 else dims.multiply(columns, -offset)
    if isinstance(columns, int):
        return node.slice_axis(flat, len(lead), start, size, columns + 1)
    step = node.size(columns + 1)
    place = node.emit("add", node.emit("mul", node.iota(size), step), node.size(start))
    return node.emit("gather", flat, place, axis=len(lead))


def unfold(node: Node) -> Value:
    """Windows along an axis, as a new last axis."""
    x, size, step = node.x(), node.arg("size"), node.arg("step")
    axis = node.axis(node.arg("dimension"), x.type.rank)
    if x.type.rank == 0:
        return node.reshape(x, node.out_shape)
    count = node.out_shape[axis]
    starts = node.emit("mul", node.reshape(node.iota(count), [count, 1]), node.size(step))
    place = node.emit("add", starts, node.reshape(node.iota(size), [1, size]))
    out = node.emit("gather", x, place, axis=axis)
    order = [i for i in range(out.type.rank) if i != axis + 1] + [axis + 1]
    return node.transpose(out, order)


def pixel_shuffle(node: Node) -> Value:
    x, r = node.x(), node.static("upscale_factor")
    *lead, channels, height, width = x.type.shape
    n = len(lead)
    x = node.reshape(x, [*lead, channels // (r * r), r, r, height, width])
    x = node.transpose(x, [*range(n), n, n + 3, n + 1, n + 4, n + 2])
    return node.reshape(x, node.out_shape)


def pixel_unshuffle(node: Node) -> Value:
    x, r = node.x(), node.static("downscale_factor")
    *lead, channels, height, width = x.type.shape
    n = len(lead)
    x = node.reshape(x, [*lead, channels, height // r, r, width // r, r])
    x = node.transpose(x, [*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return node.reshape(x, node.out_shape)


def channel_shuffle(node: Node) -> Value:
    x, groups = node.x(), node.static("groups")
    n, channels, *rest = x.type.shape
    x = node.reshape(x, [n, groups, channels // groups, *rest])
    return node.reshape(node.swap(x, 1, 2), node.out_shape)


def view_dtype(node: Node) -> Value:
    x = node.x()
    node.ignore("dtype")
    if x.type.dtype.bits != node.out_dtype.bits:
        raise Refusal("it views elements of one size as elements of another size")
    if BOOL in (x.type.dtype, node.out_dtype):
        raise Refusal("it views the bits of bools")
    return node.emit("bitcast", x, source=x.type.dtype, dtype=node.out_dtype)


def convert_element_type(node: Node) -> Value:
    node.ignore("dtype")
    return converted(node, node.x("a"))


def copy(node: Node) -> Value:
    """The values of `src` in the type and shape of `self`."""
    node.ignore("self")
    return node.broadcast_to(converted(node, node.x("src")), node.out_shape)


_SAME = (
    "clone.default",
    "alias.default",
    "detach.default",
    "contiguous.default",
    "lift_fresh_copy.default",
    "lift_fresh.default",
    "lift.default",
    "alias_copy.default",
    "resolve_conj.default",
    "resolve_neg.default",
    "real.default",
    "detach_copy.default",
)
_RESHAPES = (
    "view.default",
    "_unsafe_view.default",
    "reshape.default",
    "unsqueeze.default",
    "squeeze.default",
    "squeeze.dim",
    "squeeze.dims",
    "flatten.using_ints",
    "unflatten.int",
    "view_copy.default",
    "_reshape_alias.default",
    "view_as.default",
    "unsqueeze_copy.default",
    "squeeze_copy.dims",
)
_CASTS = (
    "_to_copy.default",
    "to.dtype",
    "to.dtype_layout",
    "to.device",
    "type_as.default",
)

COMPOSE: dict[str, Compose] = {
    **dict.fromkeys(_SAME, same),
    **dict.fromkeys(_RESHAPES, to_out_shape),
    **dict.fromkeys(_CASTS, to_out_dtype),
    "prims.convert_element_type.default": lambda node: (
        node.ignore("dtype"),
        converted(node, node.x("a")),
    )[1],
    "prims.device_put.default": lambda node: node.x("a"),
    "view.dtype": view_dtype,
    "expand.default": expand,
    "expand_copy.default": expand,
    "broadcast_to.default": expand,
    "permute.default": permute,
    "permute_copy.default": permute,
    "transpose.int": transpose,
    "t.default": matrix_transpose,
    "numpy_T.default": lambda node: node.transpose(node.x(), range(node.x().type.rank)[::-1]),
    "mT.default": matrix_transpose,
    "repeat.default": repeat,
    "cat.default": concat,
    "stack.default": stack,
    "slice.Tensor": slice_,
    "slice_copy.Tensor": slice_,
    "select.int": select,
    "select_copy.int": select,
    "narrow.default": narrow,
    "split_with_sizes.default": split_sizes,
    "split_with_sizes_copy.default": split_sizes,
    "split.Tensor": split,
    "split_copy.Tensor": split,
    "unbind_copy.int": unbind,
    "narrow_copy.default": narrow,
    "split.sizes": split,
    "chunk.default": split,
    "unbind.int": unbind,
    "flip.default": flip,
    "roll.default": roll,
    "constant_pad_nd.default": pad_constant,
    "pad.default": pad_any,
    **{f"reflection_pad{n}d.default": pad("reflect") for n in (1, 2, 3)},
    **{f"replication_pad{n}d.default": pad("edge") for n in (1, 2, 3)},
    "select_scatter.default": select_scatter,
    "slice_scatter.default": slice_scatter,
    "diagonal.default": diagonal,
    "diagonal_copy.default": diagonal,
    "unfold.default": unfold,
    "unfold_copy.default": unfold,
    "pixel_shuffle.default": pixel_shuffle,
    "pixel_unshuffle.default": pixel_unshuffle,
    "channel_shuffle.default": channel_shuffle,
    "copy.default": copy,
}
