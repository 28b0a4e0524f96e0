"""graphwright: a graph-level inference compiler.

    import graphwright as gw
    model = gw.compile("model.onnx")          # or bytes, ModelProto, an onnxscript function, a torch
                                              # module with example inputs, an ExportedProgram
    (logits,) = model(images)                 # numpy in, numpy out
    model.save("model.gw")
    model = gw.load("model.gw")               # needs neither the compiler nor onnx

Everything is imported on first use, so that loading an artifact imports the runtime alone.
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
    Problem,
    ResourceError,
    UnsupportedError,
)
from graphwright.version import VERSION

if TYPE_CHECKING:
    from graphwright.compilation import CheckReport, check, compile, report, save
    from graphwright.compiler.options import CompileOptions
    from graphwright.runtime import CompiledModel, load
    from graphwright.runtime.manifest import TensorSpec

__version__ = VERSION

__all__ = [
    "ArtifactError",
    "CheckReport",
    "CompileError",
    "CompileOptions",
    "CompiledModel",
    "DowngradeError",
    "GraphwrightError",
    "InputError",
    "InvalidModelError",
    "Problem",
    "ResourceError",
    "TensorSpec",
    "UnsupportedError",
    "check",
    "compile",
    "load",
    "report",
    "save",
]

_MODULE_OF = {
    "CheckReport": "graphwright.compilation",
    "CompileOptions": "graphwright.compiler.options",
    "CompiledModel": "graphwright.runtime",
    "TensorSpec": "graphwright.runtime.manifest",
    "check": "graphwright.compilation",
    "compile": "graphwright.compilation",
    "load": "graphwright.runtime",
    "report": "graphwright.compilation",
    "save": "graphwright.compilation",
}


def __getattr__(name: str) -> Any:
    module = _MODULE_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'graphwright' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
