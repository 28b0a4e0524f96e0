"""The default pipelines as text, by optimisation level and target."""

from __future__ import annotations

from collections.abc import Sequence

from graphwright.compiler.target import Target

# What code generation needs: no op without kernels, regions, outputs with storage of their own.
# Regions that turn out equal are one.
LOWER = "fuse,eliminate-common,separate-outputs"

# Products of few rows and attention with a cache: regions of a GPU that join several.
LOWER_GPU = (
    "fuse,eliminate-common,fuse-attention-step,fuse-products,eliminate-dead,separate-outputs"
)

CLEAN = "(canonicalize,fold-constants,eliminate-common,eliminate-dead)*"
SIMPLIFY = (
    "(raise-patterns{options},fold-batch-norm,decompose,canonicalize,fold-constants,"
    "eliminate-common,eliminate-dead)*"
)
# On a GPU, attention in f32 is slower in one kernel than written out (docs/performance-log.md).
HALF_ATTENTION = "{half-attention=true}"
# Quantized weights that no contraction reads as integers become floats once, not at every call.
FLOATS = "(canonicalize,fold-constants{dequantize=true},eliminate-common,eliminate-dead)*"


def default_pipeline(
    target: Target, opt: int, *, precision: str = "fp32", keep_fp32: Sequence[str] = ()
) -> str:
    """The pipeline of `opt`: 0 only what is needed, 1 clean-up too, 2 and 3 everything.

    Batch norms are folded before decompose takes them apart, which in turn uncovers identities.
    """
    narrow = ""
    if precision != "fp32":
        keep = f",keep={'+'.join(keep_fp32)}" if keep_fp32 else ""
        narrow = f"set-precision{{to={precision}{keep}}},{CLEAN},"
    if opt == 0:
        return f"decompose,{narrow}{LOWER}"
    if opt == 1:
        return f"eliminate-dead,{CLEAN},decompose,{FLOATS},{narrow}{LOWER}"
    if target.kind == "cpu":
        contractions = f"quantize-contractions,{FLOATS}"
    else:
        contractions = "merge-siblings,pad-channels,fold-constants{dequantize=true},eliminate-dead"
    wide = target.kind == "cuda" and precision in ("fp32", "tf32")
    simplify = SIMPLIFY.replace("{options}", HALF_ATTENTION if wide else "")
    lower = LOWER_GPU if target.kind == "cuda" else LOWER
    return (
        f"eliminate-dead,{CLEAN},{simplify},{narrow}{contractions},propagate-layout,{lower},order"
    )
