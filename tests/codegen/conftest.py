"""Makes this folder's helpers importable under names of their own."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

for name in ("graphs", "harness"):
    spec = importlib.util.spec_from_file_location(
        f"codegen_{name}", Path(__file__).parent / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[f"codegen_{name}"] = module
    spec.loader.exec_module(module)
