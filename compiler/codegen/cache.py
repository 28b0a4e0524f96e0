"""The object cache: compiled files by the SHA-256 of everything that they depend on.

`KEY.bin` beside `KEY.json`, a readable record with the checksum of the file.  Both are written to a
temporary name and renamed, the record last; a missing, truncated or changed file is a miss, so a
process killed at any moment leaves nothing that is believed.  A directory that cannot be written is
no error: the cache then holds nothing.  `lookups.jsonl` beside the objects says what was asked for
lately, whether it was there, and of what it would have been made; `cache_report.py` reads it.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphwright.errors import InputError

LOOKUPS = "lookups.jsonl"
LARGEST_LOG = 2**20  # bytes; the older half goes when there are more
TAKEN, ABSENT, DAMAGED = "taken", "not there", "damaged"


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


def readable(parts: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parts of a key for records: a source by its digest."""
    out = dict(parts or {})
    if isinstance(out.get("source"), str):
        out["source"] = hashlib.sha256(out["source"].encode()).hexdigest()
    return out


@dataclass(frozen=True, slots=True)
class ObjectCache:
    """A folder of cached files; None caches nothing."""

    folder: Path | None

    def get(self, key: str, parts: Mapping[str, Any] | None = None) -> bytes | None:
        """The file, or None when it is not there or not what was written.  `parts`, of which the key
        was made, are noted for those who ask why.
        """
        if self.folder is None:
            return None
        path = self._path(key)
        data, outcome = None, TAKEN
        try:
            record = json.loads(path.with_suffix(".json").read_text())
            data = path.read_bytes()
        except FileNotFoundError:
            outcome = ABSENT
        except (OSError, ValueError):
            outcome = DAMAGED
        else:
            found = record.get("sha256") if isinstance(record, dict) else None
            if found != hashlib.sha256(data).hexdigest():
                data, outcome = None, DAMAGED
        self._note(path, key, outcome, parts)
        return data

    def _note(self, path: Path, key: str, outcome: str, parts: Mapping[str, Any] | None) -> None:
        assert self.folder is not None
        line = {
            "time": round(time.time()),
            "key": key,
            "outcome": outcome,
            "parts": readable(parts),
        }
        log = self.folder / LOOKUPS
        try:
            if outcome == TAKEN:
                os.utime(path)  # when it was last of use
            self.folder.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            if log.stat().st_size > LARGEST_LOG:
                lines = log.read_bytes().splitlines(keepends=True)
                _write(log, b"".join(lines[len(lines) // 2 :]))
        except OSError:
            return

    def put(self, key: str, data: bytes, record: Mapping[str, Any]) -> None:
        """Stores a file with its record."""
        if self.folder is None:
            return
        path = self._path(key)
        text = json.dumps(
            {**readable(record), "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()},
            indent=1,
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
