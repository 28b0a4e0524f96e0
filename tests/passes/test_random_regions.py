"""Random graphs keep their meaning, bit by bit, through layouts, fusion and ordering."""

from __future__ import annotations

import numpy as np
import pytest
from golden import difference
from region_graphs import RandomGraph

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.literal import Literal
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.verify import verify
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.fuse_region import Region, describe_region
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target

PIPELINES = (
    "propagate-layout,fuse,order",
    "propagate-layout,fuse{profit=always}",
    "fuse{profit=always,max-ops=5},order",
    "order,propagate-layout",
)


@pytest.mark.parametrize("seed", range(60))
def test_meaning_is_kept(seed: int) -> None:
    before = RandomGraph(seed, 12 + seed % 30).graph
    verify(before)
    after = before.clone()
    Pipeline.parse(PIPELINES[seed % len(PIPELINES)]).run(after, Target.parse("cpu"))
    text = print_graph(after)
    assert print_graph(parse_graph(text, registry=REGISTRY, literals=_literals(after))) == text
    for batch in (1, 3):
        rng = np.random.default_rng(seed + batch)
        feed = [
            rng.standard_normal((batch, *(int(str(d)) for d in v.type.shape[1:])))
            .astype(np.float32)
            for v in before.inputs
        ]  # fmt: skip
        for want, got in zip(evaluate(before, feed), evaluate(after, feed), strict=True):
            assert difference(want, got, None, True) is None


@pytest.mark.parametrize("seed", range(60, 90))
def test_every_op_is_in_a_legal_region(seed: int) -> None:
    graph = RandomGraph(seed, 30).graph
    profit = ("roofline", "always")[seed % 2]
    Pipeline.parse(f"propagate-layout,fuse{{profit={profit}}}").run(graph, Target.parse("cpu"))
    for op in graph.ops:
        assert op.kind not in (Kind.POINTWISE, Kind.REDUCTION, Kind.CONTRACTION)
        if op.kind is Kind.MOVEMENT:
            assert view_of(op) is not None
        if op.kind is Kind.FUSED:
            (body,) = op.bodies
            region = describe_region([o for o in body.ops if o.kind is not Kind.SOURCE])
            assert isinstance(region, Region), region
            assert region.kind == op.attributes["region"]


@pytest.mark.parametrize("seed", range(3))
def test_the_same_graph_is_made_again(seed: int) -> None:
    texts: set[str] = set()
    for _ in range(2):
        graph = RandomGraph(seed, 40).graph
        Pipeline.parse("propagate-layout,fuse,order").run(graph, Target.parse("cpu"))
        texts.add(print_graph(graph, ids=True))
    assert len(texts) == 1


def _literals(graph: Graph) -> dict[str, Literal]:
    found = [op.attributes["value"] for op in graph.ops if op.name == "constant"]
    return {literal.digest: literal for literal in found}
