"""The table of com.microsoft ops in docs/onnx.md names what the frontend knows, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from graphwright.frontends.onnx.composed import COMPOSE

DOCS = Path(__file__).parents[3] / "docs" / "onnx.md"


def test_the_table_is_complete() -> None:
    _, table = DOCS.read_text().split("## Ops of com.microsoft", 1)
    table = table.split("\n## ", 1)[0]
    named: list[str] = []
    for line in table.splitlines():
        if line.startswith("| `"):
            named += re.findall(r"`(\w+)`", line.split("|")[1])
    known = {key.partition(":")[2] for key in COMPOSE if key.startswith("com.microsoft:")}
    assert len(named) == len(set(named)), "an op stands in two rows"
    assert set(named) == known
