"""How to add a random node of each family to a random graph (fuzz_generator.Builder)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

Maker = Callable[[Any], bool]

UNARY = (
    "Abs", "Neg", "Exp", "Sqrt", "Sin", "Cos", "Tanh", "Sigmoid", "Relu", "Erf", "Floor", "Ceil",
    "Round", "Sign", "Softplus", "Softsign", "Elu", "Selu", "LeakyRelu", "HardSigmoid", "HardSwish",
    "Mish", "Gelu", "Celu", "ThresholdedRelu", "Reciprocal", "Log", "Atan", "Asinh", "IsNaN",
    "IsInf", "Identity", "Cosh", "Acos", "Shrink",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Max", "Min", "Mod", "Pow", "PRelu")
COMPARE = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
REDUCE = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSumExp", "ReduceSumSquare", "ReduceLogSum",
)  # fmt: skip
TYPES = (np.float32, np.float64, np.float16, np.int64, np.int32, np.int8, np.uint8, np.bool_)


def is_float(a: np.ndarray) -> bool:
    return a.dtype in (np.float32, np.float64)


def is_number(a: np.ndarray) -> bool:
    return a.dtype.kind in "fiu" and a.dtype.itemsize >= 4


def ranked(least: int, most: int = 5) -> Callable[[np.ndarray], bool]:
    return lambda a: is_float(a) and least <= a.ndim <= most and a.size > 0


def unary(b: Any) -> bool:
    x = b.pick(is_float)
    return x is not None and b.add(b.rng.choice(UNARY), [x])


def _partner(b: Any, x: np.ndarray) -> str:
    """A value of the same type that broadcasts with x: another one, or a new weight."""
    other = b.pick(lambda a: a.dtype == x.dtype and _broadcasts(a.shape, x.shape))
    if other is not None and b.rng.random() < 0.6:
        return other
    shape = [d if b.rng.random() < 0.6 else 1 for d in x.shape][b.rng.randint(0, x.ndim) :]
    return b.weight(b.numbers(tuple(shape), x.dtype))


def _broadcasts(a: tuple[int, ...], c: tuple[int, ...]) -> bool:
    try:
        np.broadcast_shapes(a, c)
    except ValueError:
        return False
    return True


def binary(b: Any) -> bool:
    x = b.pick(is_number)
    if x is None:
        return False
    op = b.rng.choice(BINARY)
    array = b.arrays[x]
    if (op == "Mod" and array.dtype.kind == "f") or (op == "PRelu" and array.dtype.kind != "f"):
        return False
    names = [x, _partner(b, array)]
    if op != "PRelu" and b.rng.random() < 0.5:
        names.reverse()
    if op in ("Div", "Mod", "Pow") and array.dtype.kind != "f":
        return False  # division by zero has no answer in the specification
    return b.add(op, names)


def compare(b: Any) -> bool:
    x = b.pick(is_number)
    return x is not None and b.add(b.rng.choice(COMPARE), [x, _partner(b, b.arrays[x])])


def logical(b: Any) -> bool:
    x = b.pick(lambda a: a.dtype.kind == "b")
    if x is None:
        return False
    if b.rng.random() < 0.3:
        return b.add("Not", [x])
    return b.add(b.rng.choice(("And", "Or", "Xor")), [x, _partner(b, b.arrays[x])])


def where(b: Any) -> bool:
    c, x = b.pick(lambda a: a.dtype.kind == "b"), b.pick(is_number)
    if c is None or x is None or not _broadcasts(b.arrays[c].shape, b.arrays[x].shape):
        return False
    return b.add("Where", [c, x, _partner(b, b.arrays[x])])


def clip(b: Any) -> bool:
    x = b.pick(is_number)
    if x is None:
        return False
    dtype = b.arrays[x].dtype
    low, high = (
        b.weight(np.array(-1 if dtype.kind != "u" else 1, dtype)),
        b.weight(np.array(2, dtype)),
    )
    return b.add("Clip", [x, low, high])


def cast(b: Any) -> bool:
    x = b.pick(lambda a: np.isfinite(a).all() if a.dtype.kind == "f" else True)
    if x is None:
        return False
    to = np.dtype(b.rng.choice(TYPES))
    array = b.arrays[x]
    if to.kind in "iu" and array.dtype.kind == "f":
        info = np.iinfo(to)
        if array.size and (array.min() < info.min or array.max() > min(info.max, 2**40)):
            return False
    return b.add("Cast", [x], to=helper.np_dtype_to_tensor_dtype(to))


def reduce(b: Any) -> bool:
    x = b.pick(ranked(1))
    if x is None:
        return False
    rank = b.arrays[x].ndim
    axes = b.rng.sample(range(-rank, 0), b.rng.randint(1, rank))
    names = [x, b.weight(np.array(axes, np.int64))]
    return b.add(b.rng.choice(REDUCE), names, keepdims=b.rng.randint(0, 1))


def over_axis(b: Any) -> bool:
    x = b.pick(ranked(1))
    if x is None:
        return False
    axis = b.rng.randrange(-b.arrays[x].ndim, b.arrays[x].ndim)
    op = b.rng.choice(
        ("Softmax", "LogSoftmax", "Hardmax", "ArgMax", "ArgMin", "CumSum", "TopK", "Flatten")
    )
    if op == "CumSum":
        given = {"exclusive": b.rng.randint(0, 1), "reverse": b.rng.randint(0, 1)}
        return b.add(op, [x, b.weight(np.array(axis, np.int64))], **given)
    if op == "TopK":
        k = b.rng.randint(1, b.arrays[x].shape[axis])
        return b.add(
            op, [x, b.weight(np.array([k], np.int64))], 2, axis=axis, largest=b.rng.randint(0, 1)
        )
    if op in ("ArgMax", "ArgMin"):
        return b.add(
            op, [x], axis=axis, keepdims=b.rng.randint(0, 1), select_last_index=b.rng.randint(0, 1)
        )
    return b.add(op, [x], axis=axis)


def reshape(b: Any) -> bool:
    x = b.pick(lambda a: a.size > 0)
    if x is None:
        return False
    shape, rest = [], b.arrays[x].size
    while rest > 1 and len(shape) < 4:
        factors = [f for f in range(2, rest + 1) if rest % f == 0]
        shape.append(b.rng.choice(factors))
        rest //= shape[-1]
    shape = [*shape, rest]
    b.rng.shuffle(shape)
    if b.rng.random() < 0.4:
        shape[b.rng.randrange(len(shape))] = -1
    return b.add("Reshape", [x, b.weight(np.array(shape, np.int64))])


def transpose(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 1)
    if x is None:
        return False
    return b.add("Transpose", [x], perm=b.rng.sample(range(b.arrays[x].ndim), b.arrays[x].ndim))


def slice_(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0)
    if x is None:
        return False
    rank = b.arrays[x].ndim
    axes = b.rng.sample(range(rank), b.rng.randint(1, rank))
    steps = [b.rng.choice([1, 1, 1, 2, 3, -1, -2]) for _ in axes]
    # The reference has another start below the first element for negative steps.
    least = [-b.arrays[x].shape[a] if s < 0 else -9 for a, s in zip(axes, steps, strict=True)]
    numbers = [[b.rng.randint(low, 9) for low in least], [b.rng.randint(-9, 9) for _ in axes]]
    given = [b.weight(np.array(v, np.int64)) for v in (*numbers, axes, steps)]
    return b.add("Slice", [x, *given])


def pad(b: Any) -> bool:
    x = b.pick(ranked(1))
    if x is None:
        return False
    mode = b.rng.choice(("constant", "constant", "edge", "reflect", "wrap"))
    most = min(b.arrays[x].shape) - 1 if mode in ("reflect", "wrap") else 2
    pads = [b.rng.randint(0, max(min(most, 2), 0)) for _ in range(2 * b.arrays[x].ndim)]
    return b.add("Pad", [x, b.weight(np.array(pads, np.int64))], mode=mode)


def concat(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0)
    if x is None:
        return False
    shape, dtype = b.arrays[x].shape, b.arrays[x].dtype
    axis = b.rng.randrange(len(shape))
    fits = [
        n for n, a in b.arrays.items()
        if a.dtype == dtype and a.ndim == len(shape)
        and all(i == axis or p == q for i, (p, q) in enumerate(zip(a.shape, shape, strict=True)))
    ]  # fmt: skip
    return b.add("Concat", [b.rng.choice(fits) for _ in range(b.rng.randint(1, 3))], axis=axis)


def split(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0 and max(a.shape) > 1)
    if x is None:
        return False
    axis = b.rng.choice([i for i, d in enumerate(b.arrays[x].shape) if d > 1])
    count = b.rng.randint(1, min(3, b.arrays[x].shape[axis]))
    return b.add("Split", [x], count, axis=axis, num_outputs=count)


def gather(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0 and a.size > 0)
    if x is None:
        return False
    shape = b.arrays[x].shape
    axis = b.rng.randrange(len(shape))
    draws = np.random.default_rng(b.rng.getrandbits(40))
    op = b.rng.choice(("Gather", "GatherElements", "ScatterElements"))
    size = (b.rng.randint(1, 3), 2)[: b.rng.randint(0, 2)] if op == "Gather" else shape
    index = draws.integers(-shape[axis], shape[axis], size)
    if op != "ScatterElements":
        return b.add(op, [x, b.weight(np.array(index, np.int64))], axis=axis)
    if not is_float(b.arrays[x]):
        return False
    updates = b.weight(b.numbers(shape, b.arrays[x].dtype))
    return b.add(
        op, [x, b.weight(index), updates], axis=axis, reduction=b.rng.choice(("add", "max", "min"))
    )


def shaped(b: Any) -> bool:
    x = b.pick(lambda a: a.ndim > 0)
    if x is None:
        return False
    array = b.arrays[x]
    op = b.rng.choice(
        ("Expand", "Tile", "Unsqueeze", "Squeeze", "Trilu", "Shape", "Size", "NonZero")
    )
    if op == "Expand":
        shape = [2, *array.shape] if b.rng.random() < 0.5 else [max(d, 1) for d in array.shape]
        return b.add(op, [x, b.weight(np.array(shape, np.int64))])
    if op == "Tile":
        return b.add(
            op, [x, b.weight(np.array([b.rng.randint(1, 2) for _ in array.shape], np.int64))]
        )
    if op == "Unsqueeze":
        return b.add(op, [x, b.weight(np.array([b.rng.randint(-1, array.ndim)], np.int64))])
    if op == "Squeeze":
        ones = [i for i, d in enumerate(array.shape) if d == 1]
        return bool(ones) and b.add(op, [x, b.weight(np.array(ones[:1], np.int64))])
    if op == "Trilu" and (array.ndim < 2 or not is_float(array)):
        return False
    if op == "NonZero" and array.dtype.kind not in "fb":
        return False
    return b.add(op, [x])


def matmul(b: Any) -> bool:
    x = b.pick(ranked(1, 4))
    if x is None:
        return False
    array = b.arrays[x]
    inner = array.shape[-1]
    other = b.pick(lambda a: a.dtype == array.dtype and a.ndim > 1 and a.shape[-2] == inner)
    if other is None or b.rng.random() < 0.5:
        other = b.weight(b.numbers((inner, b.rng.choice([1, 3, 8, 17])), array.dtype))
    if array.ndim == 2 and b.arrays[other].ndim == 2 and b.rng.random() < 0.4:
        bias = b.weight(b.numbers((b.arrays[other].shape[1],), array.dtype))
        return b.add("Gemm", [x, other, bias], alpha=0.5, beta=2.0)
    return b.add("MatMul", [x, other])


def conv(b: Any) -> bool:
    # The reference fills dilated filters with zeros, which infinities must not meet.
    x = b.pick(
        lambda a: a.dtype == np.float32 and a.ndim in (3, 4) and a.size > 0 and np.isfinite(a).all()
    )
    if x is None:
        return False
    array = b.arrays[x]
    axes, channels = array.ndim - 2, array.shape[1]
    kernel = [b.rng.choice([1, 2, 3]) for _ in range(axes)]
    group = b.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])
    filters = group * b.rng.choice([1, 2, 4])
    given = {
        "group": group, "strides": [b.rng.randint(1, 2) for _ in kernel],
        "dilations": [b.rng.randint(1, 2) for _ in kernel],
        "pads": [b.rng.randint(0, 2) for _ in range(2 * axes)],
    }  # fmt: skip
    if b.rng.random() < 0.25:
        w = b.weight(b.numbers((channels, filters // group, *kernel), array.dtype))
        return b.add("ConvTranspose", [x, w], **(given | {"pads": [0] * (2 * axes)}))
    w = b.weight(b.numbers((filters, channels // group, *kernel), array.dtype))
    names = [x, w] + (
        [b.weight(b.numbers((filters,), array.dtype))] if b.rng.random() < 0.5 else []
    )
    return b.add("Conv", names, **given)


def pool(b: Any) -> bool:
    x = b.pick(lambda a: a.dtype == np.float32 and a.ndim in (3, 4) and a.size > 0)
    if x is None:
        return False
    axes = b.arrays[x].ndim - 2
    op = b.rng.choice(("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    if op.startswith("Global"):  # the reference's GlobalMaxPool is for images
        return (op == "GlobalAveragePool" or axes == 2) and b.add(op, [x])
    kernel = [b.rng.randint(1, min(3, d)) for d in b.arrays[x].shape[2:]]
    pads = [b.rng.randint(0, k - 1) for k in kernel] * 2
    given = {
        "kernel_shape": kernel,
        "strides": [b.rng.randint(1, 2) for _ in range(axes)],
        "pads": pads,
    }
    if op == "AveragePool":
        given["count_include_pad"] = b.rng.randint(0, 1)
    return b.add(op, [x], **given)


def norm(b: Any) -> bool:
    x = b.pick(lambda a: a.dtype == np.float32 and a.ndim in (3, 4) and a.size > 0)
    if x is None:
        return False
    shape, dtype = b.arrays[x].shape, b.arrays[x].dtype
    op = b.rng.choice(
        ("LayerNormalization", "BatchNormalization", "InstanceNormalization", "LpNormalization")
    )
    if op == "LpNormalization":
        return b.add(op, [x], axis=b.rng.randrange(len(shape)), p=b.rng.randint(1, 2))
    size = shape[-1] if op == "LayerNormalization" else shape[1]
    scale, bias = (b.weight(b.numbers((size,), dtype)) for _ in range(2))
    if op == "BatchNormalization":
        mean, variance = (
            b.weight(b.numbers((size,), dtype)),
            b.weight(np.abs(b.numbers((size,), dtype)) + 1),
        )
        return b.add(op, [x, scale, bias, mean, variance])
    return b.add(op, [x, scale, bias])


def quantize(b: Any) -> bool:
    x = b.pick(lambda a: a.dtype == np.float32 and np.isfinite(a).all())
    if x is None:
        return False
    scale, zero = b.weight(np.array(0.0625, np.float32)), b.weight(np.array(3, np.uint8))
    made = f"v{len(b.nodes)}_0"
    return b.add("QuantizeLinear", [x, scale, zero]) and b.add(
        "DequantizeLinear", [made, scale, zero]
    )


MAKERS: tuple[Maker, ...] = (
    unary, unary, unary, binary, binary, binary, compare, logical, where, clip, cast, reduce, reduce,
    over_axis, over_axis, reshape, reshape, transpose, transpose, slice_, slice_, pad, concat, concat,
    split, gather, gather, shaped, shaped, matmul, matmul, conv, conv, pool, norm, quantize,
)  # fmt: skip
