"""Orders ops so that little memory is live at once: the `order` pass."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Effect, Kind
from graphwright.compiler.ir.symbol_scope import binders, needed_before
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.profit import typical_size
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import is_joined, view_of
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class Order:
    """Sorts the ops topologically so that the peak of live bytes is low, at typical sizes.

    Why: the arena can be no smaller than the peak that the order implies.  Of several orders (the
    given one, greedy by what an op frees and allocates, depth first by Sethi and Ullman's rule) the
    one with the lowest peak stays, the given one when none is better.  Views share storage; graph
    inputs, outputs and constants are not counted.  Requires nothing; only the order changes.

        %1 = f(%x), %2 = f(%y), %3 = g(%1), %4 = g(%2)  ->  %1, %3, %2, %4   (f large, g small)
    """

    name: ClassVar[str] = "order"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        changed, before, after = False, 0, 0
        graphs = [graph]
        for at in graphs:
            graphs.extend(b for op in at.ops if op.kind is Kind.CONTROL for b in op.bodies)
            lives = _Lives(at)
            given = lives.ops
            first = lives.peak(given)
            best, peak = given, first
            for candidate in (lives.greedy(), lives.depth_first()):
                found = lives.peak(candidate)
                if found < peak:
                    best, peak = candidate, found
            before, after = max(before, first), max(after, peak)
            if best is not given:
                changed = True
                with Rewriter(at, self.name, journal) as rw, rw.step("reorder", best[-1]):
                    for op in best:
                        rw.move_before(op, None)
        return PassResult(
            changed, statistics={"peak_bytes_before": before, "peak_bytes_after": after}
        )


class _Lives:
    """Which ops touch (make, read or continue) each storage; sizes in bytes at typical values."""

    def __init__(self, graph: Graph) -> None:
        self.ops = list(graph.ops)
        self.position = {op: i for i, op in enumerate(self.ops)}
        self.bytes: dict[Value, int] = {}  # of storages that come and go
        self.touches: dict[Op, dict[Value, None]] = {}  # the storages that an op needs alive
        self.touching: dict[Value, list[Op]] = {}
        self.before: dict[Op, dict[Op, None]] = {op: {} for op in self.ops}
        self.after: dict[Op, dict[Op, None]] = {op: {} for op in self.ops}
        self.bound = binders(graph)
        storage: dict[Value, Value] = {}
        for op in self.ops:
            if is_joined(op):  # one storage for all operands, whichever is made first
                for operand in op.operands[1:]:
                    storage[operand] = op.operands[0]
        for op in self.ops:
            touched = {storage.get(v, v): None for v in op.operands}
            view = view_of(op) is not None
            for index, result in enumerate(op.results):
                shared = 0 if view else op.definition.aliases.get(index)
                if shared is not None:
                    source = op.operands[shared]
                    storage[result] = storage.get(source, source)
                elif op.name != "constant":
                    root = storage.get(result, result)
                    touched[root] = None
                    self.bytes[root] = typical_size(root.type.storage_bytes)
            self.touches[op] = touched
            self._depend(op)
        for value in graph.outputs:
            self.bytes.pop(storage.get(value, value), None)
        for op, touched in self.touches.items():
            self.touches[op] = {r: None for r in touched if r in self.bytes}
            for root in self.touches[op]:
                self.touching.setdefault(root, []).append(op)

    def made(self, op: Op) -> int:
        """Bytes of the storages that begin with this op in the given order."""
        return sum(self.bytes[r] for r in self.touches[op] if self.touching[r][0] is op)

    def _depend(self, op: Op) -> None:
        for operand in op.operands:
            if operand.op is not None:
                self._link(operand.op, op)
        for binder in needed_before(op, self.bound):
            self._link(binder, op)
        if op.definition.effect is Effect.WRITES:
            for index in op.definition.aliases.values():
                for reader in op.operands[index].users:
                    if self.position[reader] < self.position[op]:
                        self._link(reader, op)

    def _link(self, first: Op, second: Op) -> None:
        self.before[second][first] = None
        self.after[first][second] = None

    def peak(self, order: Sequence[Op]) -> int:
        """The most bytes live at once, an op's operands and results together."""
        left = {root: len(ops) for root, ops in self.touching.items()}
        live = most = 0
        for op in order:
            for root in self.touches[op]:
                if left[root] == len(self.touching[root]):
                    live += self.bytes[root]
            most = max(most, live)
            for root in self.touches[op]:
                left[root] -= 1
                if not left[root]:
                    live -= self.bytes[root]
        return most

    def greedy(self) -> list[Op]:
        """Always the ready op that leaves the fewest bytes live; the given order breaks ties."""
        left = {root: len(ops) for root, ops in self.touching.items()}
        waiting = {op: len(before) for op, before in self.before.items()}

        def growth(op: Op) -> int:
            total = 0
            for root in self.touches[op]:
                begins, ends = left[root] == len(self.touching[root]), left[root] == 1
                total += self.bytes[root] * (begins - ends)
            return total

        done: set[Op] = set()
        order: list[Op] = []
        ready = [(growth(op), i) for i, op in enumerate(self.ops) if not waiting[op]]
        heapq.heapify(ready)
        while ready:
            key, index = heapq.heappop(ready)
            op = self.ops[index]
            if op in done or key != growth(op):
                continue  # a newer entry of it stands in the heap
            done.add(op)
            order.append(op)
            for root in self.touches[op]:
                left[root] -= 1
                begun = left[root] == len(self.touching[root]) - 1
                if left[root] == 1 or begun:
                    for near in self.touching[root]:
                        if near not in done and not waiting[near]:
                            heapq.heappush(ready, (growth(near), self.position[near]))
            for user in self.after[op]:
                waiting[user] -= 1
                if not waiting[user]:
                    heapq.heappush(ready, (growth(user), self.position[user]))
        assert len(order) == len(self.ops), "an op was left out"
        return order

    def depth_first(self) -> list[Op]:
        """Operands that need the most memory beyond what they leave come first (Sethi, Ullman 1970).

        Exact for trees; for other graphs a guess.
        """
        made = {op: self.made(op) for op in self.ops}
        need: dict[Op, int] = {}
        inputs: dict[Op, list[Op]] = {}
        for op in self.ops:
            above = sorted(self.before[op], key=lambda o: (made[o] - need[o], self.position[o]))
            held = most = 0
            for child in above:
                most = max(most, held + need[child])
                held += made[child]
            need[op] = max(most, held + made[op])
            inputs[op] = above
        order: list[Op] = []
        placed: set[Op] = set()
        for last in self.ops:
            if self.after[last]:
                continue
            pending = [last]
            while pending:
                op = pending[-1]
                todo = next((c for c in inputs[op] if c not in placed), None)
                if todo is not None:
                    pending.append(todo)
                    continue
                pending.pop()
                if op not in placed:
                    placed.add(op)
                    order.append(op)
        return order
