"""Symbolic dims: names of inputs' dims, the shapes option, shape subgraphs evaluated at import."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import Feed, imported, model_of

from graphwright.compiler.ir.dims import Symbol
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.errors import InputError, UnsupportedError
from graphwright.frontends.onnx import import_model

RNG = np.random.default_rng(3)


def identity(*inputs: tuple[str, list[int | str | None]]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Identity", [n], [f"{n}_out"]) for n, _ in inputs],
        "g",
        [helper.make_tensor_value_info(n, 1, s) for n, s in inputs],
        [helper.make_tensor_value_info(f"{n}_out", 1, None) for n, _ in inputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def shapes(model: onnx.ModelProto, **options: object) -> list[str]:
    return [str(v.type) for v in imported(model, **options).inputs]


def test_equal_names_are_one_symbol() -> None:
    model = identity(("a", ["B", 3]), ("b", ["S", "B"]))
    assert shapes(model) == ["f32[B, 3]", "f32[S, B]"]


def test_unnamed_dims_are_symbols_of_their_own() -> None:
    model = identity(("a", ["?", "?", None, -1, 0]), ("b.1", ["?"]))
    assert shapes(model) == ["f32[a_0, a_1, a_2, a_3, a_4]", "f32[b.1_0]"]


def test_names_are_made_identifiers_and_stay_apart() -> None:
    model = identity(("x", ["p2o.Dynamic.0", "unk__7", "a-b", "a b", "2nd", "x_0"]), ("y", ["a-b"]))
    found = shapes(model)
    assert found == ["f32[p2o.Dynamic.0, unk__7, a_b, a_b_2, d2nd, x_0_2]", "f32[a_b]"]


def test_a_shape_that_is_not_declared() -> None:
    model = identity(("x", [1]))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(UnsupportedError, match=r"x \(input\): its rank is not declared; give its"):
        import_model(model)
    assert shapes(model, shapes={"x": (2, "N")}) == ["f32[2, N]"]


def test_the_shapes_option_fixes_bounds_and_renames() -> None:
    model = identity(("x", ["B", "T"]), ("y", ["B", 4]))
    graph = imported(model, shapes={"x": (2, Symbol("T", 1, 512, opt=128))})
    assert [str(v.type) for v in graph.inputs] == ["f32[2, T]", "f32[2, 4]"]
    assert graph.symbols["T"] == Symbol("T", 1, 512, opt=128)
    assert shapes(model, shapes="x:Nx[1..8]") == ["f32[N, T]", "f32[N, 4]"]


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"z": (1,)}, "no input is named 'z'"),
        ({"x": (1,)}, "has rank 2"),
        ({"y": (1, 5)}, "is 4 in the model"),
        ({"x": (2, 3), "y": (3, 4)}, "cannot be 3 here"),
    ],
)
def test_shapes_that_do_not_fit(option: dict[str, tuple[int, ...]], says: str) -> None:
    with pytest.raises(InputError, match=says):
        import_model(identity(("x", ["B", "T"]), ("y", ["B", 4])), shapes=option)


def test_declared_output_and_inner_shapes_are_not_trusted() -> None:
    model = model_of("g (float[2, N] x) => (float[7] y) { a = Relu(x) y = Transpose(a) }")
    model.graph.value_info.append(helper.make_tensor_value_info("a", 1, [9, 9, 9]))
    assert [str(v.type) for v in imported(model).outputs] == ["f32[N, 2]"]


# -- shape subgraphs: the type that comes out, and the same numbers as ONNX Runtime for two sizes

CASES = {
    "reshape by -1": (
        "g (float[B, S, 12] x) => (float[a, b, c, d] y) <int64[4] t = {0, 0, 3, -1}> { y = Reshape(x, t) }",
        "f32[B, S, 3, 4]",
    ),
    "heads": (
        """g (float[B, S, 12] x) => (float[a, b, c, d] y)
        <int64 zero = {0}, int64 one = {1}, int64[1] at = {0}, int64[1] h = {3}, int64[1] rest = {-1}>
        { s = Shape(x) b = Gather(s, zero) n = Gather(s, one) b1 = Unsqueeze(b, at)
          n1 = Unsqueeze(n, at) t = Concat<axis=0>(b1, n1, h, rest) y = Reshape(x, t) }""",
        "f32[B, S, 3, 4]",
    ),
    "merged": (
        """g (float[B, S, 4] x) => (float[a, b] y) <int64[2] t = {-1, 4}> { y = Reshape(x, t) }""",
        "f32[B*S, 4]",
    ),
    "a product of dims": (
        """g (float[B, S, 4] x) => (float[a] y) <int64[1] at = {0}>
        { s = Shape(x) p = ReduceProd<keepdims=0>(s) t = Unsqueeze(p, at) y = Reshape(x, t) }""",
        "f32[4*B*S]",
    ),
    "halves": (
        """g (float[B, S] x) => (float[a, b] y)
        <int64 one = {1}, int64 two = {2}, int64[1] at = {0}, int64[1] start = {0}, int64[1] axis = {1}>
        { s = Shape(x) n = Gather(s, one) h = Div(n, two) e = Unsqueeze(h, at)
          y = Slice(x, start, e, axis) }""",
        "f32[B, (S floordiv 2)]",
    ),
    "all but the last": (
        """g (float[B, S] x) => (float[a, b] y) <int64[1] s = {0}, int64[1] e = {-1}, int64[1] a = {1}>
        { y = Slice(x, s, e, a) }""",
        "f32[B, S - 1]",
    ),
    "the last": (
        """g (float[B, S] x) => (float[a, b] y)
        <int64[1] s = {-1}, int64[1] e = {9223372036854775807}, int64[1] a = {1}>
        { y = Slice(x, s, e, a) }""",
        "f32[B, 1]",
    ),
    "reversed": (
        """g (float[B, S] x) => (float[a, b] y)
        <int64[1] s = {-1}, int64[1] e = {-9223372036854775808}, int64[1] a = {1}, int64[1] m = {-1}>
        { y = Slice(x, s, e, a, m) }""",
        "f32[B, S]",
    ),
    "every other": (
        """g (float[B, S] x) => (float[a, b] y)
        <int64[1] s = {0}, int64[1] e = {9223372036854775807}, int64[1] a = {1}, int64[1] m = {2}>
        { y = Slice(x, s, e, a, m) }""",
        "f32[B, ((S + 1) floordiv 2)]",
    ),
    "expand to another input": (
        "g (float[B, 1] x, float[B, S] like) => (float[a, b] y) { s = Shape(like) y = Expand(x, s) }",
        "f32[B, S]",
    ),
    "zeros of a shape": (
        "g (float[B, S] x) => (float[a, b] y) { s = Shape(x) y = ConstantOfShape(s) }",
        "f32[B, S]",
    ),
    "positions": (
        """g (float[B, S] x) => (int64[a] y) <int64 zero = {0}, int64 one = {1}>
        { s = Shape(x) n = Gather(s, one) y = Range(zero, n, one) }""",
        "i64[S]",
    ),
    "a size as data": (
        """g (float[B, S] x) => (float[a, b] y) <int64 one = {1}>
        { s = Shape(x) n = Gather(s, one) f = Cast<to=1>(n) r = Sqrt(f) y = Div(x, r) }""",
        "f32[B, S]",
    ),
    "a shape as an output": (
        "g (float[B, S] x) => (int64[2] y) { s = Shape(x) y = Mul(s, s) }",
        "i64[2]",
    ),
    "where of shapes": (
        """g (float[B, S] x, float[B, S] z) => (float[a, b] y)
        <int64[2] ones = {1, 1}, int64[2] minus = {-1, -1}, int64[2] want = {-1, 3}>
        { s = Shape(x) e = Equal(want, minus) t = Where(e, s, want) y = Reshape(z, t) }""",
        "f32[B, 3]",
    ),
    "resize to scaled sizes": (
        """g (float[1, 2, H, W] x) => (float[a, b, c, d] y) <float[4] k = {1, 1, 2, 0.5}>
        { y = Resize<mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor">(x, , k) }""",
        "f32[1, 2, 2*H, (W floordiv 2)]",
    ),
    "resize to another's size": (
        """g (float[1, 2, H, W] x, float[1, 2, P, Q] z) => (float[a, b, c, d] y)
        <int64[1] two = {2}, int64[1] four = {4}, int64[2] head = {1, 2}>
        { s = Shape(z) t = Slice(s, two, four) u = Concat<axis=0>(head, t)
          y = Resize<mode="linear">(x, , , u) }""",
        "f32[1, 2, P, Q]",
    ),
    "float arithmetic on sizes": (
        """g (float[1, 2, H, W] x) => (float[a, b, c, d] y)
        <int64[1] two = {2}, int64[1] four = {4}, float[2] k = {2, 1.5}, int64[2] head = {1, 2}>
        { s = Shape(x) t = Slice(s, two, four) f = Cast<to=1>(t) m = Mul(f, k) r = Floor(m)
          i = Cast<to=7>(r) u = Concat<axis=0>(head, i) y = Resize<mode="nearest">(x, , , u) }""",
        "f32[1, 2, 2*H, ((3*W) floordiv 2)]",
    ),
    "padded to a multiple": (
        """g (float[1, S] x) => (float[a, b] y)
        <int64 one = {1}, int64 m = {4}, int64[1] at = {0}, int64[3] none = {0, 0, 0}>
        { s = Shape(x) n = Gather(s, one) r = Mod(n, m) d = Sub(m, r) q = Mod(d, m)
          e = Unsqueeze(q, at) p = Concat<axis=0>(none, e) y = Pad(x, p) }""",
        None,
    ),
    "split in the middle": (
        """g (float[2, S] x) => (float[a, b] y) <int64 one = {1}, int64 two = {2}, int64[1] at = {0}>
        { s = Shape(x) n = Gather(s, one) h = Div(n, two) r = Sub(n, h) h1 = Unsqueeze(h, at)
          r1 = Unsqueeze(r, at) t = Concat<axis=0>(h1, r1) y, rest = Split<axis=1>(x, t) }""",
        "f32[2, (S floordiv 2)]",
    ),
    "tile by a size": (
        """g (float[1, 3] x, float[B, 2] z) => (float[a, b] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
        { s = Shape(z) b = Slice(s, zero, one) t = Concat<axis=0>(b, two) y = Tile(x, t) }""",
        "f32[B, 6]",
    ),
}
SIZES = (
    {"B": 2, "S": 6, "H": 4, "W": 6, "P": 3, "Q": 5},
    {"B": 3, "S": 7, "H": 5, "W": 8, "P": 2, "Q": 9},
)


def feed_for(model: onnx.ModelProto, sizes: dict[str, int]) -> Feed:
    return {
        i.name: RNG.standard_normal(
            [d.dim_value or sizes[d.dim_param] for d in i.type.tensor_type.shape.dim]
        ).astype(np.float32)
        for i in model.graph.input
    }


@pytest.mark.parametrize("name", CASES)
def test_shape_subgraphs(
    name: str, ort_run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]
) -> None:
    text, want = CASES[name]
    model = model_of(text)
    graph = imported(model)
    if want is not None:
        assert str(graph.outputs[0].type) == want
    for sizes in SIZES if name != "where of shapes" else ({"B": 2, "S": 3}, {"B": 5, "S": 3}):
        feed = feed_for(model, sizes)
        (got,), (right,) = evaluate(graph, feed), ort_run(model, feed)
        assert got.dtype == right.dtype
        np.testing.assert_allclose(got, right, rtol=1e-6, atol=1e-6)


def test_sizes_as_data_are_made_from_dims_at_once() -> None:
    graph = imported(model_of(CASES["a size as data"][0]))
    assert [op.name for op in graph.ops] == ["from_dims", "cast", "sqrt", "div"]


def test_a_table_shorter_than_the_sequence_is_refused_at_the_call() -> None:
    model = model_of(
        """g (float[B, S, 2] x) => (float[a, b, c] y) <float[1, 4, 2] table = {0, 1, 2, 3, 4, 5, 6, 7},
        int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}>
        { s = Shape(x) n = Slice(s, one, two) t = Slice(table, zero, n, one) y = Add(x, t) }"""
    )
    graph = imported(model)
    assert str(graph.outputs[0].type) == "f32[B, S, 2]"
    assert any("S <= 4" in str(c) for c in graph.constraints)


def test_shapes_that_depend_on_data_are_bound_in_mid_run() -> None:
    model = model_of(
        "g (float[4] x, int64[2] t) => (float[a, b] y) { u = Add(t, t) y = Reshape(x, u) }"
    )
    graph = imported(model)
    assert [op.name for op in graph.ops if op.name in ("bind", "reshape")][-2:] == [
        "bind",
        "reshape",
    ]
    x = np.arange(4, dtype=np.float32)
    (y,) = evaluate(graph, {"x": x, "t": np.array([1, 1])})
    np.testing.assert_array_equal(y, x.reshape(2, 2))
    too_long = model_of("g (float[4] x, int64[K] t) => (float[a, b] y) { y = Reshape(x, t) }")
    with pytest.raises(UnsupportedError, match=r"the target shape .*'t'.* depends on data"):
        import_model(too_long)
