"""Loops in the native replay: carried and stacked values, trip counts, nesting."""

from __future__ import annotations

import numpy as np
import pytest
from control_harness import check, compiled, graph_of

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.errors import InputError

POWERS = """
graph @powers(B in 1..64) {
  input %x: f32[B, 3]
  input %trips: i64[]
  input %go: bool[]
  input %limit: f32[]
  %0 = exp(%x) : f32[B, 3]
  %1 = iota {size = B} : i64[B]
  %2, %3, %4, %5 = loop(%trips, %go, %x, %1, %0, %limit) {carried = 2, extent = 9} : i64[], f32[B, 3], i64[B], f32[9, B]
    body(%a0: i64[], %a1: f32[B, 3], %a2: i64[B], %a3: f32[B, 3], %a4: f32[]) {
      %0 = mul(%a1, %a3) : f32[B, 3]
      %1 = reduce_sum(%0) {axes = [1], keepdims = false} : f32[B]
      %2 = reduce_max(%1) {axes = [0], keepdims = false} : f32[]
      %3 = less(%2, %a4) : bool[]
      %4 = add(%a2, %a0) : i64[B]
      return %3, %0, %4, %1
    }
  %6 = add(%3, %0) : f32[B, 3]
  return %6 as "y", %2 as "ran", %4 as "counts", %3 as "direct"
}
"""


def powers_feeds() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [
        {
            "x": rng.standard_normal((b, 3)).astype(np.float32),
            "trips": np.array(trips),
            "go": np.array(go),
            "limit": np.float32(limit),
        }
        for b, trips, go, limit in [
            (1, 3, True, np.inf), (5, 0, True, 9), (5, 9, False, 9), (5, 9, True, 30),
            (64, 1, True, 0), (2, -4, True, 3),
        ]
    ]  # fmt: skip


def test_carried_values_and_conditions() -> None:
    check(POWERS, powers_feeds())
    check(POWERS, powers_feeds(), opt=0)


def test_stacked_rows_up_to_the_last_iteration() -> None:
    text = POWERS.replace('"direct"', '"direct", %5 as "rows"')
    graph = graph_of(text)
    model = compiled(graph)
    for feed in powers_feeds():
        got, want = model.run(feed), evaluate(graph, feed)
        ran = int(got["ran"])
        np.testing.assert_allclose(got["rows"][:ran], want[-1][:ran], rtol=1e-6)


SWAP = """
graph @swap(B in 1..64) {
  input %x: f32[B]
  input %y: f32[B]
  input %trips: i64[]
  %0 = constant {value = splat(true): bool[]} : bool[]
  %1, %2, %3, %4 = loop(%trips, %0, %x, %y, %x) {carried = 3} : i64[], f32[B], f32[B], f32[B]
    body(%a0: i64[], %a1: f32[B], %a2: f32[B], %a3: f32[B]) {
      %0 = constant {value = splat(true): bool[]} : bool[]
      %1 = add(%a1, %a3) : f32[B]
      return %0, %a2, %a1, %1
    }
  return %2 as "a", %3 as "b", %4 as "c"
}
"""


def test_carried_values_that_change_places() -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 6)).astype(np.float32)
    feeds = [{"x": x, "y": y, "trips": np.array(n)} for n in range(5)]
    check(SWAP, feeds)
    check(SWAP, feeds, opt=0)


NESTED = """
graph @nested(B in 1..64) {
  input %x: f32[B]
  input %outer: i64[]
  input %inner: i64[]
  %0 = constant {value = splat(true): bool[]} : bool[]
  %1, %2, %3 = loop(%outer, %0, %x, %x, %inner) {carried = 1, extent = 7} : i64[], f32[B], f32[7]
    body(%a0: i64[], %a1: f32[B], %a2: f32[B], %a3: i64[]) {
      %0 = constant {value = splat(true): bool[]} : bool[]
      %1 = sin(%a2) : f32[B]
      %2, %3, %4 = loop(%a3, %0, %a1, %1, %a0) {carried = 1, extent = 5} : i64[], f32[B], f32[5, B]
        body(%a0: i64[], %a1: f32[B], %a2: f32[B], %a3: i64[]) {
          %0 = constant {value = splat(true): bool[]} : bool[]
          %1 = cast(%a0) {dtype = !f32} : f32[]
          %2 = cast(%a3) {dtype = !f32} : f32[]
          %3 = mul(%a1, %a2) : f32[B]
          %4 = add(%3, %1) : f32[B]
          %5 = sub(%4, %2) : f32[B]
          return %0, %5, %5
        }
      %5 = slice(%4) {starts = [0, 0], sizes = [2, B], steps = [1, 1]} : f32[2, B]
      %6 = reduce_sum(%5) {axes = [0, 1], keepdims = false} : f32[]
      %7 = add(%3, %1) : f32[B]
      return %0, %7, %6
    }
  return %2 as "y", %3 as "sums"
}
"""


def test_nested_loops() -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal(6).astype(np.float32)
    feeds = [
        {"x": x, "outer": np.array(a), "inner": np.array(b)} for a, b in [(7, 2), (7, 5), (7, 3)]
    ]
    check(NESTED, feeds, tolerance=1e-5)


def test_carried_values_that_grow() -> None:
    text = """
graph @grow(B in 1..64, S in 0..4096, N in 0..4096) {
  input %x: f32[B]
  input %trips: i64[]
  %0 = constant {value = splat(true): bool[]} : bool[]
  %1, %2, %3 = loop(%trips, %0, %x, %x, %x) {carried = 2, binds = [S]} : i64[], f32[S], f32[B]
    body(%a0: i64[], %a1: f32[S], %a2: f32[B], %a3: f32[B]) {
      %0 = constant {value = splat(true): bool[]} : bool[]
      %1, %2 = non_zero(%a2) : i64[B], i64[]
      bind(%2) {symbols = [N], at_most = [B]}
      %3 = slice(%1) {starts = [0], sizes = [N], steps = [1]} : i64[N]
      %4 = gather(%a2, %3) : f32[N]
      %5 = concat(%a1, %4) {axis = 0} : f32[N + S]
      %6 = sub(%a2, %a3) : f32[B]
      return %0, %5, %6
    }
  %4 = exp(%2) : f32[S]
  %5 = reduce_sum(%4) {axes = [0], keepdims = false} : f32[]
  return %2 as "y", %4 as "z", %5 as "sum", %3 as "rest"
}
"""
    x = np.float32([1, 0, 2, 3, 0])
    feeds = [{"x": x, "trips": np.array(n)} for n in (0, 1, 2, 6, 1)]
    feeds.append({"x": np.ones(64, np.float32), "trips": np.array(3)})
    check(text, feeds)
    check(text, feeds, opt=0)
    longer = text.replace('%2 as "y", ', "")
    check(longer, feeds)


def test_loops_and_branches_in_each_other() -> None:
    check(
        """
graph @mixed(B in 1..64) {
  input %x: f32[B]
  input %trips: i64[]
  %0 = constant {value = splat(true): bool[]} : bool[]
  %1, %2 = loop(%trips, %0, %x) {carried = 1} : i64[], f32[B]
    body(%a0: i64[], %a1: f32[B]) {
      %0 = constant {value = splat(true): bool[]} : bool[]
      %1 = constant {value = dense(2): i64[]} : i64[]
      %2 = mod(%a0, %1) : i64[]
      %3 = cast(%2) {dtype = !bool} : bool[]
      %4 = if(%3, %a1, %a0) : f32[B]
        then_body(%a0: f32[B], %a1: i64[]) {
          %0 = neg(%a0) : f32[B]
          return %0
        }
        else_body(%a0: f32[B], %a1: i64[]) {
          %0 = constant {value = splat(true): bool[]} : bool[]
          %1, %2 = loop(%a1, %0, %a0) {carried = 1} : i64[], f32[B]
            body(%a0: i64[], %a1: f32[B]) {
              %0 = constant {value = splat(true): bool[]} : bool[]
              %1 = constant {value = splat(1.5): f32[]} : f32[]
              %2 = mul(%a1, %1) : f32[B]
              return %0, %2
            }
          return %2
        }
      return %0, %4
    }
  return %2 as "y"
}
""",
        [{"x": np.arange(5, dtype=np.float32), "trips": np.array(n)} for n in (0, 1, 2, 3, 6)],
    )


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_replay_is_native(trips: int) -> None:
    """A loop of known sizes takes no launch but kernels and jumps."""
    model = compiled(graph_of(SWAP))
    kinds = {launch.kind for launch in model.variant.launches}
    assert kinds == {"kernel", "loop", "next"}
    x = np.ones(3, np.float32)
    assert len(model(x, x, np.array(trips))) == 3


def test_constraints_hold_for_the_size_after_the_loop() -> None:
    text = """
graph @doubled(B in 1..64, S in 0..4096) {
  input %x: f32[B]
  input %y: f32[8]
  input %trips: i64[]
  %0 = constant {value = splat(true): bool[]} : bool[]
  %1, %2 = loop(%trips, %0, %x) {carried = 1, binds = [S]} : i64[], f32[S]
    body(%a0: i64[], %a1: f32[S]) {
      %0 = constant {value = splat(true): bool[]} : bool[]
      %1 = concat(%a1, %a1) {axis = 0} : f32[2*S]
      return %0, %1
    }
  %3 = concat(%2, %y) {axis = 0} : f32[S + 8]
  %4 = reshape(%3) {shape = [2, 8]} : f32[2, 8]
  return %4 as "z"
}
"""
    y = np.arange(8, dtype=np.float32)
    x = np.ones(2, np.float32)
    model = check(text, [{"x": x, "y": y, "trips": np.array(2)}])
    with pytest.raises(InputError, match=r"for .*S = 4: reshape"):
        model(x, y, np.array(1))
