"""Times by events, with a device that only counts: which node is which launch, whose time is whose."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphwright.compiler.profile import profile_model

COSTS = [3.0, 5.0, 0.0, 7.0]  # milliseconds of each launch; the third has an empty grid
OVERLAP = 1.0  # what a graph saves


class Clock:
    """A stream whose time passes when kernels are launched; events remember it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.marks: dict[int, float] = {}
        self.alive = 0
        self.driver = SimpleNamespace(
            cuEventCreate=self._create,
            cuEventSynchronize=lambda _: 0,
            cuEventElapsedTime=self._elapsed,
        )

    def _create(self, out: Any, flags: int) -> int:
        assert flags == 0, "timing must not be disabled"
        self.alive += 1
        out._obj.value = len(self.marks) + 1
        self.marks[len(self.marks) + 1] = -1.0
        return 0

    def _elapsed(self, out: Any, a: int, b: int) -> int:
        assert self.marks[a] >= 0 and self.marks[b] >= 0, "recorded before it is asked"
        out._obj.value = self.marks[b] - self.marks[a]
        return 0

    def record_event(self, event: int, stream: int) -> None:
        self.marks[event] = self.now

    def destroy_event(self, event: int) -> None:
        self.alive -= 1


class Piece:
    """As runtime.cuda_graph.Piece: nodes, which addresses it uses, a graph of all of them."""

    used = (1,)

    def __init__(self, clock: Clock, launches: list[int]) -> None:
        self.clock, self.written = clock, None
        self.nodes = [
            SimpleNamespace(first_pointer=10 * n, launch=lambda _, n=n: self._pass(COSTS[n]))
            for n in launches
        ]

    def _pass(self, milliseconds: float) -> None:
        self.clock.now += milliseconds

    def _write(self, addresses: tuple[int, ...]) -> None:
        self.written = addresses

    def launch(self, addresses: list[int], stream: int) -> None:
        self._pass(sum(COSTS[n.first_pointer // 10] for n in self.nodes) - OVERLAP)


def test_events() -> None:
    clock = Clock()
    pieces = {0: Piece(clock, [0, 1]), 3: Piece(clock, [3])}
    replay = SimpleNamespace(pieces=pieces)
    variant = SimpleNamespace(
        launches=[SimpleNamespace(kernel=n, ops=(n,), origins=(f"layer{n}",)) for n in range(4)],
        kernels=[SimpleNamespace(name=f"kernel{n}") for n in range(4)],
    )
    executor = SimpleNamespace(
        _device=clock,
        program=SimpleNamespace(pointer_start=[0, 10, 20, 30, 40]),
        variant=variant,
        contexts=lambda: [SimpleNamespace(replays={"": replay})],
    )

    def run(feed: Any) -> None:
        for piece in pieces.values():
            piece.launch([7, 8], 5)

    model: Any = SimpleNamespace(executor=executor, variant=variant, run_tensors=run)
    profile = profile_model(model, {"x": np.zeros(3)}, 0.01)
    assert [(row.launch, row.kernel) for row in profile.launches] == [
        (0, "kernel0"), (1, "kernel1"), (3, "kernel3"),
    ]  # fmt: skip
    assert [row.seconds for row in profile.launches] == pytest.approx([3e-3, 5e-3, 7e-3])
    assert all(row.runs == 1 for row in profile.launches)
    assert profile.end_to_end == pytest.approx(13e-3) and profile.gaps == pytest.approx(-2e-3)
    assert pieces[0].written == (8,), "the piece's own addresses of all"
    assert clock.alive == 0, "every event was destroyed"
    assert "launch" not in vars(pieces[0]), "the pieces are as they were"
