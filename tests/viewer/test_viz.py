"""Comparing graphs, exporting them, and the command `viz`."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from onnx import helper
from small_models import block, write

from graphwright import compilation
from graphwright.compiler.cli.command import execute
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.trace import State, Trace
from graphwright.compiler.trace.records import Recorder
from graphwright.compiler.viewer.compare import compare, match, summary
from graphwright.compiler.viewer.export import to_dot, to_model_explorer
from graphwright.compiler.viewer.layout import COLUMN, place
from graphwright.frontends.onnx.describe import describe

CHAIN = """
graph @main() {
  input %x: f32[4]
  %0 = neg(%x) : f32[4]
  %1 = abs(%0) : f32[4]
  %2 = add(%1, %x) : f32[4]
  return %2 as "y"
}
"""


def record(text: str) -> Any:
    return Recorder().graph(parse_graph(text, registry=REGISTRY))


def test_equal_graphs_match_whatever_their_numbers() -> None:
    first = record(CHAIN)
    shifted = json.loads(json.dumps(first))
    for op in shifted["ops"]:
        op["id"] += 50
        op["in"] = [r if r.startswith("i") else str(int(r) + 50) for r in op["in"]]
    shifted["outputs"] = [str(int(r) + 50) for r in shifted["outputs"]]
    assert match(first, shifted) == {50: 0, 51: 1, 52: 2}
    trace = compare(first, shifted, {})
    assert set(trace.passes[0].rest) == {"order"}
    assert trace.final().graph() == first


def test_a_fused_a_split_and_a_copied_op_align() -> None:
    """What is left of a neighbourhood is matched, what is new is new."""
    first = record(CHAIN)
    second = record(CHAIN.replace("abs(%0)", "relu(%0)"))
    trace = compare(first, second, {})
    delta = trace.passes[0].rest
    assert delta["erase"] == [1]
    assert [op["op"] for _, op in delta["add"]] == ["relu"]
    assert [i for i, _ in delta["set"]] == [2]  # reads another value
    assert [op["op"] for op in trace.final().graph()["ops"]] == ["neg", "relu", "add"]


def test_compare_replays_to_the_second_graph() -> None:
    first, second = describe(block(2)), describe(block(4, extra=True))
    final = compare(first, second, {}).final().graph()
    assert [op["op"] for op in final["ops"]] == [op["op"] for op in second["ops"]]
    assert summary(compare(first, second, {}))[0][0] in ("Add", "constant")


def test_constant_nodes_are_constants() -> None:
    """Exporters write weights as nodes or as initializers: no difference worth a mark."""
    model = block(1)
    moved = block(1)
    (two,) = [t for t in moved.graph.initializer if t.name == "two"]
    node = helper.make_node("Constant", [], ["two"], value=two)
    moved.graph.node.insert(0, node)
    moved.graph.initializer.remove(two)
    delta = compare(describe(model), describe(moved), {}).passes[0].rest
    assert not delta.get("erase") and not delta.get("add")


def test_layout_places_every_op_apart(tmp_path: Path) -> None:
    file = tmp_path / "a.trace"
    compilation.run_passes(block(3), CompileOptions.make(trace=file))
    from graphwright.compiler.trace import read_trace

    trace = read_trace(file)
    where = place(trace)
    for state in trace.states():
        drawn = [where[str(i)] for i in state.order if state.ops[i]["op"] != "constant"]
        assert len(set(drawn)) == len(drawn), "two ops of one graph in one place"
        rows: dict[int, list[int]] = {}
        for x, y in drawn:
            rows.setdefault(y, []).append(x)
        for row in rows.values():
            row.sort()
            assert all(b - a >= COLUMN - 1 for a, b in pairwise(row))
        for op in state.ops.values():  # readers below what they read
            for reference in op.get("in", ()):
                key = reference.partition(".")[0]
                if key in where and str(op["id"]) in where:
                    assert where[key][1] < where[str(op["id"])][1]


def test_layout_of_a_long_chain_takes_no_recursion() -> None:
    ops = [
        {"id": n, "op": "neg", "in": [str(n - 1) if n else "i0"], "out": [["f32[4]"]]}
        for n in range(20_000)
    ]
    graph = {"name": "chain", "inputs": [["x", "f32[4]"]], "ops": ops, "outputs": ["19999"]}
    assert len(place(Trace({}, graph))) == 20_001


def test_exports() -> None:
    graph = record(CHAIN)
    dot = to_dot(graph)
    assert dot.count("->") == 5 and "i0 -> n0;" in dot and dot.startswith('digraph "main"')
    ((collection),) = to_model_explorer(graph, "m")
    nodes = {n["id"]: n for n in collection["graphs"][0]["nodes"]}
    assert [e["sourceNodeId"] for e in nodes["2"]["incomingEdges"]] == ["1", "i0"]
    assert all(
        e["sourceNodeId"] in nodes for n in nodes.values() for e in n.get("incomingEdges", ())
    )


def test_every_kind_of_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write(tmp_path / "m.onnx", block(2))
    built = compilation.build(str(model), CompileOptions.make(trace=tmp_path / "m.trace"))
    built.artifact.write(tmp_path / "m.gw")
    final = None
    for name in ("m.onnx", "m.trace", "m.gw"):
        out = tmp_path / f"{name}.html"
        assert execute(["viz", str(tmp_path / name), "-o", str(out), "-q"]) == 0
        text = out.read_text()
        data = json.loads(text.split('id="data">')[1].split("</script>")[0])
        state = State.of(data["graph"])
        for each in data["passes"]:
            for step in each["steps"]:
                state.apply(step["delta"])
            state.apply(each["rest"])
        ids = [i for i in state.order if state.ops[i]["op"] != "constant"]
        final = final or ids
        assert ids == final, f"{name}: other ops than the model's own passes gave"
        launches = (data["artifact"] or {"manifest": {"variants": []}})["manifest"]["variants"]
        assert {i for v in launches for s in v["launches"] for i in s["ops"]} <= set(state.ops)
    capsys.readouterr()


def test_an_artifact_that_keeps_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, out = write(tmp_path / "m.onnx", block(2)), tmp_path / "m.gw"
    assert execute(["compile", str(model), "-o", str(out), "--keep-trace", "-q"]) == 0
    assert execute(["viz", str(out), "--json", "-"]) == 0
    passes = json.loads(capsys.readouterr().out)["passes"]
    assert any(p["name"] == "fuse" and p["rewrites"] for p in passes)
    assert execute(["run", str(out), "--random", "--shape", "N=2", "-q"]) == 0
    capsys.readouterr()


def test_a_comparison_for_review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = write(tmp_path / "a.onnx", block(2)), write(tmp_path / "b.onnx", block(2, extra=True))
    assert execute(["viz", str(a), str(b), "--summary", "md", "--exit-code"]) == 1
    out = capsys.readouterr().out
    assert "| Tanh | 0 | 1 |" in out and "1 added, 0 removed, 1 changed" in out
    assert execute(["viz", str(a), str(a), "--summary", "md", "--exit-code"]) == 0
    assert "No difference." in capsys.readouterr().out
    assert execute(["viz", str(a), str(b), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["different"] == [
        {"op": "Tanh", "before": 0, "after": 1}
    ]
    assert not list(tmp_path.glob("*.html"))


def test_what_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write(tmp_path / "a.onnx", block(1))
    assert execute(["viz", str(model), "--exit-code"]) == 2
    assert "name another file" in capsys.readouterr().err
    assert execute(["viz", str(model), "-o", str(model)]) == 2
    assert "would overwrite" in capsys.readouterr().err
    (tmp_path / "bad.trace").write_bytes(b'{"record":"trace","version":7}\n')
    assert execute(["viz", str(tmp_path / "bad.trace")]) == 2
    assert "version 7" in capsys.readouterr().err
    assert execute(["viz", str(tmp_path / "none.onnx")]) == 2
    assert "no such file" in capsys.readouterr().err
