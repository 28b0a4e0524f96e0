"""Cases run many to a process: a crash or a hang loses the case in hand, the rest starts again.

A work function runs in a child with the cases of a batch and a pipe.  It sends (index, path, status,
message): "start" before a case, its outcome afterwards; index -1 while what all cases share is made,
with the status "failed" when that cannot be: then the batch is halved until it is known whose fault
it is.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait

from backend_cases import Case
from backend_rules import OUT_OF_SCOPE

PATHS = ("evaluator", "compiled")
BUILD_SECONDS, CASE_SECONDS = 420, 120
Work = Callable[[Sequence[Case], Connection, bool], None]


@dataclass
class Verdict:
    """What became of a case on each path: pass, wrong, unsupported, error, crash or hang; and why."""

    case: Case
    status: dict[str, str] = field(default_factory=dict)
    message: dict[str, str] = field(default_factory=dict)
    reason: dict[str, str] = field(default_factory=dict)

    def problem(self, path: str) -> str:
        """What is wrong with the project, or with its list of exclusions; "" when nothing is."""
        status, reason = self.status[path], self.reason[path]
        if status == "pass":
            return f"passes now, but is excluded: {reason}" if reason else ""
        if status == "unsupported" and reason:
            return ""
        return f"{status}: {self.message[path]}"

    @property
    def in_scope(self) -> bool:
        return not any(r in OUT_OF_SCOPE for r in self.reason.values())


class BatchRun:
    """One batch in a process of its own.  Sends (index, path, status, message), index -1: built."""

    def __init__(self, cases: Sequence[Case], work: Work, quick: bool) -> None:
        self.cases = list(cases)
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(self.cases, theirs, quick), daemon=True)
        self.process.start()
        theirs.close()
        self.deadline = time.monotonic() + BUILD_SECONDS
        self.current: tuple[int, str] = (-1, "")
        self.fault = ""  # what the C++ compiler said


def run_batches(
    found: Sequence[Verdict],
    work: Work,
    *,
    jobs: int = 1,
    batch: int = 64,
    quick: bool = False,
    case_seconds: float = CASE_SECONDS,
    progress: bool = False,
) -> Iterator[Verdict]:
    """Fills in verdicts and yields each when it is known.  `quick` is for the work function."""
    cases = [v.case for v in found]
    verdicts = {v.case.name: v for v in found}
    count = -(-len(cases) // batch)
    # Neighbours by name are alike, so that they share kernels.
    waiting = [list(cases[i * batch : (i + 1) * batch]) for i in range(count)]
    running: list[BatchRun] = []
    open_names = set(verdicts)
    while waiting or running:
        while waiting and len(running) < jobs:
            running.append(BatchRun(waiting.pop(0), work, quick))
        wait([r.pipe for r in running], timeout=1)
        for run in list(running):
            is_done = _receive(run, verdicts, case_seconds)
            if not is_done and time.monotonic() > run.deadline:
                run.process.kill()
                is_done, how = True, "hang"
            else:
                how = "crash"
            if is_done:
                run.process.join()
                running.remove(run)
                waiting += _rest(run, verdicts, how)
        done = [n for n in open_names if len(verdicts[n].status) == len(PATHS)]
        open_names.difference_update(done)
        for name in done:
            yield verdicts[name]
        if progress and sys.stderr.isatty():
            print(f"\r{len(open_names)} to go ", end="", file=sys.stderr, flush=True)


def _receive(run: BatchRun, verdicts: dict[str, Verdict], case_seconds: float) -> bool:
    """Takes what a run has sent; whether it has ended."""
    try:
        while run.pipe.poll():
            index, path, status, message = run.pipe.recv()
            run.deadline = time.monotonic() + (BUILD_SECONDS if index < 0 else case_seconds)
            if status == "start":
                run.current = (index, path)
            elif index < 0:
                run.current, run.fault = (-1, status), message
            else:
                verdict = verdicts[run.cases[index].name]
                verdict.status[path], verdict.message[path] = status, message
    except EOFError:
        return True
    return False


def _rest(run: BatchRun, verdicts: dict[str, Verdict], how: str) -> list[list[Case]]:
    """What is left of a batch that has ended: new batches."""
    left = [c for c in run.cases if len(verdicts[c.name].status) < len(PATHS)]
    index, path = run.current
    if not left:
        return []
    if index >= 0 and run.cases[index] in left:  # it ended inside a case
        verdict = verdicts[run.cases[index].name]
        for p in PATHS:
            verdict.status.setdefault(p, how)
            verdict.message.setdefault(p, f"on the path {path}")
        left.remove(run.cases[index])
        return [left] if left else []
    if len(left) == 1:
        verdict = verdicts[left[0].name]
        verdict.status["compiled"], verdict.message["compiled"] = "error", run.fault or how
        return []
    half = len(left) // 2
    return [left[:half], left[half:]]
