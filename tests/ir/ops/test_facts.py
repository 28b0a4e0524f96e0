"""What the table claims of its rows holds on their samples: passes rewrite by these facts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from samples import Sample, graph_of, samples

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.ops.pointwise import Pointwise

ROWS = [op for op in REGISTRY.values() if isinstance(op, Pointwise)]


def run(sample: Sample, *arrays: np.ndarray) -> np.ndarray:
    given = Sample(sample.op, arrays, sample.attributes)
    (out,) = evaluate(graph_of(given), arrays)
    return out


def same(a: np.ndarray, b: np.ndarray) -> None:
    assert a.dtype == b.dtype
    wide = [x.astype(np.float64) if x.dtype.kind == "V" else x for x in (a, b)]
    np.testing.assert_array_equal(*wide)


def commutative(s: Sample) -> None:
    a, b = s.arrays
    same(run(s, a, b), run(s, b, a))


def associative(s: Sample) -> None:
    a, b = np.broadcast_arrays(*s.arrays)
    c = np.roll(a.reshape(-1), 1).reshape(a.shape)
    same(run(s, run(s, a, b), c), run(s, a, run(s, b, c)))


def idempotent(s: Sample) -> None:
    if len(s.arrays) == 2:
        same(run(s, s.arrays[0], s.arrays[0]), s.arrays[0])
    else:
        once = run(s, s.arrays[0])
        same(run(s, once), once)


def involution(s: Sample) -> None:
    same(run(s, run(s, s.arrays[0])), s.arrays[0])


def monotone(s: Sample) -> None:
    x = s.arrays[0].reshape(-1)
    x = np.sort(x[x == x])
    y = run(s, x).astype(np.float64)
    y = y[y == y]  # outside the domain the result is NaN
    assert (y[1:] >= y[:-1]).all()


CHECKS: dict[str, Callable[[Sample], None]] = {
    "commutative": commutative,
    "associative": associative,
    "idempotent": idempotent,
    "involution": involution,
    "monotone": monotone,
}


@pytest.mark.parametrize("op", [r for r in ROWS if r.facts], ids=lambda op: op.name)
def test_facts(op: Pointwise) -> None:
    for fact in sorted(op.facts):
        for sample in samples(op.name):
            try:
                CHECKS[fact](sample)
            except AssertionError as e:
                e.add_note(f"{sample} is not {fact}")
                raise


def test_aten_names_exist() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    for op in REGISTRY.values():
        for name in op.imports.get("aten", ()):
            base, _, overload = name.partition(".")
            assert overload in getattr(torch.ops.aten, base).overloads(), f"{op.name}: {name}"


def test_onnx_names_exist_and_attributes_fit() -> None:
    onnx = pytest.importorskip("onnx", reason="needs onnx")
    for op in REGISTRY.values():
        for name in op.imports.get("onnx", ()):
            schema = onnx.defs.get_schema(name)
            ours = {op.renames.get(n, n) for n in schema.attributes}
            unknown = ours - set(op.attributes) - {"round_mode"}  # of a type we do not have
            assert not unknown, f"{op.name}: {name} also has {unknown}"
            needed = len([i for i in schema.inputs if i.option.name == "Single"])
            assert op.minimum_operands <= max(needed, 1), f"{op.name}: operands of {name}"
