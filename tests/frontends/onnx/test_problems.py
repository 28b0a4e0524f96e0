"""What cannot be imported: all of it at once, each with node, op, reason and fix, and fast."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx_models import imported, model_of

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.errors import UnsupportedError
from graphwright.frontends.onnx import check_model, import_model


def problems(text: str, opset: int = 17) -> list[str]:
    return [str(p) for p in check_model(model_of(text, opset))]


def test_all_problems_are_reported_and_only_their_causes() -> None:
    found = problems(
        """g (float[2] x) => (float[2] y) {
        a = Foo(x) b = Relu(a) c = ImageDecoder(x) d = Elu<speed=9>(x) e = Bar(b) y = Add(b, d) }"""
    )
    assert [f.split(":")[0] for f in found] == [
        "Foo#0 (Foo)",
        "ImageDecoder#2 (ImageDecoder)",
        "Elu#3 (Elu)",
        "Bar#4 (Bar)",
    ]
    assert "ONNX has no op Foo in opset 17; replace it by standard ops" in found[0]
    assert "it came with opset 20" in found[1]
    assert "attribute speed" in found[2]


def test_the_error_carries_the_problems() -> None:
    model = model_of("g (float[2] x) => (float[2] y) { y = Foo(x) }")
    model.graph.node[0].name = "first"
    with pytest.raises(UnsupportedError, match=r"1 problem\n  - first \(Foo\): ") as refused:
        import_model(model)
    assert refused.value.problems == tuple(check_model(model))


def test_ops_of_a_newer_opset_and_of_other_domains() -> None:
    (newer,) = problems("g (float[2] x) => (float[2] y) { y = Gelu(x) }")
    assert "no op Gelu in opset 17; it came with opset 20" in newer
    model = model_of("g (float[2] x) => (float[2] y) { y = com.nobody.Blend(x) }")
    (unknown,) = check_model(model)
    assert "imports no version of the domain 'com.nobody'" in unknown.reason
    model.opset_import.add(domain="com.nobody", version=1)
    (unknown,) = check_model(model)
    assert (
        unknown.op == "com.nobody:Blend"
        and "no op Blend of the domain 'com.nobody'" in unknown.reason
    )


def test_attributes_are_read_refused_or_at_their_default() -> None:
    assert not problems("g (float[2] x) => (float[2] y) { y = Elu<alpha=1.0>(x) }")
    stated = (
        "g (float[1, 1, 4] x) => (float[a] y) { y = MaxPool<kernel_shape=[2], storage_order=1>(x) }"
    )
    assert not problems(stated)
    (found,) = problems("g (float[2] x) => (float[2] y) { y = Exp<fast=1>(x) }")
    assert "Exp has no attribute fast in opset 17" in found


def test_types_and_shapes_that_do_not_fit_name_the_node() -> None:
    (types,) = problems("g (float[2] x, int64[2] i) => (float[2] y) { y = Add(x, i) }")
    assert types.startswith("Add#0 (Add)") and "f32 and i64" in types
    (shapes,) = problems("g (float[2] x, float[3] z) => (float[2] y) { y = Add(x, z) }")
    assert "2 and 3" in shapes
    (missing,) = problems("g (float[2] x) => (float[2] y) { y = Add(x) }")
    assert "input 1 is missing" in missing


def test_checking_3000_nodes_finds_each_problem_once() -> None:
    nodes = []
    for i in range(0, 3000, 3):
        nodes += [
            helper.make_node("Shape", [f"t{i}"], [f"s{i}"]),
            helper.make_node("Reshape", [f"t{i}", f"s{i}"], [f"r{i}"]),
            helper.make_node("Foo" if i % 30 == 0 else "Relu", ["t0", *[]], [f"t{i + 3}"]),
        ]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [info("t0", 1, ["B", 4])], [info("r0", 1, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    found = check_model(model)
    assert len(found) == 100


def test_origins_and_equal_values() -> None:
    model = model_of("g (float[4] x) => (float[4] y) { a = Relu(x) b = Identity(a) y = Neg(b) }")
    model.graph.node[0].name = "act"
    graph = imported(model)
    relu, neg = graph.ops
    assert (relu.origins, neg.origins) == (("act",), ("Neg#2",))
    assert (relu.result.equals, neg.result.equals) == ("a", "y")
    assert graph.output_names == ["y"] and graph.inputs[0].equals == "x"


def test_composed_ops_name_only_the_last_value() -> None:
    graph = imported(model_of("g (float[2, 3] x) => (float[2, 1] y) { y = ReduceL2<axes=[1]>(x) }"))
    assert [(op.name, op.result.equals) for op in graph.ops] == [
        ("mul", ""),
        ("reduce_sum", ""),
        ("sqrt", "y"),
    ]
    assert all(op.origins == ("ReduceL2#0",) for op in graph.ops)


def test_constants_keep_their_recipe() -> None:
    graph = imported(
        model_of("g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    )
    constant = next(graph.ops)
    assert constant.attributes["recipe"].sources() == ("w",)
    (y,) = evaluate(graph, {"x": np.zeros(2, np.float32)})
    np.testing.assert_array_equal(y, [1, 2])


def test_filled_constants_stay_one_value() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]> g (float[1000, 1000] x) => (float[a, b] y)
        <int64[2] s = {1000, 1000}> { w = ConstantOfShape(s) y = Add(x, w) }"""
    )
    (constant,) = [op for op in imported(model).ops if op.name == "constant"]
    assert constant.attributes["value"].is_splat


def test_custom_ops_of_another_domain_are_imported_by_their_declaration() -> None:
    from graphwright.compiler.ir.op import Attribute
    from graphwright.compiler.ir.ops import REGISTRY
    from graphwright.compiler.ir.ops.pointwise import Pointwise

    blend = Pointwise(
        "blend",
        lambda a, b, amount: a + amount * (b - a),
        ("a", "b"),
        attributes={"amount": Attribute("float", 0.5)},
        imports={"onnx": ("com.acme:Blend",)},
        renames={"alpha": "amount"},
    )
    model = model_of(
        "g (float[2] x, float[2] z) => (float[2] y) { y = com.acme.Blend<alpha=0.25>(x, z) }"
    )
    model.opset_import.add(domain="com.acme", version=3)
    assert check_model(model)
    graph = import_model(model, registry=REGISTRY.extended([blend]))
    x, z = np.array([0, 4], np.float32), np.array([4, 0], np.float32)
    np.testing.assert_array_equal(evaluate(graph, {"x": x, "z": z})[0], [1, 3])
