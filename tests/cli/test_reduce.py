"""The command `reduce`: a failing model becomes the few ops that its failure needs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from command_line import Invoke
from onnx import TensorProto, helper, numpy_helper

from graphwright.compiler.verify.reduce import minimise

CHECK = """
import pathlib, sys
data = pathlib.Path(sys.argv[1]).read_bytes()
print("seen", len(data))
if b"layer3/Sub" in data and b"layer7/Tanh" in data:
    print("bad pair")
    sys.exit(5)
sys.exit(3 if b"layer3" not in data else 0)
"""


def chain(path: Path) -> Path:
    """Ten layers of sub and tanh, one with a subgraph that reads a value from outside."""
    rng = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for n in range(10):
        weights.append(numpy_helper.from_array(rng.standard_normal(4).astype(np.float32), f"w{n}"))
        nodes += [
            helper.make_node("Sub", [last, f"w{n}"], [f"s{n}"], name=f"layer{n}/Sub"),
            helper.make_node("Tanh", [f"s{n}"], [f"t{n}"], name=f"layer{n}/Tanh"),
        ]
        last = f"t{n}"
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", 4])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture
def check(tmp_path: Path) -> str:
    script = tmp_path / "check.py"
    script.write_text(CHECK)
    return f"{sys.executable} {script} {{}}"


def test_two_ops_far_apart_are_found(cli: Invoke, tmp_path: Path, check: str) -> None:
    source, out = chain(tmp_path / "m.onnx"), tmp_path / "s.onnx"
    done = cli("reduce", source, "--check", check, "-o", out, "--json", "-")
    assert done.code == 0, done.err
    assert done.json["ops"] == 2 and done.json["minimal"] and done.json["exit_code"] == 5
    small = onnx.load(out)
    onnx.checker.check_model(small)
    assert [n.name for n in small.graph.node] == ["layer3/Sub", "layer7/Tanh"]
    assert [t.name for t in small.graph.initializer] == ["w3"]
    assert cli("compile", out, "-o", tmp_path / "s.gw", "--stop-after", "fuse").code == 2
    assert cli("check", out).code == 0, "what is left is a model"


def test_an_error_text_decides(cli: Invoke, tmp_path: Path, check: str) -> None:
    source, out = chain(tmp_path / "m.onnx"), tmp_path / "s.onnx"
    done = cli("reduce", source, "--check", check, "-o", out, "--keep-error", "bad +pair")
    assert done.code == 0 and "2 ops of 20 still fail" in done.out
    done = cli("reduce", source, "--check", check, "-o", out, "--keep-error", "other")
    assert done.code == 2 and "does not print it" in done.err


def test_ir_is_reduced_as_ir(cli: Invoke, tmp_path: Path) -> None:
    lines = ["graph @main(N) {", "  input %x: f32[N, 4]"]
    last = "x"
    for n in range(12):
        lines.append(f"  %{n} = {'exp' if n == 7 else 'neg'}(%{last}) : f32[N, 4]")
        last = str(n)
    source = tmp_path / "m.ir"
    source.write_text("\n".join([*lines, f'  return %{last} as "y"', "}"]) + "\n")
    script = tmp_path / "check.py"
    script.write_text("import sys; sys.exit('exp(' in open(sys.argv[1]).read())")
    out = tmp_path / "s.ir"
    done = cli("reduce", source, "--check", f"{sys.executable} {script}", "-o", out)
    assert done.code == 0 and "1 op of 12 still fail" in done.out, done.err
    assert out.read_text().count("=") == 1
    assert cli("verify", out, "--target", "cpu:x86-64-v3").code == 0


def test_what_is_refused(cli: Invoke, tmp_path: Path) -> None:
    source = chain(tmp_path / "m.onnx")
    for arguments, message in [
        (["--check", "true"], "does not fail"),
        (["--check", "no-such-program"], "cannot be run"),
        (["--check", "false", "-o", source], "would overwrite"),
        (["--check", "false", "--keep-error", "("], "no regular expression"),
        (["--check", "'"], "No closing quotation"),
    ]:
        done = cli("reduce", source, *arguments)
        assert done.code == 2 and message in done.err, done.err
    assert not (tmp_path / "small.onnx").exists()


@pytest.mark.parametrize("seed", range(20))
def test_minimal_is_minimal(seed: int) -> None:
    """Of random failures that need a few items, exactly these are left, in few tests."""
    rng = np.random.default_rng(seed)
    needed = set(rng.choice(1000, int(rng.integers(1, 5)), replace=False).tolist())
    done = minimise(range(1000), lambda kept: needed <= set(kept))
    assert set(done.kept) == needed and done.minimal
    assert done.tests < 250


def test_time_is_bounded() -> None:
    done = minimise(range(1000), lambda kept: {3, 900} <= set(kept), seconds=0)
    assert not done.minimal and len(done.kept) == 1000 and done.tests == 0


def test_subgraphs_keep_what_they_read() -> None:
    from graphwright.frontends.onnx.subset import Cutter

    body = helper.make_graph(
        [helper.make_node("Neg", ["outer"], ["b"])],
        "body",
        [],
        [helper.make_tensor_value_info("b", TensorProto.FLOAT, [4])],
    )
    nodes = [
        helper.make_node("Abs", ["x"], ["outer"]),
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])],
    )
    small = Cutter(helper.make_model(graph)).cut([1])
    assert small is not None
    assert [v.name for v in small.graph.input] == ["c", "outer"]
