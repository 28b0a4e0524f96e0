"""What was chosen for a kernel and why: records, the database that keeps them, lock files.

A record is keyed by what an op is (body, shapes, element types, layouts, which operands are constants)
and the versions that made its kernels.  The database is a folder of one small JSON file a record; a
lock file is all records of one build, so that another build repeats its choices, and with them its bits.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphwright.compiler.codegen.cache_report import TUNED
from graphwright.compiler.codegen.lower import as_region
from graphwright.compiler.ir.dims import is_multiple
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.passes.storage import owner_of
from graphwright.errors import DowngradeError, InputError, ResourceError
from graphwright.files import replace_file
from graphwright.version import VERSION

MEMBER = "tuning.json"  # of an artifact: its lock file
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """One kernel's choice.  `times`: microseconds by candidate, of those that were timed.

    `by`: "timing", "database", "lock" or "cost model"; `refused`: candidates that failed, and why.
    """

    what: str
    chosen: str
    by: str
    ways: int
    times: Mapping[str, float] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    mode: str = "off"
    device: str = ""


def key_of(op: Op) -> str:
    """The key of what an op is, without the names around it."""
    body, operands = as_region(op)
    outside = (*operands, *op.results)
    parts = [
        op.name,
        print_graph(body),
        [str(v.type) for v in outside],
        [v.op is not None and v.op.name == "constant" for v in operands],
        [is_multiple(owner_of(v)[1], 16) for v in outside],
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def versions() -> dict[str, str]:
    """What kernels of equal choices depend on."""
    try:
        from importlib.metadata import version

        triton = version("triton")
    except ImportError:
        triton = "none"
    return {"graphwright": VERSION, "triton": triton}


@dataclass(frozen=True, slots=True)
class Database:
    """Records in a cache folder; None keeps nothing."""

    folder: Path | None

    def _path(self, key: str, arch: str) -> Path:
        assert self.folder is not None
        text = json.dumps([key, arch, versions()], sort_keys=True)
        return self.folder / TUNED / arch / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def get(self, key: str, arch: str, *, device: str, mode: str) -> Record | None:
        """A record for the arch that is good enough for `mode`; from this device when one is named."""
        if self.folder is None:
            return None
        try:
            record = _record(json.loads(self._path(key, arch).read_text())["record"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if (device and record.device != device) or (mode == "full" and record.mode != "full"):
            return None
        return record

    def put(self, key: str, arch: str, record: Record) -> None:
        """Keeps a record; a folder that cannot be written is no error."""
        if self.folder is None:
            return
        path = self._path(key, arch)
        value = {"key": key, "arch": arch, "versions": versions(), "record": asdict(record)}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replace_file(path) as file:
                file.write((json.dumps(value, indent=1, sort_keys=True) + "\n").encode())
        except (OSError, ResourceError):
            return


def stored(folder: Path) -> list[Path]:
    """The database's files in a cache folder."""
    return sorted((folder / TUNED).glob("*/*.json"))


def lock_text(target: str, mode: str, records: Mapping[str, Record]) -> str:
    """A lock file: the same text for equal choices and times."""
    value = {
        "format": FORMAT,
        "target": target,
        "mode": mode,
        "versions": versions(),
        "kernels": {key: asdict(r) for key, r in sorted(records.items())},
    }
    return json.dumps(value, indent=1, sort_keys=True) + "\n"


def read_lock(path: Path, target: str) -> tuple[str, dict[str, Record]]:
    """(mode, records) of a lock file or of the artifact that holds one.

    Raises InputError when it is no such file or for another target, DowngradeError when the versions
    here would not repeat its bits.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                value = json.loads(archive.read(MEMBER))
        else:
            value = json.loads(path.read_text())
        kernels = {key: _record(r) for key, r in value["kernels"].items()}
        found, made, mode = value["target"], value["versions"], str(value["mode"])
    except KeyError as error:
        raise InputError(f"lock {path}: it holds no {error}; is it a lock file?") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise InputError(f"lock {path}: it cannot be read: {error}") from None
    if value.get("format") != FORMAT:
        raise InputError(f"lock {path}: its format is {value.get('format')}, want {FORMAT}")
    if found != target:
        raise InputError(f"lock {path} is for {found}, not for {target}; delete it to choose anew")
    here = versions()
    differing = [f"{n} {made.get(n)} (here {v})" for n, v in here.items() if made.get(n) != v]
    if differing:
        raise DowngradeError(
            f"lock {path} was made with {', '.join(differing)}, so that this build would not repeat "
            "its bits; install those versions, or delete it to choose anew"
        )
    return mode, kernels


def _record(value: Any) -> Record:
    if not isinstance(value["chosen"], str):
        raise ValueError("a record of unknown form")
    return Record(**value)
