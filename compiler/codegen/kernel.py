"""What emission hands on: kernels (source) and launches (which kernel, on what, in which order).

A launch names IR values; `passes/plan_memory` decides where they lie and the driver turns launches
into the manifest's records.  Kernel names end in a hash of the source, so that two identical kernels
are one.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from graphwright.compiler.ir.dims import Dim, Symbol
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.literal import Literal, Recipe
from graphwright.compiler.ir.op import Constraint, OpDef, Reference
from graphwright.compiler.ir.types import DType, TensorType


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
class Move:
    """One op of one operand that a constant goes through before a kernel reads it."""

    definition: OpDef
    attributes: tuple[tuple[str, Any], ...]
    type: TensorType


@dataclass(frozen=True, slots=True)
class Source:
    """The value of a `constant` op after `moves`, the first one first.

    It names the value and not its content, so that a launch can be repeated for other weights.
    """

    value: Value
    moves: tuple[Move, ...] = ()

    @property
    def literal(self) -> Literal:
        """The constant before the moves."""
        assert self.value.op is not None
        return self.value.op.attribute("value")

    @property
    def dtype(self) -> DType:
        return self.moves[-1].type.dtype if self.moves else self.literal.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        if not self.moves:
            return self.literal.shape
        return self.moves[-1].type.sizes

    def array(self) -> np.ndarray:
        """The numbers, calculated anew at each call."""
        array = self.literal.array()
        for move in self.moves:
            context = Reference(results=[move.type])
            (array,) = move.definition.reference([array], dict(move.attributes), context)
        return np.asarray(array, order="C") if self.moves else array

    @property
    def recipe(self) -> Recipe | Literal:
        """How the array is made from named weights; the constant itself where none is in it."""
        assert self.value.op is not None
        known = self.value.op.attribute("recipe")
        made: Recipe | Literal = self.literal if known is None else known
        for move in self.moves:
            made = Recipe(move.definition.name, move.attributes, (made,))
        return made

    def __str__(self) -> str:
        before = "".join(f"{m.definition.name}(" for m in reversed(self.moves))
        name = self.value.equals or self.value.name or "constant"
        return before + name + ")" * len(self.moves)


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight that is rearranged at compile time: `packing` names a function of the target's table.

    Equal contents, packing and parameters are stored once.
    """

    source: Source
    packing: str
    parameters: tuple[tuple[str, int], ...] = ()
    more: tuple[Source, ...] = ()  # further constants that the packing function takes

    def __str__(self) -> str:
        given = "".join(f", {k}={v}" for k, v in self.parameters)
        return f"{self.packing}({self.source}{given})"


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
