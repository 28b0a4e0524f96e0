"""Indices outside their axis: an error at import, by a constraint, or when the call meets them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphwright as gw
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.frontends.onnx import import_model

F, I64, I32 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
X = np.arange(12, dtype=np.float32).reshape(3, 4)


def model(
    op: str, inputs: dict[str, tuple[int, list[Any]]], *more: onnx.NodeProto,
    fixed: dict[str, np.ndarray] | None = None, names: list[str] | None = None, **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    constants = [numpy_helper.from_array(a, n) for n, a in (fixed or {}).items()]
    wanted = names or [*inputs, *(c.name for c in constants)]
    node = helper.make_node(op, wanted, ["y"], name="pick", **attributes)
    graph = helper.make_graph(
        [*more, node],
        "g",
        [helper.make_tensor_value_info(n, *t) for n, t in inputs.items()],
        [helper.make_tensor_value_info("y", F, None)],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


DATA = {"x": (F, ["N", 4])}
CASES = [
    ("Gather", {"i": (I64, ["K"])}, {}, [0, 2, -3], [[3], [-4], [0, 2**62], [-(2**63)]]),
    ("Gather", {"i": (I32, ["K"])}, {"axis": 1}, [3, -4], [[4], [0, -5]]),
    ("GatherElements", {"i": (I64, ["N", "K"])}, {"axis": 1}, [[3], [-4], [0]], [[[4], [0], [0]]]),
    ("GatherND", {"i": (I64, ["K", 2])}, {}, [[2, 3], [-3, -4]], [[[3, 0]], [[0, 4]], [[0, -5]]]),
]


@pytest.mark.parametrize(("op", "indices", "attributes", "good", "bad"), CASES)
def test_reading(op: str, indices: Any, attributes: Any, good: Any, bad: Any) -> None:
    made = model(op, DATA | indices, **attributes)
    compiled = gw.compile(made, target="cpu")
    kind = np.int32 if indices["i"][0] == I32 else np.int64
    feed = {"x": X, "i": np.array(good, kind)}
    (want,) = evaluate(import_model(made), feed)
    for wrong in bad:
        with pytest.raises(gw.InputError, match=f"{op} pick: an index lies outside"):
            compiled.run(feed | {"i": np.array(wrong, kind)})
        with pytest.raises((ValueError, gw.GraphwrightError), match="pick"):
            evaluate(import_model(made), feed | {"i": np.array(wrong, kind)})
        assert np.array_equal(compiled.run(feed)["y"], want)  # the next call is none the worse


@pytest.mark.parametrize(
    ("op", "shape", "updates", "good", "bad"),
    [
        ("ScatterElements", [1, 4], [1, 4], [[0, 2, -3, 1]], [[0, 3, 0, 0]]),
        ("ScatterND", [1, 1], [1, 4], [[-1]], [[3]]),
    ],
)
def test_writing(op: str, shape: Any, updates: Any, good: Any, bad: Any) -> None:
    given = DATA | {"i": (I64, shape), "u": (F, updates)}
    compiled = gw.compile(model(op, given), target="cpu")
    feed = {"x": X, "i": np.array(good), "u": -np.ones(updates, np.float32)}
    assert (compiled.run(feed)["y"] == -1).sum() == 4
    with pytest.raises(gw.InputError, match=f"{op} pick"):
        compiled.run(feed | {"i": np.array(bad)})


def test_known_indices_of_a_known_axis_are_refused() -> None:
    made = model("Gather", DATA, fixed={"i": np.array([1, 4])}, axis=1)
    with pytest.raises(gw.UnsupportedError, match="its index 4 lies outside axis 1 of 4"):
        gw.compile(made, target="cpu")
    assert [p.node for p in gw.check(made).problems] == ["pick"]


def test_known_indices_of_a_symbolic_axis_are_a_constraint() -> None:
    compiled = gw.compile(model("Gather", DATA, fixed={"i": np.array([3, -1])}), target="cpu")
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    assert np.array_equal(compiled.run({"x": x})["y"], x[[3, 4]])
    with pytest.raises(gw.InputError, match=r"N >= 4.*pick"):
        compiled.run({"x": X})


def test_what_lies_inside_for_certain_is_not_looked_at() -> None:
    made = model(
        "Gather", DATA, helper.make_node("ArgMax", ["x"], ["i"], axis=0, keepdims=0),
        names=["x", "i"], axis=0,
    )  # fmt: skip
    assert all(op.name != "check" for op in import_model(made).ops)


def test_a_branch_that_does_not_run_checks_nothing() -> None:
    then = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["t"], name="inner")], "then", [],
        [helper.make_tensor_value_info("t", F, None)],
    )  # fmt: skip
    other = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["e"])], "else", [],
        [helper.make_tensor_value_info("e", F, None)],
    )  # fmt: skip
    inputs = DATA | {"i": (I64, ["K"]), "c": (TensorProto.BOOL, [])}
    made = model("If", inputs, names=["c"], then_branch=then, else_branch=other)
    compiled = gw.compile(made, target="cpu")
    feed = {"x": X, "i": np.array([7]), "c": np.array(False)}
    assert np.array_equal(compiled.run(feed)["y"], X)
    with pytest.raises(gw.InputError, match="inner"):
        compiled.run(feed | {"c": np.array(True)})
