"""Opening what a command is given: an artifact, or a model that is compiled on the way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from graphwright.compiler.cli.console import Console
from graphwright.compiler.cli.inputs import Wanted, sizes_from
from graphwright.compiler.cli.parameters import GIVEN
from graphwright.compiler.ir.shapes import ShapeSpec
from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError
from graphwright.runtime.binding import numpy_dtype

if TYPE_CHECKING:
    from graphwright.runtime import CompiledModel
    from graphwright.runtime.manifest import Manifest

ZIP_START = b"PK\3\4"


def is_artifact(path: Path) -> bool:
    """Whether a file is an artifact rather than a model, by its first bytes."""
    if path.suffix == ".pt2" and path.is_file():  # an exported program of torch, a zip too
        return False
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
    from graphwright.compiler.cli.progress import Progress

    with Progress(console, options, path.name) as progress:
        return build(path, options, listeners=[progress]).artifact.to_bytes()


def open_model(
    path: Path, options: CompileOptions, console: Console
) -> tuple[CompiledModel, ShapeSpec]:
    """The loaded artifact, compiled first where `path` is a model, and the shapes still to apply:
    an artifact's inputs take them, a model has been compiled for them.
    """
    from graphwright.runtime import load

    threads = options.threads or None
    if is_artifact(path):
        refuse_compile_options(path)
        return load(path, threads=threads), options.shapes
    return load(artifact_bytes(path, options, console), threads=threads), ShapeSpec()


def refuse_compile_options(path: Path) -> None:
    """Raises InputError when the command line has options that could only act on a model."""
    given = click.get_current_context().meta.get(GIVEN, [])
    if given:
        flag = given[0].replace("_", "-")
        raise InputError(f"{path} is compiled already: --{flag} has no effect on it")


def wanted_inputs(
    manifest: Manifest, shapes: ShapeSpec, given: Mapping[str, Sequence[int]] | None = None
) -> list[Wanted]:
    """What a model wants.  Symbols follow the shapes `given` (of arrays), then --shape, and are
    otherwise the sizes that the model was optimised for.
    """
    from graphwright.runtime.expressions import evaluate_expression, format_expression

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
        said = sizes_from(shapes, spec.name, len(spec.shape))
        has = (given or {}).get(spec.name, said)
        for entry, size, actual in zip(spec.shape, said, has, strict=False):
            if size is not None and isinstance(entry, int) and entry != size:
                raise InputError(f"--shape: {spec.name} has a dim of {entry}, not {size}")
            if isinstance(entry, str) and actual is not None:
                known[entry] = actual
    return [
        Wanted(
            spec.name,
            numpy_dtype(spec.dtype),
            tuple(evaluate_expression(e, known) for e in spec.shape),
            "x".join(format_expression(e) for e in spec.shape) or "scalar",
        )
        for spec in manifest.inputs
    ]


def check_shapes(manifest: Manifest, shapes: ShapeSpec, feed: Mapping[str, np.ndarray]) -> None:
    """Raises InputError when --shape asks for other sizes than the inputs have."""
    for wanted in wanted_inputs(manifest, shapes):
        has = feed[wanted.name].shape
        if len(has) == len(wanted.shape) and shapes and has != wanted.shape:
            raise InputError(
                f"--shape wants {wanted.name} to be {'x'.join(map(str, wanted.shape))}, the input "
                f"given is {'x'.join(map(str, has))}"
            )
