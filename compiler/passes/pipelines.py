"""The default pipelines as text, by optimisation level and target."""

from __future__ import annotations

from graphwright.compiler.target import Target

# What code generation needs: regions, and outputs with storage of their own.
LOWER = "fuse,separate-outputs"


def default_pipeline(target: Target, opt: int) -> str:
    """The pipeline of `opt` 0 (only what is needed) to 3."""
    if opt == 0:
        return LOWER
    layout = "propagate-layout," if target.kind == "cpu" else ""
    return f"{layout}{LOWER}"
