"""The ONNX frontend: model files to the IR."""

from __future__ import annotations

from graphwright.frontends.onnx.model import check_model, import_in_part, import_model

__all__ = ["check_model", "import_in_part", "import_model"]
