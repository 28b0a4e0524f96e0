"""What torch.compile hands over as a program: AOTAutograd's functional graph with values of its ends.

Updates of inputs are `copy_` calls at the graph's end there; here they are outputs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch

from graphwright.frontends.torch.program import InputSpec, OutputSpec, Program

_COPY = torch.ops.aten.copy_.default


def program_of_captured(
    module: torch.fx.GraphModule, arguments: Sequence[Any], static: Collection[int], name: str
) -> Program:
    """`arguments`: of one call; those whose position is in `static` are parameters and buffers of the
    module and become constants, unless the graph changes them.
    """
    graph = torch.fx.Graph()
    copied: dict[torch.fx.Node, torch.fx.Node] = {}
    result = graph.graph_copy(module.graph, copied)
    holders = [n for n in module.graph.nodes if n.op == "placeholder"]
    positions = {copied[n]: i for i, n in enumerate(holders)}
    updates: dict[int, torch.fx.Node] = {}
    made: dict[torch.fx.Node, torch.fx.Node] = {}  # what an erased copy_ wrote, which is its result
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target is _COPY and node.args[0] in positions:
            updates[positions[node.args[0]]] = made[node] = node.args[1]
            node.replace_all_uses_with(node.args[1])
            graph.erase_node(node)
    assert isinstance(result, tuple | list)  # dynamo's graphs return a tuple
    results: list[Any] = [_updated(made.get(r, r), updates, positions) for r in result]
    graph.output((*results, *updates.values()))
    inputs = [
        _input(holder, i, arguments[i], is_constant=i in static and i not in updates)
        for i, holder in enumerate(holders)
    ]
    outputs = [
        OutputSpec("user", f"output{i}", i, order=_order(r)) for i, r in enumerate(results)
    ] + [
        OutputSpec("input", f"{inputs[i].name}.new", i, order=_order(n)) for i, n in updates.items()
    ]
    graph.eliminate_dead_code()
    lowered = torch.fx.GraphModule(module, graph)
    return Program(name, lowered, tuple(inputs), tuple(outputs))


def _updated(
    raw: Any, updates: dict[int, torch.fx.Node], positions: dict[torch.fx.Node, int]
) -> Any:
    """An output that is an input returns what this holds after its update."""
    position = positions.get(raw) if isinstance(raw, torch.fx.Node) else None
    return raw if position is None else updates.get(position, raw)


def _input(holder: torch.fx.Node, position: int, value: Any, *, is_constant: bool) -> InputSpec:
    name = str(holder.name)
    if isinstance(value, torch.Tensor):
        if is_constant:
            return InputSpec("weight", name, value, position)
        return InputSpec("user", name, position=position, order=_order(holder))
    if isinstance(holder.meta.get("val"), torch.SymInt):
        return InputSpec("size", name, position=position)
    return InputSpec("number", name, position=position, constant=value)


def _order(raw: Any) -> tuple[int, ...] | None:
    """The axes from the outermost in memory to the innermost, where that is not 0, 1, 2, ...;
    None too for tensors that do not lie dense.
    """
    held = raw.meta.get("val") if isinstance(raw, torch.fx.Node) else None
    if not isinstance(held, torch.Tensor) or held.ndim < 2:
        return None
    strides = [_hint(s) for s in held.stride()]
    sizes = [_hint(s) for s in held.shape]
    order = sorted(range(held.ndim), key=lambda a: (-strides[a], sizes[a] != 1, a))
    want = 1
    for axis in reversed(order):
        if sizes[axis] != 1 and strides[axis] != want:
            return None
        want *= sizes[axis]
    if 0 in sizes or [a for a in order if sizes[a] != 1] == [
        a for a in range(held.ndim) if sizes[a] != 1
    ]:
        return None
    return tuple(order)


def _hint(size: Any) -> int:
    if isinstance(size, int):
        return size
    hint = size.node.hint if hasattr(size.node, "hint") else None
    return int(hint) if hint is not None else 64
