"""Where the time of a model goes: every launch timed, with what it moves and multiplies.

A CPU model runs by steps (runtime/stepping.py); the time of a launch is that of its native call.
What Python does between launches is not in it, so that the sum is comparable with a normal call:
the rest of such a call is what the launches do not explain.  A CUDA model's launches are timed by
events, and so are the graphs of a normal call (profile_cuda.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.evaluate import bind_symbols
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.machine import Machine
from graphwright.compiler.precision import multiply_accumulates
from graphwright.runtime.executor import CpuExecutor
from graphwright.runtime.model import CompiledModel
from graphwright.runtime.stepping import Stepper

PAUSE = 0.05  # seconds before a block of runs: the threads of the last one stop spinning


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """One launch.  `seconds`: the median of a run's total (a loop's body runs several times);
    `bytes`: what its ops read and write once, weights included; `flops`: two for each
    multiply-accumulate.  Both are 0 where sizes are only known in mid-run.
    """

    launch: int
    kernel: str
    ops: tuple[int, ...]
    layers: tuple[str, ...]
    seconds: float
    runs: float
    bytes: int
    flops: int

    def roofline(self, machine: Machine) -> float:
        """The least time that the machine's rates allow over the time taken.

        Above 1 where what it reads lies in a cache or needs less than fp32.
        """
        least = max(self.bytes / machine.bandwidth, self.flops / machine.flops)
        return least / self.seconds if self.seconds else 0.0


@dataclass(frozen=True, slots=True)
class Profile:
    """`end_to_end`: median seconds of a normal call, on a GPU of its graphs on the device;
    `explained`: the sum of the launches' medians; `gaps`: what is left between them.
    """

    launches: tuple[LaunchProfile, ...]
    end_to_end: float
    runs: int

    @property
    def explained(self) -> float:
        return sum(launch.seconds for launch in self.launches)

    @property
    def gaps(self) -> float:
        return self.end_to_end - self.explained

    def to_json(self, machine: Machine | None = None) -> dict[str, Any]:
        """Plain data; times in seconds."""
        rows = [
            asdict(launch) | ({"roofline": launch.roofline(machine)} if machine else {})
            for launch in self.launches
        ]
        return {
            "end_to_end": self.end_to_end,
            "explained": self.explained,
            "gaps": self.gaps,
            "runs": self.runs,
            "launches": rows,
            **({"machine": asdict(machine)} if machine else {}),
        }

    def to_chrome(self) -> dict[str, Any]:
        """One run in the Trace Event Format, which Chrome's and Perfetto's viewers open."""
        events: list[dict[str, Any]] = []
        at = 0.0
        for launch in self.launches:
            events.append(
                {
                    "name": launch.kernel,
                    "cat": "kernel",
                    "ph": "X",
                    "pid": 1,
                    "tid": 1,
                    "ts": at * 1e6,
                    "dur": launch.seconds * 1e6,
                    "args": {"launch": launch.launch, "layers": list(launch.layers),
                             "bytes": launch.bytes, "flops": launch.flops},
                }
            )  # fmt: skip
            at += launch.seconds
        return {"traceEvents": events, "displayTimeUnit": "ms"}


def profile_model(
    model: CompiledModel,
    feed: Mapping[str, np.ndarray],
    duration: float,
    *,
    graph: Graph | None = None,
    ops: Mapping[int, Op] | None = None,
) -> Profile:
    """Times launches for about `duration` seconds, in turns with normal calls.

    `graph` is the final one and `ops` its ops by the ids that launches have: without them bytes
    and FLOPs are 0.
    """
    on_cpu = isinstance(model.executor, CpuExecutor)
    timings = (_time_cpu if on_cpu else _time_cuda)(model, feed, duration)
    return _table(model, feed, graph, ops, timings)


@dataclass(slots=True)
class _Timings:
    """Seconds: of each launch by run, of whole calls; how often launches ran in all; the runs."""

    spent: dict[int, list[float]] = field(default_factory=dict[int, list[float]])
    times: dict[int, int] = field(default_factory=dict[int, int])
    whole: list[float] = field(default_factory=list[float])
    runs: int = 0


def _time_cuda(model: CompiledModel, feed: Mapping[str, np.ndarray], duration: float) -> _Timings:
    from graphwright.compiler.profile_cuda import DeviceTimes

    device = DeviceTimes(model, feed)
    timings = _Timings()
    end = time.perf_counter() + duration
    while timings.runs < 3 or time.perf_counter() < end:
        timings.whole.append(device.whole())
        for number, seconds in device.launches().items():
            timings.spent.setdefault(number, []).append(seconds)
            timings.times[number] = timings.times.get(number, 0) + 1
        timings.runs += 1
    return timings


def _time_cpu(model: CompiledModel, feed: Mapping[str, np.ndarray], duration: float) -> _Timings:
    stepper, timings = Stepper(model), _Timings()
    current: dict[int, float] = {}

    def timed(number: int, call: Callable[[], int]) -> int:
        start = time.perf_counter()
        stopped = call()
        current[number] = current.get(number, 0.0) + time.perf_counter() - start
        timings.times[number] = timings.times.get(number, 0) + 1
        return stopped

    model.run_tensors(feed)
    end = time.perf_counter() + duration
    while timings.runs < 3 or time.perf_counter() < end:
        time.sleep(PAUSE)
        model.run_tensors(feed)
        for _ in range(3):
            start = time.perf_counter()
            model.run_tensors(feed)
            timings.whole.append(time.perf_counter() - start)
        for _ in range(3):
            current.clear()
            stepper.run(feed, run_kernel=timed)
            for number, seconds in current.items():
                timings.spent.setdefault(number, []).append(seconds)
            timings.runs += 1
    return timings


def _table(
    model: CompiledModel,
    feed: Mapping[str, np.ndarray],
    graph: Graph | None,
    ops: Mapping[int, Op] | None,
    timings: _Timings,
) -> Profile:
    variant = model.variant
    binding = None
    if graph is not None:
        binding = bind_symbols(graph, [np.asarray(feed[v.name]) for v in graph.inputs])
    rows: list[LaunchProfile] = []
    runs = timings.runs
    for number in sorted(timings.spent):
        spent = timings.spent[number]
        launch = variant.launches[number]
        moved, flops = _work([ops[i] for i in launch.ops if i in ops], binding) if ops else (0, 0)
        rows.append(
            LaunchProfile(
                number,
                variant.kernels[launch.kernel].name,
                launch.ops,
                launch.origins,
                float(np.median(spent)) * len(spent) / runs,
                timings.times[number] / runs,
                moved,
                flops,
            )
        )
    return Profile(tuple(rows), float(np.median(timings.whole)), runs)


def _work(ops: list[Op], binding: Mapping[str, int] | None) -> tuple[int, int]:
    """(bytes, FLOPs) of the ops that one launch computes."""
    if binding is None:
        return 0, 0
    inside = {v for op in ops for v in op.results}
    outer = dict.fromkeys(v for op in ops for v in op.operands if v not in inside)
    made = [v for v in inside if v.is_output or any(u not in ops for u in v.users) or not v.uses]
    try:
        moved = sum(dims.evaluate(v.type.storage_bytes, binding) for v in (*outer, *made))
        total = 0
        pending = list(ops)
        while pending:
            op = pending.pop()
            total += dims.evaluate(multiply_accumulates(op), binding)
            pending.extend(o for body in op.bodies for o in body.ops)
    except dims.DimError:
        return 0, 0
    return moved, 2 * total
