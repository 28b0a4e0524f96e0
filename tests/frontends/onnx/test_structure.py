"""Malformed graphs: each is an InvalidModelError that names what is wrong."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper
from onnx_models import run

from graphwright.errors import InvalidModelError, UnsupportedError
from graphwright.frontends.onnx import check_model, import_model

INFO = helper.make_tensor_value_info
X = np.array([1.0, -2.0], np.float32)


def graph_of(
    *nodes: tuple[str, list[str], list[str]], output: str = "y", initializers: tuple[str, ...] = ()
) -> onnx.ModelProto:
    protos: list[NodeProto] = [helper.make_node(*n, name=f"n{i}") for i, n in enumerate(nodes)]
    graph = helper.make_graph(
        protos,
        "g",
        [INFO("x", 1, [2])],
        [INFO(output, 1, [2])],
        [helper.make_tensor(n, 1, [2], [1, 2]) for n in initializers],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refused(model: onnx.ModelProto, says: str) -> None:
    for function in (import_model, check_model):
        with pytest.raises(InvalidModelError, match=says):
            function(model)


def test_missing_value() -> None:
    refused(graph_of(("Add", ["x", "ghost"], ["y"])), r"n0 \(Add\) reads 'ghost'")


def test_missing_output() -> None:
    refused(graph_of(("Relu", ["x"], ["a"])), "output 'y' is made by no")


def test_value_made_twice() -> None:
    model = graph_of(("Relu", ["x"], ["y"]), ("Neg", ["x"], ["y"]))
    refused(model, "'y' is made twice, by n0 and by n1")
    refused(graph_of(("Relu", ["x"], ["x"]), output="x"), "'x' is made twice, by an input")


def test_names_declared_twice() -> None:
    refused(graph_of(("Add", ["x", "w"], ["y"]), initializers=("w", "w")), "'w' is declared twice")
    model = graph_of(("Relu", ["x"], ["y"]))
    model.graph.input.append(INFO("x", 1, [2]))
    refused(model, "input 'x' is declared twice")


def test_cycle_names_its_members() -> None:
    model = graph_of(("Add", ["x", "b"], ["a"]), ("Relu", ["a"], ["b"]), ("Neg", ["b"], ["y"]))
    refused(model, r"cyclic.*n0 \(makes \['a'\]\), n1")
    refused(graph_of(("Add", ["x", "y"], ["y"])), "cyclic")


def test_unsorted_nodes_are_sorted() -> None:
    model = graph_of(("Add", ["b", "x"], ["y"]), ("Neg", ["a"], ["b"]), ("Relu", ["x"], ["a"]))
    np.testing.assert_array_equal(run(model, {"x": X})[0], X - np.maximum(X, 0))


def test_branches_count_when_sorting() -> None:
    """The `If` reads `late`, which a later node makes, only inside its branch."""
    branch = helper.make_graph(
        [helper.make_node("Neg", ["late"], ["r"])], "b", [], [INFO("r", 1, [2])]
    )
    model = graph_of(("Relu", ["x"], ["late"]))
    condition = helper.make_tensor("c", 9, [], [True])
    model.graph.initializer.append(condition)
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    model.graph.node.insert(0, node)
    np.testing.assert_array_equal(run(model, {"x": X})[0], -np.maximum(X, 0))


def test_versions() -> None:
    model = graph_of(("Relu", ["x"], ["y"]))
    model.ir_version = 0
    refused(model, "ir_version is 0")
    model = graph_of(("Relu", ["x"], ["y"]))
    del model.opset_import[:]
    refused(model, "opset_import is missing")
    model = graph_of(("Relu", ["x"], ["y"]))
    model.opset_import.add(domain="ai.onnx", version=13)
    refused(model, "imported at versions 17 and 13")
    model = graph_of(("Relu", ["x"], ["y"]))
    model.opset_import[0].version = 9999
    with pytest.raises(UnsupportedError, match="opset 9999"):
        import_model(model)


def test_outputs_may_be_inputs_initializers_and_repeats() -> None:
    model = graph_of(("Relu", ["x"], ["a"]), output="x", initializers=("w",))
    model.graph.output.append(INFO("w", 1, [2]))
    model.graph.output.append(INFO("a", 1, [2]))
    got = run(model, {"x": X})
    for value, want in zip(got, [X, [1, 2], np.maximum(X, 0)], strict=True):
        np.testing.assert_array_equal(value, want)


def test_a_deep_chain_meets_no_recursion_limit() -> None:
    count = 20_000
    nodes = [("Neg", ["x" if not i else f"t{i}"], [f"t{i + 1}"]) for i in range(count)]
    assert len(import_model(graph_of(*nodes, output=f"t{count}"))) == count


def test_unused_nodes_and_initializers_leave_nothing() -> None:
    model = graph_of(("Relu", ["x"], ["y"]), ("Neg", ["x"], ["z"]), initializers=("w",))
    assert [op.name for op in import_model(model).ops] == ["relu"]
