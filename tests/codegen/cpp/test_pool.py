"""The thread pool and the replay loop: coverage of the range, nesting, concurrency, fork, jumps."""

from __future__ import annotations

import ctypes
import multiprocessing
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from harness import Library, build

SOURCE = Path(__file__).parent / "pool_kernels.cpp"


class Launch(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("jump", ctypes.c_int32),
        ("fn", ctypes.c_void_p),
        ("p", ctypes.c_void_p),
        ("s", ctypes.c_void_p),
    )


@pytest.fixture(scope="module", params=[1, 2, 5])
def library(request):
    made = Library(build(SOURCE, isa="native"), threads=request.param)
    yield made
    made.close()


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 64, 1000, 100_003])
@pytest.mark.parametrize("grain", [1, 3, 1000])
def test_every_item_once(library, n, grain):
    counts = np.zeros(n + 1, np.int32)
    for _ in range(20):
        library.call("count_each", [counts], [n, grain])
    assert (counts[:n] == 20).all() and counts[n] == 0


def test_wakes_after_sleep(library):
    counts = np.zeros(64, np.int32)
    for i in range(20):
        time.sleep(0.0005 * (i % 4))
        library.call("count_each", [counts], [64, 1])
    assert (counts == 20).all()


def test_nested_calls_run_inline(library):
    bad = np.zeros(1, np.int32)
    for _ in range(50):
        library.call("nested", [bad], [16])
    assert bad[0] == 0


def test_concurrent_callers(library):
    arrays = [np.zeros(5000, np.int32) for _ in range(4)]

    def loop(counts: np.ndarray) -> None:
        for _ in range(300):
            library.call("count_each", [counts], [counts.size, 10])

    threads = [threading.Thread(target=loop, args=(a,)) for a in arrays]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((a == 300).all() for a in arrays)


def _in_child(library: Library, queue) -> None:
    counts = np.zeros(100, np.int32)
    library.call("count_each", [counts], [100, 1])
    queue.put(bool((counts == 1).all()))


def test_child_of_fork_still_computes(library):
    _ = library.call("count_each", [np.zeros(100, np.int32)], [100, 1])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_child, args=(library, queue))
    child.start()
    assert queue.get(timeout=20)
    child.join()


def replay(
    library: Library, records: list[tuple[int, int, str | None, list[np.ndarray], list[int]]]
):
    launches = (Launch * len(records))()
    keep = []
    for launch, (kind, jump, name, buffers, scalars) in zip(launches, records, strict=True):
        p = (ctypes.c_void_p * max(1, len(buffers)))(*[b.ctypes.data for b in buffers])
        s = (ctypes.c_int64 * max(1, len(scalars)))(*scalars)
        keep += [p, s]
        launch.kind, launch.jump = kind, jump
        launch.p, launch.s = ctypes.addressof(p), ctypes.addressof(s)
        if name:
            launch.fn = ctypes.cast(getattr(library.lib, name), ctypes.c_void_p).value
    fn = library.lib.gw_replay
    fn.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    return fn(ctypes.addressof(launches), len(records), library.pool)


@pytest.mark.parametrize("taken", [True, False])
def test_replay_takes_one_branch(library, taken):
    flag = np.array([taken])
    then, other = np.zeros(4, np.int32), np.zeros(4, np.int32)
    program = [
        (1, 2, None, [flag], []),  # if not flag: skip the two launches of the "then" side
        (0, 0, "count_each", [then], [4, 1]),
        (2, 1, None, [], []),
        (0, 0, "count_each", [other], [4, 1]),
    ]
    assert replay(library, program) == 0
    assert (then == int(taken)).all() and (other == int(not taken)).all()


def test_replay_refuses_bad_records(library):
    flag = np.array([True])
    assert replay(library, [(7, 0, None, [flag], [])]) == 1
    assert replay(library, [(2, 5, None, [flag], [])]) == 1
    assert replay(library, [(2, -2, None, [flag], [])]) == 1


def test_pool_refuses_no_threads(library):
    assert not library.lib.gw_pool_create(0)
    assert library.lib.gw_abi_version() == 1
