"""What the page gets: a trace as plain data, with the place of every op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphwright.compiler.trace import PassTrace, Trace
from graphwright.compiler.viewer.layout import place


def payload_of(
    trace: Trace,
    *,
    title: str,
    subtitle: str = "",
    start: str = "",
    profile: Mapping[str, Any] | None = None,
    errors: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Plain data for `render_page`.  `start` is what the graph before the first pass is called.

    `profile`: the JSON of `bench --profile`; `errors`: the part `kernels` of that of
    `verify --layers`.  Their ops are those of the trace's last graph.
    """
    artifacts = trace.of_kind("artifact")
    failures = trace.of_kind("failure")
    return {
        "title": title,
        "subtitle": subtitle,
        "start": start or "as imported",
        "about": {k: v for k, v in trace.about.items() if k != "version"},
        "peak_bytes": trace.initial_peak,
        "cost": trace.initial_cost,
        "profile": profile,
        "errors": errors,
        "tuning": [{k: v for k, v in r.items() if k != "record"} for r in trace.of_kind("tuning")],
        "graph": trace.initial,
        "passes": [_pass(each, trace) for each in trace.passes],
        "artifact": {k: artifacts[-1][k] for k in ("manifest", "sources")} if artifacts else None,
        "failure": failures[-1]["message"] if failures else None,
        "layout": place(trace),
    }


def _pass(each: PassTrace, trace: Trace) -> dict[str, Any]:
    return {
        "name": each.name,
        "ops_before": each.ops_before,
        "steps": [
            {
                "rule": s.rule,
                "where": s.where,
                "consumed": s.consumed,
                "produced": s.produced,
                "reason": s.reason,
                "graph": s.graph,
                "cost": s.cost,
                "delta": s.delta,
            }
            for s in each.steps
        ],
        "refusals": each.refusals,
        "rest": each.rest,
        "end": dict(each.end) or None,
        "distance": each.distance,
        "failed": not each.finished,
    }
