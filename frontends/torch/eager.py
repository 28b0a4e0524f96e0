"""allow=["eager"]: a captured graph in parts, those with unsupported ops run by torch."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.fx.passes.split_module import split_module

from graphwright.errors import Problem

CompilePart = Callable[[torch.fx.GraphModule, frozenset[int]], Callable[[list[Any]], list[Any]]]


def run_in_parts(
    graph: torch.fx.GraphModule,
    problems: Sequence[Problem],
    static: Collection[int],
    compile_part: CompilePart,
) -> Callable[[list[Any]], list[Any]]:
    """A function of one list of arguments.  `static`: positions of parameters and buffers."""
    bad = {p.node.rpartition("/")[2] for p in problems}
    part, was_bad = 0, False
    numbers: dict[str, int] = {}
    eager: set[str] = set()
    for node in graph.graph.nodes:
        if node.op not in ("call_function", "get_attr"):
            continue
        # An update of an argument is torch's; a tuple and its items stay together.
        is_bad = node.name in bad or node.target is torch.ops.aten.copy_.default
        if "getitem" in node.name and node.args[0].name in numbers:
            numbers[node.name] = numbers[node.args[0].name]
            continue
        if is_bad != was_bad:
            part, was_bad = part + 1, is_bad
        if is_bad:
            eager.add(f"submod_{part}")
        numbers[node.name] = part
    whole = split_module(graph, None, lambda node: numbers.get(node.name, part))  # type: ignore[arg-type]
    holders = [n.name for n in graph.graph.nodes if n.op == "placeholder"]
    kept = {holders[i] for i in static}
    for node in whole.graph.nodes:
        if node.op != "call_module" or node.target in eager:
            continue
        inner = getattr(whole, str(node.target))
        own = frozenset(i for i, a in enumerate(node.args) if getattr(a, "name", "") in kept)
        setattr(whole, str(node.target), _Part(inner, compile_part(inner, own)))

    def run(arguments: list[Any]) -> list[Any]:
        found = whole(*arguments)
        arguments.clear()
        return list(found) if isinstance(found, tuple | list) else [found]

    return run


class _Part(torch.nn.Module):
    """A compiled part in place of the module that it was: one result is a value, several a tuple."""

    def __init__(self, inner: torch.fx.GraphModule, call: Callable[[list[Any]], list[Any]]) -> None:
        super().__init__()
        results = inner.graph.output_node().args[0]
        self.single = not isinstance(results, tuple | list)
        if self.single:
            inner.graph.output_node().args = ((results,),)
            inner.recompile()
        self.call = call

    def forward(self, *arguments: Any) -> Any:
        found = self.call(list(arguments))
        return found[0] if self.single else tuple(found)
