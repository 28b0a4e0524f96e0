"""Views against numpy: a view's result must lie in its operand's storage exactly as its type says."""

from __future__ import annotations

import numpy as np
import pytest

from graphwright.compiler.ir.dims import Symbol, of
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.layout import Layout, order_of, storage_elements, window_in
from graphwright.compiler.ir.op import Reference
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import F32, I4, TensorType
from graphwright.compiler.passes.views import affine_view, is_joined, storage_of, view_of, whole


def stored(array: np.ndarray, layout: Layout | None) -> np.ndarray:
    return np.ascontiguousarray(array.transpose(order_of(layout, array.ndim))).reshape(-1)


def random_layout(rng: np.random.Generator, rank: int) -> Layout | None:
    if rng.random() < 0.3:
        return None
    return Layout(tuple(int(i) for i in rng.permutation(rank)))


def random_op(rng: np.random.Generator) -> Op:
    """A movement op of one operand, with random layouts on both sides."""
    rank = int(rng.integers(1, 5))
    shape = tuple(int(d) for d in rng.choice([1, 1, 2, 3, 4], rank))
    graph = Graph("one", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, shape, random_layout(rng, rank)))
    kind = str(rng.choice(["reshape", "transpose", "slice", "relayout", "broadcast_to"]))
    attributes: dict[str, object]
    if kind == "reshape":
        total = int(np.prod(shape))
        new = []
        while total > 1:
            factor = int(rng.choice([d for d in range(2, total + 1) if total % d == 0]))
            new.append(factor)
            total //= factor
        for _ in range(int(rng.integers(0, 3))):
            new.insert(int(rng.integers(0, len(new) + 1)), 1)
        attributes = {"shape": tuple(new)}
    elif kind == "transpose":
        attributes = {"permutation": tuple(int(i) for i in rng.permutation(rank))}
    elif kind == "slice":
        starts = [int(rng.integers(0, d)) if rng.random() < 0.6 else 0 for d in shape]
        sizes = [
            int(rng.integers(1, d - s + 1)) if s else d for s, d in zip(starts, shape, strict=False)
        ]
        attributes = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": (1,) * rank}
    elif kind == "relayout":
        attributes = {"layout": random_layout(rng, rank)}
    else:
        attributes = {"shape": tuple(3 if d == 1 and rng.random() < 0.3 else d for d in shape)}
    op = graph.create(kind, [x], attributes)
    if kind != "relayout":
        op.result.type = op.result.type.with_layout(random_layout(rng, op.result.type.rank))
    return op


@pytest.mark.parametrize("seed", range(20))
def test_views_are_exactly_what_needs_no_move(seed: int) -> None:
    rng = np.random.default_rng(seed)
    views = 0
    for _ in range(100):
        op = random_op(rng)
        x, result = op.operands[0], op.result
        array = np.arange(np.prod(x.type.shape), dtype=np.float32).reshape(x.type.shape)
        context = Reference(results=[result.type])
        (moved,) = op.definition.reference([array], op.attributes, context)
        source, target = stored(array, x.type.layout), stored(np.asarray(moved), result.type.layout)
        starts = [
            i for i in range(len(source) - len(target) + 1)
            if np.array_equal(source[i : i + len(target)], target)
        ]  # fmt: skip
        offset = view_of(op)
        views += offset is not None
        assert offset == (4 * starts[0] if starts else None), op
    assert 10 < views < 90


@pytest.mark.parametrize("seed", range(10))
def test_chains_are_affine(seed: int) -> None:
    """Where `affine_view` answers, indexing the source by strides gives the moved array."""
    rng = np.random.default_rng(seed)
    answers = 0
    for _ in range(60):
        graph = Graph("chain", registry=REGISTRY)
        layout = random_layout(rng, 3)
        x = graph.add_input("x", TensorType(F32, (2, 4, 6), layout))
        array = np.arange(48, dtype=np.float32).reshape(2, 4, 6)
        value = x
        for _ in range(3):
            shape = [d for d in value.type.shape if isinstance(d, int)]
            rank = len(shape)
            choice = int(rng.integers(3))
            if choice == 0:
                order = tuple(int(i) for i in rng.permutation(rank))
                value = graph.create("transpose", [value], {"permutation": order}).result
            elif choice == 1 and rank < 6:
                i = int(rng.integers(rank))
                n = shape[i]
                parts = (2, n // 2) if n % 2 == 0 else (1, n)
                if rank > 2 and rng.random() < 0.5 and i + 1 < rank:
                    new = (*shape[:i], n * shape[i + 1], *shape[i + 2 :])
                else:
                    new = (*shape[:i], *parts, *shape[i + 1 :])
                value = graph.create("reshape", [value], {"shape": new}).result
            else:
                steps = [int(rng.choice([1, -1, 2])) for _ in shape]
                sizes = [max(1, n // abs(s)) for n, s in zip(shape, steps, strict=False)]
                starts = [(k - 1) * -s if s < 0 else 0 for k, s in zip(sizes, steps, strict=False)]
                given = {"starts": tuple(starts), "sizes": tuple(sizes), "steps": tuple(steps)}
                value = graph.create("slice", [value], given).result
        moved = array
        for op in graph.ops:
            context = Reference(results=[op.result.type])
            (moved,) = op.definition.reference([moved], op.attributes, context)
        view = affine_view(value)
        if view is None:
            continue
        answers += 1
        assert view.source is x
        grid = np.indices(moved.shape)
        at = view.offset + sum(s * g for s, g in zip(view.strides, grid, strict=False))
        assert np.array_equal(stored(array, layout)[at], moved)
    assert answers > 10


def test_symbolic_extents() -> None:
    b, s = of(Symbol("B")), of(Symbol("S"))
    graph = Graph("symbolic", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (b, s, 32)))
    heads = graph.create("reshape", [x], {"shape": (b, s, 4, 8)})
    assert view_of(heads) == 0
    moved = graph.create("transpose", [heads.result], {"permutation": (0, 2, 1, 3)})
    assert view_of(moved) is None
    moved.result.type = moved.result.type.with_layout(Layout((0, 2, 1, 3)))
    assert view_of(moved) == 0
    flat = graph.create("reshape", [x], {"shape": (b * s, 32)})
    assert view_of(flat) == 0
    last = graph.create(
        "slice", [flat.result], {"starts": (b * s - 1, 0), "sizes": (1, 32), "steps": (1, 1)}
    )
    assert view_of(last) == (b * s - 1) * 128
    assert storage_of(last.result) == (x, (b * s - 1) * 128)


@pytest.mark.parametrize("seed", range(10))
def test_joined_operands_lie_in_the_result(seed: int) -> None:
    """Storing each operand through its window makes the concatenation, nested ones included."""
    rng = np.random.default_rng(seed)
    graph = Graph("joined", registry=REGISTRY)
    rank = int(rng.integers(1, 4))
    order = Layout(tuple(int(i) for i in rng.permutation(rank)))
    axis, other = (int(i) for i in rng.integers(0, rank, 2))
    base = [int(d) for d in rng.integers(1, 4, rank)]
    parts = [int(d) for d in rng.integers(1, 4, int(rng.integers(2, 4)))]
    outer = {axis: sum(parts)}
    shape = tuple(outer.get(a, d) for a, d in enumerate(base))
    inner = window_in(order, shape, other, 2) if rng.random() < 0.5 else order
    if inner is not order:  # the result is itself a part of a larger tensor
        _, start, whole = inner.windows[0]
        inner = Layout(inner.order, windows=((other, start, whole + 3),))
    values, arrays, start = [], [], 0
    for i, part in enumerate(parts):
        piece = tuple(part if a == axis else d for a, d in enumerate(base))
        type = TensorType(F32, piece, window_in(inner, shape, axis, start))
        values.append(graph.add_input(f"x{i}", type))
        arrays.append(rng.standard_normal(piece).astype(np.float32))
        start += part
    op = graph.create("concat", values, {"axis": axis})
    op.result.type = op.result.type.with_layout(inner)
    assert is_joined(op) and view_of(op) == 0
    storage = np.full(storage_elements(shape, op.result.type.layout), np.nan, np.float32)
    for value, array in zip(values, arrays, strict=True):
        assert storage_elements(value.type.shape, value.type.layout) == storage.size
        storage[_addresses(value)] = array
    assert np.array_equal(storage[_addresses(op.result)], np.concatenate(arrays, axis))
    storage_of_operand, _ = storage_of(op.result)
    assert storage_of_operand is values[0]


def _addresses(value: Value) -> np.ndarray:
    view = whole(value)
    assert view is not None
    grid = np.indices(value.type.shape)
    return view.offset + sum(s * g for s, g in zip(view.strides, grid, strict=True))


def test_packed_elements_are_not_cut() -> None:
    graph = Graph("packed", registry=REGISTRY)
    x = graph.add_input("x", TensorType(I4, (2, 3, 6)))
    assert view_of(graph.create("reshape", [x], {"shape": (6, 6)})) == 0
    assert view_of(graph.create("reshape", [x], {"shape": (2, 18)})) is None
    cut = {"starts": (1, 0, 0), "sizes": (1, 3, 6), "steps": (1, 1, 1)}
    assert view_of(graph.create("slice", [x], cut)) is None
