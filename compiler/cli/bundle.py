"""A bundle to reproduce a failure of the compiler: command, versions, traceback, model."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import traceback
import zipfile
from importlib import metadata
from pathlib import Path

MODEL_LIMIT = 64 << 20  # bytes: larger models are named, not copied
PACKAGES = ("graphwright", "numpy", "ml_dtypes", "onnx", "onnxruntime", "click", "rich")


def write_bundle(error: BaseException, arguments: list[str]) -> Path | None:
    """The path of the bundle, in the folder for temporary files; None where none can be written."""
    trace = "".join(traceback.format_exception(error))
    key = hashlib.sha256(trace.encode()).hexdigest()[:10]
    path = Path(tempfile.gettempdir()) / f"graphwright-failure-{key}.zip"
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as bundle:
            bundle.writestr("traceback.txt", trace)
            bundle.writestr("about.json", json.dumps(describe(arguments), indent=2))
            for file in {a for a in arguments if not a.startswith("-")}:
                model = Path(file)
                if model.is_file() and model.stat().st_size <= MODEL_LIMIT:
                    bundle.write(model, f"files/{model.name}")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        return None
    return path


def describe(arguments: list[str]) -> dict[str, object]:
    """What somebody else needs to know about this machine and command."""
    versions: dict[str, str] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "command": ["graphwright", *arguments],
        "python": sys.version,
        "platform": platform.platform(),
        "processors": len(os.sched_getaffinity(0)),
        "compiler": _first_line([os.environ.get("CXX", "c++"), "--version"]),
        "packages": versions,
    }


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    return done.stdout.partition("\n")[0]
