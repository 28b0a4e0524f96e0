"""Every kind of source gives the same graph; what is no model is refused in words."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import imported, model_of

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.errors import InputError, InvalidModelError
from graphwright.frontends.onnx import import_model

X = np.array([-1.0, 2.0], np.float32)
MODEL = model_of(
    "g (float[2] x) => (float[2] y) <float[2] w = {1, 2}> { a = Add(x, w) y = Relu(a) }"
)
BYTES = MODEL.SerializeToString()


def gives_the_result(source: object) -> None:
    (y,) = evaluate(import_model(source), {"x": X})
    np.testing.assert_array_equal(y, [0.0, 4.0])


def test_path_as_string_and_as_path(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(BYTES)
    gives_the_result(str(path))
    gives_the_result(path)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes(kind: type) -> None:
    gives_the_result(kind(BYTES))


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(BYTES)
    gives_the_result(io.BytesIO(BYTES))
    with path.open("rb") as file:
        gives_the_result(file)


def test_proto() -> None:
    before = MODEL.SerializeToString()
    gives_the_result(MODEL)
    assert MODEL.SerializeToString() == before


def test_ir_model() -> None:
    onnx_ir = pytest.importorskip("onnx_ir", reason="onnx_ir is not installed")
    gives_the_result(onnx_ir.from_proto(MODEL))


def test_ir_model_with_external_data(tmp_path: Path) -> None:
    onnx_ir = pytest.importorskip("onnx_ir", reason="onnx_ir is not installed")
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    gives_the_result(path)
    gives_the_result(onnx_ir.load(path))


def test_onnxscript_function() -> None:
    pytest.importorskip("onnxscript", reason="onnxscript is not installed")
    from scripted import add_and_relu

    (y,) = evaluate(import_model(add_and_relu), {"x": X})
    np.testing.assert_array_equal(y, [0.0, 4.0])


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (BYTES[: len(BYTES) // 2], "truncated"),
        (b"PK\x03\x04 a zip archive, not a model" * 10, "not an ONNX model"),
        (onnx.ModelProto(ir_version=8).SerializeToString(), "holds no graph"),
    ],
)
def test_bytes_that_are_no_model(data: bytes, says: str) -> None:
    with pytest.raises(InvalidModelError, match=says):
        import_model(data)


def test_every_truncation_is_refused_in_our_words() -> None:
    for length in range(len(BYTES)):
        with pytest.raises((InvalidModelError, InputError)) as refused:
            graph = import_model(BYTES[:length])
            # A cut between fields leaves a model whose last fields are missing.
            if len(graph.outputs) != 1 or len(graph.inputs) != 1:
                raise InvalidModelError("a part of the model")
        assert str(refused.value)


def test_paths_that_are_no_model(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match="no such file"):
        import_model(tmp_path / "none.onnx")
    with pytest.raises(InvalidModelError, match="folder"):
        import_model(tmp_path)


def test_other_objects() -> None:
    with pytest.raises(InputError, match=r"builtins\.dict"):
        import_model({"a": 1})
    with pytest.raises(InvalidModelError, match="binary mode"):
        import_model(io.StringIO("text"))


def test_metadata_is_kept() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.metadata_props.add(key="character", value="a\nb")
    assert imported(model).metadata == {"character": "a\nb"}
