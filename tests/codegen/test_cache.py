"""The object cache believes nothing that was not written whole, and says when it cannot work."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from graphwright.compiler.codegen import cache
from graphwright.compiler.codegen.cache import ObjectCache, check_cache_dir, default_cache_dir
from graphwright.errors import InputError

KEY = cache.key_of({"source": "x"})


@pytest.fixture
def stored(tmp_path: Path) -> ObjectCache:
    kept = ObjectCache(tmp_path)
    kept.put(KEY, b"machine code", {"kernel": "x"})
    assert kept.get(KEY) == b"machine code"
    return kept


def paths(folder: Path) -> list[Path]:
    found = sorted(p for p in folder.rglob("*") if p.is_file())
    return [p for p in found if p.name != cache.LOOKUPS]


def test_any_damage_is_a_miss(stored: ObjectCache, tmp_path: Path) -> None:
    binary, record = paths(tmp_path)
    assert (binary.suffix, record.suffix) == (".bin", ".json")
    for path in (binary, record):
        whole = path.read_bytes()
        for cut in (0, 1, len(whole) - 1):
            path.write_bytes(whole[:cut])
            assert stored.get(KEY) is None, f"{path.name} of {cut} bytes"
        path.unlink()
        assert stored.get(KEY) is None
        path.write_bytes(whole)
    binary.write_bytes(b"machine c0de")
    assert stored.get(KEY) is None
    for words in ("[]", '"sha256"', "{}", '{"sha256": 1}'):
        record.write_text(words)
        assert stored.get(KEY) is None


def test_a_killed_writer_leaves_nothing_that_is_believed(tmp_path: Path) -> None:
    """Killed between the binary and its record, and in the middle of the binary."""
    kept = ObjectCache(tmp_path)
    pid = os.fork()
    if pid == 0:
        replaced = 0

        def die(*_: object) -> None:
            nonlocal replaced
            replaced += 1
            if replaced == 2:
                os.kill(os.getpid(), 9)
            os.rename(*_)  # type: ignore[arg-type]

        cache.os.replace = die  # type: ignore[assignment]
        kept.put(KEY, b"machine code", {})
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 9
    assert any(p.suffix == ".bin" for p in paths(tmp_path)) and kept.get(KEY) is None
    kept.put(KEY, b"machine code", {})
    assert kept.get(KEY) == b"machine code"


def test_no_home_means_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(cache.Path, "home", no_home)
    assert default_cache_dir() is None
    assert ObjectCache(default_cache_dir()).get(KEY) is None


def test_a_folder_that_was_asked_for_must_work(tmp_path: Path) -> None:
    assert check_cache_dir(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"cache_dir .*file"):
        check_cache_dir(tmp_path / "file")
