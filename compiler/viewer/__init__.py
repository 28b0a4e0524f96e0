"""The pass viewer: a trace as one self-contained page (docs/debugging.md)."""

from graphwright.compiler.viewer.page import render_page
from graphwright.compiler.viewer.payload import payload_of

__all__ = ["payload_of", "render_page"]
