"""`graphwright cache`: why something was or was not taken, and what may go."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from command_line import Invoke

TARGET = "cpu:x86-64-v3"


@pytest.fixture
def cache(cli: Invoke, model: Path, tmp_path: Path) -> Path:
    """A cache that one compilation filled."""
    folder = tmp_path / "cache"
    compile_into(cli, model, folder)
    return folder


def compile_into(cli: Invoke, model: Path, folder: Path, target: str = TARGET) -> None:
    done = cli("compile", model, "-o", folder.parent / "out.gw", "--target", target,
               "--cache-dir", folder)  # fmt: skip
    assert done.code == 0, done.err


def asked(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "lookups.jsonl").read_text().splitlines()]


def test_status_counts_what_is_held_and_asked_for(cli: Invoke, model: Path, cache: Path) -> None:
    compile_into(cli, model, cache)
    told = cli("cache", "status", "--cache-dir", cache, "--json", "-").json
    assert told["kinds"]["library"]["count"] == 1
    assert told["kinds"]["object"]["count"] == len(told["entries"]) - 1 >= 2
    assert told["lookups"]["taken"] == 1  # the library: its objects were not asked for
    assert told["lookups"]["not there"] == len(told["entries"])
    shown = cli("cache", "status", "-v", "--cache-dir", cache)
    assert all(e["key"][:16] in shown.out for e in told["entries"])
    assert "1 taken" in shown.err


def test_a_hit_is_explained_by_its_parts(cli: Invoke, model: Path, cache: Path) -> None:
    compile_into(cli, model, cache)
    key = str(asked(cache)[-1]["key"])
    done = cli("cache", "explain", key[:10], "--cache-dir", cache)
    assert done.code == 0
    assert "every part is the same" in done.out and "sound" in done.out


def test_a_miss_names_the_first_part_that_differs(cli: Invoke, model: Path, cache: Path) -> None:
    compile_into(cli, model, cache, "cpu:x86-64-v4")
    key = str(asked(cache)[-1]["key"])  # an object for the other level
    (path,) = (cache / "objects").rglob(f"{key}.bin")
    path.unlink()
    path.with_suffix(".json").unlink()
    done = cli("cache", "explain", key, "--cache-dir", cache)
    assert "held     no" in done.out.replace("\n", " ")
    assert "differs in flags" in done.out and "isa" in done.out


def test_a_damaged_file_is_a_miss_and_says_so(cli: Invoke, model: Path, cache: Path) -> None:
    (library,) = [
        p for p in (cache / "objects").rglob("*.json") if "objects" in json.loads(p.read_text())
    ]
    binary = library.with_suffix(".bin")
    binary.write_bytes(binary.read_bytes()[:-1])
    compile_into(cli, model, cache)
    told = cli("cache", "explain", library.stem, "--cache-dir", cache).out
    assert "damaged" in told and "checksum differs" in told


def test_an_unknown_key_is_refused(cli: Invoke, cache: Path) -> None:
    done = cli("cache", "explain", "zz", "--cache-dir", cache)
    assert done.code == 2
    assert "no key in" in done.err and "cache status -v" in done.err


def test_prune_removes_what_is_old_damaged_or_too_much(cli: Invoke, cache: Path) -> None:
    files = sorted((cache / "objects").rglob("*.bin"))
    long_ago = time.time() - 40 * 86_400
    os.utime(files[0], (long_ago, long_ago))
    files[1].write_bytes(b"")
    done = cli("cache", "prune", "--cache-dir", cache)
    assert "1 not used for 40 days" in done.err and "1 damaged" in done.err
    assert sorted((cache / "objects").rglob("*.bin")) == files[2:]
    cli("cache", "prune", "--keep", "0", "--cache-dir", cache)
    assert not list((cache / "objects").rglob("*.bin"))
    assert not list((cache / "objects").rglob("*.json"))
    assert cli("cache", "prune", "--all", "--cache-dir", cache).code == 0
    assert not (cache / "lookups.jsonl").exists()
