"""Sizes that the data decide: bound in mid-run, in the plan and in the kernels after them."""

from __future__ import annotations

import numpy as np
from control_harness import check, compiled, graph_of

KEEP = """
graph @keep(B in 1..64, N in 0..2000) {
  input %x: f32[B, 5]
  input %w: f32[5]
  %0 = constant {value = dense(0.0): f32[]} : f32[]
  %1 = greater(%x, %0) : bool[B, 5]
  %2, %3 = non_zero(%1) : i64[5*B], i64[]
  bind(%3) {symbols = [N], at_most = [5*B]}
  %4 = slice(%2) {starts = [0], sizes = [N], steps = [1]} : i64[N]
  %5 = reshape(%x) {shape = [5*B]} : f32[5*B]
  %6 = gather(%5, %4) : f32[N]
  %7 = exp(%6) : f32[N]
  %8 = iota {size = N} : i64[N]
  %9 = cast(%8) {dtype = !f32} : f32[N]
  %10 = mul(%7, %9) : f32[N]
  %11 = reduce_sum(%10) {axes = [0], keepdims = false} : f32[]
  %12 = from_dims {dims = [N, 2*N + 1]} : i64[2]
  %13 = add(%x, %w) : f32[B, 5]
  %14 = add(%13, %11) : f32[B, 5]
  %15 = full {value = 2.5, dtype = !f32, shape = [N, 3]} : f32[N, 3]
  return %10 as "kept", %12 as "sizes", %14 as "moved", %15 as "filled"
}
"""


def keep_feeds() -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    feeds = [
        {"x": rng.standard_normal((b, 5)).astype(np.float32), "w": np.arange(5, dtype=np.float32)}
        for b in (1, 7, 64, 3)
    ]
    feeds.append({"x": -np.ones((4, 5), np.float32), "w": np.zeros(5, np.float32)})
    return feeds


def test_ops_after_a_binding() -> None:
    check(KEEP, keep_feeds())
    check(KEEP, keep_feeds(), opt=0)


def test_binding_an_input_and_an_unused_symbol() -> None:
    text = """
graph @repeat(N in 0..100, M, K in 0..100) {
  input %n: i64[]
  input %x: f32[3]
  bind(%n, %n) {symbols = [N, K]}
  bind(%n) {symbols = [M]}
  %0 = reshape(%x) {shape = [1, 3]} : f32[1, 3]
  %1 = broadcast_to(%0) {shape = [N, 3]} : f32[N, 3]
  return %1 as "y"
}
"""
    graph = graph_of(text)
    x = np.arange(3, dtype=np.float32)
    model = check(graph, [{"n": np.array(n), "x": x} for n in (4, 0, 100, 1)])
    assert [launch.kind for launch in model.variant.launches] == ["bind", "kernel"]


def test_a_binding_inside_a_branch() -> None:
    check(
        """
graph @inside(B in 1..64, N in 0..2000) {
  input %x: f32[B]
  input %c: bool[]
  %0 = if(%c, %x) : f32[]
    then_body(%a0: f32[B]) {
      %0, %1 = non_zero(%a0) : i64[B], i64[]
      bind(%1) {symbols = [N], at_most = [B]}
      %2 = slice(%0) {starts = [0], sizes = [N], steps = [1]} : i64[N]
      %3 = gather(%a0, %2) : f32[N]
      %4 = softmax(%3) {axis = 0} : f32[N]
      %5 = mul(%4, %4) : f32[N]
      %6 = reduce_sum(%5) {axes = [0], keepdims = false} : f32[]
      return %6
    }
    else_body(%a0: f32[B]) {
      %0 = reduce_sum(%a0) {axes = [0], keepdims = false} : f32[]
      return %0
    }
  return %0 as "y"
}
""",
        [
            {"x": np.float32([0, 1, 2, 0, 3]), "c": np.array(True)},
            {"x": np.float32([0, 1, 2, 0, 3]), "c": np.array(False)},
            {"x": np.ones(40, np.float32), "c": np.array(True)},
        ],
    )


def test_rows_put_into_a_table_at_any_place() -> None:
    """Every row arrives, also with two columns, where GCC 12 loses one (GW_ROLLED in gw/loops.h)."""
    model = compiled(
        graph_of(
            """
graph @insert(N in 0..100, P in 0..100) {
  input %a: i64[N, 2]
  input %r: i64[1, 2]
  input %p: i64[]
  bind(%p) {symbols = [P], at_most = [N]}
  %0 = slice(%a) {starts = [0, 0], sizes = [P, 2], steps = [1, 1]} : i64[P, 2]
  %1 = slice(%a) {starts = [P, 0], sizes = [N - P, 2], steps = [1, 1]} : i64[N - P, 2]
  %2 = concat(%0, %r, %1) {axis = 0} : i64[N + 1, 2]
  return %2 as "y"
}
"""
        )
    )
    row = np.array([[-1, -2]])
    for n in (0, 1, 4, 9, 30):
        a = np.arange(2 * n).reshape(n, 2)
        for p in range(n + 1):
            (y,) = model(a, row, np.array(p))
            np.testing.assert_array_equal(y, np.concatenate([a[:p], row, a[p:]]))
