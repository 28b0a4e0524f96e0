"""Initializers of every element type, inline and external; what does not fit is refused."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphwright.compiler.ir.types import DTYPES
from graphwright.errors import InvalidModelError, UnsupportedError
from graphwright.frontends.onnx import import_model
from graphwright.frontends.onnx.tensors import ELEMENT, TensorReader

RNG = np.random.default_rng(7)


def values(name: str, shape: tuple[int, ...] = (3, 5)) -> np.ndarray:
    dtype = DTYPES[name].numpy
    wide = RNG.uniform(-7, 7, shape)
    if DTYPES[name].kind == "complex":
        return (wide + 1j * wide[::-1]).astype(dtype)
    return np.abs(wide).astype(dtype) if DTYPES[name].kind == "uint" else wide.astype(dtype)


@pytest.mark.parametrize("number", ELEMENT, ids=lambda n: ELEMENT[n].name)
def test_raw_and_typed_data_of_every_element_type(number: int) -> None:
    want = values(ELEMENT[number].name)
    raw = numpy_helper.from_array(want, "t")
    assert raw.data_type == number
    typed = helper.make_tensor("t", number, want.shape, want.reshape(-1))
    for tensor in (raw, typed):
        literal = TensorReader(None).literal(tensor, "t")
        assert literal.dtype is ELEMENT[number]
        assert literal.array().dtype == want.dtype
        np.testing.assert_array_equal(literal.array().astype(complex), want.astype(complex))


def test_bools_are_zero_or_one() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.BOOL, dims=[3], raw_data=b"\x00\x01\xff")
    array = TensorReader(None).literal(tensor, "t").array()
    assert array.view(np.uint8).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (TensorProto(data_type=1, dims=[4], raw_data=b"\0" * 15), "15 bytes"),
        (TensorProto(data_type=1, dims=[4], raw_data=b"\0" * 17), "17 bytes"),
        (TensorProto(data_type=1, dims=[4], float_data=[1, 2, 3]), "3 values"),
        (TensorProto(data_type=1, dims=[4]), "0 values"),
        (TensorProto(data_type=1, dims=[-1], raw_data=b""), "negative"),
        (TensorProto(data_type=TensorProto.INT4, dims=[3], raw_data=b"\0"), "wants 2 bytes"),
        (TensorProto(data_type=1, dims=[2**40, 2**40], raw_data=b""), "0 bytes"),
    ],
)
def test_data_that_does_not_fit_its_shape(tensor: TensorProto, says: str) -> None:
    with pytest.raises(InvalidModelError, match=f"the weight.*{says}"):
        TensorReader(None).literal(tensor, "the weight")


def external(location: str, shape: tuple[int, ...] = (2, 2), **entries: object) -> onnx.ModelProto:
    """y = x + w with w in a file."""
    info = helper.make_tensor_value_info
    weight = TensorProto(name="w", data_type=1, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        weight.external_data.add(key=key, value=str(value))
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [info("x", 1, shape)],
        [info("y", 1, shape)],
        [weight],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


W = np.arange(4, dtype=np.float32).reshape(2, 2)


def weight_of(path: Path) -> np.ndarray:
    (constant,) = [op for op in import_model(path).ops if op.name == "constant"]
    return constant.attributes["value"].array()


def test_external_data_is_mapped_not_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"\xff" * 12 + W.tobytes() + b"\xff" * 5)
    array = weight_of(saved(tmp_path, external("sub/w.bin", offset=12, length=16)))
    np.testing.assert_array_equal(array, W)
    base = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


def test_external_data_larger_than_memory_is_not_touched(tmp_path: Path) -> None:
    size = 3 << 30
    with (tmp_path / "w.bin").open("wb") as file:
        file.truncate(size)  # a sparse file
    model = external("w.bin", (size // 4,))
    graph = import_model(saved(tmp_path, model))
    assert [str(v.type) for v in graph.outputs] == [f"f32[{size // 4}]"]


def test_offset_and_length_default_to_the_start_and_the_shape(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes() + b"rest")
    np.testing.assert_array_equal(weight_of(saved(tmp_path, external("w.bin"))), W)


@pytest.mark.parametrize(
    ("location", "entries", "says"),
    [
        ("/etc/passwd", {}, "absolute path"),
        ("C:\\w.bin", {}, "absolute path"),
        ("../w.bin", {}, "out of the model's folder"),
        ("sub/../../w.bin", {}, "out of the model's folder"),
        ("sub\\..\\..\\w.bin", {}, "out of the model's folder"),
        ("", {}, "names no file"),
        ("none.bin", {}, "is not there"),
        (".", {}, "is not there"),
        ("w.bin", {"offset": 4}, "lie outside"),
        ("w.bin", {"offset": -4}, "lie outside"),
        ("w.bin", {"offset": 10**30}, "lie outside"),
        ("w.bin", {"length": 8}, "wants 16 bytes"),
        ("w.bin", {"length": 32}, "wants 16 bytes"),
        ("w.bin", {"offset": "four"}, "whole numbers"),
    ],
)
def test_external_data_that_is_refused(
    tmp_path: Path, location: str, entries: dict[str, object], says: str
) -> None:
    (tmp_path / "w.bin").write_bytes(W.tobytes())
    inner = tmp_path / "model"
    inner.mkdir()
    (inner / "w.bin").write_bytes(W.tobytes())
    with pytest.raises(InvalidModelError, match=says):
        import_model(saved(inner, external(location, **entries)))


def test_links_may_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(W.tobytes())
    inner = tmp_path / "model"
    inner.mkdir()
    os.symlink(tmp_path / "secret", inner / "w.bin")
    with pytest.raises(InvalidModelError, match="a link out of the model's folder"):
        import_model(saved(inner, external("w.bin")))
    os.symlink(tmp_path, inner / "up")
    with pytest.raises(InvalidModelError, match="a link out of the model's folder"):
        import_model(saved(inner, external("up/secret")))


def test_external_data_needs_a_folder() -> None:
    with pytest.raises(InvalidModelError, match="without a folder"):
        import_model(external("w.bin"))


def test_types_that_we_do_not_have_are_named() -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Identity", ["s"], ["y"])],
        "g",
        [info("s", TensorProto.STRING, [1])],
        [info("y", TensorProto.STRING, [1])],
    )
    with pytest.raises(UnsupportedError, match=r"s \(input\): it has the element type string"):
        import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def test_sparse_initializers_are_refused() -> None:
    model = external("w.bin")
    del model.graph.initializer[:]
    dense = numpy_helper.from_array(np.ones(1, np.float32), "w")
    places = numpy_helper.from_array(np.zeros(1, np.int64), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(dense, places, [2, 2]))
    with pytest.raises(UnsupportedError, match="'w' is sparse"):
        import_model(model)


def test_four_bit_types_unpack_low_nibble_first() -> None:
    tensor = TensorProto(name="t", data_type=TensorProto.INT4, dims=[3], raw_data=b"\xf1\x08")
    array = TensorReader(None).literal(tensor, "t").array()
    assert array.dtype == ml_dtypes.int4
    assert array.astype(int).tolist() == [1, -1, -8]
