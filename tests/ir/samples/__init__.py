"""Samples of every op: arrays and attributes that show what it means, for references and kernels.

from samples import graph_of, samples
for sample in samples(): graph = graph_of(sample, dynamic=True)
"""

from __future__ import annotations

from collections.abc import Iterator

from samples import (
    attention,
    contraction,
    data_dependent,
    integer,
    movement,
    packed,
    pointwise,
    recurrent,
    reduction,
    sampling,
)
from samples.sample import Sample, graph_of

FAMILIES = (
    pointwise,
    movement,
    reduction,
    contraction,
    integer,
    packed,
    recurrent,
    attention,
    sampling,
    data_dependent,
)


def samples(*ops: str) -> Iterator[Sample]:
    """All samples, or those of the named ops."""
    for family in FAMILIES:
        for sample in family.samples():
            if not ops or sample.op in ops:
                yield sample


__all__ = ["Sample", "graph_of", "samples"]
