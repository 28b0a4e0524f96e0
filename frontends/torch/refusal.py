"""How one node's import ends early: a reason for the report, or operands that already failed."""

from __future__ import annotations


class Refusal(Exception):
    """The node cannot be imported; becomes a `Problem` that names the node."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


class Tainted(Exception):
    """The node reads a result of a node that was refused; it is skipped without a report."""
