"""The section `graphs` of `inspect`: what is captured in CUDA graphs, for which shapes, and why not all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphwright.compiler.cli.console import count
from graphwright.runtime.buckets import Buckets
from graphwright.runtime.manifest import Variant

if TYPE_CHECKING:
    from graphwright.compiler.cli.sections import Inspected, Shown

MISS_WORDS = {
    "raise": "is refused",
    "uncaptured": "launches its kernels one by one",
    "pad": "is padded to the smallest bucket that holds it",
}


def pieces_of(variant: Variant) -> int:
    """How many stretches of kernels lie between steps of the host."""
    kinds = [x.kind == "kernel" for x in variant.launches]
    return sum(now and not before for before, now in zip([False, *kinds], kinds, strict=False))


def show_graphs(it: Inspected) -> tuple[Any, Shown]:
    variant, buckets = it.variant, Buckets.of(it.manifest)
    if not variant.target.startswith("cuda"):
        return {"captured": False, "reason": "the target is no GPU"}, [
            f"{variant.target}: launches are replayed in native code, there are no CUDA graphs"
        ]
    is_whole = all(x.kind == "kernel" for x in variant.launches)
    facts: dict[str, Any] = {
        "captured": is_whole,
        "graphs_per_binding": pieces_of(variant),
        "reason": variant.capture,
        "buckets": [dict(b) for b in buckets.sizes] if buckets else [],
        "miss": buckets.miss if buckets else "",
    }
    lines = ["a call is one CUDA graph"]
    if not is_whole:
        lines = [f"a call is {count(pieces_of(variant), 'CUDA graph')} and steps on the host",
                 f"  {variant.capture}"]  # fmt: skip
    if buckets:
        shown = "; ".join(
            ", ".join(f"{k} = {v}" for k, v in bucket.items()) for bucket in buckets.sizes
        )
        lines += [f"built ahead for {shown}", f"a call of other sizes {MISS_WORDS[buckets.miss]}"]
    else:
        lines.append("built at the first call of each binding")
    return facts, ["\n".join(lines)]
