"""Reading a model: every kind of source becomes one parsed `ModelProto` and the folder of its data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import DecodeError, EncodeError

from graphwright.errors import InputError, InvalidModelError

# protobuf refuses larger messages; a larger model keeps its weights in external data.
MESSAGE_LIMIT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Source:
    """A parsed model.  `folder` holds its external data; None: the model came without a place."""

    proto: onnx.ModelProto
    folder: Path | None
    name: str


def read_source(source: Any) -> Source:
    """Parses a path, bytes, a binary file, a ModelProto, an onnx_ir.Model or an onnxscript function.

    Raises InvalidModelError when it is no ONNX model, InputError for another kind of object.
    """
    if isinstance(source, Source):  # read already
        return source
    if isinstance(source, onnx.ModelProto):
        found = Source(source, None, source.graph.name or "model")
    elif isinstance(source, str | os.PathLike):
        found = _read_file(Path(source))
    elif isinstance(source, bytes | bytearray | memoryview):
        found = Source(_parse(bytes(source), "the given bytes"), None, "model")
    elif callable(getattr(source, "to_model_proto", None)):  # onnxscript's OnnxFunction
        found = _from_script(source)
    elif type(source).__module__.partition(".")[0] == "onnx_ir":
        found = _from_ir(source)
    elif callable(getattr(source, "read", None)):
        found = _read_stream(source)
    else:
        raise InputError(
            f"a model of type {type(source).__module__}.{type(source).__qualname__} cannot be read; "
            "give a path, bytes, a binary file, a ModelProto, an onnx_ir.Model or an onnxscript "
            "function"
        )
    if not found.proto.HasField("graph"):
        raise InvalidModelError(f"{found.name} is not an ONNX model: it holds no graph")
    return found


def _parse(data: bytes, name: str) -> onnx.ModelProto:
    if not data:
        raise InvalidModelError(f"{name}: empty, not an ONNX model")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RuntimeError, ValueError) as e:
        raise InvalidModelError(
            f"{name} is not an ONNX model: protobuf cannot parse its {len(data)} bytes ({e}); the "
            "file is truncated, damaged or of another format"
        ) from None
    return model


def _read_file(path: Path) -> Source:
    if path.is_dir():
        raise InvalidModelError(f"{path} is a folder; give the .onnx file in it")
    try:
        size = path.stat().st_size
        if size > MESSAGE_LIMIT:
            raise InvalidModelError(
                f"{path} has {size} bytes, more than protobuf can hold ({MESSAGE_LIMIT}); save its "
                "weights as external data"
            )
        data = path.read_bytes()
    except FileNotFoundError:
        raise InvalidModelError(f"{path}: there is no such file") from None
    except OSError as e:
        raise InvalidModelError(f"{path} cannot be read: {e.strerror or e}") from None
    return Source(_parse(data, str(path)), path.parent, path.name)


def _read_stream(stream: Any) -> Source:
    data = stream.read()
    if not isinstance(data, bytes):
        raise InvalidModelError("the model's stream gives text; open it in binary mode")
    name = getattr(stream, "name", "")
    path = Path(name) if isinstance(name, str) and name and os.path.isfile(name) else None
    return Source(
        _parse(data, name or "the stream"), path and path.parent, path.name if path else "model"
    )


def _from_script(function: Any) -> Source:
    try:
        proto = function.to_model_proto()
    except Exception as e:  # onnxscript has no error class of its own
        raise InvalidModelError(f"the onnxscript function makes no model: {e}") from e
    return Source(proto, None, proto.graph.name or "model")


def _from_ir(model: Any) -> Source:
    import onnx_ir

    if not isinstance(model, onnx_ir.Model):
        raise InputError(f"an onnx_ir.{type(model).__name__} is not a model; give an onnx_ir.Model")
    try:
        proto = onnx_ir.to_proto(model)
    except (EncodeError, ValueError, TypeError) as e:
        raise InvalidModelError(f"the onnx_ir.Model cannot be serialised: {e}") from e
    folders = {
        str(value.const_value.base_dir)
        for value in model.graph.initializers.values()
        if isinstance(value.const_value, onnx_ir.ExternalTensor)
    }
    if len(folders) > 1:
        raise InvalidModelError(
            f"the onnx_ir.Model keeps external data in several folders ({', '.join(sorted(folders))})"
        )
    folder = Path(folders.pop() or ".") if folders else None
    return Source(proto, folder, proto.graph.name or "model")
