"""Loads and runs artifacts: standard library, numpy and ml_dtypes only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphwright.runtime.manifest import Manifest, TensorSpec
    from graphwright.runtime.model import CompiledModel, load

__all__ = ["CompiledModel", "Manifest", "TensorSpec", "load"]


def __getattr__(name: str) -> Any:
    # Lazily, so that the compiler can import the manifest without the executor.
    if name in ("Manifest", "TensorSpec"):
        from graphwright.runtime import manifest as module
    elif name in ("CompiledModel", "load"):
        from graphwright.runtime import model as module
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(module, name)
