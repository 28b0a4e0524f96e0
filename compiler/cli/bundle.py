"""A bundle to reproduce a failure of the compiler: command, options, versions, traceback, model, and
the graph as the failing pass was given it.
"""

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
from collections.abc import Sequence
from dataclasses import fields
from importlib import metadata
from pathlib import Path

from graphwright.compiler.cli.parameters import OPTIONS
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Listener

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
            options = getattr(error, OPTIONS, None)
            if isinstance(options, CompileOptions):
                bundle.writestr("options.json", json.dumps(plain_options(options), indent=2))
                for name, text in failing_graph(arguments, options).items():
                    bundle.writestr(name, text)
            for file in {a for a in arguments if not a.startswith("-")}:
                model = Path(file)
                if model.is_file() and model.stat().st_size <= MODEL_LIMIT:
                    bundle.write(model, f"files/{model.name}")
        part.replace(path)
    except OSError:
        part.unlink(missing_ok=True)
        return None
    return path


def plain_options(options: CompileOptions) -> dict[str, str]:
    """The options as text, those at their defaults too."""
    return {f.name: str(getattr(options, f.name)) for f in fields(options)}


def failing_graph(arguments: Sequence[str], options: CompileOptions) -> dict[str, str]:
    """{file name: IR text} of the graph before the pass that fails, or after all passes when it is
    a later stage that does.  The passes run once more for it, so that compiling pays nothing;
    empty where that is not possible.
    """
    from graphwright.compilation import run_passes
    from graphwright.compiler.ir.printer import print_graph

    models = [Path(a) for a in arguments[1:] if not a.startswith("-") and Path(a).is_file()]
    if not models or models[0].stat().st_size > MODEL_LIMIT:
        return {}
    last = _Last()
    again = options.replaced(trace=None, print_after=(), stop_after=None)
    try:
        graph = run_passes(models[0], again, listeners=[last])
    except Exception:  # the failure itself: what is wanted is what was there before it
        if last.graph is None:
            return {}
        head = f"# before the pass {last.name}, which fails\n"
        name = f"graph-before-{last.name}.ir"
        return {name: head + print_graph(last.graph, origins=True, ids=True)}
    return {"graph-after-passes.ir": print_graph(graph, origins=True, ids=True)}


class _Last(Listener):
    """Keeps the graph that the last pass was given."""

    def __init__(self) -> None:
        self.name, self.graph = "", None

    graph: Graph | None

    def before_pass(self, name: str, graph: Graph) -> None:
        self.name, self.graph = name, graph.clone()


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
