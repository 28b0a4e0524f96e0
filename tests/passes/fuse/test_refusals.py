"""What fusion refuses, it says: reasons of legality, of profit and of cycles are in the journal."""

from __future__ import annotations

import pytest

from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.passes.base import Journal
from graphwright.compiler.passes.fuse import Fuse
from graphwright.compiler.target import Target

CASES = {
    "computing again costs more than storing": """
        input %x: f32[64, 64, 64]
        input %s: f32[64]
        %0 = sigmoid(%s) : f32[64]
        %1 = mul(%x, %0) : f32[64, 64, 64]
        return %1 as "y"
    """,
    "a path through another region leads back": """
        input %x: f32[16, 16]
        %0 = sigmoid(%x) : f32[16, 16]
        %1 = cumsum(%0) {axis = 0} : f32[16, 16]
        %2 = add(%1, %0) : f32[16, 16]
        return %2 as "y"
    """,
    "a reduced row does not stay in cache for the phase after it": """
        input %x: f32[4, 100000]
        %0 = reduce_max(%x) {axes = [1], keepdims = true} : f32[4, 1]
        %1 = sub(%x, %0) : f32[4, 100000]
        return %1 as "y"
    """,
    "too few reduced rows to run the phase after them in parallel": """
        input %x: f32[4, 10000]
        %0 = reduce_max(%x) {axes = [1], keepdims = true} : f32[4, 1]
        %1 = sub(%x, %0) : f32[4, 10000]
        return %1 as "y"
    """,
    "outputs of several shapes": """
        input %x: f32[8, 8]
        input %y: f32[8]
        %0 = exp(%y) : f32[8]
        %1 = mul(%x, %0) : f32[8, 8]
        return %0 as "a", %1 as "b"
    """,
    "more than 1 ops": """
        input %x: f32[8, 8]
        %0 = exp(%x) : f32[8, 8]
        %1 = neg(%0) : f32[8, 8]
        return %1 as "y"
    """,
}


@pytest.mark.parametrize("reason", CASES)
def test_reason_is_recorded(reason: str) -> None:
    limit = 1 if reason.startswith("more than") else 64
    journal = Journal()
    regions = _regions(_fused(CASES[reason], journal, max_ops=limit))
    assert reason in {text for _, text in journal.misses}
    assert len(regions) >= 2 or "path" in reason
    for rewrite in journal.rewrites:
        assert rewrite.pass_name == "fuse"


def test_another_judgement_fuses_what_is_legal() -> None:
    text = CASES["computing again costs more than storing"]
    assert len(_regions(_fused(text, Journal()))) == 2
    assert len(_regions(_fused(text, Journal(), profit="always"))) == 1
    with pytest.raises(ValueError, match="roofline or always"):
        _fused(text, Journal(), profit="guess")


def _fused(body: str, journal: Journal, **options: object) -> Graph:
    graph = parse_graph(f"graph @main() {{{body}}}", registry=REGISTRY)
    Fuse(**options).run(graph, Target.parse("cpu"), journal)  # type: ignore[arg-type]
    return graph


def _regions(graph: Graph) -> list[str]:
    return [op.attributes["region"] for op in graph.ops if op.kind is Kind.FUSED]
