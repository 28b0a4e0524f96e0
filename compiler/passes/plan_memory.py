"""Packs buffers with symbolic sizes into one arena: `plan_memory`, a pure function on data.

A plan is not a table of offsets but a relation: for every two buffers that are ever live together,
which one lies above.  A buffer's offset is the largest end of those below it; so the plan is valid
for every binding of the symbols, whatever the sizes.  The relation is read off a packing at one
binding; candidates come from a portfolio (pack_search.py) at the smallest, typical and largest
binding, and the one with the best worst ratio of arena to lower bound over the three wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphwright.compiler.ir.dims import Dim, Symbol, evaluate, symbols_of
from graphwright.compiler.passes.pack_search import (
    Instance,
    find_conflicts,
    first_fit,
    heuristic_orders,
    live_bytes,
    search_packings,
)
from graphwright.errors import CompileError

ALIGNMENT = 64  # bytes: a cache line, and the widest vector


@dataclass(frozen=True, slots=True)
class BufferRequest:
    """Memory of `size` bytes during steps first..last, both included; `values` is for people."""

    size: Dim
    first: int
    last: int
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """`after[i]`: the buffers that request i lies directly above; `order`: a sequence of requests in
    which each comes after those below it.  `lower_bounds` and `sizes` in bytes by binding name
    ("min", "opt", "max"); `method` made the packing.
    """

    requests: tuple[BufferRequest, ...]
    after: tuple[tuple[int, ...], ...]
    order: tuple[int, ...]
    alignment: int
    method: str
    bindings: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lower_bounds: Mapping[str, int] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    def offsets(self, binding: Mapping[str, int]) -> tuple[list[int], int]:
        """Each request's offset and the arena's size, in bytes, for one binding."""
        sizes = _sizes(self.requests, binding, self.alignment)
        return _stack(sizes, self.order, self.after)

    @property
    def worst_ratio(self) -> float:
        """The largest arena / lower bound over the bindings; 1.0 without buffers."""
        return max((self.sizes[n] / b for n, b in self.lower_bounds.items() if b), default=1.0)

    def format(self) -> str:
        """A table for people: the summary, then one line a buffer in order of its place."""
        lines = [f"{len(self.requests)} buffers, {self.method}, aligned to {self.alignment} bytes"]
        for name, bound in self.lower_bounds.items():
            size = self.sizes[name]
            given = ", ".join(f"{k}={v}" for k, v in self.bindings[name].items())
            ratio = f"{size / bound:.3f}" if bound else "1.000"
            lines.append(f"  {name:4} {size} bytes, lower bound {bound}, ratio {ratio}  {given}")
        offsets, _ = self.offsets(self.bindings.get("opt", {}))
        for i in self.order:
            r = self.requests[i]
            lines.append(
                f"  #{i:<4} at {offsets[i]:<10} {r.size!s:<14} steps {r.first}..{r.last}  "
                f"above {list(self.after[i])}  {' '.join(r.values)}".rstrip()
            )
        return "\n".join(lines)


def standard_bindings(symbols: Sequence[Symbol]) -> dict[str, dict[str, int]]:
    """The bindings at which plans are judged: every symbol at its least, typical and largest."""

    def up(s: Symbol) -> int:
        return -(-s.min // s.multiple_of) * s.multiple_of

    return {
        "min": {s.name: up(s) for s in symbols},
        "opt": {s.name: s.typical for s in symbols},
        "max": {s.name: s.max // s.multiple_of * s.multiple_of for s in symbols},
    }


def plan_memory(
    requests: Sequence[BufferRequest],
    *,
    bindings: Mapping[str, Mapping[str, int]] | None = None,
    alignment: int = ALIGNMENT,
    good_enough: float = 1.0,
    effort: int = 400_000,
) -> MemoryPlan:
    """The best plan found.  `bindings` default to `standard_bindings` of the requests' symbols;
    the search stops when the worst ratio reaches `good_enough`; `effort` scales hill climbing
    and exact search.
    """
    for r in requests:
        if r.last < r.first:
            raise CompileError(f"buffer {r.values}: live from step {r.first} to {r.last}")
    if bindings is None:
        bindings = standard_bindings(symbols_of(r.size for r in requests))
    first, last = [r.first for r in requests], [r.last for r in requests]
    conflicts = find_conflicts(first, last)
    instances: dict[str, Instance] = {}
    for name, binding in bindings.items():
        sizes = _sizes(requests, binding, alignment)
        instances[name] = Instance.of(sizes, first, last, conflicts)
    best: tuple[float, float, str, list[int]] | None = None
    for method, offsets in _candidates(instances, effort):
        order = sorted(range(len(requests)), key=lambda i, at=offsets: (at[i], first[i], i))
        ratios = [_ratio(n, order) for n in instances.values()]
        worst, total = max(ratios, default=1.0), sum(ratios)
        if best is None or (worst, total) < best[:2]:
            best = (worst, total, method, order)
        if worst <= good_enough:
            break
    assert best is not None
    _, _, method, order = best
    after = _reduce(order, conflicts)
    return MemoryPlan(
        tuple(requests),
        after,
        tuple(order),
        alignment,
        method,
        {n: dict(b) for n, b in bindings.items()},
        {n: i.bound for n, i in instances.items()},
        {n: _stack(i.sizes, order, after)[1] for n, i in instances.items()},
    )


def _candidates(instances: Mapping[str, Instance], effort: int) -> Iterator[tuple[str, list[int]]]:
    """(method, offsets) from cheap to dear, of the distinct instances."""
    by_sizes: dict[tuple[int, ...], tuple[str, Instance]] = {}
    for name, instance in instances.items():
        by_sizes.setdefault(instance.sizes, (name, instance))
    distinct = list(by_sizes.values())
    if not distinct:
        yield "nothing to pack", []
        return
    for name, instance in distinct:
        for method, order in heuristic_orders(instance):
            yield f"{method} at {name}", first_fit(instance, order)
            yield f"{method}, best fit at {name}", first_fit(instance, order, best=True)
    for name, instance in distinct:
        for method, offsets in search_packings(instance, effort):
            yield f"{method} at {name}", offsets


def check_plan(plan: MemoryPlan, binding: Mapping[str, int]) -> None:
    """Raises CompileError when two buffers that are live together overlap, one is misaligned or
    lies outside the arena, for this binding.
    """
    offsets, arena = plan.offsets(binding)
    sizes = [max(evaluate(r.size, binding), 0) for r in plan.requests]
    live: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: plan.requests[i].first):
        r = plan.requests[i]
        if offsets[i] % plan.alignment or offsets[i] < 0 or offsets[i] + sizes[i] > arena:
            raise CompileError(f"buffer {i} {r.values} lies at {offsets[i]} of {arena}")
        live = [j for j in live if plan.requests[j].last >= r.first]
        for j in live:
            apart = offsets[i] + sizes[i] <= offsets[j] or offsets[j] + sizes[j] <= offsets[i]
            if not apart and sizes[i] and sizes[j]:
                raise CompileError(
                    f"buffers {j} {plan.requests[j].values} and {i} {r.values} are live together "
                    f"and overlap for {dict(binding)}"
                )
        live.append(i)


def lower_bound(
    requests: Sequence[BufferRequest],
    binding: Mapping[str, int],
    *,
    alignment: int = ALIGNMENT,
) -> int:
    """The largest number of bytes live at one step."""
    sizes = _sizes(requests, binding, alignment)
    live = live_bytes(sizes, [r.first for r in requests], [r.last for r in requests])
    return max(live.values(), default=0)


def _sizes(
    requests: Sequence[BufferRequest], binding: Mapping[str, int], alignment: int
) -> list[int]:
    known: dict[Dim, int] = {}
    out: list[int] = []
    for r in requests:
        size = known.get(r.size)
        if size is None:
            # The smallest or typical sizes may break a constraint (no window fits): no call has them.
            size = max(evaluate(r.size, binding), 0)
            known[r.size] = size = -(-size // alignment) * alignment
        out.append(size)
    return out


def _stack(
    sizes: Sequence[int], order: Sequence[int], after: Sequence[Sequence[int]]
) -> tuple[list[int], int]:
    offsets = [0] * len(sizes)
    for i in order:
        offsets[i] = max((offsets[j] + sizes[j] for j in after[i]), default=0)
    return offsets, max((o + s for o, s in zip(offsets, sizes, strict=True)), default=0)


def _ratio(instance: Instance, order: Sequence[int]) -> float:
    # As _stack, with every conflict that comes earlier in the order below.
    ends = [-1] * len(order)
    sizes = instance.sizes
    for i in order:
        start = 0
        for j in instance.conflicts[i]:
            if ends[j] > start:
                start = ends[j]
        ends[i] = start + sizes[i]
    return max(ends, default=0) / instance.bound if instance.bound else 1.0


def _reduce(
    order: Sequence[int], conflicts: Sequence[Sequence[int]]
) -> tuple[tuple[int, ...], ...]:
    """For each buffer the conflicting ones below it, without those that follow from others."""
    rank = {i: k for k, i in enumerate(order)}
    below: list[int] = [0] * len(order)  # bit sets over ranks: everything certainly below
    after: list[tuple[int, ...]] = [()] * len(order)
    for i in order:
        covered = 0
        kept: list[int] = []
        for j in sorted((j for j in conflicts[i] if rank[j] < rank[i]), key=lambda j: -rank[j]):
            if not covered >> rank[j] & 1:
                kept.append(j)
                covered |= below[rank[j]] | 1 << rank[j]
        below[rank[i]] = covered
        after[i] = tuple(sorted(kept))
    return tuple(after)
