"""Chooses a way for every op of a GPU graph that has several.

Without tuning the cost model chooses.  With it, the cost model ranks the ways of each distinct kernel
(equal layers are one), the first few are compiled in parallel processes and timed, the kernels that
take most time in all first, until the budget is spent.  What is known from a lock file or the database
is not timed again.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed
from graphwright.compiler.codegen.triton.build import TritonKernel, build
from graphwright.compiler.codegen.triton.worker import build_ahead
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.compiler.tune.records import Database, Record, read_lock
from graphwright.compiler.tune.selection import Selection, Tunable, Tuning
from graphwright.compiler.tune.timer import Candidate, CudaTimer, Timer
from graphwright.errors import ArtifactError, GraphwrightError, InputError

BUDGET = {"quick": 60.0, "full": 900.0}  # seconds, where the caller names none
WAYS = {"quick": 8, "full": 48}  # of a kernel that are timed at most
BATCH = 4  # kernels a process that are compiled before the next ones are timed
WITHIN = 1.01  # a way must be faster than the cost model's by more than noise

Tell = Callable[[str, int, int], None]
Skip = Callable[[Op], bool]


def choose_ways(
    graph: Graph,
    target: Target,
    options: CompileOptions,
    *,
    skip: Skip,
    cache: Path | None,
    tell: Tell,
    find_timer: Callable[[Target], Timer | str] | None = None,
) -> tuple[Selection, Tuning]:
    """What emits the graph, and what was chosen.  `find_timer` returns a timer, or why there is none.

    Raises InputError for a lock file that does not fit the graph.
    """
    lock = options.lock
    if lock is not None and lock.exists():
        return _locked(graph, target, lock, skip)
    if options.tune == "off" and lock is None:
        return Selection(), Tuning("off", {})
    seen = Selection()
    steps = emit_graph(graph, target, skip=skip, emitter=seen.emit)
    records = {
        key: Record(t.what, t.chosen, "cost model", len(t.ways)) for key, t in seen.seen.items()
    }
    if options.tune == "off":
        return seen, Tuning("off", records)
    timer = (find_timer or timer_for)(target)
    database = Database(cache)
    device, notes = "", []
    if isinstance(timer, str):
        notes.append(f"tune={options.tune}: {timer}; the database and the cost model choose")
    else:
        device = timer.device
    arch = target.arches[0] if isinstance(timer, str) else timer.arch
    for key, tunable in seen.seen.items():
        known = database.get(key, arch, device=device, mode=options.tune)
        if known is not None and known.chosen in tunable.ways:
            records[key] = replace(known, by="database")
    if not isinstance(timer, str):
        launches = Counter(s.kernel.name for s in steps if isinstance(s, EmittedLaunch))
        with tempfile.TemporaryDirectory(prefix="graphwright-") as scratch:
            search = _Search(target, options, timer, cache or Path(scratch), tell, launches)
            missing = {k: t for k, t in seen.seen.items() if records[k].by == "cost model"}
            for key, record in search.run(missing).items():
                records[key] = record
                database.put(key, arch, record)
            notes += search.notes
    chosen = Selection({key: r.chosen for key, r in records.items()})
    return chosen, Tuning(options.tune, records, tuple(notes))


def timer_for(target: Target) -> Timer | str:
    """The timer of this machine's GPU, or why nothing is timed."""
    try:
        timer = CudaTimer()
    except ArtifactError as error:
        return f"nothing is timed here: {error}"
    if timer.arch not in target.arches:
        return f"nothing is timed: this GPU is {timer.arch}, the target {target}"
    return timer


def _locked(graph: Graph, target: Target, lock: Path, skip: Skip) -> tuple[Selection, Tuning]:
    mode, records = read_lock(lock, str(target))
    chosen = Selection({key: r.chosen for key, r in records.items()})
    emit_graph(graph, target, skip=skip, emitter=chosen.emit)
    lacking = [t for k, t in chosen.seen.items() if k not in records]
    lost = [t for k, t in chosen.seen.items() if k in records and t.chosen != records[k].chosen]
    if lacking or lost:
        first = (lacking or lost)[0]
        what = "lacks" if lacking else "names no way that is left for"
        raise InputError(
            f"lock {lock} {what} {len(lacking or lost)} kernels of this graph, the first one "
            f"{first.what}; delete it to choose anew"
        )
    return chosen, Tuning(mode, {key: records[key] for key in sorted(chosen.seen)})


@dataclass(slots=True)
class _Work:
    """A tunable's progress: its launches by way, and the microseconds of its first one."""

    key: str
    tunable: Tunable
    runs: int  # of its kernel in the graph
    first: float = 0.0


class _Search:
    """Compiles and times ways until all are done or the budget is spent."""

    def __init__(
        self, target: Target, options: CompileOptions, timer: Timer, cache: Path, tell: Tell,
        launches: Mapping[str, int],
    ) -> None:  # fmt: skip
        self.target, self.timer, self.cache, self._tell = target, timer, cache, tell
        self.mode, self.jobs = options.tune, options.effective_jobs
        self.launches = launches
        budget = BUDGET[options.tune] if options.tune_budget is None else options.tune_budget
        self.start = time.monotonic()
        self.deadline = self.start + budget
        self.budget = budget
        self.notes: list[str] = []
        self._done = self._all = 0

    def run(self, tunables: Mapping[str, Tunable]) -> dict[str, Record]:
        """Records of what was timed."""
        works: list[_Work] = []
        chosen: dict[str, list[tuple[EmittedLaunch, ...]]] = {}
        for key, tunable in tunables.items():
            ways = [self._launches(key, tunable, way) for way in tunable.ways[: WAYS[self.mode]]]
            if not ways or ways[0] is None:
                continue
            chosen[key] = [w or () for w in ways]
            works.append(_Work(key, tunable, self.launches[ways[0][0].kernel.name]))
        self._all = sum(len(c) for c in chosen.values())
        out: dict[str, Record] = {}
        for batch in _batches(works, 8 * self.jobs, lambda w: 1):
            self._build([chosen[w.key][0] for w in batch])
            for work in batch:
                times = self._measure(work, {0: chosen[work.key][0]})
                work.first = times[0] if isinstance(times[0], float) else 0.0
                self._done += 1
            if time.monotonic() > self.deadline:
                break
        works.sort(key=lambda w: -w.first * w.runs)
        left = 0
        for batch in _batches(works, BATCH * self.jobs, lambda w: len(chosen[w.key]) - 1):
            if time.monotonic() > self.deadline:
                left += len(batch)
                continue
            self._build([launches for w in batch for launches in chosen[w.key] if launches])
            for work in batch:
                ways = {i: w for i, w in enumerate(chosen[work.key]) if w}
                out[work.key] = self._record(work, ways)
                self._done += len(chosen[work.key]) - 1
        if left:
            self.notes.append(
                f"tune={self.mode}: {left} of {len(works)} kernels were left to the cost model when "
                f"the budget of {self.budget:.0f} s was spent; --tune-budget gives more"
            )
        took = time.monotonic() - self.start
        self.notes.append(
            f"tune={self.mode}: {len(out)} kernels, {self._done} candidates timed on "
            f"{self.timer.device} in {took:.1f} s"
        )
        return out

    def _launches(self, key: str, tunable: Tunable, way: str) -> tuple[EmittedLaunch, ...] | None:
        """The launches of a way; None where it cannot be emitted or timed."""
        try:
            steps = Selection({key: way}).emit(tunable.op, self.target)
        except GraphwrightError:
            return None
        launches = tuple(s for s in steps if isinstance(s, EmittedLaunch))
        packed = any(isinstance(a, Packed) for s in launches for a in s.arguments)
        return None if packed or len(launches) != len(steps) or not launches else launches

    def _build(self, groups: Sequence[Sequence[EmittedLaunch]]) -> None:
        kernels = {s.kernel.name: s.kernel for g in groups for s in g}
        wanted = [k for k in kernels.values() if isinstance(k, TritonKernel)]
        self._say()
        build_ahead(
            wanted,
            self.timer.arch,
            self.cache,
            jobs=self.jobs,
            tell=lambda done, total: self._say(),
        )

    def _measure(
        self, work: _Work, ways: Mapping[int, Sequence[EmittedLaunch]]
    ) -> list[float | str]:
        """Microseconds of each way, or why it is refused."""
        self._say()
        candidates: list[Candidate] = []
        problems: dict[int, str] = {}
        for number, launches in ways.items():
            try:
                built = tuple(
                    (s, build(s.kernel, self.timer.arch, self.cache))
                    for s in launches
                    if isinstance(s.kernel, TritonKernel)
                )
                candidates.append(Candidate(work.tunable.ways[number], built))
            except GraphwrightError as error:
                problems[number] = str(error)
        try:
            measured = iter(self.timer.measure(candidates) if candidates else [])
        except GraphwrightError as error:
            return [str(error) for _ in ways]
        return [problems[n] if n in problems else next(measured) for n in ways]

    def _record(self, work: _Work, ways: Mapping[int, Sequence[EmittedLaunch]]) -> Record:
        tunable = work.tunable
        results = dict(zip(ways, self._measure(work, ways), strict=True))
        times = {n: t for n, t in results.items() if isinstance(t, float)}
        best = min(times, key=lambda n: (times[n], n), default=0)
        if 0 in times and times[0] <= times[best] * WITHIN:
            best = 0
        return Record(
            tunable.what,
            tunable.ways[best],
            "timing" if times else "cost model",
            len(tunable.ways),
            {tunable.ways[n]: round(t, 2) for n, t in times.items()},
            {tunable.ways[n]: str(t)[:200] for n, t in results.items() if isinstance(t, str)},
            self.mode,
            self.timer.device,
        )

    def _say(self) -> None:
        """How far it is, and how long it still takes at the pace so far or by the budget."""
        now = time.monotonic()
        left = max(self.deadline - now, 0.0)
        if self._done:
            pace = (now - self.start) / self._done
            text = f"about {min(pace * (self._all - self._done), left):.0f} s left"
        else:
            text = f"at most {left:.0f} s left"
        self._tell(f"tuning ({text}): candidates", self._done, self._all)


def _batches(
    works: Sequence[_Work], size: int, weight: Callable[[_Work], int]
) -> list[list[_Work]]:
    """Works in order, cut where a batch has about `size` kernels."""
    out: list[list[_Work]] = [[]]
    total = 0
    for work in works:
        if total >= size:
            out.append([])
            total = 0
        out[-1].append(work)
        total += weight(work)
    return [batch for batch in out if batch]
