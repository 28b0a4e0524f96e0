"""Which CPU this is: its feature flags, and which variants of an artifact it can run."""

from __future__ import annotations

import functools
import os
import platform
import re
from collections.abc import Sequence

from graphwright.errors import ArtifactError
from graphwright.runtime.manifest import Variant

# Flags as /proc/cpuinfo spells them (x86-64 psABI, "microarchitecture levels"; abm is lzcnt).
_V3 = frozenset({"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe"})
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
LEVELS: dict[str, frozenset[str]] = {
    "x86-64": frozenset(), "x86-64-v3": _V3, "x86-64-v4": _V4,
    "x86-64-v4-vnni": _V4 | {"avx512_vnni"}, "aarch64": frozenset({"asimd"}),
    "native": frozenset(),
}  # fmt: skip
# Overrides the choice, for tests and for ruling out an instruction set: a level, or a variant's
# whole target.
LEVEL_VARIABLE = "GRAPHWRIGHT_CPU_LEVEL"


@functools.cache
def cpu_features() -> frozenset[str]:
    """The feature flags of this CPU in Linux's spelling, and the machine's name (`x86_64`)."""
    flags = {platform.machine()}
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() in ("flags", "Features"):
                    flags.update(value.split())
                    break
    except OSError:
        pass
    return frozenset(flags)


# Flags that say which instructions there are, among many that say something else.
_INSTRUCTIONS = re.compile(
    r"(avx|sse|ssse|amx|fma|bmi|f16c|abm|movbe|popcnt|aes|vaes|pclmul|vpclmul|gfni|sha_|adx|asimd|sve)"
)


def native_needs() -> tuple[str, ...]:
    """What a variant compiled for this very CPU needs: all its instruction sets."""
    flags = (f for f in cpu_features() if _INSTRUCTIONS.match(f) or f == platform.machine())
    return tuple(sorted(flags))


def _needs(variant: Variant) -> set[str]:
    # A level among the needs stands for its flags; "native" says nothing by itself.
    level = variant.target.partition(":")[2]
    return {flag for n in (level, *variant.needs) for flag in LEVELS.get(n, frozenset((n,)))}


def missing_features(variant: Variant) -> tuple[str, ...]:
    """What the CPU lacks for a variant; empty when it can run it."""
    level = variant.target.partition(":")[2]
    machine = "aarch64" if level == "aarch64" else "x86_64"
    needs = _needs(variant)
    if level != "native":
        needs.add(machine)
    return tuple(sorted(needs - cpu_features()))


def choose_variant(variants: Sequence[Variant]) -> tuple[int, Variant]:
    """Index and variant: of the CPU variants that run here the one that needs most features (the
    later one among equals).  Raises ArtifactError saying what is missing.
    """
    wanted = os.environ.get(LEVEL_VARIABLE, "")
    best: tuple[int, int] | None = None
    reasons: list[str] = []
    for i, v in enumerate(variants):
        kind, _, level = v.target.partition(":")
        if kind != "cpu":
            reasons.append(f"{v.target} is for another device")
            continue
        if wanted and wanted not in (level, v.target):
            reasons.append(f"{v.target} is ruled out by {LEVEL_VARIABLE}={wanted}")
            continue
        missing = missing_features(v)
        if missing:
            reasons.append(f"{v.target} needs {', '.join(missing)}")
            continue
        weight = len(_needs(v))
        if best is None or weight >= best[0]:
            best = (weight, i)
    if best is None:
        raise ArtifactError(
            f"no variant of the artifact runs on this CPU: {'; '.join(reasons) or 'it has none'}"
        )
    return best[1], variants[best[1]]
