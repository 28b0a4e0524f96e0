"""The command `verify`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphwright import compilation
from graphwright.compiler.cli.command import execute
from graphwright.compiler.options import CompileOptions


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Sub", ["a", "b"], ["s"], name="second"),
        helper.make_node("Softmax", ["s"], ["y"], name="third"),
    ]
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8), np.float32), "w"),
        numpy_helper.from_array(rng.standard_normal(8, np.float32), "b"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        weights,
    )
    path = tmp_path_factory.mktemp("verify") / "small.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )
    compilation.build(str(path), CompileOptions.make()).artifact.write(path.with_suffix(".gw"))
    return path


def test_a_right_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["verify", str(model), "--layers", "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["ok"] and facts["outputs"]["y"]["relative"] < 1e-6
    assert facts["kernels"]["checked"] >= 1 and not facts["kernels"]["faults"]
    assert facts["subject"]["precision"] and "float64" in facts["reference"]


def test_every_reference(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = model.with_suffix(".gw")
    for path, reference in [
        (model, "reference"), (model, "ort"), (model, str(artifact)), (artifact, str(artifact)),
        (artifact, f"reference:{model}"), (artifact, f"ort:{model}"),
    ]:  # fmt: skip
        assert execute(["verify", str(path), "--ref", reference, "--shape", "N=3"]) == 0, reference
    capsys.readouterr()


def test_eager_is_a_reference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(8, 5)

        def forward(self, x, pair):
            h = torch.relu(self.line(x)) - pair["b"]
            return {"last": h, "first": [h.sum(), pair["a"] * 2, h.argmax(-1)]}

    pair = {"a": torch.zeros(5, dtype=torch.bfloat16), "b": torch.ones(3, 5)}
    exported = torch.export.export(Model().eval(), (torch.randn(3, 8), pair))
    path = tmp_path / "m.pt2"
    torch.export.save(exported, path)
    assert execute(["verify", str(path), "--ref", "eager", "--json", "-"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert len(facts["outputs"]) == 4 and "float32" in facts["reference"]
    with torch.no_grad():
        exported.state_dict["line.weight"].mul_(1.5)
    torch.export.save(exported, tmp_path / "other.pt2")
    other = f"eager:{tmp_path / 'other.pt2'}"
    assert execute(["verify", str(path), "--ref", other]) == 1
    assert execute(["verify", str(path), "--ref", "ort"]) == 2
    assert "--ref eager" in capsys.readouterr().err


def test_a_difference_ends_with_1(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["verify", str(model), "--tol", "0"]) == 1
    assert "1 of 1 output differ" in capsys.readouterr().out
    assert execute(["verify", str(model), "--tol", "0", "--tol", "y=1e-3"]) == 0


def test_nothing_to_bisect(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["verify", str(model), "--bisect", "rewrite"]) == 0
    assert "no pass changes the results" in capsys.readouterr().out


def test_a_case_in_the_text_of_the_ir(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tmp_path / "case.ir"
    case.write_text(
        'graph @case() {\n  input %x: f32[4]\n  %0 = neg(%x) : f32[4]\n  return %0 as "y"\n}\n'
    )
    assert execute(["verify", str(case), "--layers"]) == 0
    case.write_text("graph @case() {\n  input %x: f32[4]\n  %0 = nag(%x) : f32[4]\n}\n")
    assert execute(["verify", str(case)]) == 2
    assert "nag" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--repro", "a.ir"], "no effect without --bisect"),
        (["--tol", "z=1"], "no output is called 'z'"),
        (["--tol", "small"], "want a number"),
        (["--ref", "nothing.gw"], "an artifact that exists"),
        (["--ref", "eager"], "use --ref reference or ort"),
    ],
)
def test_what_is_refused(
    model: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["verify", str(model), *arguments]) == 2
    assert message in capsys.readouterr().err


def test_an_artifact_has_no_passes(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    artifact = str(model.with_suffix(".gw"))
    assert execute(["verify", artifact, "--ref", f"ort:{model}", "--bisect", "node"]) == 2
    assert "compiled already" in capsys.readouterr().err
    assert execute(["verify", artifact]) == 2
    assert "--ref reference:MODEL" in capsys.readouterr().err
