"""Segments of a program: what is sized when a symbol is bound in mid-run lies in an arena of its own.

A bind step begins a segment.  A size belongs to the segment of the latest bound of its symbols,
by the first step that binds each; segment 0 is the call itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphwright.compiler.codegen.kernel import EmittedBind, Step
from graphwright.compiler.ir.dims import Dim, Symbol, symbols_of
from graphwright.compiler.passes.plan_memory import BufferRequest, MemoryPlan, plan_memory


def segments_of(steps: Sequence[Step]) -> dict[Symbol, int]:
    """{symbol bound in mid-run: its segment}."""
    found: dict[Symbol, int] = {}
    count = 0
    for step in steps:
        if isinstance(step, EmittedBind) and step.symbols[0] not in found:
            count += 1
            found |= dict.fromkeys(step.symbols, count)
    return found


def segment_of(dim: Dim, segments: Mapping[Symbol, int]) -> int:
    """The segment in which a size is known."""
    return max((segments.get(s, 0) for s in symbols_of(dim)), default=0)


def plan_by_segment(
    requests: Sequence[BufferRequest],
    steps: Sequence[Step],
    bindings: Mapping[str, Mapping[str, int]],
) -> MemoryPlan:
    """One plan for each segment, put together: `after` never leads out of a segment, and `sizes` and
    `lower_bounds` are sums over the arenas.
    """
    segments = segments_of(steps)
    members: dict[int, list[int]] = {}
    for i, request in enumerate(requests):
        members.setdefault(segment_of(request.size, segments), []).append(i)
    if members.keys() <= {0}:
        return plan_memory(requests, bindings=bindings)
    after: list[tuple[int, ...]] = [()] * len(requests)
    order: list[int] = []
    bounds: dict[str, int] = dict.fromkeys(bindings, 0)
    sizes: dict[str, int] = dict.fromkeys(bindings, 0)
    methods: list[str] = []
    alignment = 1
    for segment in sorted(members):
        inside = members[segment]
        plan = plan_memory([requests[i] for i in inside], bindings=bindings)
        for i, below in zip(inside, plan.after, strict=True):
            after[i] = tuple(inside[j] for j in below)
        order += [inside[i] for i in plan.order]
        methods.append(f"segment {segment}: {plan.method}")
        alignment = plan.alignment
        for name in bindings:
            bounds[name] += plan.lower_bounds[name]
            sizes[name] += plan.sizes[name]
    return MemoryPlan(
        tuple(requests), tuple(after), tuple(order), alignment, "; ".join(methods),
        {n: dict(b) for n, b in bindings.items()}, bounds, sizes,
    )  # fmt: skip
