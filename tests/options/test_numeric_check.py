"""The numeric check catches a pass that changes results and lets the others pass."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from graphwright.compiler.driver import check_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.numeric_check import NumericCheck, distance, random_feed
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import PassResult
from graphwright.errors import CompileError
from graphwright.frontends.onnx import import_model

TEXT = """
graph @g(N in 1..100) {
  input %x: f32[N, 4]
  %0 = relu(%x) : f32[N, 4]
  %1 = NAME(%0) : f32[N, 4]
  return %1 as "y"
}
"""


def graph(name: str) -> Graph:
    return parse_graph(TEXT.replace("NAME", name), registry=REGISTRY)


def test_a_wrong_pass_is_named() -> None:
    check = NumericCheck()
    check.before_pass("right", graph("exp"))
    check.after_pass("right", graph("exp"), PassResult(True), 0.0)
    with pytest.raises(CompileError, match="pass wrong changed the output 'y'"):
        check.after_pass("wrong", graph("sinh"), PassResult(True), 0.0)


@pytest.mark.parametrize(
    ("got", "want", "same"),
    [
        ([1.0, 2.0], [1.0, 2.0], True),
        ([1.0, np.nan], [1.0, np.nan], True),
        ([1.0, np.nan], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, np.nan], False),
        ([1.0, np.inf], [1.0, -np.inf], False),
        ([0.0, 1e-9], [0.0, 0.0], True),
        ([1, 2], [1, 3], False),
    ],
)
def test_distance(got: list[float], want: list[float], same: bool) -> None:
    assert (distance(np.array(got), np.array(want)) < 1e-6) is same
    assert distance(np.array(got)[None], np.array(want)) == float("inf")


@pytest.mark.parametrize("dims", [["N"], ["N", "M"], []], ids=str)
def test_packed_sequences_are_fed(dims: list[str]) -> None:
    """A sequence input of arrays of any sizes: its elements are consistent, so the check runs."""
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, dims)
    made = helper.make_graph(
        [helper.make_node("SequenceAt", ["s", "i"], ["x"]), helper.make_node("Relu", ["x"], ["y"])],
        "sequence",
        [helper.make_value_info("s", helper.make_sequence_type_proto(kind)),
         helper.make_tensor_value_info("i", TensorProto.INT64, [])],
        [helper.make_value_info("y", kind)],
    )  # fmt: skip
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = import_model(model)
    feed = random_feed(graph, 0)
    (out,) = evaluate(graph, list(feed.values()))
    assert out.size == 1
    options = CompileOptions.make(target="cpu:x86-64-v3", check_passes="numeric")
    check_graph(graph, options.target, options)
