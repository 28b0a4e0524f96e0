"""Opening what a command is given: an artifact, or a model that is compiled on the way."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from graphwright.compiler.cli.console import Console
from graphwright.compiler.cli.inputs import Wanted, sizes_from
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError

if TYPE_CHECKING:
    from graphwright.runtime import CompiledModel
    from graphwright.runtime.manifest import Manifest

ZIP_START = b"PK\3\4"


def is_artifact(path: Path) -> bool:
    """Whether a file is an artifact rather than a model, by its first bytes."""
    try:
        with path.open("rb") as file:
            return file.read(4) == ZIP_START or path.suffix == ".gw"
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder; name a model or an artifact") from None


def artifact_bytes(path: Path, options: CompileOptions, console: Console) -> bytes:
    """A model compiled in memory."""
    from graphwright.compilation import build

    with console.stage(f"compiling {path}"):
        return build(path, options).artifact.to_bytes()


def open_model(path: Path, options: CompileOptions, console: Console) -> CompiledModel:
    """The loaded artifact, compiled first where `path` is a model.

    Raises InputError for compile options with an artifact: they could have no effect.
    """
    from graphwright.runtime import load

    if is_artifact(path):
        refuse_compile_options(path, options)
        return load(path, threads=options.threads or None)
    return load(artifact_bytes(path, options, console), threads=options.threads or None)


def refuse_compile_options(path: Path, options: CompileOptions) -> None:
    """Raises InputError when an option other than shapes and threads was given."""
    if options.replaced(shapes=None, threads=0) != CompileOptions():
        raise InputError(f"{path} is compiled already: compile options have no effect on it")


def wanted_inputs(manifest: Manifest, shapes: ShapeSpec) -> list[Wanted]:
    """What a model wants, its symbols set by `shapes` or to the sizes it was optimised for."""
    from graphwright.compiler.ir.types import DTYPES
    from graphwright.runtime.expressions import evaluate_expression, format_expression

    dtypes = {d.long_name: d.numpy for d in DTYPES.values()}
    known = {s.name: s.opt for s in manifest.symbols}
    for name, extent in shapes.symbols.items():
        if name not in known:
            raise InputError(
                f"--shape: no dim is named {name!r}; there are: {', '.join(known) or 'none'}"
            )
        known[name] = extent if isinstance(extent, int) else extent.typical
    names = [spec.name for spec in manifest.inputs]
    for name in shapes.inputs:
        if name not in names:
            raise InputError(f"--shape: no input is named {name!r}; there are: {', '.join(names)}")
    for spec in manifest.inputs:
        for entry, size in zip(
            spec.shape, sizes_from(shapes, spec.name, len(spec.shape)), strict=True
        ):
            if size is not None and isinstance(entry, str):
                known[entry] = size
            elif size is not None and isinstance(entry, int) and entry != size:
                raise InputError(f"--shape: {spec.name} has a dim of {entry}, not {size}")
    wanted: list[Wanted] = []
    for spec in manifest.inputs:
        wanted.append(
            Wanted(
                spec.name,
                dtypes.get(spec.dtype, np.dtype("V1")),
                tuple(evaluate_expression(e, known) for e in spec.shape),
                "x".join(format_expression(e) for e in spec.shape) or "scalar",
            )
        )
    return wanted
