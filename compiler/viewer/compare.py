"""Two graphs without a common history, made into one trace: which op of one is which of the other.

Ops are matched, in turn, by the names of their results, by where they come from, by structure (same
op, attributes and matched operands), and last by place (same op beside matched neighbours).  What
is left was removed or added.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from graphwright.compiler.trace import PassTrace, Trace
from graphwright.compiler.trace.records import Record, changed_fields, producer_of


def compare(
    first: Record, second: Record, about: Mapping[str, Any], name: str = "difference"
) -> Trace:
    """A trace whose only pass turns the first graph into the second.

    Ops of the second that are not in the first get new ids; all others get those of the first.
    """
    ids = match(first, second)
    renamed = rename(second, ids, max((op["id"] for op in first["ops"]), default=0) + 1, first)
    old = {op["id"]: op for op in first["ops"]}
    new = {op["id"]: op for op in renamed["ops"]}
    delta: Record = {}
    if gone := [i for i in old if i not in new]:
        delta["erase"] = gone
    entries: list[Any] = []
    anchor: int | None = None
    for op in reversed(renamed["ops"]):
        if op["id"] not in old:
            entries.append([anchor, op])
        anchor = op["id"]
    if entries:
        delta["add"] = entries
    fields = [(i, changed_fields(old[i], op)) for i, op in new.items() if i in old]
    if changed := [[i, f] for i, f in fields if f]:
        delta["set"] = changed
    frame = ("name", "inputs", "ops")
    around = [{k: v for k, v in g.items() if k not in frame} for g in (first, renamed)]
    if border := changed_fields(around[0], around[1]):
        delta["border"] = border
    delta["order"] = list(new)
    only = PassTrace(name, len(old), rest=delta, end={"changed": True, "ops": len(new)})
    return Trace(about, first, passes=[only])


def match(first: Record, second: Record) -> dict[int, int]:
    """From ids of the second graph's ops to those of the first's."""
    return _Matching(first, second).run()


class _Matching:
    def __init__(self, first: Record, second: Record) -> None:
        self.first = {op["id"]: op for op in first["ops"]}
        self.second = {op["id"]: op for op in second["ops"]}
        self.to_first: dict[int, int] = {}
        self.taken: set[int] = set()
        names = [name for name, _ in first["inputs"]]
        self.inputs = {
            f"i{n}": f"i{names.index(name)}" if name in names else f"new {name}"
            for n, (name, _) in enumerate(second["inputs"])
        }
        self.users = (_users(self.first), _users(self.second))

    def run(self) -> dict[int, int]:
        self._unique(lambda op: (op["op"], *sorted(o[1] for o in op.get("out", ()) if len(o) > 1))
                     if any(len(o) > 1 and o[1] for o in op.get("out", ())) else None)  # fmt: skip
        self._unique(lambda op: (op["op"], op["from"][0]) if op.get("from") else None)
        self._by_structure()
        self._by_neighbours()
        return self.to_first

    def _pair(self, new: int, old: int) -> None:
        self.to_first[new] = old
        self.taken.add(old)

    def _unique(self, key: Callable[[Record], Hashable]) -> None:
        """Matches ops whose key is given and occurs once on each side."""
        sides: list[dict[Hashable, list[int]]] = []
        for ops, used in ((self.first, self.taken), (self.second, self.to_first)):
            found: dict[Hashable, list[int]] = defaultdict(list)
            for i, op in ops.items():
                if i not in used and (k := key(op)) is not None:
                    found[k].append(i)
            sides.append(found)
        for k, here in sides[1].items():
            there = sides[0].get(k, [])
            if len(here) == len(there) == 1:
                self._pair(here[0], there[0])

    def _seen(self, reference: str) -> str:
        producer = producer_of(reference)
        if producer is None:
            return self.inputs.get(reference, reference)
        index = reference.partition(".")[2]
        old = self.to_first.get(producer)
        return "?" if old is None else f"{old}.{index}" if index else str(old)

    def _by_structure(self) -> None:
        waiting: dict[str, list[int]] = defaultdict(list)
        for i, op in self.first.items():
            if i not in self.taken:
                waiting[_structure(op, op.get("in", ()))].append(i)
        for i, op in self.second.items():
            if i in self.to_first:
                continue
            operands = [self._seen(r) for r in op.get("in", ())]
            same = waiting.get(_structure(op, operands))
            if same:
                self._pair(i, same.pop(0))

    def _by_neighbours(self) -> None:
        """In both directions until nothing more is found: same op, one neighbour in common."""
        progress = True
        while progress:
            progress = False
            for i, op in self.second.items():
                if i in self.to_first:
                    continue
                candidates = [
                    *(self._users_of_matched(r, op["op"]) for r in op.get("in", ())),
                    *(self._feeding_matched(u, op["op"]) for u in self.users[1].get(i, ())),
                ]
                found = next((c for c in candidates if c is not None), None)
                if found is not None:
                    self._pair(i, found)
                    progress = True

    def _users_of_matched(self, reference: str, name: str) -> int | None:
        seen = self._seen(reference)
        producer = None if seen.startswith(("i", "?", "new")) else producer_of(seen)
        users = self.users[0].get(producer if producer is not None else seen, ())
        return self._only(users, name)

    def _feeding_matched(self, user: int, name: str) -> int | None:
        old = self.to_first.get(user)
        if old is None:
            return None
        producers = [producer_of(r) for r in self.first[old].get("in", ())]
        return self._only([p for p in producers if p is not None], name)

    def _only(self, ids: Any, name: str) -> int | None:
        left = {i for i in ids if i not in self.taken and self.first[i]["op"] == name}
        return left.pop() if len(left) == 1 else None


def _structure(op: Record, operands: Any) -> str:
    return json.dumps(
        [op["op"], op.get("attributes"), [o[0] for o in op.get("out", ())], *operands]
    )


def _users(ops: Mapping[int, Record]) -> dict[int | str, list[int]]:
    users: dict[int | str, list[int]] = defaultdict(list)
    for i, op in ops.items():
        for reference in op.get("in", ()):
            producer = producer_of(reference)
            users[reference if producer is None else producer].append(i)
    return users


def rename(graph: Record, ids: Mapping[int, int], start: int, first: Record) -> Record:
    """The graph with other ids: those of `ids`, and fresh ones from `start` for the rest."""
    table: dict[int, int] = {}
    for op in graph["ops"]:
        table[op["id"]] = ids.get(op["id"], start)
        start += op["id"] not in ids
    names = [name for name, _ in first["inputs"]]

    def reference(text: str) -> str:
        producer = producer_of(text)
        if producer is None:
            name = graph["inputs"][int(text[1:])][0]
            return f"i{names.index(name)}" if name in names else text
        index = text.partition(".")[2]
        return f"{table[producer]}.{index}" if index else str(table[producer])

    ops: list[Record] = []
    for op in graph["ops"]:
        new: Record = {**op, "id": table[op["id"]]}
        if "in" in op:
            new["in"] = [reference(r) for r in op["in"]]
        ops.append(new)
    return {**graph, "ops": ops, "outputs": [reference(r) for r in graph["outputs"]]}


def summary(trace: Trace) -> list[tuple[str, int, int]]:
    """(op, before, after) for every op name whose number differs, the largest difference first."""
    counts = [
        Counter(op["op"] for op in graph["ops"]) for graph in (trace.initial, trace.final().graph())
    ]
    names = [n for n in dict.fromkeys((*counts[0], *counts[1])) if counts[0][n] != counts[1][n]]
    names.sort(key=lambda n: (-abs(counts[0][n] - counts[1][n]), n))
    return [(n, counts[0][n], counts[1][n]) for n in names]
