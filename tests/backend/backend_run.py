"""Runs backend tests through the evaluator and through compiled kernels, many to a library.

    python tests/backend/backend_run.py [-k TEXT] [--kinds node,light] [--jobs 2] [--batch 64]
                                        [--quick] [--json FILE]

A batch is compiled at once (`driver.compile_batch`) in a process of its own: a crash or a hang loses
the case in hand, the rest goes into a new batch; a batch that cannot be compiled is halved until it
is known whose kernel it is.  `--quick` compiles with -O1, which takes a quarter of the time.  Prints
every failure and how many pass of those in scope.  Exit code 1 when a test fails that should pass,
or an excluded one passes.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from backend_cases import KINDS, Case, all_cases, input_names
from backend_judge import difference
from backend_rules import WRONG, base_name, why_not
from isolated import PATHS, Verdict, run_batches


def quick_options(quick: bool, *, allow: Sequence[str] = ()) -> Any:
    """Options for a process that compiles small models alone; `quick` with -O1, for this process."""
    from graphwright.compiler.codegen import toolchain
    from graphwright.compiler.options import CompileOptions

    if quick:
        toolchain.COMMON_FLAGS = tuple("-O1" if f == "-O3" else f for f in toolchain.COMMON_FLAGS)
    level = "x86-64-v3" if quick else "native"
    return CompileOptions.make(target=f"cpu:{level}", jobs=1, threads=1, allow=allow)


def work(cases: Sequence[Case], pipe: Connection, quick: bool) -> None:
    """In the child: imports all, evaluates all, compiles all at once, runs all."""
    from graphwright.compiler.driver import compile_batch
    from graphwright.errors import CompileError, GraphwrightError, UnsupportedError
    from graphwright.frontends.onnx import import_model
    from graphwright.runtime import load

    options = quick_options(quick)

    def tell(index: int, path: str, status: str, message: str = "") -> None:
        pipe.send((index, path, status, message[:600]))

    def failed(index: int, path: str, error: Exception) -> None:
        if isinstance(error, UnsupportedError):
            tell(index, path, "unsupported", str(error))
        else:
            tell(index, path, "error", f"{type(error).__name__}: {error}")

    imported: list[tuple[int, Any]] = []
    for index, case in enumerate(cases):
        tell(index, "evaluator", "start")
        try:
            model, sets = case.load()
            graph = import_model(model)
        except Exception as error:
            for path in PATHS:
                failed(index, path, error)
            continue
        imported.append((index, graph))
        try:
            tell(index, "evaluator", *evaluated(case, graph, input_names(model), sets))
        except Exception as error:
            failed(index, "evaluator", error)
    tell(-1, "", "start")
    try:
        artifacts = compile_batch([g for _, g in imported], options.target, options)
    except CompileError as error:
        tell(-1, "", "failed", str(error))
        return
    tell(-1, "", "built")
    for (index, _), artifact in zip(imported, artifacts, strict=True):
        tell(index, "compiled", "start")
        case = cases[index]
        if isinstance(artifact, GraphwrightError):
            failed(index, "compiled", artifact)
            continue
        try:
            model, sets = case.load()
            compiled = load(artifact.to_bytes(), threads=1)
            tell(index, "compiled", *ran(case, compiled, input_names(model), sets))
        except Exception as error:
            failed(index, "compiled", error)


def evaluated(case: Case, graph: Any, names: list[str], sets: Any) -> tuple[str, str]:
    from graphwright.compiler.ir.evaluate import evaluate

    for inputs, wanted in sets:
        got = evaluate(graph, feed_of(names, inputs))
        message = judged(case, got, wanted)
        if message:
            return "wrong", message
    return "pass", ""


def ran(case: Case, compiled: Any, names: list[str], sets: Any) -> tuple[str, str]:
    for inputs, wanted in sets:
        out = [poisoned(w) for w in wanted]
        targets = out if all(o is not None for o in out) else None
        got = compiled(**feed_of(names, inputs), out=targets)
        message = judged(case, got, wanted)
        if message:
            return "wrong", message
    return "pass", ""


def feed_of(names: Sequence[str], inputs: Sequence[Any]) -> dict[str, Any]:
    return {n: v for n, v in zip(names, inputs, strict=False) if v is not None}


def poisoned(want: Any) -> np.ndarray | None:
    """Memory of an output that no kernel has written."""
    if not isinstance(want, np.ndarray) or want.dtype.kind in "OSU":
        return None
    out = np.empty(want.shape, want.dtype)
    if want.dtype.kind == "b":
        out[...] = True
    elif out.size:
        out.reshape(-1).view(np.uint8)[...] = 0xA5
    return out


def judged(case: Case, got: Sequence[Any], wanted: Sequence[Any]) -> str:
    if len(got) != len(wanted):
        return f"{len(got)} outputs, want {len(wanted)}"
    found = [f"output {i}: {d}" for i, (g, w) in enumerate(zip(got, wanted, strict=True)) if (d := difference(case, g, w))]  # fmt: skip
    if base_name(case) in WRONG:
        return "" if found else f"agrees now, but should not: {WRONG[base_name(case)]}"
    return "; ".join(found)


def run_cases(
    cases: Sequence[Case],
    *,
    jobs: int = 1,
    batch: int = 64,
    quick: bool = False,
    progress: bool = False,
) -> Iterator[Verdict]:
    """A verdict of every case, in the order in which they are ready."""
    verdicts = [Verdict(c) for c in cases]
    for verdict in verdicts:
        model = verdict.case.load()[0]
        verdict.reason = {path: why_not(verdict.case, model, path) for path in PATHS}
    return run_batches(verdicts, work, jobs=jobs, batch=batch, quick=quick, progress=progress)


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Counts, as the issue counts: frozen variants apart, out of scope apart."""
    plain = [v for v in verdicts if "(frozen)" not in v.case.name]
    scope = [v for v in plain if v.in_scope and v.case.kind == "node"]
    out: dict[str, Any] = {
        "cases": len(plain),
        "frozen variants": len(verdicts) - len(plain),
        "node tests in scope": len(scope),
    }
    for path in PATHS:
        out[f"{path}: pass of all"] = sum(v.status[path] == "pass" for v in plain)
        passed = sum(v.status[path] == "pass" for v in scope)
        out[f"{path}: node tests in scope"] = (
            f"{passed} = {100 * passed / max(len(scope), 1):.2f} %"
        )
    out["excluded"] = dict(
        collections.Counter(v.reason["compiled"] for v in plain if v.reason["compiled"])
    )
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-k", default="", metavar="TEXT", help="only tests whose name holds TEXT")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="cases to a library")
    parser.add_argument("--quick", action="store_true", help="compile with -O1")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    kinds = options.kinds.split(",")
    cases = [c for c in all_cases() if c.kind in kinds and options.k in c.name]
    if not cases:
        parser.error("there is no such test")
    start = time.monotonic()
    verdicts: list[Verdict] = []
    problems = 0
    ways = {"jobs": options.jobs, "batch": options.batch, "quick": options.quick}
    for verdict in run_cases(cases, **ways, progress=True):
        verdicts.append(verdict)
        for path in PATHS:
            if problem := verdict.problem(path):
                problems += 1
                print(
                    f"{verdict.case.name} [{path}] {problem}"[:400].replace("\n", " "), flush=True
                )
    found = summary(verdicts)
    for key, value in found.items():
        print(f"{key}: {value}")
    print(f"{problems} problems; {time.monotonic() - start:.0f} s")
    if options.json:
        table = {
            v.case.name: {p: [v.status[p], v.message[p], v.reason[p]] for p in PATHS}
            for v in verdicts
        }
        options.json.write_text(json.dumps({"summary": found, "cases": table}, indent=1))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
