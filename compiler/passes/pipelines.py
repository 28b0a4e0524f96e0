"""The default pipelines as text, by optimisation level and target."""

from __future__ import annotations

from graphwright.compiler.target import Target

# What code generation needs: no op without kernels, regions, outputs with storage of their own.
# Regions that turn out equal are one.
LOWER = "fuse,eliminate-common,separate-outputs"
REQUIRED = f"decompose,{LOWER}"

CLEAN = "(canonicalize,fold-constants,eliminate-common,eliminate-dead)*"
SIMPLIFY = (
    "(raise-patterns,fold-batch-norm,decompose,canonicalize,fold-constants,eliminate-common,"
    "eliminate-dead)*"
)


def default_pipeline(target: Target, opt: int) -> str:
    """The pipeline of `opt`: 0 only what is needed, 1 clean-up too, 2 and 3 everything.

    Batch norms are folded before decompose takes them apart, which in turn uncovers identities.
    """
    if opt == 0:
        return REQUIRED
    if opt == 1:
        return f"eliminate-dead,{CLEAN},decompose,{CLEAN},{LOWER}"
    layout = "propagate-layout," if target.kind == "cpu" else ""
    return f"eliminate-dead,{CLEAN},{SIMPLIFY},{layout}{LOWER},order"
