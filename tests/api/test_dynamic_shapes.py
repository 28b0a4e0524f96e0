"""One artifact serves the declared range, says what a call broke, and is never silently narrower."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphwright as gw

FLOAT = TensorProto.FLOAT


def model_of(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[int | str]],
    weights: dict[str, np.ndarray] | None = None,
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "dynamic",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def forced() -> onnx.ModelProto:
    """A Reshape that only four rows satisfy."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="to_square")
    return model_of([node], {"x": ["N", 6]}, {"shape": np.array([8, 3])})


def added() -> onnx.ModelProto:
    """A table of 12 positions, cut to the length of x."""
    nodes = [
        helper.make_node("Shape", ["x"], ["all"], start=1, end=2, name="length"),
        helper.make_node("Slice", ["table", "zero", "all"], ["rows"], name="positions"),
        helper.make_node("Add", ["x", "rows"], ["s"], name="add_positions"),
        helper.make_node("Add", ["s", "z"], ["y"], name="add_both"),
    ]
    weights = {"table": np.arange(12, dtype=np.float32), "zero": np.array([0])}
    return model_of(nodes, {"x": ["B", "S"], "z": ["B", "T"]}, weights)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_a_dim_that_only_one_size_satisfies_is_refused() -> None:
    with pytest.raises(gw.DowngradeError) as refused:
        gw.compile(forced())
    told = str(refused.value)
    assert "dim N (input 'x', axis 0, declared 0..) can only be 4" in told
    assert "to_square" in told
    assert told.endswith("fix it with --shape N=4, or --allow specialise")
    assert refused.value.exit_code == 6


def test_check_reports_it() -> None:
    report = gw.check(forced())
    (problem,) = report.problems
    assert (problem.node, problem.op) == ("to_square", "shape")
    assert "can only be 4" in problem.reason and "--shape N=4" in problem.fix
    assert gw.check(forced(), shapes="N=4").ok
    assert gw.check(forced(), allow=["specialise"]).ok


def test_allowed_it_serves_that_size_and_refuses_others_by_name() -> None:
    model = gw.compile(forced(), allow=["specialise"])
    assert model(ones(4, 6))[0].shape == (8, 3)
    with pytest.raises(gw.InputError, match=r"N = 3 \(input 'x', axis 0\): .*to_square"):
        model(ones(3, 6))


def test_a_fixed_shape_needs_no_allowance() -> None:
    assert gw.compile(forced(), shapes="N=4")(ones(4, 6))[0].shape == (8, 3)


@pytest.fixture(scope="module")
def positions() -> gw.CompiledModel:
    return gw.compile(added(), shapes=["B=1..8", "S=1..64"])


def test_the_whole_range_is_served(positions: gw.CompiledModel) -> None:
    for batch, length in ((1, 1), (8, 12), (3, 5)):
        x = np.random.default_rng(0).random((batch, length), np.float32)
        want = x + np.arange(length, dtype=np.float32) + 1
        assert np.array_equal(positions(x, ones(batch, length))[0], want)
        assert np.array_equal(positions(x, ones(batch, 1))[0], want)


MISFITS = {
    "a bound that an op needs, with its node": (
        (ones(2, 13), ones(2, 13)), r"S = 13 \(input 'x', axis 1\): .*positions",
    ),
    "sizes that do not broadcast, with both inputs": (
        (ones(2, 5), ones(2, 4)),
        r"S = 5 \(input 'x', axis 1\), T = 4 \(input 'z', axis 1\): .*add_both",
    ),
    "a declared range": (
        (ones(9, 5), ones(9, 5)), r"input 'x': axis 0 is 9, want B in 1\.\.8",
    ),
    "one name, two sizes": (
        (ones(2, 5), ones(3, 5)), r"input 'z': axis 0 is 3, want B = 2 \(bound: B by input 'x'",
    ),
    "the rank": ((ones(2), ones(2, 2)), r"input 'x' has shape \[2\], want 2 axes"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISFITS)
def test_a_call_that_does_not_fit_says_why(positions: gw.CompiledModel, case: str) -> None:
    given, message = MISFITS[case]
    with pytest.raises(gw.InputError, match=message):
        positions(*given)


def test_constraints_travel_with_the_artifact(positions: gw.CompiledModel, tmp_path: Path) -> None:
    positions.save(tmp_path / "model.gw")
    with pytest.raises(gw.InputError, match="positions"):
        gw.load(tmp_path / "model.gw")(ones(2, 13), ones(2, 13))


def test_a_divisor_is_checked() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="pairs")
    model = gw.compile(
        model_of([node], {"x": ["N"]}, {"shape": np.array([-1, 2])}), shapes="x:N[2..8%2]"
    )
    assert model(ones(4))[0].shape == (2, 2)
    with pytest.raises(gw.InputError, match=r"axis 0 is 5, want N a multiple of 2"):
        model(ones(5))


def test_what_must_divide_is_checked_with_its_node() -> None:
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="pairs")
    model = gw.compile(model_of([node], {"x": ["N"]}, {"shape": np.array([-1, 2])}))
    with pytest.raises(gw.InputError, match=r"N = 5 \(input 'x', axis 0\): .*pairs"):
        model(ones(5))
