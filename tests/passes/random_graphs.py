"""Random graphs from lists of small integers, so that hypothesis shrinks them to a few ops.

Every step takes three integers: which op, which operands, which parameters.  A step that does not
fit the values at hand is left out.  Values know whether they are `exact`: made from inputs and
constants without rounding.  Only those go into ops that jump (floor, comparisons, casts to
integers), so that two ways of rounding never decide a branch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from graphwright.compiler.ir.dims import Symbol, of
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import InferenceError
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import BOOL, F32, I32, TensorType

Step = tuple[int, int, int]

NUMBERS = (0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.0, -2.5, 6.0, 0.125, float("inf"), float("nan"))
EXACT_UNARY = ("neg", "abs", "relu")
ROUNDED_UNARY = ("tanh", "sigmoid", "silu", "softsign", "hard_swish")
BINARY = ("add", "sub", "mul", "maximum", "minimum", "add", "mul")


@dataclass
class Builder:
    graph: Graph
    values: list[Value]
    exact: set[Value]

    def pick(self, choice: int, *, want: Callable[[Value], bool] | None = None) -> Value | None:
        fitting = [v for v in self.values if want is None or want(v)]
        # Recent values more often: chains are what passes look for.
        return fitting[-1 - choice % len(fitting)] if fitting else None

    def add(
        self, name: str, operands: Sequence[Value], *, rounds: bool = True, **attributes: object
    ) -> None:
        op = self.graph.create(name, operands, attributes, origins=[f"n{len(self.values)}"])
        for result in op.results:
            self.values.append(result)
            if not rounds and all(v in self.exact for v in operands):
                self.exact.add(result)

    def constant(self, array: np.ndarray, *, named: bool = False) -> Value:
        recipe = Recipe(source=f"w{len(self.values)}") if named else None
        op = self.graph.create("constant", (), {"value": Literal.dense(array), "recipe": recipe})
        self.exact.add(op.result)
        return op.result


def is_float(value: Value) -> bool:
    return value.type.dtype is F32


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def unary(b: Builder, a: int, p: int) -> None:
    names = EXACT_UNARY + ROUNDED_UNARY
    x, name = b.pick(a, want=is_float), names[p % len(names)]
    if x is not None:
        b.add(name, [x], rounds=name not in EXACT_UNARY)


def binary(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: v.type.dtype in (F32, I32))
    if x is None:
        return
    y = b.pick(a // 7, want=lambda v: v.type.dtype is x.type.dtype)
    name = BINARY[p % len(BINARY)]
    if y is not None:
        b.add(name, [x, y], rounds=name in ("add", "sub", "mul"))


def with_number(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: v.type.dtype in (F32, I32))
    if x is None:
        return
    names = ("add", "sub", "mul", "div", "maximum", "minimum", "pow")
    name, number = names[p % len(names)], NUMBERS[(p // 7) % len(NUMBERS)]
    if x.type.dtype is I32:
        number = int(number) if np.isfinite(number) else 5
    if name == "pow":
        number = (0.5, 1.0, 2.0, 3.0, 0.0, -1.0)[(p // 7) % 6] if is_float(x) else 2
    shape = ((), (1,), tuple(1 for _ in x.type.shape))[(p // 84) % 3]
    c = b.constant(np.full(shape, number, x.type.dtype.numpy))
    order = [x, c] if (p // 3) % 2 else [c, x]
    if name in ("div", "pow"):
        order = [x, c]
    b.add(name, order, rounds=name not in ("maximum", "minimum"))


def with_vector(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=is_float)
    if x is None or x.type.rank == 0:
        return
    axis = p % x.type.rank
    extent = x.type.shape[axis]
    if not isinstance(extent, int):
        return
    shape = (extent, *[1] * (x.type.rank - 1 - axis))
    c = b.constant(_rng(p).standard_normal(shape).astype(np.float32).round(2), named=p % 2 == 0)
    b.add(("add", "mul")[p // 4 % 2], [x, c])


def clip(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=is_float)
    if x is not None:
        low = b.constant(np.float32((0.0, -1.0, 2.0)[p % 3]).reshape(()))
        high = b.constant(np.float32((6.0, 1.0, float("inf"))[p // 3 % 3]).reshape(()))
        b.add("clip", [x, low, high], rounds=False)


def transpose(b: Builder, a: int, p: int) -> None:
    x = b.pick(a)
    if x is not None and x.type.rank:
        permutation = tuple(int(i) for i in _rng(p).permutation(x.type.rank))
        b.add("transpose", [x], rounds=False, permutation=permutation)


def reshape(b: Builder, a: int, p: int) -> None:
    x = b.pick(a)
    if x is None:
        return
    shape = list(x.type.shape)
    kind, at = p % 4, (p // 4) % max(len(shape), 1)
    if kind == 0:
        shape.insert(at, 1)
    elif kind == 1 and 1 in shape:
        shape.remove(1)
    elif kind == 2 and at + 1 < len(shape):
        shape[at : at + 2] = [shape[at] * shape[at + 1]]
    elif kind == 3 and shape and isinstance(shape[at], int) and shape[at] % 2 == 0 and shape[at]:
        shape[at : at + 1] = [2, shape[at] // 2]
    if len(shape) <= 5:
        b.add("reshape", [x], rounds=False, shape=tuple(shape))


def broadcast(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: v.type.rank < 4)
    if x is not None:
        shape = tuple((3 if d == 1 and p % 2 else d) for d in x.type.shape)
        b.add("broadcast_to", [x], rounds=False, shape=(2, *shape) if p % 3 == 0 else shape)


def slice_(b: Builder, a: int, p: int) -> None:
    x = b.pick(a)
    if x is None or not x.type.rank:
        return
    axis = p % x.type.rank
    extent = x.type.shape[axis]
    starts, sizes, steps = [0] * x.type.rank, list(x.type.shape), [1] * x.type.rank
    if isinstance(extent, int) and extent:
        low = (p // 5) % extent
        high = low + 1 + (p // 11) % (extent - low)
        starts[axis], sizes[axis] = low, high - low
        if p % 7 == 0:
            starts[axis], steps[axis] = high - 1, -1
    b.add("slice", [x], rounds=False, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


def concat(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: v.type.rank > 0)
    if x is None:
        return
    y = b.pick(a // 5, want=lambda v: v.type == x.type)
    if y is not None:
        b.add("concat", [x, y], rounds=False, axis=p % x.type.rank)


def pad(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and v.type.rank > 0)
    if x is not None:
        low, high = [0] * x.type.rank, [0] * x.type.rank
        low[p % x.type.rank], high[p // 3 % x.type.rank] = p % 3, p // 2 % 2
        b.add("pad", [x], rounds=False, low=tuple(low), high=tuple(high))


def reduce_(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and v.type.rank > 0)
    if x is None:
        return
    names = ("reduce_max", "reduce_sum", "reduce_mean", "reduce_min")
    axes = tuple(i for i in range(x.type.rank) if (p // 4) >> i & 1)
    b.add(names[p % 4], [x], rounds=p % 4 in (1, 2), axes=axes, keepdims=bool(p // 64 % 2))


def softmax(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and v.type.rank > 0)
    if x is not None:
        b.add("softmax", [x], axis=p % x.type.rank)


def written_norm(b: Builder, a: int, p: int) -> None:
    """A layer norm or softmax of basic ops."""
    x = b.pick(a, want=lambda v: is_float(v) and v.type.rank > 0)
    if x is None:
        return
    g, axes = b.graph, {"axes": (p % x.type.rank,), "keepdims": True}

    def op(name: str, *operands: Value, **attributes: object) -> Value:
        return g.create(name, operands, attributes).result

    if p // 4 % 2:
        e = op("exp", op("sub", x, op("reduce_max", x, **axes)))
        b.add("div", [e, op("reduce_sum", e, **axes)])
        return
    d = op("sub", x, op("reduce_mean", x, **axes))
    v = op("reduce_mean", op("mul", d, d), **axes)
    b.add("div", [d, op("sqrt", op("add", v, b.constant(np.float32(1e-2).reshape(()))))])


def compare(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and v in b.exact)
    if x is not None:
        names = ("less", "equal", "greater_or_equal")
        c = b.constant(np.float32(NUMBERS[p % 10]).reshape(()))
        b.add(names[p % 3], [x, c], rounds=False)
        if p % 2:
            b.add("logical_not", [b.values[-1]], rounds=False)


def where(b: Builder, a: int, p: int) -> None:
    c = b.pick(a, want=lambda v: v.type.dtype is BOOL)
    x = b.pick(p, want=is_float)
    y = b.pick(p // 5, want=is_float)
    if c is not None and x is not None and y is not None:
        b.add("where", [c, x, y], rounds=False)


def jump(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and v in b.exact)
    if x is None:
        return
    if p % 3 == 2:
        b.add("cast", [x], rounds=False, dtype=I32)
    else:
        b.add(("floor", "sign")[p % 3], [x], rounds=False)


def to_float(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: v.type.dtype in (BOOL, I32))
    if x is not None:
        b.add("cast", [x], rounds=False, dtype=F32)


def matmul(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and 1 <= v.type.rank <= 3)
    if x is None or not isinstance(x.type.shape[-1], int):
        return
    shape = (x.type.shape[-1], 3) if p % 3 else (x.type.shape[-1],)
    w = b.constant(_rng(p).standard_normal(shape).astype(np.float32).round(2), named=True)
    b.add("matmul", [x, w])


def conv_and_norm(b: Builder, a: int, p: int) -> None:
    x = b.pick(a, want=lambda v: is_float(v) and v.type.rank == 4)
    if x is None or not isinstance(x.type.shape[1], int) or not x.type.shape[1]:
        return
    rng, c = _rng(p), x.type.shape[1]
    w = b.constant(rng.standard_normal((4, c, 1, 1)).astype(np.float32).round(2), named=True)
    pads = ((p % 2,) * 2, (0, p // 2 % 2))
    b.add("conv", [x, w], strides=(1, 1), low=pads[0], high=pads[1], dilations=(1, 1))
    if p % 3:
        vectors = [rng.uniform(0.5, 1.5, 4).astype(np.float32).round(2) for _ in range(4)]
        y = b.values[-1]
        b.add("batch_norm", [y, *(b.constant(v, named=True) for v in vectors)], epsilon=1e-3)


def on_constants(b: Builder, a: int, p: int) -> None:
    """An op whose operands are all constant."""
    x = b.constant(_rng(p).standard_normal((2, 3)).astype(np.float32).round(2), named=a % 2 == 0)
    y = b.constant(np.full((3,), NUMBERS[p % 10], np.float32))
    b.add(BINARY[a % len(BINARY)], [x, y])


STEPS: tuple[Callable[[Builder, int, int], None], ...] = (
    unary, binary, with_number, with_vector, clip, transpose, reshape, broadcast, slice_, concat, pad,
    reduce_, softmax, written_norm, compare, where, jump, to_float, matmul, conv_and_norm, on_constants,
)  # fmt: skip


def random_graph(steps: Sequence[Step]) -> Graph:
    """A valid graph: two float inputs, an integer and a symbolic one; the last values are outputs."""
    graph = Graph("random", registry=REGISTRY)
    n = of(graph.add_symbol(Symbol("N", 1, 6)))
    inputs = [
        graph.add_input("x", TensorType(F32, (2, 4, 3, 1))),
        graph.add_input("y", TensorType(F32, (4, 3))),
        graph.add_input("i", TensorType(I32, (4, 3))),
        graph.add_input("z", TensorType(F32, (n, 4, 3))),
    ]
    b = Builder(graph, list(inputs), set(inputs))
    for kind, operands, parameters in steps:
        before = len(graph.constraints)
        try:
            STEPS[kind % len(STEPS)](b, operands, parameters)
        except InferenceError:
            continue
        # A graph that works only for some sizes proves nothing: take the step back.
        if len(graph.constraints) > before and b.values[-1].op is not None:
            last = b.values.pop()
            b.exact.discard(last)
            del graph.constraints[before:]
            if last.op is not None and not last.uses:
                graph.erase(last.op)
    outputs = [v for v in b.values if not v.uses and v not in inputs][-3:] or [b.values[-1]]
    graph.set_outputs(outputs, [f"out{k}" for k in range(len(outputs))])
    return graph
