"""More nodes for random graphs: quantized, recurrent, attention, small types, data-dependent sizes."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from fuzz_nodes import Maker, is_float

F32 = np.dtype(np.float32)
INTEGERS = tuple(
    np.dtype(t)
    for t in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
)
SMALL = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16), *INTEGERS)


def finite(*ranks: int, dtype: np.dtype = F32) -> Any:
    """Accepts arrays of a type without NaN and infinities, of these ranks (all when none is given)."""
    return lambda a: (
        a.dtype == dtype and (not ranks or a.ndim in ranks) and np.isfinite(a).all()
        and np.abs(a).max(initial=0) < 1e6
    )  # fmt: skip


def draws(b: Any) -> np.random.Generator:
    return np.random.default_rng(b.rng.getrandbits(40))


def ints(b: Any, values: Any) -> str:
    return b.weight(np.array(values, np.int64))


def whole(b: Any, shape: tuple[int, ...], dtype: Any) -> str:
    """A weight of integers from the whole range of the type."""
    info = np.iinfo(dtype)
    return b.weight(draws(b).integers(info.min, info.max, shape, dtype, endpoint=True))


# -- types


def small_type(b: Any) -> bool:
    """A value in a small type through arithmetic."""
    x = b.pick(lambda a: is_float(a) and np.isfinite(a).all() and np.abs(a).max(initial=0) < 100)
    if x is None:
        return False
    to = b.rng.choice(SMALL)
    if to.kind == "u":
        made = b.chain([("Abs", [x], {}), ("Cast", [0], {"to": b.number_of(to)})])
    else:
        made = b.chain([("Cast", [x], {"to": b.number_of(to)})])
    return made and whole_arithmetic(b)


def whole_arithmetic(b: Any) -> bool:
    x = b.pick(lambda a: a.dtype in SMALL)
    if x is None:
        return False
    dtype, shape = b.arrays[x].dtype, b.arrays[x].shape
    if dtype.kind not in "iu":
        op = b.rng.choice(("Add", "Mul", "Max", "Relu", "Abs", "Neg", "ReduceSum", "Softmax"))
        if op in ("Add", "Mul", "Max"):
            return b.add(op, [x, b.weight(b.numbers(shape, dtype))])
        return b.add(op, [x])
    other = (
        whole(b, shape, dtype) if b.rng.random() < 0.5 else b.weight(b.numbers(shape, dtype) + 1)
    )
    ops = (
        "Add", "Sub", "Mul", "Max", "Min", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Equal", "Less",
        "BitwiseNot", "Abs", "Sign", "BitShift", "ReduceMax", "ReduceMin", "ReduceSum", "Div", "Mod",
        "ReduceProd", "Neg", "CumSum", "ArgMax", "Clip", "Where",
    )  # fmt: skip
    op = b.rng.choice(ops)
    if op in ("BitwiseNot", "Abs", "Sign", "Neg", "ReduceMax", "ReduceMin", "ReduceSum"):
        return not (op == "Neg" and dtype.kind == "u") and b.add(op, [x])
    if op in ("ReduceProd", "ArgMax"):
        return b.add(op, [x])
    if op == "CumSum":
        return bool(shape) and b.add(op, [x, b.weight(np.array(0, np.int64))])
    if op == "BitShift":
        if dtype.kind != "u":
            return False
        by = b.weight(draws(b).integers(0, 8 * dtype.itemsize, shape).astype(dtype))
        return b.add(op, [x, by], direction=b.rng.choice(("LEFT", "RIGHT")))
    if op in ("Div", "Mod"):
        # The reference floors or truncates as numpy does; positive numbers have one answer.
        if (b.arrays[x] < 0).any():
            return False
        return b.add(op, [x, b.weight(np.abs(b.numbers(shape, dtype)) + dtype.type(1))])
    if op == "Clip":
        return b.add(op, [x, "", b.weight(np.array(np.iinfo(dtype).max // 2, dtype))])
    if op == "Where":
        return b.add(op, [b.weight(draws(b).random(shape) < 0.5), x, other])
    return b.add(op, [x, other])


# -- quantized


def _quantized(b: Any, x: str, *, signed: bool) -> str | None:
    """x in 8 bits."""
    kind = np.int8 if signed else np.uint8
    scale = b.weight(np.array(b.rng.choice([0.03125, 0.1, 0.017]), np.float32))
    zero = b.weight(np.array(b.rng.randint(-7, 7) if signed else b.rng.randint(0, 255), kind))
    if not b.add("QuantizeLinear", [x, scale, zero]):
        return None
    b.scales[b.last()] = (scale, zero)
    return b.last()


def quantized(b: Any) -> bool:
    """QDQ around a product or a convolution, QLinear forms, integer products."""
    x = b.pick(finite(2, 3, 4))
    if x is None or 0 in b.arrays[x].shape:
        return False
    q = _quantized(b, x, signed=b.rng.random() < 0.5)
    if q is None:
        return False
    shape = b.arrays[q].shape
    wide = b.rng.choice([1, 3, 8, 16, 17])
    per_channel = b.rng.random() < 0.5
    scale, zero = b.scales[q]
    style = b.rng.choice(("qdq", "qdq", "qlinear", "integer"))
    is_image = len(shape) > 2 and b.rng.random() < 0.6
    w_type = b.rng.choice((np.int8, np.int8, np.uint8))
    if is_image:
        kernel = tuple(b.rng.choice([1, 2, 3]) for _ in shape[2:])
        w = whole(b, (wide, shape[1], *kernel), w_type)
    else:
        w = whole(b, (shape[-1], wide), w_type)
    count = (wide,) if per_channel else ()
    w_scale = b.weight((draws(b).random(count) * 0.05 + 0.001).astype(np.float32))
    zeros = np.zeros(count, w_type)
    if w_type is np.uint8:
        zeros = (zeros + 128).astype(w_type)
    w_zero = b.weight(zeros)
    given: dict[str, Any] = {}
    if is_image:
        pad = [b.rng.randint(0, 1)] * (2 * (len(shape) - 2))
        given = {"pads": pad, "strides": [b.rng.randint(1, 2)] * (len(shape) - 2)}
    if style == "integer":
        if per_channel and b.rng.random() < 0.5:
            w_zero = b.weight(np.array(0, w_type))
        op = "ConvInteger" if is_image else "MatMulInteger"
        if b.arrays[w_zero].ndim and is_image:
            return False
        return b.add(op, [q, w, zero, w_zero], **given)
    y_scale, y_zero = b.weight(np.array(0.25, np.float32)), b.weight(np.array(7, np.uint8))
    if style == "qlinear":
        op = "QLinearConv" if is_image else "QLinearMatMul"
        names = [q, scale, zero, w, w_scale, w_zero, y_scale, y_zero]
        if is_image and len(shape) != 4:
            return False  # the reference's QLinearConv is for images
        if is_image and b.rng.random() < 0.5:
            names.append(b.weight(draws(b).integers(-1000, 1000, wide, np.int32)))
        if b.arrays[y_zero].dtype != b.arrays[q].dtype:
            names[7] = b.weight(np.array(7, b.arrays[q].dtype))
        return b.add(op, names, **given)
    axis = 0 if is_image else 1
    op = "Conv" if is_image else "MatMul"
    steps = [
        ("DequantizeLinear", [q, scale, zero], {}),
        ("DequantizeLinear", [w, w_scale, w_zero], {"axis": axis} if per_channel else {}),
        (op, [0, 1], given),
    ]
    for more in b.rng.choice(((), ("Relu",), ("Sigmoid",))):
        steps.append((more, [len(steps) - 1], {}))
    steps.append(("QuantizeLinear", [len(steps) - 1, y_scale, y_zero], {}))
    steps.append(("DequantizeLinear", [len(steps) - 1, y_scale, y_zero], {}))
    return b.chain(steps)


def dynamic_quantized(b: Any) -> bool:
    x = b.pick(finite(2, 3))
    if x is None or b.arrays[x].size == 0:
        return False
    w = whole(b, (b.arrays[x].shape[-1], b.rng.choice([3, 8, 17])), np.int8)
    if not b.add("DynamicQuantizeLinear", [x], 3):
        return False
    y = b.last().removesuffix("_2")
    names = [f"{y}_0", w, f"{y}_2", b.weight(np.array(0, np.int8))]
    steps = [
        ("MatMulInteger", names, {}), ("Cast", [0], {"to": 1}),
        ("Mul", [f"{y}_1", b.weight(np.array(0.01, np.float32))], {}), ("Mul", [1, 2], {}),
    ]  # fmt: skip
    return b.chain(steps)


def blocked(b: Any) -> bool:
    """Weights of 4 or 8 bits with a scale for each block, into a product."""
    x = b.pick(finite(2, 3))
    if x is None or b.arrays[x].shape[-1] % 2:
        return False
    rows, wide = b.arrays[x].shape[-1], 6
    kind = b.rng.choice((np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4), np.dtype(np.int8)))
    low = 0 if kind == np.dtype(ml_dtypes.uint4) else -8
    w = b.weight(draws(b).integers(low, low + 16, (rows, wide)).astype(kind))
    scale = b.weight((draws(b).random((rows // 2, wide)) + 0.1).astype(np.float32))
    return b.chain(
        [("DequantizeLinear", [w, scale], {"axis": 0, "block_size": 2}), ("MatMul", [x, 0], {})]
    )


# -- layers


def recurrent(b: Any) -> bool:
    x = b.pick(finite(3))
    if x is None or b.arrays[x].size == 0:
        return False
    op = b.rng.choice(("LSTM", "GRU", "RNN"))
    _, batch, size = b.arrays[x].shape
    hidden, gates = b.rng.choice([1, 3, 8]), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    direction = b.rng.choice(("forward", "reverse", "bidirectional"))
    ways = 2 if direction == "bidirectional" else 1
    shapes = [(ways, gates * hidden, size), (ways, gates * hidden, hidden)]
    names = [x, *(b.weight(b.numbers(s, F32) / np.float32(2)) for s in shapes)]
    if b.rng.random() < 0.7:
        names.append(b.weight(b.numbers((ways, 2 * gates * hidden), F32)))
        if b.rng.random() < 0.4:
            names += ["", b.weight(b.numbers((ways, batch, hidden), F32))]
            if op == "LSTM" and b.rng.random() < 0.5:
                names.append(b.weight(b.numbers((ways, batch, hidden), F32)))
                names.append(b.weight(b.numbers((ways, 3 * hidden), F32)))
    given: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if op == "GRU":
        given["linear_before_reset"] = b.rng.randint(0, 1)
    return b.add(op, names, 3 if op == "LSTM" else 2, **given)


def attention(b: Any) -> bool:
    x = b.pick(finite(3, 4))
    if x is None or b.arrays[x].size == 0:
        return False
    array = b.arrays[x]
    if array.ndim == 4:
        batch, heads, _, size = array.shape
        kv = [b.weight(b.numbers((batch, heads, 5, size), F32)) for _ in range(2)]
        given = {"is_causal": b.rng.randint(0, 1)}
    else:
        batch, _, size = array.shape
        heads = b.rng.choice([h for h in (1, 2, 4) if size % h == 0])
        kv = [b.weight(b.numbers((batch, 5, size), F32)) for _ in range(2)]
        given = {"is_causal": b.rng.randint(0, 1), "q_num_heads": heads, "kv_num_heads": heads}
    names = [x, *kv]
    if b.rng.random() < 0.3:
        names.append(b.weight(b.numbers((array.shape[-2], 5), F32)))
    return b.add("Attention", names, **given)


def layer(b: Any) -> bool:
    x = b.pick(finite(2, 3, 4))
    if x is None or b.arrays[x].size == 0:
        return False
    array = b.arrays[x]
    op = b.rng.choice(("RMSNormalization", "LayerNormalization", "GroupNormalization", "LRN"))
    if op == "GroupNormalization":
        c = array.shape[1]
        groups = b.rng.choice([g for g in range(1, c + 1) if c % g == 0])
        names = [x, *(b.weight(b.numbers((c,), F32)) for _ in range(2))]
        return array.ndim > 2 and b.add(op, names, num_groups=groups)
    if op == "LRN":
        return array.ndim == 4 and b.add(op, [x], size=b.rng.choice([1, 3]))
    axis = b.rng.randrange(-array.ndim, 0)
    names = [x, b.weight(b.numbers(array.shape[axis:], F32))]
    return b.add(op, names, axis=axis)


def resize(b: Any) -> bool:
    x = b.pick(finite(3, 4))
    if x is None or b.arrays[x].size == 0:
        return False
    shape = b.arrays[x].shape
    given = {
        "mode": b.rng.choice(("nearest", "linear", "cubic")),
        "coordinate_transformation_mode": b.rng.choice(
            ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
        ),
    }
    if given["mode"] == "nearest":
        given["nearest_mode"] = b.rng.choice(("floor", "ceil", "round_prefer_floor"))
    if given["mode"] == "cubic":
        given["cubic_coeff_a"] = -0.5
    if b.rng.random() < 0.5:
        sizes = [*shape[:2], *(b.rng.randint(1, 9) for _ in shape[2:])]
        return b.add("Resize", [x, "", "", ints(b, sizes)], **given)
    scales = [1.0, 1.0, *(b.rng.choice([0.5, 1.0, 1.5, 2.0, 3.0]) for _ in shape[2:])]
    return b.add("Resize", [x, "", b.weight(np.array(scales, np.float32))], **given)


def einsum(b: Any) -> bool:
    x = b.pick(finite(2, 3))
    if x is None:
        return False
    shape = b.arrays[x].shape
    forms = {
        2: ("ij,jk->ik", "ij,kj->ki", "ij,ij->i", "ij->ji", "ij,ik->jk", "ij->"),
        3: ("bij,bjk->bik", "bij,bkj->bik", "bij->bji", "bij->b", "bij,kj->ibk", "bij,bij->bij"),
    }[len(shape)]
    form = b.rng.choice(forms)
    left = form.split("->")[0].split(",")
    sizes = dict(zip(left[0], shape, strict=True))
    names = [x]
    for other in left[1:]:
        names.append(b.weight(b.numbers(tuple(sizes.setdefault(c, 3) for c in other), F32)))
    return b.add("Einsum", names, equation=form)


# -- movement by data


def by_data(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0 and a.dtype.kind in "fiub")
    if x is None:
        return False
    array = b.arrays[x]
    op = b.rng.choice(
        ("GatherND", "ScatterND", "Compress", "Unique", "OneHot", "ReverseSequence", "DepthToSpace",
         "SpaceToDepth", "EyeLike", "ConstantOfShape", "Range", "Expand", "Slice", "Reshape")
    )  # fmt: skip
    shape = array.shape
    if op == "GatherND":
        if array.size == 0:
            return False
        depth = b.rng.randint(1, len(shape))
        index = np.stack([draws(b).integers(-d, d, (3,)) for d in shape[:depth]], -1)
        return b.add(op, [x, ints(b, index)])
    if op == "ScatterND":
        if array.size == 0:
            return False
        count = b.rng.randint(1, min(shape[0], 3))
        index = np.array(b.rng.sample(range(shape[0]), count))[:, None]
        updates = b.weight(b.numbers((count, *shape[1:]), array.dtype))
        return b.add(op, [x, ints(b, index), updates])
    if op == "Compress":
        axis = b.rng.randrange(len(shape))
        keep = b.new_input((shape[axis],), np.dtype(bool)) if len(b.inputs) < 5 else None
        return keep is not None and b.add(op, [x, keep], axis=axis)
    if op == "Unique":
        if array.dtype.kind == "b" or array.size == 0:
            return False
        return b.add(op, [x], 4, sorted=b.rng.randint(0, 1))
    if op == "OneHot":
        if array.dtype.kind not in "iu":
            return False
        values = b.weight(np.array([0.5, 2], np.float32))
        return b.add(op, [x, ints(b, 5), values], axis=b.rng.randint(-1, len(shape)))
    if op == "ReverseSequence":
        if len(shape) < 2 or array.size == 0:
            return False
        lengths = draws(b).integers(1, shape[0] + 1, (shape[1],))
        return b.add(op, [x, ints(b, lengths)], time_axis=0, batch_axis=1)
    if op in ("DepthToSpace", "SpaceToDepth"):
        return len(shape) == 4 and is_float(array) and b.add(op, [x], blocksize=2)
    if op == "EyeLike":
        return len(shape) == 2 and b.add(op, [x], k=b.rng.randint(-2, 2), dtype=1)
    if op == "ConstantOfShape":
        return b.chain([("Shape", [x], {}), (op, [0], {})])
    if op == "Range":
        one, zero = b.weight(np.array(1, np.int64)), b.weight(np.array(0, np.int64))
        return b.chain([("Size", [x], {}), (op, [zero, 0, one], {})])
    if op == "Expand":
        return b.chain([("Shape", [x], {}), (op, [b.weight(b.numbers((1,), F32)), 0], {})])
    if op == "Slice":  # to half of the first axis, calculated
        steps = [
            ("Shape", [x], {}), ("Gather", [0, ints(b, [0])], {}), ("Div", [1, ints(b, [2])], {}),
            (op, [x, ints(b, [0]), 2, ints(b, [0])], {}),
        ]  # fmt: skip
        return b.chain(steps)
    steps = [
        ("Shape", [x], {}), ("Gather", [0, ints(b, [0])], {}),
        ("Concat", [1, ints(b, [-1])], {"axis": 0}), (op, [x, 2], {}),
    ]  # fmt: skip
    return array.size > 0 and b.chain(steps)


def chosen(b: Any) -> bool:
    """Sizes that data decide, and what follows them."""
    x = b.pick(lambda a: is_float(a) and a.ndim > 0)
    if x is None:
        return False
    zero = b.weight(np.array(0, b.arrays[x].dtype))
    steps = [("Greater", [x, zero], {}), ("NonZero", [0], {})]
    more = b.rng.choice(("gather", "sum", "concat", "none"))
    if more == "gather":
        steps += [("Transpose", [1], {}), ("GatherND", [x, 2], {}), ("ReduceSum", [3], {})]
    elif more == "sum":
        steps += [("ReduceSum", [1, ints(b, [1])], {"keepdims": 0})]
    elif more == "concat":
        steps += [("Concat", [1, 1], {"axis": 1}), ("Cast", [2], {"to": 1}), ("Relu", [3], {})]
    return b.chain(steps)


WIDE: tuple[Maker, ...] = (
    small_type, whole_arithmetic, whole_arithmetic, quantized, quantized, quantized,
    dynamic_quantized, blocked, recurrent, attention, layer, resize, einsum, by_data, by_data,
    by_data, chosen,
)  # fmt: skip
