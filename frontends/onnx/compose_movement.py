"""Ops that move elements: shapes, slices, pads, tiles, permutations of blocks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Expr
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, I64
from graphwright.frontends.onnx.contents import divide_exactly
from graphwright.frontends.onnx.late_shapes import late_pads, late_slice, late_target, positions
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def axes_of(
    node: Node, i: int, rank: int | None = None, among: Sequence[int] | None = None
) -> tuple[int, ...] | None:
    """Axes from the attribute (older opsets) or from input `i` (newer ones); None when absent.

    `rank`: of the tensor that they are of, default that of input 0; `among`: the possible ones.
    """
    if node.has("axes"):
        return tuple(node.attr("axes"))
    if not node.has_input(i):
        return None
    return node.axes_at(i, node.x().type.rank if rank is None else rank, among=among)


def reshape(node: Node) -> Value:
    """0 keeps an extent (unless allowzero), -1 is what is left over."""
    x = node.x()
    if not node.has("shape"):
        late = late_target(node, x, node.x(1), allow_zero=bool(node.attr("allowzero", 0)))
        if late is not None:
            return node.reshape(x, late)
    target = list(node.attr("shape") if node.has("shape") else node.dims(1, "the target shape"))
    if not node.attr("allowzero", 0):
        for i, d in enumerate(target):
            if d == 0:
                if i >= x.type.rank:
                    raise Refusal(
                        f"the target {_text(target)} keeps axis {i} of rank {x.type.rank}"
                    )
                target[i] = x.type.shape[i]
    if target.count(-1) > 1:
        raise Refusal(f"the target {_text(target)} holds -1 more than once")
    if -1 in target:
        at = target.index(-1)
        rest = [d for d in target if d != -1]
        target[at] = _left_over(node, x.type.shape, rest)
    return node.reshape(x, target)


def _text(shape: Sequence[Dim]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _left_over(node: Node, have: Sequence[Dim], want: Sequence[Dim]) -> Dim:
    """The extent that makes `want` hold as many elements as `have`."""
    left, right = list(have), []
    for d in want:  # common factors first: a product hides them
        if d in left:
            left.remove(d)
        else:
            right.append(d)
    total, known = dims.product(left), dims.product(right)
    exact = divide_exactly(total, known)
    if exact is not None:
        return exact
    if isinstance(total, int) and isinstance(known, int):
        if known == 0:
            return 0
        raise Refusal(f"{_text(have)} does not divide into {_text(want)} and -1")
    node.require(dims.modulo(total, known), "==", 0, f"{node.type} {node.origin}: -1 is whole")
    return dims.floordiv(total, known)


def flatten(node: Node) -> Value:
    x = node.x()
    axis = node.attr("axis", 1)
    if not -x.type.rank <= axis <= x.type.rank:
        raise Refusal(f"the axis {axis} does not fit rank {x.type.rank}")
    return node.matrix(x, axis + x.type.rank if axis < 0 else axis)


def squeeze(node: Node) -> Value:
    x = node.x()
    ones = [i for i, d in enumerate(x.type.shape) if dims.prove(d, "==", 1) is not False]
    axes = axes_of(node, 1, among=ones)
    if axes is None:
        for d in x.type.shape:
            # The rank would depend on the size: a call where it is 1 is refused, and says so.
            if isinstance(d, Expr) and dims.prove(d, "!=", 1) is None:
                node.require(d, "!=", 1, f"Squeeze {node.origin} names no axes: name them")
        return node.squeeze(x, [i for i, d in enumerate(x.type.shape) if d == 1])
    return node.squeeze(x, node.axes(axes, x.type.rank))


def unsqueeze(node: Node) -> Value:
    x = node.x()
    count = node.x(1).type.elements if node.has_input(1) else 0
    axes = axes_of(node, 1, x.type.rank + count if isinstance(count, int) else None)
    if axes is None:
        raise Refusal("it names no axes")
    return node.unsqueeze(x, axes)


def transpose(node: Node) -> Value:
    x = node.x()
    default = tuple(reversed(range(x.type.rank)))
    return node.transpose(x, node.attr("perm", default))


def expand(node: Node) -> Value:
    x = node.x()
    target = node.dims(1, "the target shape")
    shape = node.broadcast(x.type.shape, target)
    return node.broadcast_to(x, shape)


def shape(node: Node) -> Value:
    extents = node.x().type.shape
    start, end = node.attr("start", 0), node.attr("end", len(extents))
    return node.sizes(extents[slice(*slice(start, end).indices(len(extents)))])


def size(node: Node) -> Value:
    return node.emit("from_dims", dims=(node.x().type.elements,), scalar=True)


def concat(node: Node) -> Value:
    inputs = (node.x(), *node.inputs[1:])
    axis = node.axis(node.attr("axis", 1), inputs[0].type.rank)
    return inputs[0] if len(inputs) == 1 else node.emit("concat", *inputs, axis=axis)


def split(node: Node) -> Sequence[Value]:
    """Sizes from the attribute, the input, or even parts (the last one smaller from opset 18 on)."""
    x = node.x()
    axis = node.axis(node.attr("axis", 0), x.type.rank)
    extent = x.type.shape[axis]
    count = node.attr("num_outputs", len(node.proto.output))
    if count != len(node.proto.output):
        raise Refusal(f"num_outputs is {count}, it has {len(node.proto.output)} outputs")
    sizes: Sequence[Dim]
    if node.has("split"):
        sizes = node.attr("split")
    elif node.has_input(1):
        sizes = node.dims(1, "the sizes of the parts")
    else:
        part = dims.ceildiv(extent, count)
        if divide_exactly(extent, count) is None:
            if node.opset < 18:
                raise Refusal(f"axis {axis} of {extent} does not divide into {count} equal parts")
            node.require(
                extent, ">=", (count - 1) * part, f"Split {node.origin}: parts of the same size"
            )
        sizes = [part] * (count - 1) + [extent - (count - 1) * part]
    node.require(sum(sizes[1:], start=sizes[0]), "==", extent, f"Split {node.origin}: parts")
    out: list[Value] = []
    start: Dim = 0
    for part in sizes:
        out.append(node.slice_axis(x, axis, start, part))
        start = start + part
    return out


def slice_(node: Node) -> Value:
    x = node.x()
    if node.has("starts"):  # opset 1
        starts, ends = node.attr("starts"), node.attr("ends")
        axes, steps = node.attr("axes", range(len(starts))), (1,) * len(starts)
    else:
        late = late_slice(node, x)
        if late is not None:
            return late
        starts, ends = node.dims(1, "starts"), node.dims(2, "ends")
        axes = node.ints(3, "axes") if node.has_input(3) else range(len(starts))
        steps = node.ints(4, "steps") if node.has_input(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise Refusal(
            f"it has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes, {len(steps)} steps"
        )
    rank = x.type.rank
    full_starts: list[Dim] = [0] * rank
    full_sizes: list[Dim] = list(x.type.shape)
    full_steps = [1] * rank
    for axis, start, end, step in zip(
        node.axes(tuple(axes), rank), starts, ends, steps, strict=True
    ):
        if step == 0:
            raise Refusal("a step is 0")
        extent = x.type.shape[axis]
        first, count = _slice_range(node, extent, start, end, step)
        full_starts[axis], full_sizes[axis], full_steps[axis] = first, count, step
    if (
        tuple(full_sizes) == x.type.shape
        and all(s == 0 for s in full_starts)
        and all(s == 1 for s in full_steps)
    ):
        return x
    return node.emit(
        "slice", x, starts=tuple(full_starts), sizes=tuple(full_sizes), steps=tuple(full_steps)
    )


def _slice_range(node: Node, extent: Dim, start: Dim, end: Dim, step: int) -> tuple[Dim, Dim]:
    """First element and count of start:end:step, by the rules of numpy."""
    if extent == 0:
        return 0, 0
    if step > 0:
        first = _clamped(node, extent, start, 0, extent)
        last = _clamped(node, extent, end, 0, extent)
        span = last - first
    else:
        first = _clamped(node, extent, start, 0, extent - 1)
        last = _clamped(node, extent, end, -1, extent - 1)
        span = first - last
    # An extent is never negative, even where its formula could be.
    span = span if span in (extent, 0) else node.larger(span, 0)
    return first, dims.ceildiv(span, abs(step))


# Exporters write large numbers for "to the end": no extent reaches them.
_UNBOUNDED = 1 << 24


def _clamped(node: Node, extent: Dim, bound: Dim, low: Dim, high: Dim) -> Dim:
    """Where a bound falls: counted from the end when negative, then limited to [low, high]."""
    reason = f"Slice {node.origin}: "
    place = bound + extent if _is_negative(node, bound) else bound
    if place in (low, high):
        return place
    if bound == -1 and high == extent:  # up to the last one: an extent is hardly ever 0
        node.require(extent, ">=", 1, reason + "the sliced axis is not empty")
        return place
    if isinstance(place, int) and place >= _UNBOUNDED and not dims.prove(place, ">=", high):
        node.require(high, "<=", place, reason + "the axis ends before the bound")
        return high
    if isinstance(extent, int) and isinstance(place, Expr) and not node.certain(high, place):
        # The first rows of a table, as of position embeddings: it has to be long enough.
        node.require(place, "<=", high, reason + "the bound lies inside the axis")
    return node.smaller(node.larger(place, low), high)


def _is_negative(node: Node, bound: Dim) -> bool:
    low, high = dims.bounds(bound)
    if low >= 0 or high < 0:
        return high < 0
    if high <= 0:
        node.require(bound, "<", 0, f"Slice {node.origin}: a bound counts from the end")
        return True
    node.require(bound, ">=", 0, f"Slice {node.origin}: a bound counts from the start")
    return False


def pad(node: Node) -> Value:
    x = node.x()
    rank = x.type.rank
    mode = node.attr("mode", "constant")
    value: Value | None = None
    if node.has("pads"):  # opset 2
        pads: Sequence[Dim] = node.attr("pads")
        number = node.attr("value", 0.0)
        if mode == "constant" and number:
            value = node.scalar(number, x.type.dtype)
        axes = tuple(range(rank))
    else:
        value = node.maybe(2)
        axes = tuple(range(rank))
        if node.has_input(3):
            axes = node.axes(node.axes_at(3, rank, ordered=True), rank)
        x, pads = late_pads(node, x, axes)
    if len(pads) != 2 * len(axes):
        raise Refusal(f"{len(pads)} pads for {len(axes)} axes")
    low: list[Dim] = [0] * rank
    high: list[Dim] = [0] * rank
    for i, axis in enumerate(axes):
        low[axis], high[axis] = pads[i], pads[i + len(axes)]
    # Negative pads crop: before padding, since a constant has nothing to mirror.
    for axis in range(rank):
        cut = [-p if dims.prove(p, "<", 0) else 0 for p in (low[axis], high[axis])]
        if cut != [0, 0]:
            x = node.slice_axis(x, axis, cut[0], x.type.shape[axis] - cut[0] - cut[1])
            low[axis], high[axis] = (
                0 if c else p for c, p in zip(cut, (low[axis], high[axis]), strict=True)
            )
    if all(p == 0 for p in (*low, *high)):
        return x
    operands = [x]
    if mode == "constant" and value is not None:
        if value.type.rank or value.type.dtype is not x.type.dtype:
            value = node.reshape(node.cast(value, x.type.dtype), ())
        operands.append(value)
    return node.emit("pad", *operands, low=tuple(low), high=tuple(high), mode=mode)


def tile(node: Node) -> Value:
    x = node.x()
    repeats = node.dims(1, "repeats")
    if len(repeats) != x.type.rank:
        raise Refusal(f"{len(repeats)} repeats for rank {x.type.rank}")
    return repeat(node, x, repeats)


def repeat(node: Node, x: Value, repeats: Sequence[Dim]) -> Value:
    """x repeated as a whole along each axis."""
    if all(r == 1 for r in repeats):
        return x
    shape = x.type.shape
    split_shape: list[Dim] = []
    spread: list[Dim] = []
    for r, d in zip(repeats, shape, strict=True):
        if r != 1:
            split_shape.append(1)
            spread.append(r)
        split_shape.append(d)
        spread.append(d)
    wide = node.broadcast_to(node.reshape(x, split_shape), spread)
    return node.reshape(wide, [r * d for r, d in zip(repeats, shape, strict=True)])


def depth_to_space(node: Node) -> Value:
    x, b = node.ranked(0, 4), node.attr("blocksize")
    if b < 1:
        raise Refusal(f"its blocksize is {b}, want 1 or more")
    n, c, h, w = x.type.shape
    deep = dims.floordiv(c, b * b)
    if node.attr("mode", "DCR") == "DCR":
        y = node.transpose(node.reshape(x, [n, b, b, deep, h, w]), (0, 3, 4, 1, 5, 2))
    else:
        y = node.transpose(node.reshape(x, [n, deep, b, b, h, w]), (0, 1, 4, 2, 5, 3))
    return node.reshape(y, [n, deep, h * b, w * b])


def space_to_depth(node: Node) -> Value:
    x, b = node.ranked(0, 4), node.attr("blocksize")
    if b < 1:
        raise Refusal(f"its blocksize is {b}, want 1 or more")
    n, c, h, w = x.type.shape
    rows, columns = dims.floordiv(h, b), dims.floordiv(w, b)
    crd = node.attr("mode", "DCR") == "CRD"
    order = (0, 1, 3, 5, 2, 4) if crd else (0, 3, 5, 1, 2, 4)
    y = node.transpose(node.reshape(x, [n, c, rows, b, columns, b]), order)
    return node.reshape(y, [n, c * (b * b), rows, columns])


def center_crop_pad(node: Node) -> Value:
    x = node.x()
    rank = x.type.rank
    axes = node.axes(node.attr("axes", tuple(range(rank))), rank)
    target = node.dims(1, "the target shape")
    if len(target) != len(axes):
        raise Refusal(f"its target has {len(target)} extents for {len(axes)} axes")
    for axis, want in zip(axes, target, strict=True):
        have = x.type.shape[axis]
        if dims.prove(have, ">=", want):
            x = node.slice_axis(x, axis, dims.floordiv(have - want, 2), want)
        elif dims.prove(have, "<=", want):
            low = dims.floordiv(want - have, 2)
            lows: list[Dim] = [low if a == axis else 0 for a in range(rank)]
            highs: list[Dim] = [want - have - low if a == axis else 0 for a in range(rank)]
            x = node.emit("pad", x, low=tuple(lows), high=tuple(highs), mode="constant")
        else:  # which of the two it is, only the call knows
            kept = dims.minimum(have, want)
            x = node.slice_axis(x, axis, dims.floordiv(have - kept, 2), kept)
            more = want - kept
            low = dims.floordiv(more, 2)
            lows = [low if a == axis else 0 for a in range(rank)]
            highs = [more - low if a == axis else 0 for a in range(rank)]
            x = node.emit("pad", x, low=tuple(lows), high=tuple(highs), mode="constant")
    return x


def reverse_sequence(node: Node) -> Value:
    """Reverses the first lengths[b] elements of each row by an index tensor."""
    x = node.ranked(0, 2, or_more=True)
    rank, shape = x.type.rank, x.type.shape
    time = node.axis(node.attr("time_axis", 0), rank)
    batch = node.axis(node.attr("batch_axis", 1), rank)
    place = node.unsqueeze(node.iota(shape[time]), _others(rank, time))
    length = node.unsqueeze(node.cast(node.x(1), I64), _others(rank, batch))
    back = node.emit("sub", node.emit("sub", length, node.scalar(1, I64)), place)
    index = node.where(node.emit("less", place, length), back, place)
    return node.emit("gather_elements", x, node.broadcast_to(index, shape), axis=time)


def _others(rank: int, axis: int) -> list[int]:
    return [a for a in range(rank) if a != axis]


def dropout(node: Node) -> Sequence[Value]:
    """The identity at inference.  Training keeps elements at random and scales them up."""
    node.ignore("ratio", "is_test", "consumed_inputs")
    x, seed = node.x(), node.attr("seed")
    mask_type = BOOL if node.opset >= 10 else x.type.dtype
    kept: Value | None = None
    out = x
    if node.has_input(2) and node.number_at(2, "training_mode", (0, 1)):
        wide = x.type.dtype if x.type.dtype.bits >= 32 else F32
        ratio = node.reshape(node.cast(node.x(1), wide), ()) if node.has_input(1) else None
        ratio = node.scalar(0.5, wide) if ratio is None else ratio
        draw = node.emit(
            "random_uniform", shape=x.type.shape, dtype=wide, low=0.0, high=1.0, seed=seed
        )
        kept = node.emit("greater_or_equal", draw, ratio)
        scale = node.emit("sub", node.scalar(1, wide), ratio)
        scaled = node.emit("div", node.cast(x, wide), scale)
        out = node.cast(node.where(kept, scaled, node.scalar(0, wide)), x.type.dtype)
    if node.outputs < 2:
        return (out,)
    if kept is None:
        return (out, node.full(1, mask_type, x.type.shape))
    return (out, node.cast(kept, mask_type))


def trilu(node: Node) -> Value:
    x, upper = node.x(), bool(node.attr("upper", 1))
    if node.has_input(1) and node.known(node.x(1)) is None:
        rows, columns = (node.iota(d) for d in x.type.shape[-2:])
        k = node.reshape(node.cast(node.x(1), I64), ())
        shifted = node.unsqueeze(node.emit("add", rows, k), (1,))
        name = "greater_or_equal" if upper else "less_or_equal"
        kept = node.emit(name, node.unsqueeze(columns, (0,)), shifted)
        return node.where(kept, x, node.scalar(0, x.type.dtype))
    k_known = int(node.one(1, "k")) if node.has_input(1) else 0
    return node.emit("trilu", x, upper=upper, k=k_known)


def compress_(node: Node) -> Value:
    x = node.x()
    axis = node.axis(node.attr("axis"), x.type.rank) if node.has("axis") else 0
    if not node.has("axis"):
        x = node.reshape(x, [x.type.elements])
    known = node.known(node.x(1))
    if known is not None and known.dtype != object:
        chosen = node.array(np.flatnonzero(known.reshape(-1)).astype(np.int64))
    else:
        chosen = positions(node, node.x(1))
    return node.gather(x, chosen, axis)


COMPOSE = {
    "CenterCropPad": center_crop_pad,
    "Compress": compress_,
    "Concat": concat,
    "DepthToSpace": depth_to_space,
    "Dropout": dropout,
    "Expand": expand,
    "Flatten": flatten,
    "Pad": pad,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Shape": shape,
    "Size": size,
    "Slice": slice_,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": trilu,
    "Unsqueeze": unsqueeze,
}
