"""If, functions, initializers that are inputs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper, parser
from onnx_models import Feed, imported, model_of, run

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.errors import InvalidModelError, UnsupportedError
from graphwright.frontends.onnx import import_model

X = np.array([[1.0, -2.0, 3.0]], np.float32)

NESTED = """g (float[1, 3] x, bool c, bool d) => (float[1, 3] y) <float[1, 3] w = {1, 2, 3}> {
  a = Neg(x)
  y = If(c) <
    then_branch = t () => (float[1, 3] r) { r = Add(a, w) },
    else_branch = e () => (float[1, 3] q) {
      q = If(d) <then_branch = t2 () => (float[1, 3] u) { v = Mul(x, w) u = Add(v, a) },
                 else_branch = e2 () => (float[1, 3] u2) { u2 = Identity(x) }> }>
}"""


@pytest.mark.parametrize("c", [False, True])
@pytest.mark.parametrize("d", [False, True])
def test_if_with_captures_nested(
    c: bool, d: bool, ort_run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]
) -> None:
    model = model_of(NESTED)
    graph = imported(model)
    (op,) = [op for op in graph.ops if op.name == "if"]
    assert [v.name for v in op.operands] == ["c", "a", "d", "x"]
    feed = {"x": X, "c": np.array(c), "d": np.array(d)}
    np.testing.assert_array_equal(evaluate(graph, feed)[0], ort_run(model, feed)[0])


def test_a_known_condition_takes_its_branch() -> None:
    """Also one that only sizes decide."""
    model = model_of(
        """g (float[B, 3] x) => (float[B, 3] y) <int64 one = {1}, int64 three = {3}>
        { s = Shape(x) n = Gather(s, one) c = Equal(n, three)
          y = If(c) <then_branch = t () => (float[B, 3] r) { r = Relu(x) },
                     else_branch = e () => (float[B] q) { k = ReduceSum<keepdims=0>(x) q = Foo(k) }> }"""
    )
    assert [op.name for op in imported(model).ops] == ["relu"]


SQUEEZE = """g (float[B, S] x) => (float[a] y) <int64 one = {1}, int64[1] at = {1}>
  { s = Shape(x) n = Gather(s, one) c = Equal(n, one)
    y = If(c) <then_branch = t () => (float[B] r) { r = Squeeze(x, at) },
               else_branch = e () => (float[B, S] q) { q = Identity(x) }> }"""


def test_of_branches_of_two_ranks_the_one_of_equal_sizes_is_kept() -> None:
    """How exporters write the squeeze of an axis that may not be 1; calls are checked."""
    graph = imported(model_of(SQUEEZE))
    assert [op.name for op in graph.ops] == ["reshape"]
    assert any("only the then_branch is compiled" in c.reason for c in graph.constraints)


def test_branches_of_two_ranks_say_what_to_fix() -> None:
    with pytest.raises(UnsupportedError, match="depends on the sizes of inputs; fix the dims"):
        import_model(model_of(SQUEEZE.replace("Equal", "Less")))
    graph = imported(model_of(SQUEEZE), shapes={"x": (None, 1)})
    assert [str(v.type) for v in graph.outputs] == ["f32[B]"] and not graph.constraints


def test_problems_of_both_branches_are_reported() -> None:
    model = model_of(
        """g (float[2] x, bool c) => (float[2] y) {
          y = If(c) <then_branch = t () => (float[2] r) { r = Foo(x) },
                     else_branch = e () => (float[2] q) { q = Bar(x) }> }"""
    )
    with pytest.raises(UnsupportedError) as refused:
        import_model(model)
    assert [p.op for p in refused.value.problems] == ["Foo", "Bar"]
    assert all(p.node.startswith("If#0/") for p in refused.value.problems)


# -- functions

FUNCTIONS = """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
g (float[1, 3] x) => (float[1, 3] y) { a = my.scaled <k = 2.0> (x) b = my.scaled (a) y = my.twice (b) }
<domain: "my", opset_import: ["" : 18]> scaled <k: float = 3.0> (v) => (r)
{ f = Constant <value_float: float = @k> () r = Mul (v, f) }
<domain: "my", opset_import: ["" : 18, "my" : 1]> twice (v) => (r) { s = my.scaled <k = 1.0> (v) r = Add (s, s) }
"""


def test_model_functions_with_attributes_and_defaults() -> None:
    model = parser.parse_model(FUNCTIONS)
    graph = imported(model)
    np.testing.assert_array_equal(evaluate(graph, {"x": X})[0], X * 12)
    assert [o for op in graph.ops if op.name == "add" for o in op.origins] == ["twice#2/Add#1"]


def test_optional_inputs_of_functions() -> None:
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
        g (float[1, 3] x) => (float[1, 3] y) { y = my.limit (x) }
        <domain: "my", opset_import: ["" : 18]> limit (v, low) => (r) { r = Clip (v, low) }"""
    )
    np.testing.assert_array_equal(run(model, {"x": X})[0], X)


def test_a_function_that_calls_itself() -> None:
    model = parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 18, "my" : 1]>
        g (float[1, 3] x) => (float[1, 3] y) { y = my.f (x) }
        <domain: "my", opset_import: ["my" : 1]> f (v) => (r) { r = my.f (v) }"""
    )
    with pytest.raises(InvalidModelError, match="f calls itself"):
        import_model(model)


@pytest.mark.parametrize(
    "text",
    [
        "g (float[2, 3] x) => (float[2, 3] y) { y = MeanVarianceNormalization<axes=[1]>(x) }",
        "g (float[2, 3] x) => (uint8[2, 3] y, float s, uint8 z) { y, s, z = DynamicQuantizeLinear(x) }",
        "g (float[2, 3] x) => (float[2, 3] y) { y = ThresholdedRelu<alpha=0.5>(x) }",
        "g (float[2, 3] x, float[3] b) => (float[2, 3] y) { y = PRelu(x, b) }",
        "g (float[2, 3] x, int64[2] t) => (float l) { l = SoftmaxCrossEntropyLoss(x, t) }",
        'g (float[2, 3] x, int64[2] t) => (float l) { l = NegativeLogLikelihoodLoss<reduction="sum">(x, t) }',
        "g (float[2, 3] x) => (float[2, 3] y) { y = Celu<alpha=2.0>(x) }",
        "g (float[2, 3] x) => (int64[2, 3] y) { h = HardSwish(x) y = Cast<to=7>(h) }",
    ],
)
def test_ops_that_expand_through_their_schema(
    text: str, ort_run: Callable[[onnx.ModelProto, Feed], list[np.ndarray]]
) -> None:
    rng = np.random.default_rng(5)
    model = model_of(text)
    feed: dict[str, np.ndarray] = {"x": rng.standard_normal((2, 3)).astype(np.float32)}
    names = {i.name for i in model.graph.input}
    if "t" in names:
        feed["t"] = np.array([2, 0])
    if "b" in names:
        feed["b"] = rng.standard_normal(3).astype(np.float32)
    for got, want in zip(run(model, feed), ort_run(model, feed), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=2e-6)


# -- initializers that are inputs


def overridable(ir_version: int) -> onnx.ModelProto:
    model = model_of(
        "g (float[2] x) => (float[2] y) <float[2] w = {3, 4}> { v = Mul(w, w) y = Add(x, v) }",
        ir_version=ir_version,
    )
    model.graph.input.append(helper.make_tensor_value_info("w", 1, [2]))
    return model


def test_before_ir_version_4_an_initializer_is_a_constant() -> None:
    graph = imported(overridable(3))
    assert [v.name for v in graph.inputs] == ["x"]
    assert not graph.input_defaults


def test_from_ir_version_4_on_it_is_an_input_with_a_default() -> None:
    graph = imported(overridable(4))
    assert [v.name for v in graph.inputs] == ["x", "w"]
    x, w = np.array([1, 2], np.float32), np.array([10, 20], np.float32)
    assert list(graph.input_defaults) == ["w"]
    np.testing.assert_array_equal(evaluate(graph, {"x": x})[0], x + np.array([9, 16]))
    np.testing.assert_array_equal(evaluate(graph, {"x": x, "w": w})[0], x + w * w)
    frozen = imported(overridable(4), allow=frozenset({"freeze-initializers"}))
    assert [v.name for v in frozen.inputs] == ["x"]


def test_a_shape_from_an_overridable_initializer_needs_allowance() -> None:
    model = model_of(
        "g (float[4] x) => (float[a, b] y) <int64[2] t = {2, 2}> { y = Reshape(x, t) }"
    )
    model.graph.input.append(helper.make_tensor_value_info("t", 7, [2]))
    with pytest.raises(
        UnsupportedError, match="'t', whose initializer a caller may override; allow"
    ):
        import_model(model)
    graph = imported(model, allow=frozenset({"freeze-initializers"}))
    assert [str(v.type) for v in graph.outputs] == ["f32[2, 2]"]
