"""The torch frontend: modules, exported programs and captured graphs to the IR."""

from __future__ import annotations

from graphwright.frontends.torch.model import check_program, import_program

__all__ = ["check_program", "import_program"]
