"""Groups of ops that stay free of cycles: a topological order of the groups, kept under merging.

Two groups may become one only if no path leads from one to the other through a third; otherwise
the merged group would have to run both before and after that third one.  The order is maintained
as in Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs" (2006):
a merge searches only groups that lie between the two in the order, and at most `BUDGET` of them,
so that fusing a whole graph stays near linear.  A search that runs out counts as a path.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.ir.symbol_scope import binders, needed_before

BUDGET = 400


class Cluster:
    """Ops that run as one, in graph order; `place` is the position among clusters.

    `rooted`: one of them is a contraction or reduction.
    """

    __slots__ = ("after", "before", "ops", "place", "rooted")

    def __init__(self, op: Op, place: int) -> None:
        self.ops: list[Op] = [op]
        self.place = place
        self.rooted = op.kind in (Kind.CONTRACTION, Kind.REDUCTION)
        self.before: dict[Cluster, None] = {}  # must run earlier
        self.after: dict[Cluster, None] = {}  # must run later

    def __repr__(self) -> str:
        return f"<cluster {self.place}: {', '.join(map(repr, self.ops))}>"


class Clusters:
    """Every op of a graph but its sources, each alone to begin with.

    Readers of a value that a later op overwrites stay before that op, and what mentions a symbol
    stays behind the op that binds it, sources included.
    """

    def __init__(self, graph: Graph) -> None:
        self.bound = binders(graph)
        self.position: dict[Op, float] = {op: i for i, op in enumerate(graph.ops)}
        self.copies = 0
        self.of: dict[Op, Cluster] = {
            op: Cluster(op, i)
            for i, op in enumerate(graph.ops)
            if op.kind is not Kind.SOURCE
            or op.definition.effect is not Effect.PURE
            or needed_before(op, self.bound)
        }
        for op, cluster in self.of.items():
            for operand in op.operands:
                producer = self.of.get(operand.op) if operand.op is not None else None
                if producer is not None:
                    self._link(producer, cluster)
            for binder in needed_before(op, self.bound):
                self._link(self.of[binder], cluster)
            if op.definition.effect is Effect.WRITES:
                for index in op.definition.aliases.values():
                    for reader in op.operands[index].users:
                        if self.position[reader] < self.position[op]:
                            self._link(self.of[reader], cluster)

    @staticmethod
    def _link(first: Cluster, second: Cluster) -> None:
        if first is not second:
            first.after[second] = None
            second.before[first] = None

    def merge(self, parts: Sequence[Cluster]) -> Cluster | None:
        """One cluster with the ops of all parts, or None when that would make a cycle (or might)."""
        members = dict.fromkeys(parts)
        low, high = (f(c.place for c in members) for f in (min, max))
        above = self._beside(members, low, upward=True)
        if above is None:
            return None
        place = low  # where the last part can move up to the first
        if above:
            below = self._beside(members, high, upward=False)
            if below is None:
                return None
            places = sorted(c.place for c in (*members, *above, *below))
            for cluster, at in zip(above, places, strict=False):
                cluster.place = at
            place = places[len(above)]
            for cluster, at in zip(reversed(below), reversed(places), strict=False):
                cluster.place = at
        merged, *rest = members
        for part in rest:
            merged = self._unite(merged, part)
        merged.place = place
        return merged

    @staticmethod
    def _beside(members: dict[Cluster, None], limit: int, *, upward: bool) -> list[Cluster] | None:
        """In order, what lies before (after) the members on this side of `limit`.

        None when a path leaves the members and comes back, or the search is too long.
        """
        seen: dict[Cluster, None] = {}
        pending = list(members)
        while pending:
            at = pending.pop()
            for near in at.before if upward else at.after:
                if near in members:
                    if at not in members:
                        return None
                elif near not in seen and (near.place > limit if upward else near.place < limit):
                    if len(seen) >= BUDGET:
                        return None
                    seen[near] = None
                    pending.append(near)
        return sorted(seen, key=lambda c: c.place)

    def _unite(self, a: Cluster, b: Cluster) -> Cluster:
        larger = len(a.before) + len(a.after) >= len(b.before) + len(b.after)
        kept, gone = (a, b) if larger else (b, a)
        for near in gone.before:
            del near.after[gone]
            self._link(near, kept)
        for near in gone.after:
            del near.before[gone]
            self._link(kept, near)
        kept.rooted |= gone.rooted
        kept.ops = sorted(kept.ops + gone.ops, key=self.position.__getitem__)
        for op in gone.ops:
            self.of[op] = kept
        return kept

    def copy_of(self, op: Op, twin: Op, cluster: Cluster) -> None:
        """`twin`, a new copy of `op`, joins a cluster that uses `op`, at the place in order of `op`."""
        self.copies += 1
        self.position[twin] = self.position[op] + self.copies / 2**32
        self.of[twin] = cluster
        cluster.ops = sorted([*cluster.ops, twin], key=self.position.__getitem__)
        for near in self.of[op].before:
            self._link(near, cluster)

    def discard(self, cluster: Cluster) -> None:
        """Forgets a cluster that no other needs; its ops are about to be erased."""
        for near in cluster.before:
            del near.after[cluster]
        for near in cluster.after:
            del near.before[cluster]
        for op in cluster.ops:
            del self.of[op]

    def remove(self, op: Op) -> None:
        """Makes an op at the border of its cluster (nothing inside both feeds and uses it) single.

        The order of clusters is no longer maintained after this.
        """
        self.of[op].ops.remove(op)
        self.of[op] = Cluster(op, 0)

    def ordered(self) -> Iterable[Cluster]:
        """All clusters, once each, in a topological order close to the graph's own.

        The order is that of the last op of a cluster wherever dependencies allow.
        """
        clusters = list(dict.fromkeys(self.of.values()))
        rank = {c: self.position[c.ops[-1]] for c in clusters}
        waiting: dict[Cluster, int] = {}
        users: dict[Cluster, dict[Cluster, None]] = {c: {} for c in clusters}
        for cluster in clusters:
            feeding = {
                self.of[v.op]: None
                for op in cluster.ops
                for v in op.operands
                if v.op is not None and v.op in self.of and self.of[v.op] is not cluster
            }
            for op in cluster.ops:
                feeding |= {self.of[b]: None for b in needed_before(op, self.bound)}
            for op in cluster.ops:
                if op.definition.effect is Effect.WRITES:
                    for index in op.definition.aliases.values():
                        for reader in op.operands[index].users:
                            if self.of[reader] is not cluster:
                                feeding[self.of[reader]] = None
            waiting[cluster] = len(feeding)
            for producer in feeding:
                users[producer][cluster] = None
        ready = [(rank[c], c.ops[-1].id, c) for c in clusters if not waiting[c]]
        heapq.heapify(ready)
        done = 0
        while ready:
            _, _, cluster = heapq.heappop(ready)
            done += 1
            yield cluster
            for user in users[cluster]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (rank[user], user.ops[-1].id, user))
        assert done == len(clusters), "clusters form a cycle"
