"""What the hook compiled: `gw.report` and `gw.save` for functions and modules of torch.compile."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

import torch

from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError, Problem

if TYPE_CHECKING:
    from graphwright.compiler.report import CompileReport
    from graphwright.runtime.model import CompiledModel


@dataclass(eq=False)
class GraphRecord:
    """One captured graph: compiled once it has been called.

    `code`: the function that it was captured from; `break_reason`: why the capture ended there, ""
    where it did not.  `tensors`: parameters and buffers by id.  `eager`: what runs in eager.
    """

    name: str
    graph: torch.fx.GraphModule
    options: CompileOptions
    code: CodeType | None = None
    break_reason: str = ""
    tensors: frozenset[int] = frozenset()
    models: list[CompiledModel] = field(default_factory=list)
    reports: list[CompileReport] = field(default_factory=list)
    eager: list[Problem] = field(default_factory=list)

    def finish(self, model: CompiledModel, report: CompileReport) -> None:
        self.models.append(model)
        self.reports.append(report)

    @property
    def ops(self) -> int:
        return sum(n.op == "call_function" for n in self.graph.graph.nodes)


_records: weakref.WeakSet[GraphRecord] = weakref.WeakSet()


def record_graph(record: GraphRecord) -> GraphRecord:
    _records.add(record)
    return record


def captured_from() -> tuple[CodeType | None, str]:
    """The function that Dynamo captures now, and why its graph ends before the function does."""
    from torch._dynamo.resume_execution import ContinueExecutionCache
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        translator: Any = InstructionTranslator.current_tx()
    except (AttributeError, LookupError):
        return None, ""
    root = translator.output.root_tx or translator
    code: CodeType = root.f_code
    resumed = ContinueExecutionCache.generated_code_metadata.get(code)
    if resumed is not None:
        code = resumed.code
    ended = translator.output.compile_subgraph_reason
    if ended is None or not ended.graph_break:
        return code, ""
    where = f" at line {ended.user_stack[-1].lineno}" if ended.user_stack else ""
    return code, f"{ended.reason.strip().splitlines()[0]}{where}"


def records_of(compiled: Any) -> list[GraphRecord]:
    """The graphs captured from a compiled module or function, in the order of capture."""
    module = getattr(compiled, "_orig_mod", None)
    function = getattr(compiled, "_torchdynamo_orig_callable", None)
    if module is None and function is None:
        raise InputError("want what torch.compile(..., backend='graphwright') returned")
    if isinstance(module, torch.nn.Module):
        codes = {
            type(m).forward.__code__
            for m in module.modules()
            if hasattr(type(m).forward, "__code__")
        }
        own = {id(t) for t in (*module.parameters(), *module.buffers())}
    else:
        inner = getattr(function, "__wrapped__", function)
        codes, own = {getattr(inner, "__code__", None)}, set()
    found = [
        r for r in _records
        if (r.tensors & own if r.tensors else r.code in codes)
    ]  # fmt: skip
    return sorted(found, key=lambda r: int(r.name.removeprefix("graph")))


@dataclass(frozen=True, slots=True)
class HookReport:
    """Of a compiled module or function: one entry a graph."""

    graphs: tuple[GraphRecord, ...]

    @property
    def breaks(self) -> tuple[str, ...]:
        """Why captures ended early."""
        return tuple(g.break_reason for g in self.graphs if g.break_reason)

    @property
    def eager(self) -> tuple[Problem, ...]:
        """What runs in eager, because the caller allowed it."""
        return tuple(p for g in self.graphs for p in g.eager)

    def __str__(self) -> str:
        count = len(self.graphs)
        lines = [f"{count} graph{'s' if count != 1 else ''}, {len(self.breaks)} graph breaks"]
        for g in self.graphs:
            lines.append(f"{g.name}: {g.ops} ops, target {g.options.target}")
            if not g.models and not g.eager:
                lines.append("  not called yet")
            for model, report in zip(g.models, g.reports, strict=True):
                variant = model.variant
                precision = ", ".join(f"{n} ops in {t}" for t, n in variant.precision.items())
                launches = sum(step.kind == "kernel" for step in variant.launches)
                lines.append(
                    f"  {len(variant.kernels)} kernels, {launches} launches, "
                    f"{report.weight_bytes} bytes of weights; {precision}"
                )
                if g.options.target.kind == "cuda":
                    lines.append(f"  CUDA graph: {variant.capture or 'captured'}")
            if g.break_reason:
                lines.append(f"  graph break: {g.break_reason}")
            lines += [f"  in eager: {p}" for p in g.eager]
        return "\n".join(lines)


def report_of(compiled: Any) -> HookReport:
    """What the hook made of a compiled module or function so far."""
    return HookReport(tuple(records_of(compiled)))


def save_compiled(compiled: Any, path: str | os.PathLike[str]) -> None:
    """Writes the artifact of a compiled module or function, or of a model.  Raises InputError unless it
    is one whole graph, which has been called.
    """
    from graphwright.runtime.model import CompiledModel

    if isinstance(compiled, CompiledModel):
        compiled.save(path)
        return
    models: Sequence[CompiledModel] = [m for r in records_of(compiled) for m in r.models]
    if len(models) != 1 or report_of(compiled).eager:
        what = (
            "nothing is compiled yet: call it once"
            if not models
            else f"it has {len(models)} graphs"
        )
        raise InputError(
            f"only one whole graph can be saved: {what}, or compile it with gw.compile"
        )
    models[0].save(path)
