"""Random nested control flow against ONNX Runtime; seeds that found faults stay in the quick run."""

from __future__ import annotations

import pytest
from compiled_harness import Runner, check
from onnx_models import imported
from random_control import Program

QUICK = (0, 1, 2)


def run(seed: int, ort_run: Runner) -> None:
    program = Program(seed)
    feeds = program.feeds()
    answers = [ort_run(program.model, f) for f in feeds]
    check(imported(program.model), feeds, answers, tolerance=2e-5, least=1)


@pytest.mark.parametrize("seed", QUICK)
def test_random_models(seed: int, ort_run: Runner) -> None:
    run(seed, ort_run)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_more_random_models(seed: int, ort_run: Runner) -> None:
    run(seed, ort_run)
