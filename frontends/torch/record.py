"""What the hook compiled, for `gw.report` and `gw.save`: a list that lives as long as its graphs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from graphwright.compiler.options import CompileOptions

if TYPE_CHECKING:
    from graphwright.compiler.report import CompileReport
    from graphwright.runtime.model import CompiledModel


@dataclass(eq=False)
class GraphRecord:
    """One captured graph: compiled once it has been called."""

    name: str
    graph: torch.fx.GraphModule
    options: CompileOptions
    model: CompiledModel | None = None
    report: CompileReport | None = None
    eager: list[str] = field(default_factory=list)  # why calls run in eager

    def finish(self, model: CompiledModel, report: CompileReport) -> None:
        self.model, self.report = model, report

    @property
    def ops(self) -> int:
        return sum(n.op == "call_function" for n in self.graph.graph.nodes)


_records: weakref.WeakSet[Any] = weakref.WeakSet()


def record_graph(record: GraphRecord) -> GraphRecord:
    _records.add(record)
    return record


def records() -> list[GraphRecord]:
    """Every graph that is alive, in the order of capture."""
    return sorted(_records, key=lambda r: int(r.name.removeprefix("graph")))
