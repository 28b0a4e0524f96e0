"""Branches, loops and sizes bound in mid-run on a fake GPU: the control-flow tests of the CPU target."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import control_harness
import numpy as np
import pytest
import test_bind
import test_if
import test_loop
from fake_gpu import FakeGpu, for_cuda

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.options import CompileOptions
from graphwright.runtime import load
from graphwright.runtime.device_arrays import DeviceArray
from graphwright.runtime.model import CompiledModel

SAME = [
    test_bind.test_ops_after_a_binding,
    test_bind.test_binding_an_input_and_an_unused_symbol,
    test_bind.test_a_binding_inside_a_branch,
    test_bind.test_rows_put_into_a_table_at_any_place,
    test_if.test_nested_with_captures_and_outputs_that_are_captures,
    test_if.test_what_a_branch_needs_of_sizes_is_checked_where_it_is_taken,
    test_if.test_branches_of_different_sizes,
    test_loop.test_carried_values_and_conditions,
    test_loop.test_stacked_rows_up_to_the_last_iteration,
    test_loop.test_carried_values_that_change_places,
    test_loop.test_nested_loops,
    test_loop.test_carried_values_that_grow,
    test_loop.test_loops_and_branches_in_each_other,
    test_loop.test_constraints_hold_for_the_size_after_the_loop,
]


def compiled(graph: Graph, **options: Any) -> CompiledModel:
    made = compile_graph(graph.clone(), control_harness.CPU, CompileOptions.make(**options))
    return load(for_cuda(made).to_bytes(), device="cuda:0")


@pytest.mark.parametrize("test", SAME, ids=lambda t: t.__name__.removeprefix("test_"))
def test_as_on_the_cpu(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, test: Callable[[], None]
) -> None:
    for module in (control_harness, test_bind, test_if, test_loop):
        monkeypatch.setattr(module, "compiled", compiled)
    test()


def test_only_the_predicate_comes_to_the_host(gpu: FakeGpu) -> None:
    model = compiled(control_harness.graph_of(test_loop.SWAP))
    names = [t.name for t in model.inputs]
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for t, dtype in zip(model.inputs, model._signature.input_dtypes, strict=True):  # type: ignore[attr-defined]
        shape = [n if isinstance(n, int) else 3 for n in t.shape]
        value = rng.standard_normal(shape).astype(dtype) if dtype.kind == "f" else np.full(shape, 1)
        arrays[t.name] = value.astype(dtype)
    for name, value in arrays.items():
        if value.dtype == np.int64:
            arrays[name] = np.array(5)
    want = model.run(arrays)
    on_device = [gpu.array(arrays[n]) for n in names]
    model(*on_device)
    gpu.reset()
    got = model(*on_device)
    # Counter, trips and condition at the start, then the condition after each of five turns.
    assert gpu.calls("cuMemcpyDtoHAsync_v2") == 3 + 5
    assert gpu.calls("cuMemcpyHtoDAsync_v2") == 0
    for a, b in zip(got, want.values(), strict=True):
        assert isinstance(a, DeviceArray)
        np.testing.assert_array_equal(a.numpy(), b)
