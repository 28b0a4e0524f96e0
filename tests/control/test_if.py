"""Conditionals as branches of the native replay."""

from __future__ import annotations

import numpy as np
import pytest
from control_harness import check, compiled, graph_of

from graphwright.errors import InputError

NESTED = """
graph @nested(B in 1..64) {
  input %x: f32[B, 3]
  input %w: f32[3]
  input %c: bool[]
  input %d: bool[]
  %0 = exp(%x) : f32[B, 3]
  %1, %2 = if(%c, %0, %x, %w, %d) : f32[B, 3], f32[B]
    then_body(%a0: f32[B, 3], %a1: f32[B, 3], %a2: f32[3], %a3: bool[]) {
      %0 = add(%a0, %a2) : f32[B, 3]
      %1 = reduce_sum(%0) {axes = [1], keepdims = false} : f32[B]
      %2, %3 = if(%a3, %0, %1) : f32[B, 3], f32[B]
        then_body(%a0: f32[B, 3], %a1: f32[B]) {
          %0 = softmax(%a0) {axis = 1} : f32[B, 3]
          return %0, %a1
        }
        else_body(%a0: f32[B, 3], %a1: f32[B]) {
          %0 = neg(%a1) : f32[B]
          return %a0, %0
        }
      return %2, %3
    }
    else_body(%a0: f32[B, 3], %a1: f32[B, 3], %a2: f32[3], %a3: bool[]) {
      %0 = reduce_max(%a1) {axes = [1], keepdims = false} : f32[B]
      return %a1, %0
    }
  %3 = mul(%1, %0) : f32[B, 3]
  return %3 as "y", %2 as "z", %1 as "between"
}
"""


def test_nested_with_captures_and_outputs_that_are_captures() -> None:
    rng = np.random.default_rng(0)
    feeds = [
        {
            "x": rng.standard_normal((b, 3)).astype(np.float32),
            "w": rng.standard_normal(3).astype(np.float32),
            "c": np.array(c),
            "d": np.array(d),
        }
        for b, c, d in [(1, True, True), (5, True, False), (5, False, True), (64, True, True)]
    ]
    check(NESTED, feeds)
    check(NESTED, feeds[:2], opt=0)


CHECKED = """
graph @checked(B, C) {
  input %x: f32[B]
  input %y: f32[C]
  input %c: bool[]
  %0 = if(%c, %x, %y) : f32[B]
    then_body(%a0: f32[B], %a1: f32[C]) {
      %0 = slice(%a1) {starts = [0], sizes = [B], steps = [1]} : f32[B]
      %1 = add(%a0, %0) : f32[B]
      return %1
    }
    else_body(%a0: f32[B], %a1: f32[C]) {
      %0 = neg(%a0) : f32[B]
      return %0
    }
  return %0 as "z"
}
"""


def test_what_a_branch_needs_of_sizes_is_checked_where_it_is_taken() -> None:
    x, long, short = (np.arange(n, dtype=np.float32) for n in (4, 6, 2))
    yes, no = np.array(True), np.array(False)
    feeds = [{"x": x, "y": y, "c": c} for y, c in [(long, yes), (long, no), (short, no)]]
    model = check(CHECKED, feeds)
    with pytest.raises(InputError, match=r"got 3 and 2 .*slice: axis 0"):
        model(x, short, yes)
    assert np.array_equal(model(x, long, yes)[0], x + long[:4])


def test_static_checks_cost_nothing_at_run_time() -> None:
    graph = graph_of(CHECKED)
    kinds = [launch.kind for launch in compiled(graph).variant.launches]
    assert kinds == ["branch", "check", "kernel", "jump", "kernel"]


SIZED = """
graph @sized(B in 1..64, N in 0..64, R in 0..64) {
  input %x: f32[B, 3]
  input %c: bool[]
  input %d: bool[]
  %0, %1, %2 = if(%c, %x, %d) {binds = [R], shapes = [[R, 3], [B], [3, R]]} : f32[R, 3], f32[B], f32[3, R]
    then_body(%a0: f32[B, 3], %a1: bool[]) {
      %0 = slice(%a0) {starts = [0, 0], sizes = [B, 1], steps = [1, 1]} : f32[B, 1]
      %1, %2 = non_zero(%0) : i64[B], i64[]
      bind(%2) {symbols = [N], at_most = [B]}
      %3 = slice(%1) {starts = [0], sizes = [N], steps = [1]} : i64[N]
      %4 = gather(%a0, %3) : f32[N, 3]
      %5 = exp(%4) : f32[N, 3]
      %6 = reduce_sum(%a0) {axes = [1], keepdims = false} : f32[B]
      %7 = transpose(%5) {permutation = [1, 0]} : f32[3, N]
      return %5, %6, %7
    }
    else_body(%a0: f32[B, 3], %a1: bool[]) {
      %0 = reduce_max(%a0) {axes = [1], keepdims = false} : f32[B]
      %1 = transpose(%a0) {permutation = [1, 0]} : f32[3, B]
      return %a0, %0, %1
    }
  %3 = transpose(%2) {permutation = [1, 0]} : f32[R, 3]
  %4 = mul(%0, %3) : f32[R, 3]
  return %4 as "y", %1 as "z", %0 as "direct"
}
"""


def test_branches_of_different_sizes() -> None:
    x = np.arange(15, dtype=np.float32).reshape(5, 3) / 7
    x[2, 0] = 0
    feeds = [
        {"x": x[:n], "c": np.array(c), "d": np.array(True)}
        for n, c in [(5, True), (5, False), (1, True), (2, False)]
    ]
    check(SIZED, feeds)
    check(SIZED, feeds, opt=0)
