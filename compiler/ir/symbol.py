"""Named unknown sizes; `dims.py` builds expressions over them."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_EXTENT = 2**31 - 1


class DimError(ValueError):
    """A dimension expression is malformed or cannot be evaluated."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named unknown size: an integer in [min, max] that is a multiple of `multiple_of`.

    `opt` is the size that plans and kernels are optimised for; None: chosen by the compiler.
    """

    name: str
    min: int = 0
    max: int = MAX_EXTENT
    multiple_of: int = 1
    opt: int | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", self.name):
            raise DimError(f"symbol name {self.name!r} is not an identifier")
        if self.multiple_of < 1 or self.min < 0 or self.max < self.min:
            raise DimError(
                f"symbol {self.name}: want 0 <= min <= max and multiple_of >= 1, got "
                f"{self.min}..{self.max} multiple of {self.multiple_of}"
            )

    @property
    def typical(self) -> int:
        """A size inside the range to optimise for: `opt`, or a moderate one."""
        if self.opt is not None:
            return self.opt
        guess = min(max(self.min, 64), self.max)
        return max(guess // self.multiple_of * self.multiple_of, self.min)

    def __str__(self) -> str:
        return self.name
