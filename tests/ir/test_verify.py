"""Rules of the verifier that text cannot break: each is broken by hand and named."""

import pytest

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Graph, Op, Use
from graphwright.compiler.ir.op import Effect, Kind, OpDef
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.types import F32, TensorType
from graphwright.compiler.ir.verify import VerifyError, verify


def small() -> Graph:
    graph = Graph("g", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (dims.of(dims.Symbol("B")), 4)))
    a = graph.create("relu", [x]).result
    b = graph.create("add", [a, x]).result
    graph.set_outputs([b], ["out"])
    verify(graph)
    return graph


def broken(graph: Graph) -> int:
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    return caught.value.rule


def test_rule_1_use_before_definition():
    graph = small()
    relu, add = graph.ops
    graph.move_before(add, relu)
    assert broken(graph) == 1


def test_rule_2_missing_use():
    graph = small()
    relu, add = graph.ops
    del relu.result._uses[Use(add, 0)]
    assert broken(graph) == 2


def test_rule_2_stale_use():
    graph = small()
    relu, _ = graph.ops
    graph.inputs[0]._uses[Use(relu, 5)] = None
    assert broken(graph) == 2


def test_rule_3_wrong_type():
    graph = small()
    relu, _ = graph.ops
    relu.result.type = TensorType(F32, (dims.of(dims.Symbol("B")), 5))
    assert broken(graph) == 3


def test_rule_4_foreign_symbol():
    graph = small()
    graph.symbols["B"] = dims.Symbol("B", 1, 2)
    assert broken(graph) == 4


def test_rule_5_output_names():
    graph = small()
    graph.output_names.append("more")
    assert broken(graph) == 5


def test_rule_6_foreign_op():
    graph, other = small(), small()
    relu, _ = graph.ops
    relu.graph = other
    other._ops[relu.id] = relu  # so that it does not look erased
    assert broken(graph) == 6


def test_rule_7_id_beyond_the_counter():
    graph = small()
    graph._next_id = 1
    assert broken(graph) == 7


def test_rule_8_undeclared_attribute():
    graph = small()
    relu, _ = graph.ops
    relu.attributes = {"speed": 3}
    assert broken(graph) == 8


class Overwrite(OpDef):
    """Writes into its operand's storage."""

    name = "overwrite"
    kind = Kind.OPAQUE
    operands = ("x",)
    effect = Effect.WRITES
    aliases = {0: 0}

    def infer(self, types, attributes, inference):
        return [types[0]]


def test_rule_11_read_after_write():
    graph = Graph("g", registry=REGISTRY.extended([Overwrite()]))
    x = graph.add_input("x", TensorType(F32, (4,)))
    a = graph.create("relu", [x]).result
    written = graph.create("overwrite", [a]).result
    late = graph.create("add", [a, written]).result
    graph.set_outputs([late])
    assert broken(graph) == 11


def names(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops]


def test_iteration_survives_mutation():
    """Erasing the current op and inserting around it keeps the loop on its way."""
    graph = Graph("g", registry=REGISTRY)
    x = graph.add_input("x", TensorType(F32, (4,)))
    value = x
    for _ in range(5):
        value = graph.create("relu", [value]).result
    graph.set_outputs([value])
    seen: list[Op] = []
    for op in graph.ops:
        seen.append(op)
        if op.name == "relu":
            new = graph.create("exp", [op.operands[0]], before=op)
            graph.replace_uses(op.result, new.result)
            graph.erase(op)
    assert len(seen) == 5
    assert names(graph) == ["exp"] * 5
    verify(graph)


def test_erasing_a_used_op_is_refused():
    graph = small()
    relu, _ = graph.ops
    with pytest.raises(ValueError, match="used by <op add"):
        graph.erase(relu)
