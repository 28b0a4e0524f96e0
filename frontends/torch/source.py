"""What can be compiled: modules with example inputs, exported programs, graph modules, .pt2 files."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError, InvalidModelError

if TYPE_CHECKING:
    from graphwright.frontends.torch.program import Program


def is_torch(source: Any) -> bool:
    """Whether a source is torch's.  torch is imported only for a .pt2 file."""
    if isinstance(source, str | os.PathLike):
        return Path(source).suffix == ".pt2"
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return False
    export: Any = sys.modules.get("torch.export")
    return isinstance(source, torch.nn.Module) or (
        export is not None and isinstance(source, export.ExportedProgram)
    )


def read_program(
    source: Any, options: CompileOptions, *, example_inputs: Any = None, dynamic_shapes: Any = None
) -> Program:
    """The program of a source.  Raises InputError, InvalidModelError, UnsupportedError."""
    try:
        import torch
    except ModuleNotFoundError:
        raise InputError(
            f"{source} is a program of torch, which is not installed; pip install "
            "'graphwright[torch]'"
        ) from None

    from graphwright.frontends.torch.exported import export_module, program_of

    name = ""
    if isinstance(source, str | os.PathLike):
        name = Path(source).stem
        source = _load(source)
    if isinstance(source, torch.export.ExportedProgram):
        if example_inputs is not None or dynamic_shapes is not None or options.shapes:
            raise InputError(
                "an exported program has its inputs and shapes: leave example_inputs, shapes and "
                "dynamic_shapes out, or pass the module"
            )
        return program_of(source, registry=options.registry, name=name)
    if example_inputs is None:
        raise InputError(
            f"a {type(source).__name__} needs example_inputs: a tuple of what forward takes, or a "
            "dict by name"
        )
    if source.training:
        raise InputError("the module is in training mode; call .eval() on it first")
    exported = export_module(
        source, example_inputs, shapes=options.shapes, dynamic_shapes=dynamic_shapes
    )
    return program_of(exported, registry=options.registry, name=type(source).__name__)


def _load(path: str | os.PathLike[str]) -> Any:
    import torch

    try:
        return torch.export.load(os.fspath(path))
    except FileNotFoundError as error:
        raise InvalidModelError(f"{path}: there is no such file") from error
    except Exception as error:
        raise InvalidModelError(f"{path} is no exported program: {error}") from error
