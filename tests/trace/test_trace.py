"""The trace: replaying its deltas gives exactly what every pass made of every golden graph."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from graphwright import compilation
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Listener, PassResult, Pipeline, Rewrite
from graphwright.compiler.target import Target
from graphwright.compiler.trace import State, TraceWriter, read_trace
from graphwright.compiler.trace.cost import CostModel
from graphwright.compiler.trace.records import Recorder
from graphwright.errors import CompileError, InputError

PASSES = Path(__file__).parent.parent / "passes"
CASES = sorted(PASSES.rglob("*.ir"))


def plain(record: Any) -> Any:
    """A record as JSON brings it back, without the numbers of large constants."""
    return json.loads(re.sub(r"dense<#\d+>", "dense<#>", json.dumps(record)))


class Snapshots(Listener):
    """The whole graph after every pass, taken without the trace."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        self.graphs.append(plain(Recorder().graph(graph)))


def traced(graph: Graph, pipeline: str, target: str, path: Path) -> tuple[Snapshots, list[Rewrite]]:
    snapshots = Snapshots()
    with path.open("wb") as file, TraceWriter(file) as writer:
        run = Pipeline.parse(pipeline).run(
            graph, Target.parse(target), listeners=[writer, snapshots]
        )
    return snapshots, run.journal.rewrites


@pytest.mark.parametrize("path", CASES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_replay_is_exact(path: Path, tmp_path: Path) -> None:
    header, before = re.split(r"^---\n", path.read_text(), flags=re.MULTILINE)[:2]
    found = re.search(r"^pipeline: (.*)$", header, re.MULTILINE)
    assert found is not None
    target = re.search(r"^target: (.*)$", header, re.MULTILINE)
    graph = parse_graph(before, registry=REGISTRY)
    file = tmp_path / "a.trace"
    snapshots, rewrites = traced(graph, found[1], target[1] if target else "cpu", file)
    trace = read_trace(file)
    states = trace.states()
    assert plain(next(states).graph())["ops"]
    assert [plain(state.graph()) for state in states] == snapshots.graphs
    steps = [step for each in trace.passes for step in each.steps]
    assert [(s.rule, s.where, s.consumed, s.produced) for s in steps] == [
        (r.rule, r.where, r.consumed, r.produced) for r in rewrites
    ]


def test_every_rewrite_in_turn(tmp_path: Path) -> None:
    """With fuel for N steps the graph is what the trace shows after N steps."""
    text = """
    graph @main(N) {
      input %x: f32[N, 8]
      %0 = neg(%x) : f32[N, 8]
      %1 = neg(%0) : f32[N, 8]
      %2 = constant {value = splat(0.0): f32[8]} : f32[8]
      %3 = add(%1, %2) : f32[N, 8]
      %4 = transpose(%3) {permutation = [1, 0]} : f32[8, N]
      %5 = transpose(%4) {permutation = [1, 0]} : f32[N, 8]
      %6 = relu(%5) : f32[N, 8]
      return %6 as "y"
    }
    """
    file = tmp_path / "a.trace"
    traced(parse_graph(text, registry=REGISTRY), "canonicalize", "cpu", file)
    (only,) = read_trace(file).passes
    assert len(only.steps) >= 3
    state = State.of(read_trace(file).initial)
    for fuel in range(len(only.steps) + 1):
        graph = parse_graph(text, registry=REGISTRY)
        Pipeline.parse("canonicalize").run(graph, Target.parse("cpu"), max_rewrites=fuel)
        assert plain(state.graph()) == plain(Recorder().graph(graph)), fuel
        if fuel < len(only.steps):
            state.apply(only.steps[fuel].delta)


def model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Softmax", ["b"], ["y"], name="third"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 5])],
        [helper.make_tensor("w", TensorProto.FLOAT, [4, 5], [0.5] * 20)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_compilation_leaves_its_trace(tmp_path: Path) -> None:
    file = tmp_path / "small.trace"
    built = compilation.build(model(), CompileOptions.make(trace=file, check_passes="numeric"))
    trace = read_trace(file)
    assert trace.about["model"] == "small"
    assert plain(trace.final().graph()) == plain(Recorder().graph(built.graph))
    assert all(p.finished for p in trace.passes)
    checked = [p for p in trace.passes if p.end["changed"]]
    assert checked and all(p.distance is not None and p.distance < 1e-5 for p in checked)
    (artifact,) = trace.of_kind("artifact")
    launched = {
        i for v in artifact["manifest"]["variants"] for s in v["launches"] for i in s["ops"]
    }
    assert launched <= set(trace.final().ops)
    assert all("KERNEL" not in text and text for text in artifact["sources"].values())
    assert "second" in json.dumps(trace.initial)


def test_costs_before_and_after(tmp_path: Path) -> None:
    """What a fusion saves is in its rewrite; the totals are those of the graphs."""
    file = tmp_path / "small.trace"
    proto = model()
    costs: list[list[int]] = []

    class Watch(Listener):
        def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
            costs.append(CostModel().graph(graph).to_json())

    start = CostModel().graph(compilation.import_source(proto, CompileOptions.make()))
    compilation.run_passes(proto, CompileOptions.make(trace=file), listeners=[Watch()])
    trace = read_trace(file)
    assert trace.initial_cost == start.to_json()
    assert [p.end["cost"] for p in trace.passes] == costs
    fused = next(p for p in trace.passes if p.name == "fuse")
    before, after = next(s.cost for s in fused.steps if len(s.consumed) > 1)
    assert after[0] < before[0] and after[1] == before[1] and (before[2], after[2]) == (2, 1)
    assert all(len(s.cost) in (0, 2) for p in trace.passes for s in p.steps)


def test_constants_stay_out(tmp_path: Path) -> None:
    """No weight's value is in a trace: it may be shown to others."""
    file = tmp_path / "small.trace"
    proto = model()
    proto.graph.initializer[0].CopyFrom(
        helper.make_tensor("w", TensorProto.FLOAT, [4, 5], [0.123456 + i for i in range(20)])
    )
    compilation.run_passes(proto, CompileOptions.make(trace=file))
    assert b".123456" not in file.read_bytes()


def test_a_failure_is_recorded(tmp_path: Path) -> None:
    class Fails(Listener):
        def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
            if name == "fuse":
                raise CompileError("no further")

    file = tmp_path / "small.trace"
    options = CompileOptions.make(trace=file)
    with pytest.raises(CompileError):
        compilation.run_passes(model(), options, listeners=[Fails()])
    trace = read_trace(file)
    assert [p.name for p in trace.passes][-1] == "fuse"
    assert not trace.passes[-1].finished
    assert trace.of_kind("failure")[0]["message"] == "no further"


def test_reading_says_what_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "a.trace"
    file.write_bytes(b"hello\n")
    with pytest.raises(InputError, match="line 1 is no JSON"):
        read_trace(file)
    file.write_bytes(b'{"record": "pass"}\n')
    with pytest.raises(InputError, match="not a trace"):
        read_trace(file)
    file.write_bytes(b'{"record": "trace", "version": 99}\n')
    with pytest.raises(InputError, match="version 99"):
        read_trace(file)


def test_a_cut_off_line_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "a.trace"
    writer = TraceWriter(buffer := io.BytesIO())
    writer.write("stage", {"name": "one"})
    file.write_bytes(buffer.getvalue() + b'{"record": "sta')
    assert [r["name"] for r in read_trace(file).of_kind("stage")] == ["one"]
