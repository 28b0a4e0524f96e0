"""Opens a `model.gw`: maps the file, checks it, and hands out its parts.  Runs none of its code."""

from __future__ import annotations

import hashlib
import mmap
import os
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import numpy as np

from graphwright.errors import ArtifactError, InputError, ResourceError
from graphwright.files import replace_file
from graphwright.runtime.archive import MANIFEST, WEIGHTS, Member, read_members
from graphwright.runtime.manifest import Manifest
from graphwright.runtime.read_manifest import read_manifest
from graphwright.runtime.weights import locate_weights

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview"


class ArtifactFile:
    """A checked artifact in memory.  `data` is the whole file, read-only and page aligned;
    `weights` holds (address, bytes) of each weight of the manifest, valid as long as this object.
    """

    def __init__(self, source: Source) -> None:
        """Maps a file, or copies bytes.  Raises ArtifactError for anything that is not exactly an
        undamaged artifact of a format that this runtime reads.
        """
        self.name, self.data = _map(source)
        view = memoryview(self.data)
        self.members = read_members(view)
        for required in (MANIFEST, WEIGHTS):
            if required not in self.members:
                raise ArtifactError(f"{self.name}: the artifact has no {required}")
        entry = self.members[MANIFEST]
        text = bytes(view[entry.start : entry.end])
        if zlib.crc32(text) != entry.crc:
            raise ArtifactError(f"{self.name}: {MANIFEST} is damaged (checksum)")
        self.manifest: Manifest = read_manifest(text)
        _check_files(self.name, view, self.members, self.manifest.files)
        entry = self.members[WEIGHTS]
        spans = locate_weights(view[entry.start : entry.end], self.manifest.weights)
        start = _address(self.data) + entry.start
        self.weights = [(start + offset, size) for offset, size in spans]

    def read(self, name: str) -> bytes:
        """The bytes of one member.  Raises ArtifactError when there is none of that name."""
        entry = self.members.get(name)
        if entry is None:
            raise ArtifactError(f"{self.name}: the artifact has no {name!r}")
        return self.data[entry.start : entry.end]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a copy, whole or not at all."""
        view = memoryview(self.data)
        with replace_file(path) as file:
            for i in range(0, len(view), 1 << 24):
                file.write(view[i : i + (1 << 24)])


def _map(source: Source) -> tuple[str, mmap.mmap]:
    if isinstance(source, bytes | bytearray | memoryview):
        content = memoryview(source).cast("B")
        if not len(content):
            raise ArtifactError("the artifact is empty")
        copy = mmap.mmap(-1, len(content))
        copy[:] = content
        return "artifact", copy
    if not isinstance(source, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"an artifact is a path or bytes, not {type(source).__name__}")
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size == 0:
                raise ArtifactError(f"{path}: the artifact is empty")
            return path, mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
    except MemoryError as error:
        raise ResourceError(f"{path}: not enough address space to map it: {error}") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path}: cannot be opened: {error}") from None


def _address(data: mmap.mmap) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0])


def _check_files(
    where: str,
    view: memoryview,
    members: Mapping[str, Member],
    files: Mapping[str, Mapping[str, Any]],
) -> None:
    names = set(members) - {MANIFEST}
    if names != set(files):
        odd = sorted(names ^ set(files))[0]
        raise ArtifactError(f"{where}: {odd!r} is not both in the archive and in the manifest")
    jobs: list[tuple[str, int, int, int]] = []
    for name, entry in files.items():
        member = members[name]
        if member.size != entry["bytes"]:
            raise ArtifactError(f"{where}: {name} has {member.size} bytes, want {entry['bytes']}")
        if "chunk" in entry:
            # SHA-256 of gigabytes would dominate loading; CRC-32 by chunks finds damage as well.
            for i, crc in enumerate(entry["crc32"]):
                start = member.start + i * entry["chunk"]
                jobs.append((name, start, min(start + entry["chunk"], member.end), crc))
            continue
        content = view[member.start : member.end]
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise ArtifactError(f"{where}: {name} is damaged (checksum)")
        if zlib.crc32(content) != member.crc:
            raise ArtifactError(f"{where}: {name} has a wrong CRC-32 in the archive")

    def check(job: tuple[str, int, int, int]) -> None:
        name, start, end, crc = job
        if zlib.crc32(view[start:end]) != crc:
            raise ArtifactError(f"{where}: {name} is damaged (checksum)")

    if len(jobs) > 1:
        with ThreadPoolExecutor(min(len(os.sched_getaffinity(0)), 8, len(jobs))) as pool:
            list(pool.map(check, jobs))
    elif jobs:
        check(jobs[0])
