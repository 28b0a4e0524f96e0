"""The object cache: compiled files by the SHA-256 of everything that they depend on.

`KEY.bin` beside `KEY.json`, a readable record with the checksum of the file.  Both are written to a
temporary name and renamed, the record last; a missing, truncated or changed file is a miss, so a
process killed at any moment leaves nothing that is believed.  A directory that cannot be written is
no error: the cache then holds nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphwright.errors import InputError


def default_cache_dir() -> Path | None:
    """`$XDG_CACHE_HOME/graphwright`, or `~/.cache/graphwright`; None for a user without a home."""
    root = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(root) if root else Path.home() / ".cache") / "graphwright"
    except RuntimeError:
        return None


def check_cache_dir(folder: Path) -> Path:
    """The folder, made when it is missing.  Raises InputError when nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError as error:
        raise InputError(f"cache_dir {folder}: {error.strerror or error}") from None
    if not writable:
        raise InputError(f"cache_dir {folder} cannot be written; name another, or use cache=False")
    return folder


def key_of(parts: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of the parts."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """A folder of cached files; None caches nothing."""

    folder: Path | None

    def get(self, key: str) -> bytes | None:
        """The file, or None when it is not there or not what was written."""
        if self.folder is None:
            return None
        path = self._path(key)
        try:
            record = json.loads(path.with_suffix(".json").read_text())
            data = path.read_bytes()
        except (OSError, ValueError):
            return None
        good = isinstance(record, dict) and record.get("sha256") == hashlib.sha256(data).hexdigest()
        return data if good else None

    def put(self, key: str, data: bytes, record: Mapping[str, Any]) -> None:
        """Stores a file with its record."""
        if self.folder is None:
            return
        path = self._path(key)
        text = json.dumps(
            {**record, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}, indent=1
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, data)
            _write(path.with_suffix(".json"), text.encode())
        except OSError:
            return

    def _path(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / "objects" / key[:2] / f"{key}.bin"


def _write(path: Path, data: bytes) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
