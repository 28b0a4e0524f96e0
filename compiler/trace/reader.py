"""Reads a trace and replays it: the graph before and after every pass and every rewrite."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphwright.compiler.trace.records import Record
from graphwright.compiler.trace.writer import VERSION, apply_order
from graphwright.errors import InputError

MEMBER = "trace.jsonl"  # of an artifact that keeps its trace


@dataclass(slots=True)
class State:
    """A graph as the trace knows it: op records by id, their order, and the border."""

    name: str
    inputs: list[Any]
    ops: dict[int, Record]
    order: list[int]
    border: Record

    @staticmethod
    def of(graph: Mapping[str, Any]) -> State:
        """The state that a whole graph's record describes."""
        around = {k: v for k, v in graph.items() if k not in ("name", "inputs", "ops")}
        ops = {op["id"]: op for op in graph["ops"]}
        return State(graph["name"], graph["inputs"], ops, list(ops), around)

    def apply(self, delta: Mapping[str, Any]) -> None:
        """Changes the state as one delta says.  Records are replaced, never changed."""
        for i in delta.get("erase", ()):
            del self.ops[i]
        for _, record in delta.get("add", ()):
            self.ops[record["id"]] = record
        apply_order(self.order, delta)
        for i, changes in delta.get("set", ()):
            merged = self.ops[i] | changes
            self.ops[i] = {k: v for k, v in merged.items() if v is not None}
        for key, value in delta.get("border", {}).items():
            if value is None:
                self.border.pop(key, None)
            else:
                self.border[key] = value
        self.order = delta.get("order", self.order)

    def copy(self) -> State:
        """An independent copy (records are shared: nobody changes them)."""
        return State(
            self.name, self.inputs, dict(self.ops), list(self.order), deepcopy(self.border)
        )

    def graph(self) -> Record:
        """The whole graph's record."""
        ops = [self.ops[i] for i in self.order]
        return {"name": self.name, "inputs": self.inputs, "ops": ops, **self.border}


@dataclass(frozen=True, slots=True)
class Step:
    """One rewrite: rule, where it is written, ids, reason, and the delta that it made."""

    rule: str
    where: str
    consumed: tuple[int, ...]
    produced: tuple[int, ...]
    reason: str
    delta: Mapping[str, Any]
    graph: str = ""  # the name of the body it happened in, when that is not the whole graph
    # [bytes, flops, kernels] of the ops that differ, before and after; () where nothing changed
    cost: tuple[list[int], ...] = ()


@dataclass(slots=True)
class PassTrace:
    """One execution of a pass.  `rest`: the delta of what it changed outside its steps."""

    name: str
    ops_before: int
    steps: list[Step] = field(default_factory=list)
    refusals: list[Mapping[str, Any]] = field(default_factory=list)
    rest: Mapping[str, Any] = field(default_factory=dict)
    end: Mapping[str, Any] = field(default_factory=dict)  # seconds, changed, ops, peak_bytes...
    distance: float | None = None  # of the numeric check

    @property
    def finished(self) -> bool:
        return bool(self.end)

    def apply(self, state: State) -> None:
        """Brings a state from before the pass to after it."""
        for step in self.steps:
            state.apply(step.delta)
        state.apply(self.rest)


@dataclass(slots=True)
class Trace:
    """A whole trace.  `others`: records of any other kind (plan, kernels...), in order."""

    about: Mapping[str, Any]
    initial: Record = field(default_factory=dict)
    initial_peak: int = 0
    initial_cost: list[int] = field(default_factory=list[int])  # bytes, flops, kernels
    passes: list[PassTrace] = field(default_factory=list)
    others: list[Mapping[str, Any]] = field(default_factory=list)

    def states(self) -> Iterator[State]:
        """The graph before the first pass, then after each: the same object, changed in place."""
        state = State.of(self.initial)
        yield state
        for each in self.passes:
            each.apply(state)
            yield state

    def final(self) -> State:
        """The graph after the last pass."""
        state = State.of(self.initial)
        for each in self.passes:
            each.apply(state)
        return state

    def of_kind(self, kind: str) -> list[Mapping[str, Any]]:
        return [r for r in self.others if r["record"] == kind]


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Reads a trace file.  Raises as `parse_trace`, and OSError as `open` does."""
    return parse_trace(Path(path).read_bytes(), os.fspath(path))


def parse_trace(data: bytes, path: str) -> Trace:
    """The trace in these bytes, called `path` in errors.  A last line that was cut off is left out.

    Raises InputError for what is no trace, or of a version that this one cannot read.
    """
    lines = data.split(b"\n")
    complete, rest = lines[:-1], lines[-1]
    records: list[dict[str, Any]] = []
    for number, line in enumerate(complete, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise InputError(f"{path}: line {number} is no JSON ({error}): not a trace") from None
        if not isinstance(record, dict) or "record" not in record:
            raise InputError(f"{path}: line {number} is no record of a trace")
        records.append(record)
    if not records or records[0]["record"] != "trace":
        more = f" ({len(rest)} bytes without an end of line)" if rest else ""
        raise InputError(f"{path}: not a trace: its first line is no record of a trace{more}")
    about = {k: v for k, v in records[0].items() if k != "record"}
    if about.get("version") != VERSION:
        raise InputError(
            f"{path}: a trace of version {about.get('version')}; this release reads {VERSION}"
        )
    trace = Trace(about)
    for record in records[1:]:
        _take(trace, record)
    return trace


def _take(trace: Trace, record: dict[str, Any]) -> None:
    kind = record["record"]
    current = trace.passes[-1] if trace.passes else None
    if kind == "graph":
        trace.initial, trace.initial_peak = record["graph"], record.get("peak_bytes", 0)
        trace.initial_cost = record.get("cost", [])
    elif kind == "pass":
        trace.passes.append(PassTrace(record["name"], record["ops"]))
    elif kind == "rewrite" and current is not None:
        current.steps.append(
            Step(
                record["rule"],
                record["where"],
                tuple(record["consumed"]),
                tuple(record["produced"]),
                record.get("reason", ""),
                record.get("delta", {}),
                record.get("graph", ""),
                tuple(record.get("cost", ())),
            )
        )
    elif kind == "refusal" and current is not None:
        current.refusals.append({k: v for k, v in record.items() if k != "record"})
    elif kind == "check" and current is not None:
        current.distance = record["distance"]
    elif kind == "end" and current is not None:
        current.rest = record.get("delta", {})
        current.end = {k: v for k, v in record.items() if k not in ("record", "delta")}
    else:
        trace.others.append(record)
