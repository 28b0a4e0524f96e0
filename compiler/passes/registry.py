"""The passes by name.  `eliminate-dead` is the class EliminateDead of eliminate_dead.py."""

from __future__ import annotations

import importlib
from typing import Any

# A new pass adds its name here; nothing else.
NAMES: tuple[str, ...] = (
    "eliminate-dead",
    "eliminate-common",
    "fold-constants",
    "canonicalize",
    "decompose",
    "raise-patterns",
    "fold-batch-norm",
    "set-precision",
    "merge-siblings",
    "pad-channels",
    "quantize-contractions",
    "propagate-layout",
    "fuse",
    "fuse-products",
    "fuse-attention-step",
    "separate-outputs",
    "order",
)


def pass_class(name: str) -> Any:
    """The dataclass of a pass in NAMES; its module is imported on first use."""
    module = importlib.import_module(f"graphwright.compiler.passes.{name.replace('-', '_')}")
    return getattr(module, "".join(w.capitalize() for w in name.split("-")))
