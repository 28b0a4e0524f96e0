"""The section `tuning` of inspect: which way each kernel takes, and how long the others took."""

from __future__ import annotations

import json
from typing import Any

from graphwright.compiler.tune.records import MEMBER
from graphwright.runtime.artifact import ArtifactFile


def tuning_facts(file: ArtifactFile) -> dict[str, Any] | None:
    """The lock file in an artifact; None where the cost model chose everything."""
    return json.loads(file.read(MEMBER)) if MEMBER in file.members else None


def tuning_rows(facts: dict[str, Any]) -> list[list[object]]:
    """(microseconds, against the cost model's choice, by, way, computes), the slowest first."""
    rows: list[tuple[float, list[object]]] = []
    for record in facts["kernels"].values():
        times: dict[str, float] = record["times"]
        best = times.get(record["chosen"], 0.0)
        slowest = max(times.values(), default=0.0)
        spread = f"{slowest / best:.2f}x" if best else ""
        shown = f"{best:.2f}" if best else ""
        row: list[object] = [
            shown,
            len(times),
            spread,
            record["by"],
            record["chosen"],
            record["what"],
        ]
        rows.append((best, row))
    return [row for _, row in sorted(rows, key=lambda r: -r[0])]
