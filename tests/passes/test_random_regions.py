"""Random graphs keep their meaning, bit by bit, through layouts, fusion and ordering."""

from __future__ import annotations

import numpy as np
import pytest
from golden import difference

from graphwright.compiler.ir.dims import Dim, Symbol, of, product
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.types import F32, TensorType
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.fuse_region import Region, describe_region
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target

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

PIPELINES = (
    "propagate-layout,fuse,order",
    "propagate-layout,fuse{profit=always}",
    "fuse{profit=always,max-ops=5},order",
    "order,propagate-layout",
)


@pytest.mark.parametrize("seed", range(60))
def test_meaning_is_kept(seed: int) -> None:
    before = RandomGraph(seed, 12 + seed % 30).graph
    verify(before)
    after = before.clone()
    Pipeline.parse(PIPELINES[seed % len(PIPELINES)]).run(after, Target.parse("cpu"))
    text = print_graph(after)
    assert print_graph(parse_graph(text, registry=REGISTRY, literals=_literals(after))) == text
    for batch in (1, 3):
        rng = np.random.default_rng(seed + batch)
        feed = [
            rng.standard_normal((batch, *(int(str(d)) for d in v.type.shape[1:])))
            .astype(np.float32)
            for v in before.inputs
        ]  # fmt: skip
        for want, got in zip(evaluate(before, feed), evaluate(after, feed), strict=True):
            assert difference(want, got, None, True) is None


@pytest.mark.parametrize("seed", range(60, 90))
def test_every_op_is_in_a_legal_region(seed: int) -> None:
    graph = RandomGraph(seed, 30).graph
    profit = ("roofline", "always")[seed % 2]
    Pipeline.parse(f"propagate-layout,fuse{{profit={profit}}}").run(graph, Target.parse("cpu"))
    for op in graph.ops:
        assert op.kind not in (Kind.POINTWISE, Kind.REDUCTION, Kind.CONTRACTION)
        if op.kind is Kind.MOVEMENT:
            assert view_of(op) is not None
        if op.kind is Kind.FUSED:
            (body,) = op.bodies
            region = describe_region([o for o in body.ops if o.kind is not Kind.SOURCE])
            assert isinstance(region, Region), region
            assert region.kind == op.attributes["region"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_graph_is_made_again(seed: int) -> None:
    texts: set[str] = set()
    for _ in range(2):
        graph = RandomGraph(seed, 40).graph
        Pipeline.parse("propagate-layout,fuse,order").run(graph, Target.parse("cpu"))
        texts.add(print_graph(graph, ids=True))
    assert len(texts) == 1


def _literals(graph: Graph) -> dict[str, Literal]:
    found = [op.attributes["value"] for op in graph.ops if op.name == "constant"]
    return {literal.digest: literal for literal in found}
