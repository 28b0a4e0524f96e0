"""graphwright: a graph-level inference compiler.

Everything is imported on first use, so that a deployment needs no compiler package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphwright.errors import (
    ArtifactError,
    CompileError,
    DowngradeError,
    GraphwrightError,
    InputError,
    InvalidModelError,
    ResourceError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from graphwright.runtime.manifest import TensorSpec
    from graphwright.runtime.model import CompiledModel, load

__version__ = "0.1.0"
__all__ = [
    "ArtifactError",
    "CompileError",
    "CompiledModel",
    "DowngradeError",
    "GraphwrightError",
    "InputError",
    "InvalidModelError",
    "ResourceError",
    "TensorSpec",
    "UnsupportedError",
    "load",
]
_LAZY = {
    "CompiledModel": "graphwright.runtime.model",
    "TensorSpec": "graphwright.runtime.manifest",
    "load": "graphwright.runtime.model",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
