"""Sequences and optional values: static ones vanish, others are packed; at the boundary they are lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from compiled_harness import check, compiled
from onnx import TensorProto, helper
from onnx_models import imported, model_of

from graphwright.containers import Values
from graphwright.errors import ArtifactError, InputError, UnsupportedError
from graphwright.frontends.onnx import import_model

F = np.float32
RNG = np.random.default_rng(7)


def ragged(*lengths: int, width: int = 3) -> list[np.ndarray]:
    return [RNG.standard_normal((n, width)).astype(F) for n in lengths]


STATIC = """g (float[B, 6] x, float[B, 2] z) => (float[B, 6] y, int64 n, float[3, B, 2] s, float[B, 2] last) {
  parts = SplitToSequence<axis = 1>(x, two)
  two = Constant<value_int = 2>()  zero = Constant<value_int = 0>()  minus = Constant<value_int = -1>()
  more = SequenceInsert(parts, z, zero)  fewer = SequenceErase(more)
  n = SequenceLength(more)  last = SequenceAt(fewer, minus)
  y = ConcatFromSequence<axis = 1>(fewer)  s = ConcatFromSequence<axis = 0, new_axis = 1>(fewer)
}"""


def test_of_known_length_they_vanish() -> None:
    graph = imported(model_of(STATIC))
    assert {op.name for op in graph.ops} <= {"slice", "concat", "reshape", "constant"}
    x, z = RNG.standard_normal((4, 6)).astype(F), RNG.standard_normal((4, 2)).astype(F)
    parts = [z, x[:, :2], x[:, 2:4]]
    want = [np.concatenate(parts, 1), np.array(4), np.stack(parts), x[:, 2:4]]
    check(graph, [{"x": x, "z": z}], [want])


APPENDS = """g (float[B, 3] x, int64 trips) => (float[B, N] y, float[B, M, 1] s, float[B, 1] at, int64 n)
  <bool go = {1}, int64 second = {1}> {
  none = SequenceEmpty()
  first = SequenceInsert(none, m)
  m = ReduceMax<axes = [1]>(x)
  seq = Loop(trips, go, first) <body = b (int64 i, bool c, seq(float[B, 1]) q) => (bool c2, seq(float[B, 1]) q2)
    { k = Cast<to = 1>(i)  a = Mul(x, k)  r = ReduceMax<axes = [1]>(a)  t = Neg(r)
      q1 = SequenceInsert(q, r)  q2 = SequenceInsert(q1, t)  c2 = Identity(c) }>
  y = ConcatFromSequence<axis = 1>(seq)  s = ConcatFromSequence<axis = 1, new_axis = 1>(seq)
  at = SequenceAt(seq, second)  n = SequenceLength(seq)
}"""


def appended(x: np.ndarray, trips: int) -> list[Any]:
    parts = [x.max(1, keepdims=True)]
    for i in range(trips):
        r = (x * i).max(1, keepdims=True)
        parts += [r, -r]
    return [np.concatenate(parts, 1), np.stack(parts, 1), parts[1], np.array(len(parts))]


def test_what_a_loop_appends_is_stacked() -> None:
    """How exporters write a list of results: no tensor is carried."""
    graph = imported(model_of(APPENDS))
    (loop,) = [op for op in graph.ops if op.name == "loop"]
    assert loop.attribute("carried") == 0
    feeds = [{"x": RNG.standard_normal((b, 3)).astype(F), "trips": np.array(n)} for b, n in [(2, 3), (5, 1), (1, 20)]]  # fmt: skip
    check(graph, feeds, [appended(f["x"], int(f["trips"])) for f in feeds])


SELECT = """g (float[B, 3] x, int64 trips, int64 at, int64 out) => (float[N, 3] y, float[M, 3] one, int64 n, seq(float[K, 3]) all)
  <bool go = {1}, float zero = {0}> {
  none = SequenceEmpty()
  seq = Loop(trips, go, none) <body = b (int64 i, bool c, seq(float[P, 3]) q) => (bool c2, seq(float[P, 3]) q2)
    { k = Cast<to = 1>(i)  row = ReduceMean<axes = [1], keepdims = 0>(x)  big = Greater(row, k)
      rows = Compress<axis = 0>(x, big)
      e = ReduceSum<keepdims = 0>(rows)  up = Greater(e, zero)
      q2 = If(up) <then_branch = t () => (seq(float[P, 3]) u) { u = SequenceInsert(q, rows) },
                   else_branch = f () => (seq(float[P, 3]) v) { front = Constant<value_int = 0>() v = SequenceInsert(q, rows, front) }>
      c2 = Identity(c) }>
  one = SequenceAt(seq, at)  all = SequenceErase(seq, out)
  y = ConcatFromSequence<axis = 0>(seq)  n = SequenceLength(all)
}"""  # fmt: skip


def selected(x: np.ndarray, trips: int, at: int, out: int) -> list[Any]:
    seq: list[np.ndarray] = []
    for i in range(trips):
        rows = x[x.mean(1) > i]
        seq.insert(len(seq) if rows.sum() > 0 else 0, rows)
    left = list(seq)
    del left[out]
    return [np.concatenate(seq), seq[at], np.array(len(left)), left]


def test_elements_of_sizes_that_the_data_make() -> None:
    graph = imported(model_of(SELECT))
    feeds = [
        {"x": (RNG.standard_normal((b, 3)) * 4).astype(F), "trips": np.array(n), "at": np.array(a), "out": np.array(o)}
        for b, n, a, o in [(8, 4, 0, -1), (5, 1, -1, 0), (20, 7, 3, 2)]
    ]  # fmt: skip
    answers = [selected(*(f[k] if k == "x" else int(f[k]) for k in f)) for f in feeds]
    model = check(graph, feeds, answers)
    for bad in ({"at": np.array(7)}, {"at": np.array(-8)}, {"out": np.array(7)}):
        with pytest.raises(InputError, match=r"the data make .* = -1 \(Sequence(At|Erase)#"):
            model.run({**feeds[2], **bad})


def sequence_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
) -> onnx.ModelProto:
    graph = helper.make_graph(list(nodes), "sequences", list(inputs), list(outputs))
    opset = helper.make_opsetid("", 18)
    return helper.make_model(graph, opset_imports=[opset], ir_version=9)


def sequence_of(name: str, shape: Sequence[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, shape)


def tensor(name: str, shape: Sequence[int | str | None], kind: int = 1) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("new", [0, 1])
@pytest.mark.parametrize("shape", [["N", "M", 2], [3, 4, 2]])
def test_concatenation_of_a_sequence_that_is_an_input(
    axis: int, new: int, shape: list[int | str]
) -> None:
    model = sequence_model(
        [helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=axis, new_axis=new)],
        [sequence_of("q", shape)],
        [tensor("y", [None] * (3 + new))],
    )
    sizes = [[3, 4, 2]] * 3
    if shape[0] == "N" and not new and axis != -1:
        sizes = [[3, 4, 2], [3, 4, 2], [3, 4, 2]]
        for k, size in enumerate(sizes):
            sizes[k] = [*size[:axis], 2 * k, *size[axis + 1 :]]
    seq = [RNG.standard_normal(s).astype(F) for s in sizes]
    want = np.stack(seq, axis) if new else np.concatenate(seq, axis)
    check(imported(model), [{"q": seq}, {"q": seq[1:2]}], [[want], [seq[1] if not new else np.expand_dims(seq[1], axis)]])  # fmt: skip


def test_elements_that_do_not_fit_end_the_call() -> None:
    model = sequence_model(
        [helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0)],
        [sequence_of("q", ["N", "M"])],
        [tensor("y", [None, None])],
    )
    run = compiled(imported(model))
    assert [(t.name, t.dtype) for t in run.inputs] == [("q", "sequence")]
    a, b = ragged(2, 3)
    np.testing.assert_array_equal(run([a, b])[0], np.concatenate([a, b]))
    for bad, words in (
        ([a, b[:, :2]], r"the data make .*extent.* = -1 \(ConcatFromSequence"),
        ([a, b.astype(np.float64)], "input 'q': element 1 is float64, want float32"),
        ([a, b[0]], r"input 'q': element 1 is \[3\], want rank 2"),
        (a, "input 'q' is a ndarray, want a list of arrays"),
    ):
        with pytest.raises(InputError, match=words):
            run(bad)


@pytest.mark.parametrize("axis", [0, 1])
def test_split_into_parts_of_a_size_that_the_data_make(axis: int) -> None:
    model = model_of(
        f"g (float[B, 5] x, int64 size) => (seq(float[N, M]) y) {{ y = SplitToSequence<axis = {axis}>(x, size) }}"
    )
    feeds, answers = [], []
    for b, size in [(4, 2), (7, 3), (1, 9)]:
        x = RNG.standard_normal((b, 5)).astype(F)
        feeds.append({"x": x, "size": np.array(size)})
        answers.append([np.split(x, range(size, x.shape[axis], size), axis)])
    run = check(imported(model), feeds, answers)
    with pytest.raises(InputError, match="the data make"):
        run(feeds[0]["x"], np.array(0))


def test_split_without_a_size_of_a_symbolic_axis() -> None:
    for keep in (0, 1):
        model = model_of(
            f"g (float[B, T] x) => (seq(float[N, M]) y) {{ y = SplitToSequence<axis = 1, keepdims = {keep}>(x) }}"
        )
        x = RNG.standard_normal((3, 4)).astype(F)
        want = [x[:, i : i + 1] if keep else x[:, i] for i in range(4)]
        check(imported(model), [{"x": x}], [[want]])


MAP = """g (float[2, 3] w, seq(float[N, 2]) q, float[3] b) => (seq(float[N, 3]) y, seq(int64[2]) s) {
  y, s = SequenceMap<body = m (float[N, 2] a, float[3] c) => (float[N, 3] d, int64[2] e)
    { p = MatMul(a, w)  d = Add(p, c)  e = Shape(d) }>(q, b)
}"""


def test_map_over_a_sequence_that_is_an_input() -> None:
    graph = imported(model_of(MAP, opset=18))
    w, b = RNG.standard_normal((2, 3)).astype(F), RNG.standard_normal(3).astype(F)
    feeds, answers = [], []
    for lengths in [(1, 4, 0, 2), (), (3,)]:
        q = ragged(*lengths, width=2)
        feeds.append({"w": w, "q": q, "b": b})
        answers.append([[a @ w + b for a in q], [np.array([len(a), 3]) for a in q]])
    check(graph, feeds, answers)


# -- optional values

OPTIONAL = helper.make_optional_type_proto(
    helper.make_tensor_type_proto(TensorProto.FLOAT, ["N", 2])
)


def test_an_optional_input() -> None:
    branches = [
        helper.make_graph([helper.make_node("OptionalGetElement", ["o"], ["t"])], "t", [], [tensor("t", [None, 2])]),
        helper.make_graph([helper.make_node("Neg", ["x"], ["e"])], "e", [], [tensor("e", [None, 2])]),
    ]  # fmt: skip
    model = sequence_model(
        [
            helper.make_node("OptionalHasElement", ["o"], ["has"]),
            helper.make_node("If", ["has"], ["y"], then_branch=branches[0], else_branch=branches[1]),
            helper.make_node("Identity", ["o"], ["again"]),
        ],
        [helper.make_value_info("o", OPTIONAL), tensor("x", ["B", 2])],
        [tensor("has", [], 9), tensor("y", [None, 2]), helper.make_value_info("again", OPTIONAL)],
    )  # fmt: skip
    (o, x), yes, no = ragged(4, 2, width=2), np.array(True), np.array(False)
    feeds = [{"o": o, "x": x}, {"o": None, "x": x}, {"x": x}]
    check(imported(model), feeds, [[yes, o, o], [no, -x, None], [no, -x, None]])


def test_the_element_of_an_empty_optional_value_ends_the_call() -> None:
    model = sequence_model(
        [helper.make_node("OptionalGetElement", ["o"], ["y"])],
        [helper.make_value_info("o", OPTIONAL)],
        [tensor("y", [None, 2])],
    )
    (o,) = ragged(3, width=2)
    run = check(imported(model), [{"o": o}], [[o]])
    with pytest.raises(InputError, match="OptionalGetElement#0: its input is there"):
        run(None)


def test_what_is_always_empty_is_refused() -> None:
    model = sequence_model(
        [
            helper.make_node("Optional", [], ["o"], type=OPTIONAL.optional_type.elem_type),
            helper.make_node("OptionalGetElement", ["o"], ["y"]),
        ],
        [tensor("x", [2])],
        [tensor("y", [None, 2])],
    )
    with pytest.raises(UnsupportedError, match=r"OptionalGetElement#1 .*: its optional input is"):
        import_model(model)


def test_a_tensor_op_names_the_sequence_that_it_was_given() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { q = SequenceConstruct(x) y = Relu(q) }")
    with pytest.raises(UnsupportedError, match=r"Relu#1 \(Relu\): 'q' is a sequence of f32, want"):
        import_model(model)


def test_elements_of_unknown_rank_are_not_read() -> None:
    model = sequence_model(
        [helper.make_node("SequenceAt", ["q", "k"], ["y"])],
        [sequence_of("q", None), tensor("k", [], 7)],
        [tensor("y", [None])],
    )
    with pytest.raises(UnsupportedError, match="declare the shape of the sequence's elements"):
        import_model(model)


CHOICE = """g (float[B, 2] x, bool c) => (seq(float[N, M]) q, float[K, 2] y, int64 n) {
  q = If(c) <then_branch = t () => (seq(float[N, M]) u) { e = Neg(x)  u = SequenceConstruct(x, e) },
             else_branch = f () => (seq(float[N, M]) v) { v = SequenceConstruct(x) }>
  y = ConcatFromSequence<axis = 0>(q)  n = SequenceLength(q)
}"""


def test_branches_that_yield_sequences_of_two_lengths() -> None:
    (x,) = ragged(3, width=2)
    feeds = [{"x": x, "c": np.array(True)}, {"x": x[:1], "c": np.array(False)}]
    answers = [
        [[x, -x], np.concatenate([x, -x]), np.array(2)],
        [[x[:1]], x[:1], np.array(1)],
    ]
    check(imported(model_of(CHOICE)), feeds, answers)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"inputs": [], "outputs": [["y", {"stack": true}]]}', '{"inputs": [["x", 7, 8]]}',
     '{"inputs": [], "outputs": [["y", "z"]]}', '{"inputs": [], "outputs": [["y", {"packed": [0]}]]}'],
)  # fmt: skip
def test_a_damaged_description_of_values(text: str) -> None:
    with pytest.raises(ArtifactError, match=r"metadata graphwright\.values"):
        Values(text)


def test_a_description_of_other_tensors_than_there_are() -> None:
    values = Values('{"inputs": [["x", 0]], "outputs": [["o", {"optional": 1, "content": 2}]]}')
    values.check_counts(1, 3)
    with pytest.raises(ArtifactError, match="'o' has a tensor that is not there"):
        values.check_counts(1, 2)


def test_what_callers_may_give() -> None:
    (x,) = ragged(2, width=3)
    run = compiled(imported(model_of(STATIC.replace("float[3, B, 2] s, float[B, 2] last", "seq(float[B, 2]) fewer"))))  # fmt: skip
    out = run(z=x[:, :2].copy(), x=np.concatenate([x, x], 1))
    y = np.zeros_like(out[0])
    again = run.run({"x": np.concatenate([x, x], 1), "z": x[:, :2].copy()}, out={"y": y})
    assert again["y"] is y
    np.testing.assert_array_equal(y, out[0])
    with pytest.raises(InputError, match="output 'fewer' is a sequence: it takes no memory"):
        run(x=np.concatenate([x, x], 1), z=x[:, :2].copy(), out=[None, None, y])
    with pytest.raises(InputError, match="no input 'w'; it has: x, z"):
        run(w=x)
    with pytest.raises(InputError, match="'x' is given twice"):
        run(x, x=x)
