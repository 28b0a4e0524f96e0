"""What a pass is, and how a text pipeline of passes runs over a graph.

A pass is a frozen dataclass with options as fields; its name is the module's name with dashes
(`eliminate_dead.py`: `eliminate-dead`: `EliminateDead`).  A pipeline is a string such as
`fold-constants{limit=1048576},fuse`, parsed by the same code for the command line and for tests.
Printing, tracing and timing are listeners' work, never a pass's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class PassResult:
    """`changed`: the graph was modified; `notes`: what people should know, one line each."""

    changed: bool
    notes: tuple[str, ...] = ()
    statistics: dict[str, int] = field(default_factory=dict)


class Pass(Protocol):
    """The contract: `run` rewrites the graph in place and leaves it verifiable."""

    name: ClassVar[str]

    def run(self, graph: Graph, target: Target) -> PassResult: ...
