"""Every error that graphwright raises on purpose.  Standard library only: all packages import it.

Each class has the exit code that the command line ends with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class GraphwrightError(Exception):
    """Base of all: the message names the thing, what was expected, and what to do."""

    exit_code = 4


class InvalidModelError(GraphwrightError):
    """The model file or graph is malformed."""

    exit_code = 2


class InputError(GraphwrightError):
    """An argument of a call or command does not fit: name, dtype, shape, range."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a model cannot be compiled: where, what, why, and what to do.

    `version`: the opset that gives the op its meaning, 0 where there is none; `attribute`: the one
    that stands in the way, if it is one.
    """

    node: str
    op: str
    reason: str
    fix: str = ""
    version: int = 0
    attribute: str = ""

    def __str__(self) -> str:
        fix = f"; {self.fix}" if self.fix else ""
        return f"{self.node} ({self.op}): {self.reason}{fix}"


class UnsupportedError(GraphwrightError):
    """The model is valid but uses what we do not support; `problems` lists all of it."""

    exit_code = 3

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        self.problems = tuple(problems)
        lines = [message, *(f"  - {p}" for p in self.problems)]
        super().__init__("\n".join(lines))


class CompileError(GraphwrightError):
    """The compiler itself failed: our fault, or the C++ compiler's."""

    exit_code = 4


class ArtifactError(GraphwrightError):
    """An artifact is damaged, of another format, or does not fit this machine."""

    exit_code = 5


class DowngradeError(GraphwrightError):
    """Something asked for cannot be honoured and no `allow` covers it."""

    exit_code = 6


class ResourceError(GraphwrightError):
    """Memory, disk or time ran out; the message says how much was asked for and available."""

    exit_code = 7
