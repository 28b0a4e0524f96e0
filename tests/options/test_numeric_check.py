"""The numeric check catches a pass that changes results and lets the others pass."""

from __future__ import annotations

import numpy as np
import pytest

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.numeric_check import NumericCheck, distance
from graphwright.compiler.passes.base import PassResult
from graphwright.errors import CompileError

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
