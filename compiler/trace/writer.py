"""A listener that writes the trace of a compilation while it runs.

The graph is written once, before the first pass; every rewrite then carries the difference that it
made.  What a pass changed outside a rewrite (types, order, bodies of regions) is found by comparing
when it ends, so that the replay is exact whatever a pass does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.passes.base import Listener, PassResult, Refusal, Rewrite
from graphwright.compiler.trace.cost import FREE, Cost, CostModel
from graphwright.compiler.trace.liveness import live_peak
from graphwright.compiler.trace.records import Record, Recorder, border, changed_fields
from graphwright.runtime.manifest import Manifest, write_manifest

VERSION = 1
TUNING = "tuning.json"  # the artifact's member with what the tuner timed (compiler/tune/records.py)


class TraceWriter(Listener):
    """Writes to a binary file that is open for writing; a context that stops listening at its end.

    `about`: what the first line says besides the version (model, target, options...).  Each pass is
    flushed when it ends: the trace of a compilation that failed goes as far as it came.
    """

    def __init__(self, file: BinaryIO, about: Mapping[str, Any] | None = None) -> None:
        self._file = file
        self._recorder = Recorder()
        self._graph: Graph | None = None
        self._known: dict[int, Record] = {}  # what a reader knows of each op
        self._order: list[int] = []
        self._border: Record = {}
        self._dirty: dict[int, None] = {}  # ids of ops that changed since the last delta, in order
        self._outputs_dirty = False
        self._refusals: dict[Refusal, int] = {}
        self._costs: dict[int, Cost] = {}
        self._total = FREE
        self._stage = ""
        self.write("trace", {"version": VERSION, **(about or {})})

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop_listening()
        if error is not None:
            self.write("failure", {"error": type(error).__name__, "message": str(error)})
        self._file.flush()

    def write(self, kind: str, record: Mapping[str, Any]) -> None:
        """Appends one line: {"record": kind, ...}."""
        line = json.dumps({"record": kind, **record}, separators=(",", ":"), ensure_ascii=False)
        self._file.write(line.encode() + b"\n")

    # -- what the pipeline tells

    def before_pass(self, name: str, graph: Graph) -> None:
        if self._graph is None:
            whole = self._recorder.graph(graph)
            self._known = {op["id"]: op for op in whole["ops"]}
            self._order = list(self._known)
            self._border = border(graph)
            model = CostModel()
            self._costs = {op.id: model.op(op) for op in graph.ops}
            self._total = sum(self._costs.values(), FREE)
            facts: Record = {"peak_bytes": live_peak(graph), "cost": self._total.to_json()}
            self.write("graph", facts | {"graph": whole})
        self._graph = graph
        graph.listeners.append(self._on_change)
        self.write("pass", {"name": name, "ops": len(graph)})

    def rewrite(self, rewrite: Rewrite) -> None:
        record: Record = {
            "rule": rewrite.rule,
            "where": rewrite.where,
            "consumed": rewrite.consumed,
            "produced": rewrite.produced,
        }
        if rewrite.reason:
            record["reason"] = rewrite.reason
        if self._graph is not None and rewrite.graph != self._graph.name:
            record["graph"] = rewrite.graph  # a body: its change shows when the pass ends
        delta, before, after = self._delta()
        if before != after:
            record["cost"] = [before.to_json(), after.to_json()]
        self.write("rewrite", record | delta)

    def refusal(self, refusal: Refusal) -> None:
        self._refusals[refusal] = self._refusals.get(refusal, 0) + 1

    def checked(self, name: str, distance: float) -> None:
        self.write("check", {"pass": name, "distance": distance})

    def after_pass(self, name: str, graph: Graph, result: PassResult, seconds: float) -> None:
        self._stop_listening()
        for refusal, times in self._refusals.items():
            record: Record = {"rule": refusal.rule, "ops": refusal.ops, "reason": refusal.reason}
            self.write("refusal", record | ({"times": times} if times > 1 else {}))
        self._refusals.clear()
        end: Record = {
            "name": name,
            "seconds": round(seconds, 6),
            "changed": result.changed,
            "ops": len(graph),
            "peak_bytes": live_peak(graph),
        }
        delta, _, _ = self._delta(graph)
        end["cost"] = self._total.to_json()
        if result.notes:
            end["notes"] = result.notes
        if result.statistics:
            end["statistics"] = result.statistics
        self.write("end", end | delta)
        self._file.flush()

    def stage(self, name: str, done: int, total: int) -> None:
        if name != self._stage:
            self._stage = name
            self.write("stage", {"name": name})

    def artifact(self, manifest: Manifest, files: Mapping[str, bytes]) -> None:
        """What became of the graph: plan, launches and kernels with their sources."""
        sources: dict[str, str] = {}
        for kernel in (k for variant in manifest.variants for k in variant.kernels):
            if kernel.source in files:
                sources[kernel.source] = files[kernel.source].decode(errors="replace")
        for record in tuning_records(files.get(TUNING)):
            self.write("tuning", record)
        self.write(
            "artifact", {"manifest": json.loads(write_manifest(manifest)), "sources": sources}
        )

    # -- differences

    def _stop_listening(self) -> None:
        if self._graph is not None and self._on_change in self._graph.listeners:
            self._graph.listeners.remove(self._on_change)

    def _on_change(self, event: str, op: Op | None) -> None:
        if op is None:
            self._outputs_dirty = True
        else:
            self._dirty[op.id] = None

    def _delta(self, whole: Graph | None = None) -> tuple[Record, Cost, Cost]:
        """{erase, add, set, outputs...}: from what a reader knows to the graph as it is; and what
        the ops that differ cost before and cost now.

        Only what was told to the listener is looked at, or everything when `whole` is given.
        """
        graph = whole or self._graph
        assert graph is not None
        delta: Record = {}
        ids = {op.id: op for op in graph.ops} if whole else self._living(graph)
        gone = self._known.keys() - ids.keys() if whole else [
            i for i in self._dirty if i in self._known and i not in ids
        ]  # fmt: skip
        if gone:
            delta["erase"] = sorted(gone)
            for i in gone:
                del self._known[i]
        before = sum((self._costs.pop(i) for i in gone), FREE)
        after, model = FREE, CostModel()
        added = [op for i, op in ids.items() if i not in self._known]
        if added:
            delta["add"] = self._added(added)
        changed: list[Any] = []
        new = {op.id for op in added}
        for op in added:
            self._costs[op.id] = cost = model.op(op)
            after += cost
        for i, op in ids.items():
            if i in new:
                continue
            record = self._recorder.op(op)
            fields = changed_fields(self._known[i], record)
            if fields:
                changed.append([i, fields])
                self._known[i] = record
                cost = model.op(op)
                if cost != self._costs[i]:  # a reader of what was replaced costs what it did
                    before, after = before + self._costs[i], after + cost
                    self._costs[i] = cost
        if changed:
            delta["set"] = changed
        if self._outputs_dirty or whole:
            around = border(graph)
            fields = changed_fields(self._border, around)
            if fields:
                delta["border"] = fields
                self._border = around
        apply_order(self._order, delta)
        if whole and list(ids) != self._order:
            delta["order"] = self._order = list(ids)
        self._dirty.clear()
        self._outputs_dirty = False
        if whole is not None:  # a type that changed can change what its readers cost
            self._costs = {i: model.op(op) for i, op in ids.items()}
            self._total = sum(self._costs.values(), FREE)
        return ({"delta": delta} if delta else {}), before, after

    def _living(self, graph: Graph) -> dict[int, Op]:
        return {i: graph.op_by_id(i) for i in self._dirty if graph.has_op(i)}

    def _added(self, ops: list[Op]) -> list[Any]:
        """[[id of the next op or None, record], ...]: each goes before an op that is there by then."""
        waiting = {op.id: op for op in ops}
        entries: list[Any] = []
        while waiting:
            _, op = waiting.popitem()
            run = [op]
            after = op.following
            while after is not None and after.id in waiting:
                run.append(waiting.pop(after.id))
                after = after.following
            # `after` may have been written already by an earlier run: then it is known.
            anchor = None if after is None else after.id
            for op in reversed(run):
                record = self._known[op.id] = self._recorder.op(op)
                entries.append([anchor, record])
                anchor = op.id
        return entries


def tuning_records(lock: bytes | None) -> list[Record]:
    """What a lock file says, a record a kernel: {what, by, candidates: [{name, seconds, chosen}]}, the
    fastest candidate first, those that failed last.
    """
    records: list[Record] = []
    for each in json.loads(lock)["kernels"].values() if lock else ():
        times = sorted(each["times"].items(), key=lambda t: t[1])
        candidates = [(n, 1e-6 * t) for n, t in times] + [(n, None) for n in each["refused"]]
        chosen = each["chosen"]
        rows = [{"name": n, "seconds": t, "chosen": n == chosen} for n, t in candidates]
        records.append(
            {"what": each["what"], "by": each["by"], "chosen": chosen, "candidates": rows}
        )
    return records


def apply_order(order: list[int], delta: Mapping[str, Any]) -> None:
    """Erases and inserts the ids of a delta."""
    erased = set(delta.get("erase", ()))
    if erased:
        order[:] = [i for i in order if i not in erased]
    for anchor, record in delta.get("add", ()):
        if anchor is None:
            order.append(record["id"])
        else:
            order.insert(order.index(anchor), record["id"])
