"""What keeps the tree readable: file lengths, names, the package list, scripts."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CAP = 500
FORBIDDEN = {"utils", "util", "helpers", "helper", "common", "core", "misc", "base_utils", "lib"}


def tracked() -> list[Path]:
    """Files under version control (or, in an unpacked archive, all that are not built)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [p for line in listed.stdout.splitlines() if (p := ROOT / line).is_file()]


def test_no_file_is_longer_than_the_cap() -> None:
    kinds = {".py", ".h", ".cpp", ".j2", ".sh"}
    long = {
        str(p.relative_to(ROOT)): n
        for p in tracked()
        if p.suffix in kinds and (n := p.read_text().count("\n")) > CAP
    }
    assert not long, f"split these (cap {CAP} lines): {long}"


def test_names_say_what_is_inside() -> None:
    bad = [str(p.relative_to(ROOT)) for p in tracked() if p.stem.strip("_").lower() in FORBIDDEN]
    bad += [str(p.parent) for p in tracked() if FORBIDDEN & set(p.relative_to(ROOT).parts[:-1])]
    assert not bad, f"name these after what they hold: {bad}"


def test_every_folder_with_code_is_packaged() -> None:
    setup = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = set(setup["packages"])
    there = {"graphwright"}
    for top in ("compiler", "runtime", "frontends"):
        for init in (ROOT / top).rglob("__init__.py"):
            there.add("graphwright." + ".".join(init.parent.relative_to(ROOT).parts))
    assert listed == there
    bare = {
        p.parent.relative_to(ROOT)
        for top in ("compiler", "runtime", "frontends")
        for p in (ROOT / top).rglob("*.py")
        if not (p.parent / "__init__.py").exists()
    }
    assert not bare, f"folders without __init__.py: {bare}"


def test_one_version() -> None:
    import graphwright

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert graphwright.__version__ == project["version"]


@pytest.mark.parametrize("script", ["scripts/demo", "scripts/test", "scripts/typecheck", ".ci/run"])
def test_scripts_can_be_run(script: str) -> None:
    path = ROOT / script
    assert os.access(path, os.X_OK), f"{script} is not executable"
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_todo_without_an_issue() -> None:
    marks = [
        f"{p.relative_to(ROOT)}:{i}"
        for p in tracked()
        if p.suffix in {".py", ".h", ".cpp", ".j2"} and p != Path(__file__)
        for i, line in enumerate(p.read_text().splitlines(), 1)
        if ("TODO" in line or "FIXME" in line) and "#" not in line.partition("TODO")[2]
    ]
    assert not marks, f"a TODO names its issue (TODO #12): {marks}"


def test_test_modules_have_names_of_their_own() -> None:
    names = [p.name for p in (ROOT / "tests").rglob("*.py") if p.name != "conftest.py"]
    twice = sorted({n for n in names if names.count(n) > 1})
    assert not twice, f"pytest imports test modules by bare name: rename one of each of {twice}"
