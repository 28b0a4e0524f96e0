"""Seeds of random graphs that found a fault once, and the generator's promise that seeds repeat."""

from __future__ import annotations

import numpy as np
import pytest
from fuzz_generator import random_model
from fuzz_run import case_of, faults, work
from isolated import Verdict, run_batches

# 138: a last part of Split that is empty; 340, 460: slices of an empty axis, backwards too;
# 1083: a depthwise convolution without rows, which divided by their number; 10016: the maximum of
# quantized numbers that are held in 32 bits, which C++ refused.
FOUND = (138, 340, 460, 1083, 10016)


def test_seeds_that_found_faults() -> None:
    verdicts = list(run_batches([Verdict(case_of(s)) for s in FOUND], work, quick=True))
    assert len(verdicts) == len(FOUND)
    assert not [text for v in verdicts for text in faults(v)]
    assert all(status == "pass" for v in verdicts for status in v.status.values())


@pytest.mark.parametrize("seed", [7, 10_007])
def test_a_seed_gives_one_model(seed: int) -> None:
    (a, feed, wanted), (b, again, _) = random_model(seed), random_model(seed)
    assert a.SerializeToString() == b.SerializeToString()
    assert all(np.array_equal(feed[n], again[n]) for n in feed)
    assert wanted
