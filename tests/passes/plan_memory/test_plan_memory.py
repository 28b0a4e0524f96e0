"""The packing: literal cases, random cases, symbolic sizes; every plan goes through the checker."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphwright.compiler.ir.dims import Dim, Symbol, of
from graphwright.compiler.passes.pack_search import Instance, exact_search, find_conflicts
from graphwright.compiler.passes.plan_memory import (
    BufferRequest,
    MemoryPlan,
    check_plan,
    lower_bound,
    plan_memory,
)
from graphwright.errors import CompileError


def static(*triples: tuple[Dim, int, int]) -> list[BufferRequest]:
    return [BufferRequest(s, f, e, (f"%{i}",)) for i, (s, f, e) in enumerate(triples)]


def brute_force_overlaps(plan: MemoryPlan, binding: dict[str, int]) -> bool:
    """Independent of the checker: marks every cache line at every step."""
    offsets, _ = plan.offsets(binding)
    from graphwright.compiler.ir.dims import evaluate

    for step in range(max((r.last for r in plan.requests), default=0) + 1):
        used: set[int] = set()
        for r, start in zip(plan.requests, offsets, strict=True):
            if r.first <= step <= r.last:
                lines = range(start // 64, -(-(start + evaluate(r.size, binding)) // 64))
                if used & set(lines):
                    return True
                used |= set(lines)
    return False


def test_sizes_that_no_call_has() -> None:
    """A constraint (a window that must fit) can exclude the least sizes: nothing lies there then."""
    n = of(Symbol("n", 0, 100))
    plan = plan_memory([BufferRequest(8 * n - 24, 0, 2), BufferRequest(64 * n, 1, 2)])
    for size in (0, 2, 3, 100):
        check_plan(plan, {"n": size})
    assert plan.sizes["min"] == 0


def test_chain_needs_two_buffers() -> None:
    plan = plan_memory(static(*((640, i, i + 1) for i in range(10))))
    assert plan.sizes == {"min": 1280, "opt": 1280, "max": 1280}
    check_plan(plan, {})
    assert not brute_force_overlaps(plan, {})


def test_nothing_and_zero_sizes() -> None:
    assert plan_memory([]).offsets({}) == ([], 0)
    plan = plan_memory(static((0, 0, 5), (64, 0, 5), (0, 2, 3)))
    check_plan(plan, {})
    assert plan.sizes["max"] == 64


def test_greedy_by_size_alone_fails_here() -> None:
    """A case where the first heuristic is above the bound: the portfolio reaches it."""
    requests = static(
        (64 * 3, 0, 1),
        (64 * 4, 0, 2),
        (64 * 4, 2, 4),
        (64 * 5, 4, 5),
        (64 * 3, 1, 5),
        (64 * 2, 3, 4),
    )
    plan = plan_memory(requests)
    check_plan(plan, {})
    assert plan.worst_ratio == 1.0, plan.format()


def test_exact_search_meets_a_bound_that_first_fit_misses() -> None:
    first, last = [0, 0, 1, 2, 2], [1, 2, 3, 4, 4]
    sizes = [2, 3, 2, 1, 2]
    instance = Instance.of(sizes, first, last, find_conflicts(first, last))
    found = exact_search(instance, instance.bound)
    assert found is not None
    for i, mine in enumerate(instance.conflicts):
        for j in mine:
            assert found[i] + sizes[i] <= found[j] or found[j] + sizes[j] <= found[i]
    assert instance.height(found) == instance.bound
    assert exact_search(instance, instance.bound - 1) is None


def test_one_relation_serves_every_binding() -> None:
    n, m = of(Symbol("N", 1, 1000, opt=100)), of(Symbol("M", 1, 1000, opt=100))
    requests = static(
        (4 * n, 0, 2),
        (4 * m, 1, 3),
        (4 * n * m, 2, 4),
        (8 * n, 3, 5),
        (4 * m + 4, 4, 6),
        (64, 0, 6),
    )
    plan = plan_memory(requests)
    for a in (1, 2, 17, 1000):
        for b in (1, 3, 999):
            check_plan(plan, {"N": a, "M": b})
    assert plan.worst_ratio <= 1.02, plan.format()
    assert set(plan.lower_bounds) == {"min", "opt", "max"}
    assert f"lower bound {plan.lower_bounds['max']}" in plan.format()


def test_backwards_interval_is_refused() -> None:
    with pytest.raises(CompileError, match="live from step 3 to 2"):
        plan_memory(static((8, 3, 2)))


def test_checker_finds_an_overlap() -> None:
    plan = plan_memory(static((64, 0, 1), (64, 1, 2)))
    broken = MemoryPlan(plan.requests, ((), ()), plan.order, 64, "broken")
    with pytest.raises(CompileError, match="live together and overlap"):
        check_plan(broken, {})


SIZES = st.integers(0, 40).map(lambda k: 32 * k)


@st.composite
def random_requests(draw: st.DrawFn) -> list[BufferRequest]:
    n = of(Symbol("N", 1, 300, opt=30))
    out: list[BufferRequest] = []
    for i in range(draw(st.integers(0, 30))):
        first = draw(st.integers(0, 15))
        size: Dim = draw(SIZES)
        kind = draw(st.integers(0, 2))
        if kind == 1:
            size = n * draw(st.integers(1, 9))
        elif kind == 2:
            size = n * n + size
        out.append(BufferRequest(size, first, first + draw(st.integers(0, 6)), (f"%{i}",)))
    return out


@settings(max_examples=60, deadline=None)
@given(random_requests(), st.integers(1, 300))
def test_random_plans(requests: list[BufferRequest], size: int) -> None:
    plan = plan_memory(requests, effort=20_000)
    for binding in ({"N": size}, {"N": 1}, {"N": 300}):
        check_plan(plan, binding)
        _, arena = plan.offsets(binding)
        assert arena >= lower_bound(requests, binding)
    assert not brute_force_overlaps(plan, {"N": min(size, 20)})
    again = plan_memory(requests, effort=20_000)
    assert (again.after, again.order) == (plan.after, plan.order)


def test_thousands_of_buffers() -> None:
    """3000 buffers of a network-like graph: each lives for a few steps, some for long."""
    requests = static(
        *((64 * (1 + i * 7919 % 97), i, i + 2 + (i * 31 % 50 == 0) * 40) for i in range(3000))
    )
    plan = plan_memory(requests, good_enough=1.02)
    check_plan(plan, {})
    assert plan.worst_ratio <= 1.03, plan.format()[:300]
