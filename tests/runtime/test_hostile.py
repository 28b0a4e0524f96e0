"""Damaged, foreign and hostile artifacts: each is refused with an ArtifactError, none crashes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import two_step, weight

from graphwright.errors import ArtifactError, GraphwrightError
from graphwright.runtime import load
from graphwright.runtime.archive import MANIFEST, WEIGHTS, Member, directory, local_header
from graphwright.runtime.artifact import ArtifactFile


def members_of(artifact: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(artifact)) as archive:
        assert archive.testzip() is None
        return {n: archive.read(n) for n in archive.namelist()}


def assemble(contents: dict[str, bytes]) -> bytes:
    """A well-formed archive of any contents."""
    out, members, offset = b"", [], 0
    for name, data in contents.items():
        crc = zlib.crc32(data)
        out += local_header(name, len(data), crc, offset) + data
        members.append(Member(name, len(data), crc, offset))
        offset = members[-1].end
    return out + directory(members)


def with_manifest(artifact: bytes, change: Callable[[dict[str, Any]], Any]) -> bytes:
    contents = members_of(artifact)
    manifest = json.loads(contents[MANIFEST])
    changed = change(manifest)
    contents[MANIFEST] = json.dumps(manifest if changed is None else changed).encode()
    return assemble(contents)


def test_members_are_readable_by_other_tools(model_bytes: bytes, tmp_path: Path) -> None:
    contents = members_of(model_bytes)
    names = list(contents)
    assert (names[0], names[-1]) == (WEIGHTS, MANIFEST)
    safetensors = pytest.importorskip("safetensors.numpy")
    np.testing.assert_array_equal(
        safetensors.load(contents[WEIGHTS])["three"], np.array([3], np.float32)
    )


def test_equal_contents_give_equal_bytes(model_bytes: bytes) -> None:
    assert assemble(members_of(model_bytes)) == model_bytes
    assert with_manifest(model_bytes, lambda m: None) != model_bytes  # other white space
    load(with_manifest(model_bytes, lambda m: None))


def test_every_truncation_is_refused(model_bytes: bytes) -> None:
    rng = random.Random(0)
    cuts = {0, 1, 3, 4, 21, 22, len(model_bytes) - 1, len(model_bytes) - 22}
    cuts |= {rng.randrange(len(model_bytes)) for _ in range(300)}
    for cut in cuts:
        with pytest.raises(ArtifactError):
            ArtifactFile(model_bytes[:cut])
    with pytest.raises(ArtifactError, match="truncated or has bytes after its end"):
        ArtifactFile(model_bytes + b"\0")


def test_every_bit_flip_is_refused(model_bytes: bytes) -> None:
    """Any single bit: contents are under checksums, headers are compared as a whole."""
    rng = random.Random(1)
    with zipfile.ZipFile(io.BytesIO(model_bytes)) as archive:
        starts = [i.header_offset for i in archive.infolist()]
        headers = [b for s in starts for b in range(s, s + 120)]
        end = range(archive.start_dir, len(model_bytes))
    places = [*headers, *end, *(rng.randrange(len(model_bytes)) for _ in range(500))]
    for at in places:
        damaged = bytearray(model_bytes)
        damaged[at] ^= 1 << rng.randrange(8)
        with pytest.raises(ArtifactError):
            ArtifactFile(bytes(damaged))


def test_large_weights_are_verified_by_chunks(library: bytes) -> None:
    rng = np.random.default_rng(0)
    big = rng.standard_normal(3 << 20).astype(np.float32)  # 12 MiB: three chunks
    data = two_step(library, weights=[weight("three", big[:1]), weight("big", big)]).to_bytes()
    file = ArtifactFile(data)
    assert len(file.manifest.files[WEIGHTS]["crc32"]) == 4
    member = file.members[WEIGHTS]
    for at in (member.start + 4096, member.start + (5 << 20), member.end - 1):
        damaged = bytearray(data)
        damaged[at] ^= 4
        with pytest.raises(ArtifactError, match=r"weights\.safetensors is damaged"):
            ArtifactFile(bytes(damaged))


def test_foreign_files(tmp_path: Path) -> None:
    for content, message in [
        (b"", "empty"),
        (b"hello", "not a graphwright artifact"),
        (b"\x08\x07\x12\x07pytorch" * 50, "not a graphwright artifact"),
        (b"PK\5\6" + bytes(18), "not a graphwright artifact"),
        (b"PK\3\4" + bytes(100), "truncated"),
    ]:
        (tmp_path / "m.gw").write_bytes(content)
        with pytest.raises(ArtifactError, match=message):
            load(tmp_path / "m.gw")
    with pytest.raises(ArtifactError, match="cannot be opened"):
        load(tmp_path / "none.gw")
    with pytest.raises(ArtifactError, match="cannot be opened"):
        load(tmp_path)
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        other = io.BytesIO()
        with zipfile.ZipFile(other, "w", compression) as archive:
            archive.writestr(MANIFEST, "{}" * 100)
            archive.writestr("../../etc/passwd", "x")
        with pytest.raises(ArtifactError):
            load(other.getvalue())


@pytest.mark.parametrize(
    "name", ["../up", "/abs", "a//b", "a/./b", "a\\b", "", "x" * 201, "a\nb", "ä"]
)
def test_bad_member_names(model_bytes: bytes, name: str) -> None:
    header = local_header("q", 1, zlib.crc32(b"x"), 0)
    renamed = header.replace(b"q", name.encode("latin-1"), 1)
    member = struct.pack(
        "<4s6H3I5H2I", b"PK\1\2", 20, 20, 0, 0, 0, 33, zlib.crc32(b"x"), 1, 1,
        len(name.encode("latin-1")), 0, 0, 0, 0, 0, 0,
    ) + name.encode("latin-1")  # fmt: skip
    body = renamed + b"x"
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 1, 1, len(member), len(body), 0)
    with pytest.raises(ArtifactError, match="not an acceptable member name"):
        ArtifactFile(body + member + end)


def test_members_and_manifest_must_agree(model_bytes: bytes) -> None:
    contents = members_of(model_bytes)
    with pytest.raises(ArtifactError, match=r"'kernels/extra\.so' is not both"):
        ArtifactFile(assemble({"kernels/extra.so": b"x", **contents}))
    for name in contents:
        missing = {k: v for k, v in contents.items() if k != name}
        with pytest.raises(ArtifactError):
            ArtifactFile(assemble(missing))
    swapped = {**contents, "kernels/native.so": contents["kernels/native.so"] + b"\0"}
    with pytest.raises(ArtifactError, match=r"kernels/native\.so has"):
        ArtifactFile(assemble(swapped))


def launch(m: dict[str, Any]) -> dict[str, Any]:
    return m["variants"][0]["launches"][0]


def deep(depth: int) -> Any:
    out: Any = 1
    for _ in range(depth):
        out = ["+", out]
    return out


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets a field by a path like variants.0.plan.alignment."""

    def change(m: Any) -> None:
        *steps, last = path.split(".")
        for s in steps:
            m = m[int(s)] if isinstance(m, list) else m[s]
        m[int(last) if isinstance(m, list) else last] = value

    return change


BAD: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (put("format", [2, 0]), "format 2.0, this runtime reads 1.x: upgrade"),
    (put("format", [0, 9]), "format 0.9, .* compile the model again"),
    (put("format", "1.0"), r"format: want \[major, minor\]"),
    (put("kernel_abi", 7), "ABI 7"),
    (lambda m: m.pop("format"), r"format: want"),
    (lambda m: m.pop("weights"), "'weights' is missing"),
    (put("surprise", 1), "unknown field 'surprise'"),
    (put("inputs.0.surprise", 1), r"inputs\[0\]: unknown field"),
    (put("producer", 3), "producer: want a string, got int"),
    (put("symbols.0.min", -1), r"symbols\[0\].min: -1 is not in"),
    (put("symbols.0.max", 0), r"symbols\[0\].max: 0 is not in 1"),
    (put("symbols.0.max", 10**30), r"symbols\[0\].max"),
    (put("symbols.0.multiple_of", 0), "multiple_of: 0 is not in"),
    (put("symbols.0.bound_by", [5, 0]), "bound by input 5"),
    (put("symbols.0.bound_by", [0, 0]), "axis 0, which is not S"),
    (put("symbols.0.bound_by", [0]), r"want \[input, axis\]"),
    (put("symbols.0.name", "a b"), "not an identifier"),
    (lambda m: m["symbols"].append(m["symbols"][0]), "'S' is there twice"),
    (put("inputs.0.dtype", "float31"), "unknown element type 'float31'"),
    (put("inputs.0.shape", [-2, "S"]), "-2 is negative"),
    (put("inputs.0.shape", [True, "S"]), "got bool"),
    (put("inputs.0.shape", [1.5, "S"]), "got float"),
    (put("inputs.0.shape", ["T", "S"]), "'T' is not a declared symbol"),
    (put("inputs.0.shape", [1] * 40), "40 items, at most 32"),
    (put("inputs.0.default", 9), "is not a weight"),
    (put("inputs.1.name", "x"), "'x' is there twice"),
    (put("weights.0.shape", [10**18]), "has 4 bytes"),
    (put("weights.0.shape", [2]), "'three' has 4 bytes, .* needs 8"),
    (put("weights.0.name", "four"), "there is no tensor 'four'"),
    (put("variants.0.library", "kernels/none.so"), "not in `files`"),
    (put("variants.0.library", ""), "has no ''"),
    (put("variants.0.target", "cuda:sm_90"), "no variant .* another device"),
    (put("variants.0.needs", ["flux-capacitor"]), "needs flux-capacitor"),
    (put("variants.0.kernels.0.name", "system;"), "not a symbol name"),
    (put("variants.0.kernels.0.name", "no_such_kernel"), "no kernel 'no_such_kernel'"),
    (put("variants.0.plan.alignment", 48), "48 is no power of two"),
    (put("variants.0.plan.buffers.0.after", [0]), "names a buffer that does not come before"),
    (put("variants.0.plan.buffers.0.size", ["/", 1, 2]), "unknown operator '/'"),
    (put("variants.0.plan.buffers.0.size", ["//", 1]), "'//' with 1 operands"),
    (put("variants.0.plan.buffers.0.size", []), r"want an int, a symbol or"),
    (put("variants.0.plan.buffers.0.size", deep(200)), "nested deeper than 64"),
    (put("variants.0.launches.0.kernel", 8), "kernel: 8 is not in 0..7"),
    (put("variants.0.launches.0.kernel", -1), "kernel: -1 is not in"),
    (put("variants.0.launches.0.jump", 3), "leaves the program"),
    (put("variants.0.launches.0.jump", -1), "only a next launch goes back"),
    (put("variants.0.launches.0.kind", "exec"), "'exec' is none of"),
    (put("variants.0.launches.0.kind", "branch"), "a branch has 1: its condition"),
    (put("variants.0.launches.0.kind", "host"), "launch on the host"),
    (put("variants.0.launches.0.writes", [9]), "names a pointer that is not there"),
    (put("variants.0.launches.0.pointers.0", ["arena", 1]), r"pointers\[0\]\[1\]: there is no arena 1, only 1"),
    (put("variants.0.launches.0.pointers.0", ["state", 0]), "'state' is none of"),
    (put("variants.0.launches.0.pointers.0", ["weight", 10**25]), "there is no weight"),
    (put("variants.0.launches.0.pointers.0", ["input"]), r"want \[space, index\]"),
    (put("variants.0.launches.0.pointers.0", {}), r"want \[space, index\]"),
    (put("variants.0.launches", {}), "want a list, got dict"),
    (put("constraints", [{"left": 1, "relation": "~", "right": 2, "reason": ""}]), "'~' is none of"),
    (lambda m: m["files"]["graph.ir"].update(bytes=1), "has .* bytes, want 1"),
    (lambda m: m["files"]["graph.ir"].update(sha256="0" * 64), r"graph\.ir is damaged"),
    (lambda m: m["files"]["graph.ir"].update(sha256="xyz"), "64 lower-case hex digits"),
    (lambda m: m["files"]["graph.ir"].update(chunk=1, crc32=[]), "one value per chunk"),
    (lambda m: [m], "want an object, got list"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "message"), BAD)
def test_bad_manifest(
    model_bytes: bytes, change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    def apply(m: dict[str, Any]) -> Any:
        result = change(m)
        return result if isinstance(result, list) and result[:1] == [m] else None

    with pytest.raises(ArtifactError, match=message):
        load(with_manifest(model_bytes, apply))


@pytest.mark.parametrize(
    ("path", "value", "error"),
    [
        ("variants.0.plan.buffers.0.size", 2**60, "an arena of .* cannot be allocated"),
        ("variants.0.plan.buffers.0.size", 2**63 - 1, "the arena would need"),
        ("variants.0.plan.buffers.0.size", -64, "negative size"),
        ("variants.0.plan.buffers.0.size", ["*", *["S"] * 60], "overflows 64 bits"),
        ("variants.0.plan.buffers.0.size", ["//", 8, ["+", "S", -3]], "divides by zero"),
        ("outputs.0.shape", [2**40, "S"], "outputs of shape"),
        ("outputs.0.shape", [2**62, 2**62], "outputs of shape"),
        ("outputs.0.shape", [["+", "S", -9]], "the input is too small"),
        ("variants.0.launches.1.pointers.3", ["output", 0, 2**40], "bytes into a tensor of"),
        ("variants.0.launches.1.pointers.3", ["output", 0, -8], "bytes into a tensor of"),
    ],
)
def test_sizes_that_cannot_be(model_bytes: bytes, path: str, value: Any, error: str) -> None:
    """Well-formed but absurd: the call fails before any kernel runs."""
    model = load(with_manifest(model_bytes, put(path, value)))
    x = np.ones((2, 3), np.float32)
    with pytest.raises(GraphwrightError, match=error):
        model(x, x)


@pytest.mark.parametrize(
    "text",
    [
        b"", b"{", b"null", b'"x"', b"[" * 100_000, b'{"a":' * 100_000, b"1" * 10_000,
        b'{"format": [1, 0], "format": [1, 0]}', b'{"format": [NaN, 0]}', b"\xff\xfe\xff", b"\0" * 64,
        b'{"format": [1, 1e400]}',
    ],
)  # fmt: skip
def test_manifest_that_is_no_json(model_bytes: bytes, text: bytes) -> None:
    contents = members_of(model_bytes)
    with pytest.raises(ArtifactError, match="manifest"):
        load(assemble({**contents, MANIFEST: text}))


def test_unknown_fields_of_a_newer_minor_are_ignored(model_bytes: bytes) -> None:
    def newer(m: dict[str, Any]) -> None:
        m["format"] = [1, 99]
        m["novelty"] = {"x": 1}
        launch(m)["priority"] = 3

    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(load(with_manifest(model_bytes, newer))(x, x)[0], 13 * x)


def with_weights(artifact: bytes, content: bytes) -> bytes:
    contents = members_of(artifact)
    manifest = json.loads(contents[MANIFEST])
    manifest["files"][WEIGHTS] = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    return assemble({**contents, WEIGHTS: content, MANIFEST: json.dumps(manifest).encode()})


def safetensors(header: Any, data: bytes = bytes(4)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return len(text).to_bytes(8, "little") + text + data


def tensor(start: Any, end: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [1], "data_offsets": [start, end]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "shorter than its header"),
        (bytes(7), "shorter than its header"),
        ((2**64 - 1).to_bytes(8, "little"), "does not fit"),
        (safetensors(b"[" * 50_000), "not valid JSON"),
        (safetensors([1]), "not an object"),
        (safetensors({"three": 3}), "no valid data_offsets"),
        (safetensors({"three": tensor(-4, 0)}), "no valid data_offsets"),
        (safetensors({"three": tensor(4, 0)}), "no valid data_offsets"),
        (safetensors({"three": tensor(0, 10**30)}), "do not fill the file"),
        (safetensors({"three": tensor(0, 4), "b": tensor(2, 4)}), "gap or overlaps"),
        (safetensors({"three": tensor(4, 8)}, bytes(8)), "gap or overlaps"),
        (safetensors({"three": tensor(0, 4)}, bytes(8)), "do not fill the file"),
        (safetensors({"a": tensor(0, 4), "three": tensor(4, 8)}, bytes(8)), "multiple of 64"),
        (safetensors({"other": tensor(0, 4)}), "no tensor 'three'"),
    ],
)
def test_bad_weights(model_bytes: bytes, content: bytes, message: str) -> None:
    with pytest.raises(ArtifactError, match=message):
        load(with_weights(model_bytes, content))
    load(with_weights(model_bytes, safetensors({"three": tensor(0, 4)})))


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF" + bytes(4000)])
def test_bad_library(model_bytes: bytes, content: bytes) -> None:
    contents = members_of(model_bytes)
    manifest = json.loads(contents[MANIFEST])
    manifest["files"]["kernels/native.so"] = {
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    contents |= {"kernels/native.so": content, MANIFEST: json.dumps(manifest).encode()}
    with pytest.raises(ArtifactError, match=r"kernels/native\.so"):
        load(assemble(contents))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=3), c, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_random_changes_of_the_manifest(model_bytes: bytes, data: st.DataObject) -> None:
    """Anything in any place: refused with our own error, or loaded; never another exception."""

    def change(m: Any) -> None:
        while True:
            keys = list(range(len(m))) if isinstance(m, list) else sorted(m)
            key = data.draw(st.sampled_from(keys))
            inner = m[key]
            if isinstance(inner, list | dict) and inner and data.draw(st.booleans()):
                m = inner
                continue
            m[key] = data.draw(JSON)
            return

    with contextlib.suppress(GraphwrightError):
        load(with_manifest(model_bytes, change))
