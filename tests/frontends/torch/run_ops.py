"""Runs torch's op database through the importer, the evaluator and compiled kernels.

    python tests/frontends/torch/run_ops.py [-k TEXT] [--dtypes float32,int64] [--core] [--samples 4]
                                            [--jobs 1] [--batch 24] [--every N] [--evaluator]
                                            [--quick] [--json FILE]

Every sample is traced, imported, evaluated and, many to a library, compiled and run; results are
compared with eager.  A batch runs in a process of its own, as ONNX's backend tests do.  `--evaluator`
leaves the kernels out; `--quick` compiles with -O1.  `--json` writes how many calls of each ATen
overload agreed, by dtype.  Exit code 1 when a result differs or a core op is refused without reason.
"""

from __future__ import annotations

import argparse
import collections
import copy
import json
import logging
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "backend"))
sys.path.append(str(Path(__file__).resolve().parent))

import torch
from backend_run import poisoned, quick_options
from isolated import PATHS, Verdict, run_batches
from op_cases import DTYPES, SAMPLES, OpCase, all_op_cases
from op_rules import reason_of_refusal, ways_apart
from op_samples import Call, difference, import_traced, run_reference, trace_call

from graphwright.errors import CompileError, GraphwrightError, UnsupportedError
from graphwright.frontends.torch.tensors import array_of
from graphwright.runtime.interop import array_to_tensor


class Tally:
    """What became of the calls of one case: counts by outcome, ops that agreed, what is wrong."""

    def __init__(self) -> None:
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.ops: collections.Counter[str] = collections.Counter()
        self.refused: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def status(self) -> tuple[str, str]:
        if self.wrong:
            return "wrong", "; ".join(self.wrong)[:2000]
        found = {"outcomes": self.outcomes, "ops": self.ops, "refused": self.refused}
        return "pass", json.dumps(found)


def is_nearer(call: Call, got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> bool:
    """Whether results in 16 bits are nearer to what eager makes in 64 than eager's own in 16."""
    small = (torch.float16, torch.bfloat16)
    if len(got) != len(want) or not all(
        g.dtype == w.dtype and g.dtype in small and g.shape == w.shape
        for g, w in zip(got, want, strict=True)
    ):
        return False
    wide = [t.double() if t.dtype in small else t for t in copy.deepcopy(call.tensors)]
    try:
        with torch.no_grad():
            exact = call.function(*wide)
    except Exception:  # where eager wants one dtype everywhere
        return False

    def gap(t: torch.Tensor, e: torch.Tensor) -> float:
        return float((t.double() - e.double()).norm())

    return all(gap(g, e) <= gap(w, e) for g, w, e in zip(got, want, exact, strict=True))


class Made:
    """A call that was imported: its graph, its ops, what eager returns."""

    def __init__(self, call: Call, label: str, graph: Any, ops: set[str], want: list[Any]) -> None:
        self.call, self.label, self.graph, self.ops, self.want = call, label, graph, ops, want

    def judge(self, got: Sequence[Any], tally: Tally) -> None:
        wrong = ways_apart(self.call.name, got, self.want, difference)
        if wrong and is_nearer(self.call, got, self.want):
            wrong = ""
        if wrong:
            tally.wrong.append(f"{self.label}: {wrong}")
        else:
            tally.outcomes["agrees"] += 1
            tally.ops.update(self.ops)


def imported(call: Call, dynamic: bool, tally: Tally) -> Made | None:
    """The call's graph; None, counted, where there is none to judge."""
    label = f"{call.name}{' (dynamic)' if dynamic else ''}"
    try:
        with torch.no_grad():
            want = call.function(*copy.deepcopy(call.tensors))
    except Exception:  # of any class: a sample that eager itself refuses judges nobody
        tally.outcomes["eager refuses it"] += 1
        return None
    if any(t.is_complex() for t in [*want, *call.tensors]):
        tally.outcomes["complex"] += 1
        return None
    try:
        traced = trace_call(call, dynamic=dynamic)
    except Exception:  # torch cannot trace what depends on data
        tally.outcomes["torch cannot trace it"] += 1
        return None
    if not dynamic and forgotten(traced, want):
        tally.outcomes["eager and torch's trace disagree"] += 1
        return None
    try:
        graph, ops = import_traced(traced, call)
    except UnsupportedError as error:
        for problem in error.problems:
            reason = reason_of_refusal(problem)
            if reason:
                tally.refused[reason] += 1
            else:
                tally.wrong.append(f"{label}: {problem}")
        tally.outcomes["refused"] += 1
        return None
    except Exception as error:
        tally.wrong.append(f"{label}: {type(error).__name__}: {error}")
        return None
    if any(op.name.startswith("random") for op in graph.ops):
        tally.outcomes["random"] += 1
        return None
    return Made(call, label, graph, ops, want)


def forgotten(traced: torch.fx.GraphModule, want: Sequence[torch.Tensor]) -> bool:
    """Whether torch's own trace promises other shapes than eager has (of empty tensors, at times)."""
    results = traced.graph.output_node().args[0]
    shapes = [r.meta["val"].shape for r in results if isinstance(r, torch.fx.Node)]  # type: ignore[union-attr]
    return len(shapes) == len(want) and any(
        len(s) != w.ndim
        or any(isinstance(a, int) and a != b for a, b in zip(s, w.shape, strict=True))
        for s, w in zip(shapes, want, strict=True)
    )


def work(cases: Sequence[OpCase], pipe: Connection, quick: bool) -> None:
    """In the child: imports and evaluates all, compiles all at once, runs all."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    made: list[list[Made]] = []
    for index, case in enumerate(cases):
        pipe.send((index, "evaluator", "start", ""))
        tally, kept = Tally(), []
        for call, dynamic in case.calls():
            one = imported(call, dynamic, tally)
            if one is None:
                continue
            try:
                one.judge(run_reference(one.graph, call.tensors), tally)
                kept.append(one)
            except Exception as error:
                tally.wrong.append(f"{one.label}: {type(error).__name__}: {error}")
        made.append(kept)
        pipe.send((index, "evaluator", *tally.status()))
    if KERNELS:
        _compiled(made, pipe, quick)
    else:
        for index in range(len(cases)):
            pipe.send((index, "compiled", "pass", json.dumps({"outcomes": {}, "ops": {}})))


KERNELS = True


def _compiled(made: Sequence[Sequence[Made]], pipe: Connection, quick: bool) -> None:
    from graphwright.compiler.driver import compile_batch
    from graphwright.runtime import load

    options = quick_options(quick)
    pipe.send((-1, "", "start", ""))
    try:
        artifacts = iter(
            compile_batch([m.graph for ms in made for m in ms], options.target, options)
        )
    except CompileError as error:
        pipe.send((-1, "", "failed", str(error)[:2000]))
        return
    pipe.send((-1, "", "built", ""))
    for index, group in enumerate(made):
        pipe.send((index, "compiled", "start", ""))
        tally = Tally()
        for one in group:
            artifact = next(artifacts)
            try:
                if isinstance(artifact, GraphwrightError):
                    raise artifact
                one.judge(_ran(load(artifact.to_bytes(), threads=1), one), tally)
            except Exception as error:
                tally.wrong.append(f"{one.label}: {type(error).__name__}: {str(error)[:300]}")
        pipe.send((index, "compiled", *tally.status()))


def _ran(model: Any, one: Made) -> list[torch.Tensor]:
    """The results of a compiled model in poisoned memory, of arguments as they lie."""
    arrays = [array_of(t) for t in one.call.tensors]
    out = [poisoned(array_of(w.contiguous()).reshape(w.shape)) for w in one.want]
    targets = out if all(o is not None for o in out) else None
    got = model._call(arrays, targets)
    return [array_to_tensor(np.array(a)) for a in got]


def run_cases(
    cases: Sequence[OpCase], *, jobs: int = 1, batch: int = 24, quick: bool = False,
    progress: bool = False,
) -> Iterator[Verdict]:  # fmt: skip
    """A verdict of every case, in the order in which they are ready."""
    verdicts: Any = [Verdict(c) for c in cases]  # type: ignore[arg-type]
    for verdict in verdicts:
        verdict.reason = dict.fromkeys(PATHS, "")
    chosen: Any = work
    return run_batches(
        verdicts, chosen, jobs=jobs, batch=batch, quick=quick, case_seconds=60, progress=progress
    )


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Calls by outcome, refusals by reason, and for each overload and dtype the calls that agreed."""
    out: dict[str, Any] = {"cases": len(verdicts)}
    ops: dict[str, dict[str, list[int]]] = {}
    for column, path in enumerate(PATHS):
        outcomes: collections.Counter[str] = collections.Counter()
        refused: collections.Counter[str] = collections.Counter()
        for v in verdicts:
            if v.status[path] != "pass":
                outcomes[f"case: {v.status[path]}"] += 1
                continue
            found = json.loads(v.message[path])
            outcomes.update(found["outcomes"])
            refused.update(found.get("refused", {}))
            dtype = v.case.dtype  # type: ignore[attr-defined]
            for op, count in found["ops"].items():
                ops.setdefault(op, {}).setdefault(dtype, [0, 0])[column] += count
        out[path] = dict(outcomes)
        if refused:
            out["refused"] = dict(refused.most_common())
    out["ops"] = {op: ops[op] for op in sorted(ops)}
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-k", default="", metavar="TEXT", help="only cases whose name holds TEXT")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--batch", type=int, default=24, metavar="N", help="cases to a library")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth case alone")
    parser.add_argument("--core", action="store_true", help="only entries that call Core ATen")
    parser.add_argument("--samples", type=int, default=SAMPLES, metavar="N", help="of a case")
    parser.add_argument("--evaluator", action="store_true", help="without kernels")
    parser.add_argument("--quick", action="store_true", help="compile with -O1")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    global KERNELS
    KERNELS = not options.evaluator
    dtypes = options.dtypes.split(",")
    cases = [
        replace(c, samples=options.samples)
        for c in all_op_cases()
        if c.dtype in dtypes and options.k in c.name and (c.is_core or not options.core)
    ]
    start = time.monotonic()
    verdicts: list[Verdict] = []
    ways = {"jobs": options.jobs, "batch": options.batch, "quick": options.quick}
    for verdict in run_cases(cases[:: options.every], **ways, progress=True):
        verdicts.append(verdict)
        if (
            options.json and len(verdicts) % 50 == 0
        ):  # what a run has found lasts when it is stopped
            options.json.write_text(json.dumps(summary(verdicts), indent=1) + "\n")
        for path in PATHS:
            if verdict.status[path] != "pass":
                print(
                    f"{verdict.case.name} [{path}] {verdict.status[path]}: {verdict.message[path]}",
                    flush=True,
                )
    found = summary(verdicts)
    ops = found.pop("ops")
    print(json.dumps(found, indent=1), f"{len(ops)} overloads", f"{time.monotonic() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({**found, "ops": ops}, indent=1) + "\n")
    return int(any(v.status[p] != "pass" for v in verdicts for p in PATHS))


if __name__ == "__main__":
    sys.exit(main())
