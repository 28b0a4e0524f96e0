"""What emission hands on: kernels (source) and launches (which kernel, on what, in which order).

A launch names IR values; `passes/plan_memory` decides where they lie and the driver turns launches
into the manifest's records.  Kernel names end in a hash of the source, so that two identical kernels
are one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TypeAlias

from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Constraint


@dataclass(frozen=True, slots=True)
class EmittedKernel:
    """A function in the target's language.  `source` holds `name`; `summary` is one line for people."""

    name: str
    source: str
    summary: str

    @staticmethod
    def named(stem: str, source: str, summary: str) -> EmittedKernel:
        """Puts the final name, the stem and a hash of the source, where source says KERNEL_NAME."""
        clean = re.sub(r"[^a-z0-9_]+", "_", stem.lower()).strip("_")[:48]
        name = f"{clean}_{hashlib.sha256(source.encode()).hexdigest()[:10]}"
        return EmittedKernel(name, source.replace("KERNEL_NAME", name), summary)


@dataclass(frozen=True, slots=True)
class Workspace:
    """Scratch memory of one launch, in bytes; its content means nothing before and after."""

    bytes: Dim


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight that is rearranged at compile time: `packing` names a function of the target's table.

    Equal (source, packing, parameters) are stored once.  `recipe` is what the artifact records.
    """

    source: Literal
    packing: str
    parameters: tuple[tuple[str, int], ...] = ()
    weight: str = ""  # what the source weight is called, for the recipe
    more: tuple[Literal, ...] = ()  # further constants that the packing function takes

    @property
    def recipe(self) -> str:
        given = "".join(f", {k}={v}" for k, v in self.parameters)
        return f"{self.packing}({self.weight or 'constant'}{given})"


Argument: TypeAlias = Value | Workspace | Packed


@dataclass(frozen=True, slots=True)
class EmittedLaunch:
    """One call of a kernel.  `writes` are the indices of the arguments that it writes.

    `in_place`: (written, read) pairs of argument indices that may share storage, because every
    element is read before the same element is written, by the same thread.  `is_copy`: argument 0
    is written to argument 1, and nothing happens where they share storage.
    """

    kernel: EmittedKernel
    arguments: tuple[Argument, ...]
    writes: tuple[int, ...]
    scalars: tuple[Dim, ...] = ()
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()
    in_place: tuple[tuple[int, int], ...] = ()
    grid: tuple[Dim, ...] = ()
    includes: tuple[str, ...] = ()  # headers that the kernel's source needs
    is_copy: bool = False


@dataclass(frozen=True, slots=True)
class EmittedBranch:
    """Skip the next `skip` launches unless the one bool `condition` is true."""

    condition: Value
    skip: int
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedJump:
    """Skip the next `skip` launches."""

    skip: int
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedCheck:
    """Relations between dims that must hold where control flow gets here, or the call fails."""

    constraints: tuple[Constraint, ...]
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedBind:
    """Symbols get their sizes: from i64 scalars, or calculated (`sizes`).  Then what depends on them
    is placed.  `moves`: (source, target) values whose bytes are taken from where the source lay
    before to where the target lies now.  `checks` are what the sizes must satisfy.
    """

    symbols: tuple[Symbol, ...]
    counts: tuple[Value, ...] = ()
    sizes: tuple[Dim, ...] = ()
    moves: tuple[tuple[Value, Value], ...] = ()
    checks: tuple[Constraint, ...] = ()
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedLoop:
    """Skip the next `skip` launches unless `counter` is below `trips` and `condition` is true."""

    counter: Value
    trips: Value
    condition: Value
    skip: int
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EmittedNext:
    """Add one to `counter` and go back over `back` launches, to the loop step."""

    counter: Value
    back: int
    ops: tuple[int, ...] = ()
    origins: tuple[str, ...] = ()


Step: TypeAlias = (
    EmittedLaunch
    | EmittedBranch
    | EmittedJump
    | EmittedCheck
    | EmittedBind
    | EmittedLoop
    | EmittedNext
)
