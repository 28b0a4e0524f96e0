"""Core ATen against torch's own samples: every op imported, evaluated, compiled, and equal to eager.

The whole, every real dtype of every entry of op_db, is `python tests/frontends/torch/run_ops.py`
(and the slow test below); a part of it runs each time.
"""

from __future__ import annotations

import json

import pytest

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("expecttest", reason="torch.testing needs expecttest")

import run_ops  # noqa: E402
from op_cases import OpCase, all_op_cases  # noqa: E402
from op_coverage import CHECKS, ELSEWHERE, KEPT, PAGE, render, table_of  # noqa: E402
from op_rules import EXCUSED, core_ops  # noqa: E402

from graphwright.compiler.ir.ops import REGISTRY  # noqa: E402
from graphwright.frontends.torch.composed import COMPOSE  # noqa: E402

PART, PARTS = 7, 60  # which of the cases run through kernels each time


def test_every_core_op_is_imported_or_excused() -> None:
    known = {*COMPOSE, *REGISTRY.imported("aten"), *CHECKS}
    assert len(core_ops()) > 180
    assert core_ops() - known == set(EXCUSED)


def test_the_table_of_core_ops_is_that_of_the_last_whole_run() -> None:
    counts = json.loads(KEPT.read_text())
    assert table_of(PAGE.read_text()) == render(counts)
    tried = {op for op, found in counts.items() if any(ran for _, ran in found.values())}
    assert core_ops() - tried - CHECKS <= {*EXCUSED, *ELSEWHERE}


def faults(cases: list[OpCase], monkeypatch: pytest.MonkeyPatch, *, kernels: bool) -> list[str]:
    assert cases
    monkeypatch.setattr(run_ops, "KERNELS", kernels)
    verdicts = list(run_ops.run_cases(cases, quick=True, batch=24 if kernels else 96))
    assert {v.case.name for v in verdicts} == {c.name for c in cases}
    found = run_ops.summary(verdicts)
    assert found["evaluator"]["agrees"] > len(cases)
    if kernels:
        assert found["compiled"]["agrees"] == found["evaluator"]["agrees"]
    return [
        f"{v.case.name} [{p}] {v.status[p]}: {v.message[p]}"
        for v in verdicts for p in v.status if v.status[p] != "pass"
    ]  # fmt: skip


def test_a_part_through_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    found = faults(list(all_op_cases()[PART::PARTS]), monkeypatch, kernels=True)
    assert not found, "\n".join(found)


def test_core_ops_in_float32_through_the_evaluator(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = [c for c in all_op_cases() if c.dtype == "float32" and c.is_core][PART % 4 :: 4]
    found = faults(cases, monkeypatch, kernels=False)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    found = faults(list(all_op_cases()), monkeypatch, kernels=True)
    assert not found, "\n".join(found)


def test_a_wrong_result_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge sees one changed element."""
    right = run_ops.run_reference

    def wrong(graph, tensors):
        out = right(graph, tensors)
        out[0].view(-1)[:1] += 1
        return out

    monkeypatch.setattr(run_ops, "run_reference", wrong)
    cases = [c for c in all_op_cases() if c.name == "add float32"]
    monkeypatch.setattr(run_ops, "KERNELS", False)
    (verdict,) = run_ops.run_cases(cases)
    assert verdict.status["evaluator"] == "wrong"
