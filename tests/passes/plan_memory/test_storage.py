"""Storage of values: views, outputs in place, in-place reuse, branches, aliases, constants."""

from __future__ import annotations

import pytest
from planned_steps import one_step_an_op

from graphwright.compiler.ir import parser
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.plan_memory import BufferRequest, check_plan, plan_memory
from graphwright.compiler.passes.separate_outputs import SeparateOutputs
from graphwright.compiler.passes.storage import (
    Place,
    Step,
    Storage,
    assign_storage,
    check_storage,
)
from graphwright.compiler.target import Target
from graphwright.errors import CompileError


def parse_graph(text: str) -> Graph:
    return parser.parse_graph(text, registry=REGISTRY)


def stored(text: str) -> tuple[Graph, list[Step], Storage]:
    graph = parse_graph(text)
    verify(graph)
    steps = one_step_an_op(graph)
    storage = assign_storage(graph, steps)
    check_storage(graph, steps, storage)
    check_plan(plan_memory(storage.buffers), dict.fromkeys(graph.symbols, 3))
    return graph, steps, storage


def place_of(graph: Graph, storage: Storage, op: int) -> Place:
    value: Value = graph.op_by_id(op).result
    return storage.places[value]


def test_output_is_written_in_place_through_a_view() -> None:
    graph, _, storage = stored("""
graph @g() {
  input %x: f32[2, 8]
  %0 = exp(%x) : f32[2, 8]
  %1 = reshape(%0) {shape = [16]} : f32[16]
  return %1 as "o"
}""")
    assert place_of(graph, storage, 0) == Place("output", 0)
    assert place_of(graph, storage, 1) == Place("output", 0)
    assert storage.buffers == ()


def test_pointwise_chain_reuses_its_operand() -> None:
    graph, _, storage = stored("""
graph @g() {
  input %x: f32[2, 8]
  %0 = exp(%x) : f32[2, 8]
  %1 = neg(%0) : f32[2, 8]
  %2 = sqrt(%1) : f32[2, 8]
  %3 = softmax(%2) {axis = 1} : f32[2, 8]
  return %3 as "o"
}""")
    assert storage.buffers == (BufferRequest(64, 0, 3, ("%0.0", "%1.0", "%2.0")),)
    assert len(storage.reused) == 2
    assert place_of(graph, storage, 3) == Place("output", 0)


def test_an_operand_that_is_read_later_is_kept() -> None:
    _, _, storage = stored("""
graph @g() {
  input %x: f32[2, 8]
  %0 = exp(%x) : f32[2, 8]
  %1 = neg(%0) : f32[2, 8]
  %2 = softmax(%1) {axis = 1} : f32[2, 8]
  %3 = softmax(%0) {axis = 1} : f32[2, 8]
  return %2 as "o", %3 as "p"
}""")
    assert len(storage.buffers) == 2 and not storage.reused


def test_no_reuse_when_the_kernel_reads_the_storage_twice() -> None:
    """The second read may be at other elements than those already overwritten."""
    _, _, storage = stored("""
graph @g() {
  input %x: f32[4, 16]
  %0 = exp(%x) : f32[4, 16]
  %1 = slice(%0) {starts = [0, 0], sizes = [1, 16], steps = [1, 1]} : f32[1, 16]
  %2 = add(%0, %1) : f32[4, 16]
  %3 = softmax(%2) {axis = 1} : f32[4, 16]
  return %3 as "o"
}""")
    assert not storage.reused


def test_a_part_of_a_value_is_a_view_at_an_offset() -> None:
    graph, _, storage = stored("""
graph @g() {
  input %x: f32[4, 16]
  %0 = exp(%x) : f32[4, 16]
  %1 = slice(%0) {starts = [2, 0], sizes = [2, 16], steps = [1, 1]} : f32[2, 16]
  %2 = softmax(%1) {axis = 1} : f32[2, 16]
  return %2 as "o"
}""")
    assert place_of(graph, storage, 1) == Place("arena", 0, 128)


def test_constants_are_weights_in_order_of_use() -> None:
    graph, _, storage = stored("""
graph @g() {
  input %x: f32[2]
  %0 = constant {value = dense(1.0, 2.0): f32[2]} : f32[2]
  %1 = constant {value = dense(3.0, 4.0): f32[2]} : f32[2]
  %2 = add(%x, %1) : f32[2]
  %3 = softmax(%2) {axis = 0} : f32[2]
  %4 = mul(%3, %0) : f32[2]
  return %4 as "o"
}""")
    assert [v.op.id for v in storage.weights if v.op] == [1, 0]
    assert place_of(graph, storage, 0) == Place("weight", 1)


def branching(capture_is_output: bool) -> Graph:
    """if c: softmax(softmax(exp x)) else: softmax(exp x), or exp x itself."""
    graph = Graph("g", registry=REGISTRY)
    x_type = parse_graph(
        'graph @t() {\n input %x: f32[2, 8]\n input %c: bool[]\n return %x as "o"\n}'
    )
    f32, flag = (v.type for v in x_type.inputs)
    c, x = graph.add_input("c", flag), graph.add_input("x", f32)
    a = graph.create("exp", [x]).result
    bodies: list[Graph] = []
    for repeats in (2, 0 if capture_is_output else 1):
        body = Graph("body", registry=REGISTRY)
        value = body.add_input("a", f32)
        for _ in range(repeats):
            value = body.create("softmax", [value], {"axis": 1}).result
        body.set_outputs([value])
        bodies.append(body)
    result = graph.create("if", [c, a], bodies=bodies).result
    graph.set_outputs([graph.create("softmax", [result], {"axis": 1}).result])
    return graph


def test_branches_write_the_result_in_place() -> None:
    graph = branching(False)
    steps = one_step_an_op(graph)
    storage = assign_storage(graph, steps)
    check_storage(graph, steps, storage)
    op = next(o for o in graph.ops if o.name == "if")
    result = storage.places[op.result]
    for body in op.bodies:
        assert storage.places[body.outputs[0]] == result
        assert storage.places[body.inputs[0]] == storage.places[op.operands[1]]
    assert result.space == "arena" and result != storage.places[op.operands[1]]
    # exp; branch; softmax, softmax; jump; softmax; softmax
    assert storage.buffers[result.index].first == 3 and storage.buffers[result.index].last == 6


def test_a_body_that_returns_its_capture_needs_a_copy() -> None:
    graph = branching(True)
    with pytest.raises(CompileError, match="no storage of its own; copy it"):
        assign_storage(graph, one_step_an_op(graph))
    assert SeparateOutputs().run(graph, Target.parse("cpu")).statistics == {"copies": 1}
    verify(graph)
    steps = one_step_an_op(graph)
    check_storage(graph, steps, assign_storage(graph, steps))


PASS_THROUGH = """
graph @g() {
  input %x: f32[4, 16]
  %0 = constant {value = dense(1.0, 2.0): f32[2]} : f32[2]
  %1 = exp(%x) : f32[4, 16]
  %2 = reshape(%1) {shape = [64]} : f32[64]
  %3 = slice(%1) {starts = [2, 0], sizes = [2, 16], steps = [1, 1]} : f32[2, 16]
  return %x as "a", %0 as "b", %1 as "c", %2 as "d", %3 as "e", %1 as "f"
}"""


def test_separate_outputs_copies_exactly_what_it_must() -> None:
    graph = parse_graph(PASS_THROUGH)
    with pytest.raises(CompileError, match="output 'a' has no storage of its own"):
        assign_storage(graph, one_step_an_op(graph))
    result = SeparateOutputs().run(graph, Target.parse("cpu"))
    assert result.statistics == {"copies": 5}  # all but "c"
    verify(graph)
    steps = one_step_an_op(graph)
    storage = assign_storage(graph, steps)
    check_storage(graph, steps, storage)
    assert [storage.places[v] for v in graph.outputs] == [Place("output", i) for i in range(6)]
    assert not SeparateOutputs().run(graph, Target.parse("cpu")).changed


def test_workspaces_live_for_one_step() -> None:
    graph = parse_graph(
        'graph @g() {\n  input %x: f32[8]\n  %0 = exp(%x) : f32[8]\n  return %0 as "o"\n}'
    )
    op: Op = graph.op_by_id(0)
    steps = [Step(op.operands, op.results, (100, 200))]
    storage = assign_storage(graph, steps)
    assert [b.size for b in storage.buffers] == [100, 200]
    assert storage.workspaces == {(0, 0): 0, (0, 1): 1}


def test_reading_what_nobody_wrote_is_an_error() -> None:
    graph = parse_graph(
        "graph @g() {\n  input %x: f32[8]\n  %0 = exp(%x) : f32[8]\n  %1 = neg(%0) : f32[8]\n"
        '  return %1 as "o"\n}'
    )
    steps = one_step_an_op(graph)
    with pytest.raises(CompileError, match="which no step before writes"):
        assign_storage(graph, steps[1:])


def test_checker_sees_a_value_overwritten_too_early() -> None:
    graph = parse_graph(
        "graph @g() {\n  input %x: f32[8]\n  %0 = exp(%x) : f32[8]\n  %1 = neg(%x) : f32[8]\n"
        '  %2 = add(%0, %1) : f32[8]\n  return %2 as "o"\n}'
    )
    steps = one_step_an_op(graph)
    storage = assign_storage(graph, steps)
    wrong = dict(storage.places)
    wrong[graph.op_by_id(1).result] = wrong[graph.op_by_id(0).result]
    broken = Storage(wrong, {}, (BufferRequest(32, 0, 9),) * 2, ())
    with pytest.raises(CompileError, match=r"reads .* whose place holds"):
        check_storage(graph, steps, broken)
