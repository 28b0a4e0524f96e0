"""The table of Core ATen in docs/torch.md: what makes each overload, and the dtypes that agreed with eager.

    python tests/frontends/torch/run_ops.py --json RUN.json
    python tests/frontends/torch/op_coverage.py RUN.json ...

The second keeps the counts of the runs in op_coverage.json and writes the table into the page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(Path(__file__).resolve().parent))

from op_rules import EXCUSED, core_ops  # noqa: E402
from test_direct_calls import CALLS  # noqa: E402

from graphwright.compiler.ir.ops import REGISTRY  # noqa: E402
from graphwright.frontends.torch.composed import COMPOSE  # noqa: E402
from graphwright.frontends.torch.importer import CHECKS  # noqa: E402

KEPT = Path(__file__).with_name("op_coverage.json")
PAGE = ROOT / "docs" / "torch.md"
BEGIN, END = "<!-- core aten: begin -->\n", "<!-- core aten: end -->\n"
SHORT = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64",
    "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "bool", "uint16": "u16",
    "uint32": "u32", "uint64": "u64",
}  # fmt: skip
# Core overloads that no sample of op_db calls, and what tries them instead.
ELSEWHERE = {
    "_local_scalar_dense.default": "test_control_flow.py",
    **dict.fromkeys(CALLS, "test_direct_calls.py"),
    **dict.fromkeys(
        ("adaptive_avg_pool1d.default", "avg_pool1d.default"), "torch makes the 2d op of it"
    ),
    "rand.default": "test_random_numbers.py",
    "randn.default": "test_random_numbers.py",
    "randperm.default": "test_random_numbers.py",
    "native_dropout.default": "test_random_numbers.py",
}


def way(name: str) -> str:
    """What makes an overload's ops."""
    if name in CHECKS:
        return "torch's expression"
    if name in COMPOSE:
        code = getattr(COMPOSE[name], "__code__", None)
        return Path(code.co_filename).stem if code else "compose"
    return f"`{REGISTRY.imported('aten')[name].name}`"


def render(counts: dict[str, dict[str, list[int]]]) -> str:
    """The table for counts of calls, evaluator and kernels, by overload and dtype."""
    lines = ["| op | made by | evaluator | kernels | calls |", "|---|---|---|---|---|"]
    for name in sorted(core_ops()):
        if name in EXCUSED:
            lines.append(f"| `{name}` | not imported | {EXCUSED[name]} | | |")
            continue
        found = counts.get(name, {})
        cells = [
            " ".join(short for dtype, short in SHORT.items() if found.get(dtype, (0, 0))[column])
            for column in (0, 1)
        ]
        cells[0] = cells[0] or ELSEWHERE.get(name, "")
        total = sum(evaluated + ran for evaluated, ran in found.values())
        lines.append(f"| `{name}` | {way(name)} | {cells[0]} | {cells[1]} | {total or ''} |")
    return "\n".join(lines) + "\n"


def table_of(page: str) -> str:
    """The table that the page holds."""
    return page.partition(BEGIN)[2].partition(END)[0]


def joined(runs: list[dict[str, Any]]) -> dict[str, dict[str, list[int]]]:
    """Counts of several runs, each of dtypes of its own, for the core overloads."""
    out: dict[str, dict[str, list[int]]] = {}
    for run in runs:
        for op, found in run["ops"].items():
            if op in core_ops():
                out.setdefault(op, {}).update(found)
    return {op: out[op] for op in sorted(out)}


def main() -> None:
    kept = joined([json.loads(Path(p).read_text()) for p in sys.argv[1:]])
    text = ",\n".join(f" {json.dumps(op)}: {json.dumps(found)}" for op, found in kept.items())
    KEPT.write_text("{\n" + text + "\n}\n")
    page = PAGE.read_text()
    PAGE.write_text(page.replace(BEGIN + table_of(page) + END, BEGIN + render(kept) + END))


if __name__ == "__main__":
    main()
