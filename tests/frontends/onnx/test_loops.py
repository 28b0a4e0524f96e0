"""Loop: imported, compiled, called with different trip counts from one artifact."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from compiled_harness import Runner, check
from onnx import helper
from onnx_models import imported, model_of

from graphwright.compiler.ir.printer import print_graph
from graphwright.errors import InputError, UnsupportedError
from graphwright.frontends.onnx import import_model

F = np.float32


def scalars(*numbers: int) -> list[np.ndarray]:
    return [np.array(n, np.int64) for n in numbers]


def against_runtime(
    text: str, feeds: list[dict[str, Any]], ort_run: Runner, **options: Any
) -> None:
    """Of an empty result ONNX Runtime does not know all extents, so that it is no judge of them."""
    model = model_of(text)
    answers = [[a if a.size else None for a in ort_run(model, f)] for f in feeds]
    check(imported(model), feeds, answers, **options)


SUMS = """g (float[B, 3] x, int64 trips) => (float[B, 3] y, float[N, B] rows, int64[N] at)
  <bool go = {1}> {
  w = Exp(x)
  y, rows, at = Loop(trips, go, x) <body = b (int64 i, bool c, float[B, 3] a)
    => (bool c2, float[B, 3] a2, float[B] r, int64 k)
    { m = Mul(a, w)  a2 = Sub(m, x)  r = ReduceMax<axes = [1], keepdims = 0>(a2)
      c2 = Identity(c)  k = Identity(i) }>
}"""


def test_a_trip_count_that_the_data_make(ort_run: Runner) -> None:
    rng = np.random.default_rng(0)
    feeds = [
        {"x": rng.standard_normal((b, 3)).astype(F) / 4, "trips": n}
        for b, n in zip((2, 5, 1, 3), scalars(3, 0, 7, 1), strict=True)
    ]
    against_runtime(SUMS, feeds, ort_run)
    against_runtime(SUMS, feeds[:2], ort_run, opt=0)


WHILE = """g (float[2] x, int64 most, bool go, float limit) => (float[2] y, float[N, 2] rows) {
  y, rows = Loop(MOST, go, x) <body = b (int64 i, bool c, float[2] a)
    => (bool c2, float[2] a2, float[2] r)
    { a2 = Add(a, x)  s = ReduceSum<keepdims = 0>(a2)  c2 = Less(s, limit)  r = Identity(a2) }>
}"""
WHILE_FEEDS = [
    {"x": F([1, 1.5]), "most": np.array(m), "go": np.array(g), "limit": np.array(limit, F)}
    for m, g, limit in [
        (1000, True, 9), (0, True, 9), (1000, False, 9), (3, True, 99), (1000, True, 0),
        (5000, True, 1111), (1000, True, 160),
    ]
]  # fmt: skip


@pytest.mark.parametrize("most", ["most", '""'])
def test_a_condition_without_a_limit_that_import_knows(most: str, ort_run: Runner) -> None:
    """Rows come in chunks, each as large as all before."""
    text = WHILE.replace("MOST", most)
    feeds = [dict(f) for f in WHILE_FEEDS]
    if most != "most":
        text = text.replace("int64 most, ", "")
        for feed in feeds:
            del feed["most"]
        feeds.pop(3)
    against_runtime(text, feeds, ort_run)


def test_a_condition_and_a_limit_known_to_import(ort_run: Runner) -> None:
    text = (
        WHILE.replace("int64 most, ", "").replace("limit) =>", "limit) =>").replace("MOST", "most")
    )
    text = text.replace("rows) {", "rows) <int64 most = {300}> {")
    feeds = [{n: a for n, a in f.items() if n != "most"} for f in WHILE_FEEDS[:3]]
    against_runtime(text, feeds, ort_run)


def test_a_trip_count_from_sizes(ort_run: Runner) -> None:
    text = """g (float[B, 3] x) => (float[3] y, float[B, 3] rows) <int64 zero = {0}, bool go = {1}> {
  s = Shape(x)  n = Gather(s, zero)  f = Gather(x, zero)
  y, rows = Loop(n, go, f) <body = b (int64 i, bool c, float[3] a) => (bool c2, float[3] a2, float[3] r)
    { row = Gather(x, i)  a2 = Add(a, row)  c2 = Identity(c)  r = Identity(a2) }>
}"""
    model = model_of(text)
    graph = imported(model)
    assert not any(op.name == "bind" for op in graph.ops)
    rng = np.random.default_rng(1)
    feeds = [{"x": rng.standard_normal((b, 3)).astype(F)} for b in (1, 4, 30)]
    check(graph, feeds, [ort_run(model, f) for f in feeds])


def test_a_value_that_grows(ort_run: Runner) -> None:
    """Two that grow alike are of one size; a third is not."""
    text = """g (float[2, B] k, float[2, B] v, int64 trips) => (float[2, N] a, float[M] c) <bool go = {1}, float[0] none = {}> {
  k2, v2, c = Loop(trips, go, k, v, none) <body = b (int64 i, bool g, float[2, P] k, float[2, P] v, float[Q] l)
    => (bool g2, float[2, R] kk, float[2, R] vv, float[S] ll)
    { kk = Concat<axis = 1>(k, ke)  vv = Concat<axis = 1>(ve, v)  p = Mul(k, v)
      z = ReduceSum<keepdims = 0>(p) one = Constant<value_ints = [-1]>() z1 = Reshape(z, one)
      ll = Concat<axis = 0>(z1, l, z1)  g2 = Identity(g) }>
  a = Mul(k2, v2)
}"""
    text = text.replace("(float[2, B] k,", "(float[2, B] k0,").replace(
        "B] v, int64", "B] v0, int64"
    )
    text = text.replace("go, k, v, none", "go, k0, v0, none")
    text = text.replace("k2, v2, c =", "one3 = Constant<value_ints = [1]>() zero3 = Constant<value_ints = [0]>()\n  ke = Slice(k0, zero3, one3, one3)  ve = Slice(v0, zero3, one3, one3)\n  k2, v2, c =")  # fmt: skip
    model = model_of(text)
    graph = imported(model)
    (loop,) = [op for op in graph.ops if op.name == "loop"]
    assert len(loop.attribute("binds")) == 2
    rng = np.random.default_rng(2)
    feeds = [
        {"k0": rng.standard_normal((2, b)).astype(F), "v0": rng.standard_normal((2, b)).astype(F), "trips": n}
        for b, n in zip((1, 3, 3, 8), scalars(4, 0, 1, 12), strict=True)
    ]  # fmt: skip
    check(graph, feeds, [ort_run(model, f) for f in feeds])


ROWS = """g (float[B] x, int64 trips) => (int64[N, M] y) <bool go = {1}, float two = {2}> {
  y = Loop(trips, go) <body = b (int64 i, bool c) => (bool c2, int64[M] r)
    { k = Cast<to = 1>(i)  p = EXPRESSION  z = NonZero(p)  m1 = Constant<value_ints = [-1]>()
      r = Reshape(z, m1)  c2 = Identity(c) }>
}"""


def test_rows_of_a_size_that_the_body_finds(ort_run: Runner) -> None:
    text = ROWS.replace("EXPRESSION", "Relu(x)")
    x = F([1, -2, 3, 0, 5])
    feeds = [{"x": x[:b], "trips": n} for b, n in zip((5, 1, 2), scalars(3, 2, 1), strict=True)]
    against_runtime(text, feeds, ort_run)


def test_rows_of_different_sizes_end_the_call() -> None:
    model = model_of(ROWS.replace("EXPRESSION", "Sub(x, k)"))
    graph = imported(model)
    want = np.array([[0, 2, 4], [1, 2, 4]])
    compiled = check(graph, [{"x": F([1, 0, 3, 0, 5]), "trips": np.array(1)}], [[want[:1]]])
    with pytest.raises(InputError, match="Loop#0: all rows of its scan output 0 have one shape"):
        compiled(F([1, 0, 3, 0, 5]), np.array(3))


NESTED = """g (float[3] x, int64 n, bool up) => (float[3] y, float[N] s) <bool go = {1}, float half = {0.5}> {
  t = Sin(x)
  y, s = Loop(n, go, x) <body = b (int64 i, bool c, float[3] a) => (bool c2, float[3] a2, float r)
    { a1 = If(up) <then_branch = t1 () => (float[3] u)
          { u, last = Loop(i, c, a, half) <body = b2 (int64 j, bool d, float[3] e, float h)
              => (bool d2, float[3] e2, float h2)
              { f = Mul(e, t)  k = Cast<to = 1>(j)  h2 = Add(h, k)  e2 = Add(f, h)
                q = ReduceMax<keepdims = 0>(e2)  limit = Constant<value_float = 40.0>()
                d2 = Less(q, limit) }> },
        else_branch = t2 () => (float[3] w) { w = Mul(a, half) }>
      a2 = Sub(a1, x)  r = ReduceSum<keepdims = 0>(a2)  c2 = Identity(c) }>
}"""


def test_loops_and_branches_in_each_other(ort_run: Runner) -> None:
    feeds = [
        {"x": F([1, -2, 3]), "n": np.array(n), "up": np.array(up)}
        for n, up in [(5, True), (5, False), (0, True), (1, True), (9, True)]
    ]
    against_runtime(NESTED, feeds, ort_run)


def test_small_counts_are_unrolled(ort_run: Runner) -> None:
    """Slices at the counter become static, and fusion sees all iterations."""
    text = SUMS.replace("int64 trips", "int64 unused").replace("<bool go = {1}>", "<bool go = {1}, int64 trips = {3}>")  # fmt: skip
    model = model_of(text)
    graph = imported(model)
    assert not any(op.name == "loop" for op in graph.ops)
    feeds = [{"x": F([[1, 2, 3]]), "unused": np.array(0)}]
    check(graph, feeds, [ort_run(model, f) for f in feeds])
    long = model_of(text.replace("{3}", "{300}"))
    assert any(op.name == "loop" for op in imported(long).ops)


RANKS = """g (float[3] x, int64 n) => (float[R] y) <bool go = {1}, int64 trips = {5}> {
  y = Loop(TRIPS, go, x) <body = b (int64 i, bool c, float[R] a) => (bool c2, float[Q] a2)
    { zero = Constant<value_ints = [0]>()  a2 = Unsqueeze(a, zero)  c2 = Identity(c) }>
}"""


def test_a_value_that_changes_its_rank_is_unrolled_or_refused() -> None:
    graph = imported(model_of(RANKS.replace("TRIPS", "trips")))
    assert str(graph.outputs[0].type) == "f32[1, 1, 1, 1, 1, 3]"
    with pytest.raises(
        UnsupportedError,
        match=r"Loop#0 \(Loop\): its carried value 0 is f32\[3\] at first, then f32\[1, 3\]",
    ):
        import_model(model_of(RANKS.replace("TRIPS", "n")))


def test_what_does_not_end_is_refused() -> None:
    text = """g (float[3] x) => (float[3] y) {
  y = Loop("", "", x) <body = b (int64 i, bool c, float[3] a) => (bool c2, float[3] a2)
    { a2 = Neg(a)  c2 = Identity(c) }>
}"""
    with pytest.raises(UnsupportedError, match="it never ends"):
        import_model(model_of(text))


def test_problems_name_the_path_of_the_inner_node() -> None:
    text = NESTED.replace("f = Mul(e, t)", "f = Strange(e, t)").replace("w = Mul", "w = Odd")
    with pytest.raises(UnsupportedError) as refused:
        import_model(model_of(text))
    assert [p.node for p in refused.value.problems] == [
        "Loop#1/body/If#0/then_branch/Loop#0/body/Strange#0",
        "Loop#1/body/If#0/else_branch/Odd#0",
    ]


def test_counter_and_condition_of_one_element() -> None:
    """Some exporters declare them as vectors of one."""
    model = model_of(
        """g (float[2] x, int64[1] n, bool[1] go) => (float[2] y) {
  y = Loop(n, go, x) <body = b (int64[1] i, bool[1] c, float[2] a) => (bool[1] c2, float[2] a2)
    { k = Cast<to = 1>(i)  a2 = Add(a, k)  c2 = Identity(c) }>
}"""
    )
    feeds = [{"x": F([1, 2]), "n": np.array([n]), "go": np.array([True])} for n in (0, 4)]
    check(imported(model), feeds, [[F([1, 2])], [F([7, 8])]])


def test_without_a_condition_what_the_body_says_of_it_is_ignored() -> None:
    model = model_of(
        """g (float[2] x, int64 n) => (float[2] y) {
  y = Loop(n, "", x) <body = b (int64 i, bool c, float[2] a) => (bool c2, float[2] a2)
    { a2 = Add(a, a)  c2 = Not(c) }>
}"""
    )
    check(imported(model), [{"x": F([1, 2]), "n": np.array(3)}], [[F([8, 16])]])


def test_one_value_carried_twice_and_outputs_that_nobody_wants() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["s"]), helper.make_node("Identity", ["c"], ["c2"])],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in
         [("i", 7, []), ("c", 9, []), ("a", 1, [2]), ("b", 1, [2])]],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in
         [("c2", 9, []), ("s", 1, [2]), ("s2", 1, [2]), ("r", 1, [2]), ("r2", 1, [2])]],
    )  # fmt: skip
    body.node.append(helper.make_node("Identity", ["a"], ["s2"]))
    body.node.append(helper.make_node("Identity", ["s"], ["r"]))
    body.node.append(helper.make_node("Neg", ["s"], ["r2"]))
    node = helper.make_node("Loop", ["n", "", "x", "x"], ["y", "", "", "rows"], body=body)
    graph = helper.make_graph(
        [node], "fibonacci",
        [helper.make_tensor_value_info("x", 1, [2]), helper.make_tensor_value_info("n", 7, [])],
        [helper.make_tensor_value_info("y", 1, [2]), helper.make_tensor_value_info("rows", 1, [None, 2])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    x = F([1, 2])
    feeds = [{"x": x, "n": n} for n in scalars(5, 0)]
    want = [[x * 13, -np.outer(F([2, 3, 5, 8, 13]), x)], [x, np.zeros((0, 2), F)]]
    check(imported(model), feeds, want)


WINDOWS = """g (float[B, 21] x, float[10, 3] z) => (float[N, B, 2] y, float[M, 1, 3] rows) <bool go = {1}, int64 twenty = {20}> {
  zero = Constant<value_ints = [0]>()  one = Constant<value_ints = [1]>()  two = Constant<value_ints = [2]>()
  s = Shape<end = 1>(z)  ten = Squeeze(s)
  y = Loop(twenty, go) <body = b (int64 i, bool c) => (bool c2, float[B, 2] w)
    { j = Unsqueeze(i, zero)  k = Add(j, two)  w = Slice(x, j, k, one)  c2 = Identity(c) }>
  rows = Loop(ten, go) <body = b2 (int64 i, bool c) => (bool c2, float[1, 3] w)
    { j = Unsqueeze(i, zero)  k = Add(one, j)  v = Slice(z, j, k)
      f = Cast<to = 1>(i)  e = ReduceMax<keepdims = 0>(v)  c3 = Less(f, e)
      w = If(c3) <then_branch = t () => (float[1, 3] p) { p = Slice(z, j, k) },
                  else_branch = e () => (float[1, 3] q) { q = Neg(v) }>  c2 = Identity(c) }>
}"""


def test_slices_at_the_counter_are_of_a_known_size(ort_run: Runner) -> None:
    """Inside the table for every iteration: no iteration binds a size."""
    model = model_of(WINDOWS)
    graph = imported(model)
    assert "bind" not in print_graph(graph)
    rng = np.random.default_rng(3)
    feeds = [
        {
            "x": rng.standard_normal((b, 21)).astype(F),
            "z": (rng.standard_normal((10, 3)) * 3).astype(F),
        }
        for b in (1, 5)
    ]
    check(graph, feeds, [ort_run(model, f) for f in feeds])
    outside = model_of(WINDOWS.replace("float[B, 21] x", "float[B, 20] x"))
    assert "bind" in print_graph(imported(outside))
