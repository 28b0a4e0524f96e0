"""The torch frontend: modules, exported programs and captured graphs to the IR.

Importing this package imports neither torch nor sympy: whoever compiles ONNX models has neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphwright.frontends.torch.model import check_program, import_program

__all__ = ["check_program", "import_program"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from graphwright.frontends.torch import model

    return getattr(model, name)
