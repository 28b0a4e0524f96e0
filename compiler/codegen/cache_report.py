"""What a cache holds, why something was or was not taken from it, and what may go."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphwright.compiler.codegen.cache import LOOKUPS, TAKEN
from graphwright.errors import InputError

DAY = 86_400
TUNED = "tuned"  # the folder of what the tuner found
_OWN = ("bytes", "sha256")  # of a record: what came out, not what it was made of


@dataclass(frozen=True, slots=True)
class Entry:
    """One cached file: `kind` is object, library or cubin; `used` seconds since the epoch."""

    key: str
    kind: str
    path: Path
    record: dict[str, Any]
    bytes: int
    used: float

    @property
    def is_damaged(self) -> bool:
        """Whether the file is not what was written."""
        try:
            return hashlib.sha256(self.path.read_bytes()).hexdigest() != self.record.get("sha256")
        except OSError:
            return True

    @property
    def files(self) -> tuple[Path, Path]:
        return self.path, self.path.with_suffix(".json")


@dataclass(frozen=True, slots=True)
class Lookup:
    """One question to the cache."""

    time: float
    key: str
    outcome: str
    parts: dict[str, Any]


def entries(folder: Path) -> list[Entry]:
    """Everything in a cache with a record that can be read, by key."""
    found: list[Entry] = []
    for name, suffix in (("objects", ".bin"), ("triton", ".cubin")):
        for path in sorted((folder / name).rglob(f"*{suffix}")):
            try:
                record = json.loads(path.with_suffix(".json").read_text())
                stat = path.stat()
            except (OSError, ValueError):
                record, stat = None, path.stat()
            kept: dict[str, Any] = record if isinstance(record, dict) else {}
            kind = "cubin" if suffix == ".cubin" else "library" if "objects" in kept else "object"
            found.append(Entry(path.stem, kind, path, kept, stat.st_size, stat.st_mtime))
    return found


def tuned(folder: Path) -> tuple[int, int]:
    """How many kernels the tuner has timed, and the bytes of what it keeps of them."""
    sizes = [path.stat().st_size for path in (folder / TUNED).glob("*/*.json")]
    return len(sizes), sum(sizes)


def lookups(folder: Path) -> list[Lookup]:
    """What was asked for lately, the oldest first."""
    try:
        lines = (folder / LOOKUPS).read_text().splitlines()
    except OSError:
        return []
    found: list[Lookup] = []
    for line in lines:
        try:
            told = json.loads(line)
            found.append(Lookup(told["time"], told["key"], told["outcome"], told["parts"]))
        except (ValueError, KeyError, TypeError):
            continue  # a line that two processes wrote at once
    return found


def explain(folder: Path, key: str) -> list[str]:
    """Why KEY, or the only key that begins so, was or was not taken, in lines for people.

    Raises InputError for a key that the cache neither holds nor was asked for.
    """
    held = {e.key: e for e in entries(folder)}
    asked: dict[str, list[Lookup]] = {}
    for lookup in lookups(folder):
        asked.setdefault(lookup.key, []).append(lookup)
    matching = sorted(k for k in {*held, *asked} if k.startswith(key))
    if len(matching) != 1 or not key:
        what = "no key" if not matching else f"{len(matching)} keys"
        raise InputError(
            f"{what} in {folder} begin with {key!r}; `graphwright cache status -v` lists them"
        )
    (full,) = matching
    entry, times = held.get(full), asked.get(full, [])
    lines = [f"key      {full}"]
    if entry is not None:
        state = "damaged: it will be made anew" if entry.is_damaged else "sound"
        lines.append(f"held     {entry.kind} of {entry.bytes} bytes, {state}")
    else:
        lines.append("held     no")
    lines += [f"asked    {_when(t.time)}: {t.outcome}" for t in times[-3:]]
    parts = times[-1].parts if times else {}
    if not parts and entry is not None:
        parts = {k: v for k, v in entry.record.items() if k not in _OWN}
    lines += [f"made of  {name}: {_short(value)}" for name, value in parts.items()]
    if times and times[-1].outcome != TAKEN:
        lines.append(f"why      {_why(full, times[-1], list(held.values()))}")
    elif times:
        lines.append("why      every part is the same as when it was made")
    return lines


def _why(key: str, lookup: Lookup, held: list[Entry]) -> str:
    if lookup.outcome == "damaged":
        return "the file is not what was written (its checksum differs), so it was made anew"
    parts = lookup.parts
    others = [e for e in held if e.key != key and set(parts) <= set(e.record)]
    if not others:
        return (
            "nothing of its kind was held: the first compilation with this cache, or it was pruned"
        )

    def differing(entry: Entry) -> list[str]:
        return [name for name, value in parts.items() if entry.record.get(name) != value]

    # Another build of the same source says more than a build of another source.
    nearest = min(others, key=lambda e: ("source" in differing(e), len(differing(e)), -e.used))
    names = differing(nearest)
    if not names:
        return "it was pruned, or another process had not yet written it; the parts are the same"
    first = names[0]
    more = f" (and {', '.join(names[1:])})" if len(names) > 1 else ""
    return (
        f"the nearest entry, {nearest.key[:12]}, differs in {first}{more}: it has "
        f"{_short(nearest.record.get(first))}, wanted was {_short(parts[first])}"
    )


def prunable(
    folder: Path, *, older_than_days: float, keep_bytes: int | None, everything: bool
) -> Iterator[tuple[tuple[Path, ...], int, str]]:
    """(files, bytes, reason) of what may go: damaged or unused entries, the least recently used ones
    beyond `keep_bytes`, what killed processes and refused sources left behind.
    """
    now = time.time()
    kept: list[Entry] = []
    for entry in entries(folder):
        unused = (now - entry.used) / DAY
        if everything:
            yield entry.files, entry.bytes, "all"
        elif entry.is_damaged:
            yield entry.files, entry.bytes, "damaged"
        elif unused > older_than_days:
            yield entry.files, entry.bytes, f"not used for {unused:.0f} days"
        else:
            kept.append(entry)
    if keep_bytes is not None:
        total = sum(e.bytes for e in kept)
        for entry in sorted(kept, key=lambda e: e.used):
            if total <= keep_bytes:
                break
            total -= entry.bytes
            yield entry.files, entry.bytes, "least recently used"
    for path in (folder / TUNED).glob("*/*.json"):
        unused = (now - path.stat().st_mtime) / DAY
        if everything or unused > older_than_days:
            yield (
                (path,),
                path.stat().st_size,
                "all" if everything else f"not used for {unused:.0f} days",
            )
    for name in ("objects", "triton"):
        for path in (folder / name).rglob(".*"):
            if path.is_file() and (everything or now - path.stat().st_mtime > DAY):
                yield (path,), path.stat().st_size, "left behind"
    for path in (folder / "failed").glob("*"):
        if everything or now - path.stat().st_mtime > older_than_days * DAY:
            yield (path,), path.stat().st_size, "source of a refused kernel"
    if everything and (folder / LOOKUPS).exists():
        yield (folder / LOOKUPS,), (folder / LOOKUPS).stat().st_size, "lookups"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 160 else f"{text[:150]}... ({len(text)} characters)"
