"""Random graphs of small float tensors with a symbolic batch: movement, products, reductions."""

from __future__ import annotations

import numpy as np

from graphwright.compiler.ir.dims import Dim, Symbol, of, product
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import F32, TensorType

BATCH = Symbol("B", 1, 4)


class RandomGraph:
    """A graph of `count` ops over small tensors that have the symbolic batch first."""

    def __init__(self, seed: int, count: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.graph = Graph("random", registry=REGISTRY)
        self.values: list[Value] = []
        for i, shape in enumerate([(4, 6), (4, 3, 3), (2, 6, 2)]):
            type = TensorType(F32, (of(BATCH), *shape))
            self.values.append(self.graph.add_input(f"x{i}", type))
        for _ in range(count):
            self.grow()
        chosen = [v for v in self.values if not v.uses]
        extra = [v for v in self.values[3:] if v.uses and self.rng.random() < 0.1]
        self.graph.set_outputs([*chosen, *extra])

    def pick(self, *ranks: int) -> Value:
        found = [v for v in self.values if not ranks or v.type.rank in ranks]
        late = min(len(found), 1 + int(self.rng.geometric(0.15)))
        return found[-late]

    def add(self, name: str, *operands: Value, **attributes: object) -> None:
        op = self.graph.create(name, operands, attributes)
        self.values.append(op.results[0])

    def constant(self, *shape: int) -> Value:
        array = self.rng.standard_normal(shape).astype(np.float32)
        return self.graph.create("constant", (), {"value": Literal.dense(array)}).result

    def grow(self) -> None:
        getattr(self, str(self.rng.choice(GROW)))()

    def unary(self) -> None:
        self.add(str(self.rng.choice(["relu", "neg", "sigmoid", "abs", "tanh"])), self.pick())

    def binary(self) -> None:
        a = self.pick()
        same = [v for v in self.values if v.type.shape == a.type.shape]
        b = same[int(self.rng.integers(len(same)))]
        self.add(str(self.rng.choice(["add", "mul", "maximum", "sub"])), a, b)

    def scale(self) -> None:
        a = self.pick()
        axis = int(self.rng.integers(1, a.type.rank))
        shape = [1] * a.type.rank
        extent = a.type.shape[axis]
        shape[axis] = extent if isinstance(extent, int) else 1
        self.add("mul", a, self.constant(*shape[int(self.rng.integers(0, axis + 1)) :]))

    def reduce(self) -> None:
        a = self.pick()
        count = int(self.rng.integers(1, a.type.rank))
        axes = sorted(int(i) for i in self.rng.permutation(np.arange(1, a.type.rank))[:count])
        keep = bool(self.rng.random() < 0.7)
        name = str(self.rng.choice(["reduce_sum", "reduce_mean", "reduce_max"]))
        if not keep and a.type.rank - len(axes) < 2:
            return
        self.add(name, a, axes=tuple(axes), keepdims=keep)
        if keep and self.rng.random() < 0.5:
            self.add("sub", a, self.values[-1])

    def normalize(self) -> None:
        a = self.pick()
        axis = int(self.rng.integers(1, a.type.rank))
        if self.rng.random() < 0.5:
            self.add("softmax", a, axis=axis)
        else:
            self.add("layer_norm", a, axis=axis)

    def transpose(self) -> None:
        a = self.pick()
        rest = [int(i) for i in self.rng.permutation(np.arange(1, a.type.rank))]
        self.add("transpose", a, permutation=(0, *rest))

    def reshape(self) -> None:
        a = self.pick()
        shape = list(a.type.shape)
        i = int(self.rng.integers(1, len(shape)))
        extent = shape[i]
        choice = self.rng.random()
        new: list[Dim]
        if choice < 0.3:
            new = [*shape[:i], 1, *shape[i:]]
        elif choice < 0.6 and isinstance(extent, int) and extent % 2 == 0:
            new = [*shape[:i], 2, extent // 2, *shape[i + 1 :]]
        elif i + 1 < len(shape):
            new = [*shape[:i], product(shape[i : i + 2]), *shape[i + 2 :]]
        else:
            return
        if len(new) <= 5:
            self.add("reshape", a, shape=tuple(new))

    def slice(self) -> None:
        a = self.pick()
        starts, sizes, steps = [0] * a.type.rank, list(a.type.shape), [1] * a.type.rank
        axis = int(self.rng.integers(1, a.type.rank))
        extent = a.type.shape[axis]
        if not isinstance(extent, int) or extent < 2:
            return
        if self.rng.random() < 0.3:
            starts[axis], steps[axis] = extent - 1, -1
        else:
            starts[axis] = int(self.rng.integers(0, extent - 1))
            sizes[axis] = int(self.rng.integers(1, extent - starts[axis] + 1))
        self.add("slice", a, starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))

    def concat(self) -> None:
        a = self.pick()
        axis = int(self.rng.integers(1, a.type.rank))
        extent = a.type.shape[axis]
        if isinstance(extent, int) and extent <= 8:
            self.add("concat", a, self.pick_like(a), axis=axis)

    def pick_like(self, a: Value) -> Value:
        same = [v for v in self.values if v.type.shape == a.type.shape]
        return same[int(self.rng.integers(len(same)))]

    def pad(self) -> None:
        a = self.pick()
        low = [0] * a.type.rank
        low[-1] = int(self.rng.integers(0, 2))
        high = [0] * a.type.rank
        high[-1] = 1
        if isinstance(a.type.shape[-1], int) and a.type.shape[-1] < 9:
            self.add("pad", a, low=tuple(low), high=tuple(high))

    def broadcast(self) -> None:
        a = self.pick()
        shape = tuple(3 if d == 1 and self.rng.random() < 0.5 else d for d in a.type.shape)
        if shape != a.type.shape:
            self.add("broadcast_to", a, shape=shape)

    def matmul(self) -> None:
        a = self.pick()
        depth = a.type.shape[-1]
        if isinstance(depth, int):
            self.add("matmul", a, self.constant(depth, int(self.rng.integers(2, 6))))

    def product(self) -> None:
        a = self.pick(3, 4)
        order = (*range(a.type.rank - 2), a.type.rank - 1, a.type.rank - 2)
        self.add("transpose", a, permutation=order)
        self.add("matmul", a, self.values[-1])

    def conv(self) -> None:
        a = self.pick(4)
        channels, *spatial = a.type.shape[1:]
        if not all(isinstance(d, int) for d in (channels, *spatial)):
            return
        kernel = 3 if self.rng.random() < 0.5 else 1
        pad = kernel // 2
        out = int(self.rng.integers(2, 5))
        assert isinstance(channels, int)
        window = {"strides": (1, 1), "low": (pad, pad), "high": (pad, pad), "dilations": (1, 1)}
        self.add("conv", a, self.constant(out, channels, kernel, kernel), **window)

    def pool(self) -> None:
        a = self.pick(4)
        window = {"strides": (1, 1), "low": (1, 1), "high": (1, 1), "dilations": (1, 1)}
        self.add("max_pool", a, kernel=(3, 3), **window)

    def scan(self) -> None:
        a = self.pick()
        self.add("cumsum", a, axis=int(self.rng.integers(1, a.type.rank)))


GROW = [
    *["unary"] * 3, *["binary"] * 4, *["scale"] * 2, "reduce", "normalize", *["transpose"] * 2,
    *["reshape"] * 2, "slice", "concat", "pad", "broadcast", "matmul", "product", *["conv"] * 3,
    "pool", "scan",
]  # fmt: skip
