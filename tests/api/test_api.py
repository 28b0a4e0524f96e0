"""The public API: sources, results, laziness."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphwright as gw
from graphwright.runtime.library import allowed_cpus
from graphwright.runtime.manifest import THREADS, Manifest
from graphwright.runtime.model import _compiled_threads


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    """sum = a + b, [N, 4] each; then its double."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["a", "b"], ["sum"], name="add"),
            helper.make_node("Add", ["sum", "sum"], ["double"], name="twice"),
        ],
        "sums",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in "ab"],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in ("sum", "double")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def run_python(code: str, cwd: Path | None = None) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_name_exists() -> None:
    assert set(gw.__all__) <= set(dir(gw))
    for name in gw.__all__:
        assert getattr(gw, name).__module__.startswith("graphwright.")
    with pytest.raises(AttributeError, match="no attribute 'complie'"):
        _ = gw.complie  # type: ignore[attr-defined]


def test_import_is_lazy() -> None:
    heavy = "('onnx', 'click', 'rich', 'torch', 'triton')"
    code = f"""
import sys
import graphwright
assert not any(m.startswith('graphwright.') and m not in
    ('graphwright.errors', 'graphwright.version') for m in sys.modules), sys.modules
graphwright.load, graphwright.runtime
assert 'graphwright.runtime.model' in sys.modules
assert not any(m.startswith(('graphwright.compiler', 'graphwright.frontends')) for m in sys.modules)
assert not any(m.partition('.')[0] in {heavy} for m in sys.modules)
"""
    run_python(code)


def test_results_by_position_and_name(model: onnx.ModelProto) -> None:
    compiled = gw.compile(model)
    a, b = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    total, double = compiled(a, b)
    assert np.array_equal(total, a + b) and np.array_equal(double, (a + b) + (a + b))
    by_name = compiled.run({"b": b, "a": a})
    assert list(by_name) == ["sum", "double"] and np.array_equal(by_name["sum"], total)
    assert [s.name for s in compiled.inputs] == ["a", "b"]
    assert compiled.inputs[0].shape == ("N", 4) and compiled.inputs[0].dtype == "float32"


def test_sources(model: onnx.ModelProto, tmp_path: Path) -> None:
    path = tmp_path / "sums.onnx"
    onnx.save(model, path)
    a = np.ones((1, 4), np.float32)
    for source in (path, str(path), path.read_bytes(), io.BytesIO(path.read_bytes()), model):
        assert np.array_equal(gw.compile(source)(a, a)[0], a + a)


def test_save_and_load(model: onnx.ModelProto, tmp_path: Path) -> None:
    compiled = gw.compile(model, shapes={"N": "1..8@2"})
    compiled.save(tmp_path / "sums.gw")
    loaded = gw.load(tmp_path / "sums.gw")
    (symbol,) = loaded.manifest.symbols
    assert (symbol.name, symbol.min, symbol.max, symbol.opt) == ("N", 1, 8, 2)
    a = np.ones((8, 4), np.float32)
    assert np.array_equal(loaded(a, a)[1], 4 * a)
    with pytest.raises(gw.InputError, match=r"N in 1\.\.8"):
        loaded(np.ones((9, 4), np.float32), np.ones((9, 4), np.float32))


def test_options_are_checked(model: onnx.ModelProto) -> None:
    with pytest.raises(gw.InputError, match="did you mean 'target'"):
        gw.compile(model, taget="cpu")
    with pytest.raises(gw.DowngradeError, match="fp32"):
        gw.compile(model, precision="tf32")
    with pytest.raises(gw.InputError, match="are for torch modules"):
        gw.compile(model, (1, 2))
    with pytest.raises(gw.InputError, match="no input is named 'c'"):
        gw.compile(model, shapes="c:1x4")


def test_arguments_of_other_kinds(model: onnx.ModelProto, tmp_path: Path) -> None:
    for options in ({"target": 5}, {"shapes": 5}, {"threads": "a"}):
        (name,) = options
        with pytest.raises(gw.InputError, match=f"option {name}: "):
            gw.compile(model, **options)
    (tmp_path / "file").write_text("")
    with pytest.raises(gw.InputError, match="cache_dir"):
        gw.compile(model, cache_dir=tmp_path / "file")
    compiled = gw.compile(model)
    array = np.zeros((2, 4), np.float32)
    with pytest.raises(gw.InputError, match="by position"):
        compiled.run([array])  # type: ignore[arg-type]
    with pytest.raises(gw.InputError, match="by input name"):
        compiled.warm_up(array)  # type: ignore[arg-type]
    with pytest.raises(gw.InputError, match="a path or bytes, not int"):
        gw.load(5)  # type: ignore[arg-type]


def test_threads_are_recorded(model: onnx.ModelProto, tmp_path: Path) -> None:
    gw.compile(model, threads=1).save(tmp_path / "one.gw")
    recorded = gw.load(tmp_path / "one.gw").manifest.metadata
    assert recorded["graphwright.threads"] == "1"
    gw.compile(model).save(tmp_path / "free.gw")
    assert "graphwright.threads" not in gw.load(tmp_path / "free.gw").manifest.metadata


@pytest.mark.parametrize(
    ("wish", "threads"),
    [("1", 1), ("9999", allowed_cpus()), ("0", None), ("9" * 5000, None), ("-1", None), ("", None)],
)
def test_an_artifacts_wish_is_bounded(wish: str, threads: int | None) -> None:
    manifest = Manifest("test", (), (), (), (), (), (), metadata={THREADS: wish})
    assert _compiled_threads(manifest) == threads


def test_check() -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"], name="odd", domain="com.example")
    graph = helper.make_graph(
        [node],
        "odd",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    odd = helper.make_model(graph, opset_imports=opsets)
    report = gw.check(odd)
    assert not report.ok and [p.node for p in report.problems] == ["odd"]
    with pytest.raises(gw.UnsupportedError) as caught:
        gw.compile(odd)
    assert caught.value.problems == report.problems and caught.value.exit_code == 3


def test_numeric_check_runs(model: onnx.ModelProto) -> None:
    gw.compile(model, check_passes="numeric")
