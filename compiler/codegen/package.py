"""Writes an artifact, `model.gw`: manifest, weights, kernels and graph text in one zip.

Equal contents give equal bytes.  Weights are streamed: at most one is in memory besides those that
the caller holds.  The format is described in runtime/archive.py (container), runtime/manifest.py
and below (weights).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import numpy as np

from graphwright.compiler.ir.types import DTYPES
from graphwright.errors import CompileError
from graphwright.files import replace_file
from graphwright.runtime.archive import (
    ALIGNMENT,
    CHUNK,
    GRAPH,
    MANIFEST,
    WEIGHTS,
    Member,
    check_name,
    directory,
    local_header,
)
from graphwright.runtime.manifest import Manifest, WeightSpec, write_manifest
from graphwright.runtime.packed import pack_elements

_BY_LONG_NAME = {d.long_name: d for d in DTYPES.values()}
# Element types that safetensors has a name for; all others are stored as U8 bytes.
_SAFETENSORS = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "int16": "I16", "uint16": "U16", "int32": "I32",
    "uint32": "U32", "int64": "I64", "uint64": "U64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WeightData:
    """A weight as kernels read it.  `load` yields its array (row-major, of `spec`'s shape and dtype;
    4-bit types may also come packed, as uint8 of the storage's size); called once per writing.
    """

    spec: WeightSpec
    load: Callable[[], np.ndarray]


@dataclass(frozen=True, slots=True)
class Artifact:
    """A compiled model: manifest (without `weights` and `files`, which writing fills in), weights
    in the order of their indices, other members by path (`kernels/...`), the graph's text.
    """

    manifest: Manifest
    weights: Sequence[WeightData]
    files: Mapping[str, bytes]
    graph: str = ""

    def write(self, path: str | os.PathLike[str]) -> None:
        """Writes the file at once or not at all.  Raises ResourceError when the disk is full."""
        with replace_file(path) as file:
            self._write(file)

    def to_bytes(self) -> bytes:
        """The artifact's bytes, for loading without a file."""
        file = io.BytesIO()
        self._write(file)
        return file.getvalue()

    def _write(self, file: BinaryIO) -> None:
        members: list[Member] = []
        entries: dict[str, Mapping[str, Any]] = {}

        def add(name: str, size: int, pieces: Iterator[bytes | memoryview]) -> None:
            offset = members[-1].end if members else 0
            file.write(local_header(check_name(name), size, 0, offset))
            digest, crc, written = hashlib.sha256(), 0, 0
            chunks: list[int] = []
            room, chunk_crc = CHUNK, 0
            for piece in pieces:
                file.write(piece)
                digest.update(piece)
                crc, written = zlib.crc32(piece, crc), written + len(piece)
                while size > CHUNK and len(piece):
                    part = piece[:room]
                    chunk_crc, room = zlib.crc32(part, chunk_crc), room - len(part)
                    piece = piece[len(part) :]
                    if not room:
                        chunks.append(chunk_crc)
                        room, chunk_crc = CHUNK, 0
            if room < CHUNK:
                chunks.append(chunk_crc)
            if written != size:
                raise CompileError(f"artifact: {name} has {written} bytes, {size} were declared")
            file.seek(offset)
            file.write(local_header(name, size, crc, offset))
            file.seek(0, os.SEEK_END)
            members.append(Member(name, size, crc, offset))
            entry: dict[str, Any] = {"sha256": digest.hexdigest(), "bytes": size}
            entries[name] = entry | ({"chunk": CHUNK, "crc32": chunks} if chunks else {})

        header, layout = plan_safetensors([w.spec for w in self.weights])
        size = len(header) + (layout[-1][1] if layout else 0)
        add(WEIGHTS, size, self._weight_pieces(header, layout))
        files = {GRAPH: self.graph.encode(), **self.files} if self.graph else dict(self.files)
        for name in sorted(files):
            add(name, len(files[name]), iter([files[name]]))
        specs = tuple(w.spec for w in self.weights)
        manifest = write_manifest(replace(self.manifest, weights=specs, files=entries))
        add(MANIFEST, len(manifest), iter([manifest]))
        file.write(directory(members))

    def _weight_pieces(
        self, header: bytes, layout: Sequence[tuple[int, int]]
    ) -> Iterator[bytes | memoryview]:
        yield header
        end = 0
        for weight, (start, stop) in zip(self.weights, layout, strict=True):
            yield bytes(start - end)
            data = weight_bytes(weight.spec, weight.load())
            yield from (data[i : i + CHUNK] for i in range(0, len(data), CHUNK))
            end = stop


def weight_size(spec: WeightSpec) -> int:
    """Bytes of a weight's storage; types below 8 bits are packed along the last axis."""
    dtype = _BY_LONG_NAME[spec.dtype]
    if dtype.bits < 8 and spec.shape:
        return int(np.prod(spec.shape[:-1], dtype=np.int64)) * -(-spec.shape[-1] // dtype.per_byte)
    return int(np.prod(spec.shape, dtype=np.int64)) * dtype.bytes


def weight_bytes(spec: WeightSpec, array: np.ndarray) -> memoryview:
    """The storage of a weight.  Raises CompileError when the array does not fit its spec."""
    dtype = _BY_LONG_NAME[spec.dtype]
    is_packed = dtype.bits < 8 and array.dtype == np.uint8 and array.nbytes == weight_size(spec)
    if not is_packed and (array.shape != spec.shape or array.dtype != dtype.numpy):
        raise CompileError(
            f"weight {spec.name}: want {spec.dtype}{list(spec.shape)}, got "
            f"{array.dtype}{list(array.shape)}"
        )
    if dtype.bits < 8 and not is_packed:
        array = pack_elements(array, dtype.bits)
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat.data


def plan_safetensors(specs: Sequence[WeightSpec]) -> tuple[bytes, list[tuple[int, int]]]:
    """The header of the weights file and (start, end) of each weight behind it, in bytes.

    Every weight starts at a multiple of 64.  safetensors allows no gaps, so that padding is
    tensors named `__padding__N`.
    """
    entries: dict[str, Any] = {"__metadata__": {"format": "graphwright"}}
    layout: list[tuple[int, int]] = []
    end = 0
    for i, spec in enumerate(specs):
        gap = -end % ALIGNMENT
        if gap:
            entries[f"__padding__{i}"] = _entry("U8", (gap,), end, end + gap)
        start = end + gap
        end = start + weight_size(spec)
        kind = _SAFETENSORS.get(spec.dtype)
        shape = spec.shape if kind else (end - start,)
        entries[spec.name] = _entry(kind or "U8", shape, start, end)
        layout.append((start, end))
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text, layout


def _entry(kind: str, shape: tuple[int, ...], start: int, end: int) -> dict[str, Any]:
    return {"dtype": kind, "shape": list(shape), "data_offsets": [start, end]}
