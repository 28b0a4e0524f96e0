"""The published networks: plans are valid at every binding and meet the lower bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from planned_steps import one_step_an_op

from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.passes.plan_memory import check_plan, plan_memory, standard_bindings
from graphwright.compiler.passes.storage import assign_storage, check_storage
from graphwright.compiler.target import Target
from graphwright.frontends.onnx import import_model

MODELS = Path(__file__).parents[3] / "models"
NAMES = sorted(p.name for p in MODELS.iterdir()) if MODELS.is_dir() else []


@pytest.mark.models
@pytest.mark.skipif(not NAMES, reason="no models; scripts/fetch_models.py fetches them")
@pytest.mark.parametrize("name", NAMES)
def test_plan_of_a_real_graph(name: str) -> None:
    path = next(iter(sorted((MODELS / name).glob("*.onnx"))), None)
    if path is None:
        pytest.skip("no ONNX file")
    graph = import_model(path)
    target = Target.parse("cpu")
    Pipeline.parse(default_pipeline(target, 2)).run(graph, target)
    steps = one_step_an_op(graph)
    storage = assign_storage(graph, steps)
    check_storage(graph, steps, storage)
    symbols = list(graph.symbols.values())
    plan = plan_memory(storage.buffers, bindings=standard_bindings(symbols))
    for binding in plan.bindings.values():
        check_plan(plan, binding)
    for size in (1, 7, 300):
        check_plan(plan, {s.name: min(max(size, s.min), s.max) for s in symbols})
    assert plan.worst_ratio <= 1.02, plan.format()[:2000]
