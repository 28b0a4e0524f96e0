"""`weights.safetensors` inside an artifact: where each weight lies (https://github.com/huggingface/safetensors)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from graphwright.errors import ArtifactError
from graphwright.runtime.archive import ALIGNMENT
from graphwright.runtime.manifest import WeightSpec
from graphwright.runtime.read_manifest import DTYPE_BITS

_MAX_HEADER = 100_000_000


def storage_bytes(dtype: str, shape: Sequence[int]) -> int:
    """Bytes of a row-major tensor; types below 8 bits are packed along the last axis."""
    bits, total = DTYPE_BITS[dtype], 1
    for extent in shape[:-1] if bits < 8 else shape:
        total *= extent
    if bits < 8:
        return total * -(-shape[-1] * bits // 8) if shape else 1
    return total * (bits // 8)


def locate_weights(data: memoryview, specs: Sequence[WeightSpec]) -> list[tuple[int, int]]:
    """(offset in `data`, bytes) of each weight.  Raises ArtifactError unless every spec names a
    tensor of its size at a 64-byte boundary and the file has no gap, overlap or trailing bytes.
    """
    if len(data) < 8:
        raise ArtifactError("weights: the file is shorter than its header")
    size = int.from_bytes(data[:8], "little")
    if size > min(len(data) - 8, _MAX_HEADER):
        raise ArtifactError(f"weights: a header of {size} bytes does not fit")
    try:
        header = json.loads(bytes(data[8 : 8 + size]))
    except (ValueError, RecursionError):
        raise ArtifactError("weights: the header is not valid JSON") from None
    if not isinstance(header, dict):
        raise ArtifactError("weights: the header is not an object")
    header.pop("__metadata__", None)
    base = 8 + size
    spans: dict[str, tuple[int, int]] = {}
    for name, entry in header.items():
        spans[name] = _span(name, entry)
    end = 0
    for name, (start, stop) in sorted(spans.items(), key=lambda item: item[1]):
        if start != end:
            raise ArtifactError(f"weights: {name!r} leaves a gap or overlaps its neighbour")
        end = stop
    if base + end != len(data):
        raise ArtifactError("weights: the tensors do not fill the file")
    found: list[tuple[int, int]] = []
    for spec in specs:
        if spec.name not in spans:
            raise ArtifactError(f"weights: there is no tensor {spec.name!r}")
        start, stop = spans[spec.name]
        if stop - start != storage_bytes(spec.dtype, spec.shape):
            raise ArtifactError(
                f"weights: {spec.name!r} has {stop - start} bytes, "
                f"{spec.dtype}{list(spec.shape)} needs {storage_bytes(spec.dtype, spec.shape)}"
            )
        if (base + start) % ALIGNMENT and stop > start:
            raise ArtifactError(f"weights: {spec.name!r} is not at a multiple of {ALIGNMENT} bytes")
        found.append((base + start, stop - start))
    return found


def _span(name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if (
        not isinstance(offsets, list)
        or len(offsets) != 2
        or any(type(o) is not int for o in offsets)
        or not 0 <= offsets[0] <= offsets[1]
    ):
        raise ArtifactError(f"weights: {name[:80]!r} has no valid data_offsets")
    return offsets[0], offsets[1]
