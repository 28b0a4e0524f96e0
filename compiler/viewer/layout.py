"""Where every op that ever existed is drawn: one layered layout for all versions of the graph.

The union of all versions is laid out once (after Sugiyama, Tagawa, Toda 1981: layers by longest
path, order within layers by barycentres, then coordinates), so that what a pass leaves alone stays
where it is.  Ops that never exist together and follow one another by a rewrite share a slot: the new
op stands where the one it replaced stood.  Constants are not drawn, graph inputs are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphwright.compiler.trace import PassTrace, State, Trace
from graphwright.compiler.trace.records import producer_of

COLUMN, ROW = 176, 64  # distances between the centres of neighbours, in pixels
SWEEPS = 6

Node = int | str  # an op's id, or a reference to a graph input


class Slots:
    """The places of the union graph, and which op stands in which."""

    def __init__(self, trace: Trace) -> None:
        self.of: dict[Node, int] = {}
        self.order: list[int] = []  # slots in the order of their first occupants
        self.edges: dict[tuple[int, int], None] = {}
        self._hidden: set[int] = set()
        self._count = 0
        state = State.of(trace.initial) if trace.initial else None
        if state is None:
            return
        for index in range(len(state.inputs)):
            self._take(f"i{index}", None)
        for i in state.order:
            self._enter(state.ops[i], None)
        self._connect(state.ops.values())
        for each in trace.passes:
            self._follow(state, each)

    def _enter(self, record: Mapping[str, Any], slot: int | None) -> None:
        if record["op"] == "constant":
            self._hidden.add(record["id"])
        else:
            self._take(record["id"], slot)

    def _take(self, node: Node, slot: int | None) -> None:
        if node in self.of:
            return
        if slot is None:
            slot = self._count
            self._count += 1
            self.order.append(slot)
        self.of[node] = slot

    def _follow(self, state: State, each: PassTrace) -> None:
        for delta, replaced in (
            *((s.delta, (s.consumed, s.produced)) for s in each.steps),
            (each.rest, ((), ())),
        ):
            inherit: dict[int, int] = {}
            gone = [i for i in replaced[0] if i in set(delta.get("erase", ())) and i in self.of]
            if gone and replaced[1]:
                # The root of the match (first consumed) is what the last produced op stands for.
                inherit[replaced[1][-1]] = self.of[gone[0]]
            added = {record["id"]: (anchor, record) for anchor, record in delta.get("add", ())}
            for i, (anchor, record) in added.items():
                before = len(self.order)
                self._enter(record, inherit.get(i))
                if len(self.order) > before and anchor in self.of:
                    # A new slot lies just before that of the op it was inserted before.
                    slot = self.order.pop()
                    self.order.insert(self._rank(self.of[anchor]), slot)
            state.apply(delta)
            touched = [*added, *(i for i, fields in delta.get("set", ()) if "in" in fields)]
            self._connect(state.ops[i] for i in touched if i in state.ops)

    def _rank(self, slot: int) -> int:
        return self.order.index(slot)

    def _connect(self, records: Iterable[Mapping[str, Any]]) -> None:
        for record in records:
            here = self.of.get(record["id"])
            if here is None:
                continue
            for reference in record.get("in", ()):
                producer = producer_of(reference)
                node: Node = reference if producer is None else producer
                there = self.of.get(node)
                if there is not None and there != here:
                    self.edges[there, here] = None


def place(trace: Trace) -> dict[str, tuple[int, int]]:
    """The centre of every op and input that is ever drawn, by its reference, in pixels."""
    slots = Slots(trace)
    rank = {slot: n for n, slot in enumerate(slots.order)}
    above: dict[int, list[int]] = {slot: [] for slot in slots.order}
    below: dict[int, list[int]] = {slot: [] for slot in slots.order}
    for a, b in slots.edges:
        if (
            rank[a] < rank[b]
        ):  # an edge against the order (ops were moved) does not shape the layout
            above[b].append(a)
            below[a].append(b)
    layer: dict[int, int] = {}
    for slot in slots.order:
        layer[slot] = max((layer[p] + 1 for p in above[slot]), default=0)
    for slot in reversed(slots.order):  # sources stand right above their first user
        if not above[slot] and below[slot]:
            layer[slot] = max(min(layer[u] for u in below[slot]) - 1, 0)
    layers: dict[int, list[int]] = {}
    for slot in slots.order:
        layers.setdefault(layer[slot], []).append(slot)
    rows = [layers[n] for n in sorted(layers)]
    x = _columns(rows, above, below)
    depth = {slot: n for n, row in enumerate(rows) for slot in row}
    return {str(node): (round(x[slot]), depth[slot] * ROW) for node, slot in slots.of.items()}


def _columns(
    rows: list[list[int]], above: Mapping[int, list[int]], below: Mapping[int, list[int]]
) -> dict[int, float]:
    """x of each slot: near the mean of its neighbours, at least COLUMN from the next in its row."""
    x: dict[int, float] = {}
    for row in rows:
        for n, slot in enumerate(row):
            near = [x[p] for p in above[slot] if p in x]
            x[slot] = sum(near) / len(near) if near else (n - (len(row) - 1) / 2) * COLUMN
        _spread(row, x)
    for sweep in range(SWEEPS):
        up = sweep % 2 == 0
        for row in reversed(rows) if up else rows:
            for slot in row:
                near = below[slot] if up else above[slot]
                if near:
                    x[slot] = sum(x[n] for n in near) / len(near)
            _spread(row, x)
    return x


def _spread(row: list[int], x: dict[int, float]) -> None:
    """Moves slots of a row apart, each as little as the others allow (isotonic regression).

    With the gaps taken off, the wanted places must become ascending: pools of neighbours that are
    out of order share their mean (pool adjacent violators).
    """
    row.sort(key=lambda slot: x[slot])
    pools: list[list[float]] = []  # [sum, count]
    for n, slot in enumerate(row):
        pools.append([x[slot] - n * COLUMN, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] > pools[-1][0] / pools[-1][1]:
            total, count = pools.pop()
            pools[-1][0] += total
            pools[-1][1] += count
    n = 0
    for total, count in pools:
        for _ in range(int(count)):
            x[row[n]] = total / count + n * COLUMN
            n += 1
