"""What is compiled for: a frozen description of a device, read by passes and code generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Ops whose kernels want their first operand and their result with channels innermost; all other
# ops with a fixed layout are row-major.
CHANNELS_INNERMOST: dict[str, tuple[str, ...]] = {
    "cpu": ("conv", "conv_integer", "conv_transpose", "max_pool", "average_pool", "resize", "lrn"),
    "cuda": ("conv", "conv_transpose", "max_pool", "average_pool", "resize"),
}

CPU_LEVELS = ("x86-64-v3", "x86-64-v4", "x86-64-v4-vnni", "native", "aarch64")
# Levels whose only gain are products of small integers.
INTEGER_LEVELS = ("x86-64-v4-vnni",)


@dataclass(frozen=True, slots=True)
class Target:
    """`kind` cpu: `arches` are ISA levels; `kind` cuda: compute capabilities (`sm_90`) and "ptx".

    `bandwidth` in bytes/s, `flops` in fp32 operations/s and `launch_seconds` (fixed cost of one
    more kernel) feed the roofline profit function of fusion.
    """

    kind: Literal["cpu", "cuda"]
    arches: tuple[str, ...]
    bandwidth: float = 25e9
    flops: float = 200e9
    launch_seconds: float = 1e-6
    integer_arches: tuple[str, ...] = ()  # built too where the model has products of small integers

    @property
    def channels_innermost(self) -> tuple[str, ...]:
        """The ops whose first operand and result lie with channels (axis 1) innermost."""
        return CHANNELS_INNERMOST[self.kind]

    @staticmethod
    def parse(text: str) -> Target:
        """ "cpu", "cpu:x86-64-v4,native", "cuda:sm_90,sm_80,ptx".  Raises ValueError."""
        kind, _, rest = text.partition(":")
        arches = tuple(a for a in rest.split(",") if a)
        if kind == "cpu":
            bad = [a for a in arches if a not in CPU_LEVELS]
            if bad:
                raise ValueError(
                    f"target {text!r}: unknown CPU level {bad[0]!r}; known: {', '.join(CPU_LEVELS)}"
                )
            if not arches:
                return Target("cpu", ("x86-64-v3", "x86-64-v4"), integer_arches=INTEGER_LEVELS)
            return Target("cpu", arches)
        if kind == "cuda":
            bad = [a for a in arches if a != "ptx" and not a.removeprefix("sm_").isdigit()]
            if bad or not arches:
                raise ValueError(
                    f"target {text!r}: want compute capabilities such as cuda:sm_90 or "
                    f"cuda:sm_80,sm_90,ptx"
                )
            return Target("cuda", arches, bandwidth=4.3e12, flops=60e12, launch_seconds=1e-6)
        raise ValueError(f"target {text!r}: want cpu[:LEVEL,...] or cuda:sm_NN[,...]")

    def __str__(self) -> str:
        return f"{self.kind}:{','.join(self.arches)}"
