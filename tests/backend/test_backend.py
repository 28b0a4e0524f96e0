"""A tenth of ONNX's backend tests through evaluator and compiled kernels; all of them with --full.

The tenth compiles with -O1; the whole is `python tests/backend/backend_run.py` with shipped flags.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from backend_cases import Case, all_cases
from backend_run import PATHS, run_cases, summary

TENTH = 3  # the slowest cases, the light models, are in another tenth
JOBS = 2


def problems(cases: Sequence[Case], *, quick: bool) -> list[str]:
    assert cases
    verdicts = list(run_cases(cases, jobs=JOBS, quick=quick))
    assert {v.case.name for v in verdicts} == {c.name for c in cases}
    return [f"{v.case.name} [{p}] {v.problem(p)}" for v in verdicts for p in PATHS if v.problem(p)]


def test_a_tenth_of_the_backend_tests() -> None:
    found = problems(all_cases()[TENTH::10], quick=True)
    assert not found, "\n".join(found)


@pytest.mark.slow
def test_all_backend_tests() -> None:
    verdicts = list(run_cases(all_cases(), jobs=JOBS))
    found = [f"{v.case.name} [{p}] {v.problem(p)}" for v in verdicts for p in PATHS if v.problem(p)]
    assert not found, "\n".join(found)
    counts = summary(verdicts)
    scope = counts["node tests in scope"]
    assert scope > 1700
    assert int(counts["evaluator: node tests in scope"].split()[0]) == scope
    assert int(counts["compiled: node tests in scope"].split()[0]) >= 0.99 * scope


def test_a_crash_costs_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that dies in a case loses that case alone."""
    import os

    import backend_run

    cases = [c for c in all_cases() if c.name in ("test_abs", "test_acos", "test_add", "test_neg")]
    evaluated = backend_run.evaluated

    def dies(case: Case, *rest: object) -> tuple[str, str]:
        if case.name == "test_acos":
            os._exit(3)
        return evaluated(case, *rest)

    monkeypatch.setattr(backend_run, "evaluated", dies)
    verdicts = {v.case.name: v.status for v in run_cases(cases, quick=True)}
    assert verdicts.pop("test_acos") == {"evaluator": "crash", "compiled": "crash"}
    assert len(verdicts) == 3
    assert all(v == {"evaluator": "pass", "compiled": "pass"} for v in verdicts.values())
