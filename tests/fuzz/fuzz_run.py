"""Random graphs through onnx.reference, the evaluator and compiled kernels.

    python tests/fuzz/fuzz_run.py [--seeds 0:2000] [--jobs 2] [--batch 40] [--quick]

A seed fails when the evaluator differs from the reference, the kernels from the evaluator, or either
breaks or hangs.  What is refused is counted.  Models with named dims run a second time from the same
artifact with other sizes, which must give the evaluator's numbers or be refused where it fails.  An element whose answer changes between float32 and
float64 by as much as it differs (a rounding at a step, a cancelled sum) is no fault of anybody.
"""

from __future__ import annotations

import argparse
import collections
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "backend")]
from backend_cases import Case  # noqa: E402
from fuzz_generator import WIDE_FROM, answers, other_sizes, random_model  # noqa: E402
from isolated import PATHS, Verdict, run_batches  # noqa: E402

CASE_SECONDS = 10


def case_of(seed: int) -> Case:
    return Case(f"fuzz{seed}", "fuzz", 0, 0)


def seed_of(case: Case) -> int:
    return int(case.name.removeprefix("fuzz"))


def difference(got: Sequence[Any], want: Sequence[Any], exact: Sequence[Any]) -> str:
    """Where outputs differ by more than `exact` (the answers in float64) lets them."""
    if len(got) != len(want):
        return f"{len(got)} outputs, want {len(want)}"
    for i, (g, w, e) in enumerate(zip(got, want, exact, strict=True)):
        g, w, e = np.asarray(g), np.asarray(w), np.asarray(e)
        if (g.dtype, g.shape) != (w.dtype, w.shape):
            return f"output {i}: {g.dtype}{list(g.shape)}, want {w.dtype}{list(w.shape)}"
        a, b, c = (v.astype(np.float64) for v in (g, w, e))
        if c.shape != b.shape:
            continue  # a size that rounding decides
        with np.errstate(all="ignore"):
            unit = 2.0**-9 if w.dtype.itemsize == 2 and w.dtype.kind == "f" else 2e-5
            least = unit * max(float(np.abs(b[np.isfinite(b)]).max(initial=0.0)), 1e-3)
            loose = 1e3 * np.abs(b - c) + 1e-5 * np.abs(b) + least * (w.dtype.kind == "f")
            close = (a == b) | (np.isnan(a) & np.isnan(b)) | (np.abs(a - b) <= loose)
            if w.dtype.itemsize == 1 and w.dtype.kind in "iu":
                close |= _one_step(a, b)
            unsure = (np.isfinite(b) != np.isfinite(c)) | ((b != c) & (w.dtype.kind != "f"))
        wrong = ~(close | unsure)
        if wrong.any():
            return (
                f"output {i}: {a[wrong][:4]}, want {b[wrong][:4]} ({wrong.sum()} of {wrong.size})"
            )
    return ""


def _one_step(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Where quantized numbers fall to the other side of a tie, which few may do."""
    steps = np.abs(a - b) == 1
    return steps if steps.sum() <= max(1, steps.size // 50) else np.zeros_like(steps)


def work(cases: Sequence[Case], pipe: Connection, quick: bool) -> None:
    """In the child: makes the models, evaluates all, compiles all at once, runs all."""
    from backend_run import quick_options

    from graphwright.compiler.driver import compile_batch
    from graphwright.compiler.ir.evaluate import evaluate
    from graphwright.errors import CompileError, GraphwrightError, UnsupportedError
    from graphwright.frontends.onnx import import_model
    from graphwright.runtime import load

    # Weights of fixed sizes force dims that the generator made symbolic.
    options = quick_options(quick, allow=("specialise",))

    def tell(index: int, path: str, status: str, message: str = "") -> None:
        pipe.send((index, path, status, message[:600]))

    def failed(index: int, path: str, error: Exception) -> None:
        refused = isinstance(error, UnsupportedError)
        tell(index, path, "unsupported" if refused else "error", f"{type(error).__name__}: {error}")

    ready: list[tuple[int, Any, list[Any]]] = []
    for index, case in enumerate(cases):
        tell(index, "evaluator", "start")
        with np.errstate(all="ignore"):
            model, feed, wanted = random_model(seed_of(case))
        try:
            graph = import_model(model)
            with np.errstate(all="ignore"):
                got = evaluate(graph, feed)
                exact = evaluate(graph, feed, compute=np.float64)
        except Exception as error:
            for path in PATHS:
                failed(index, path, error)
            continue
        message = difference(got, wanted, exact)
        runs = [(feed, got, exact, True)]
        if seed_of(case) >= WIDE_FROM:
            message = message or _second(model, graph, seed_of(case), runs)
        tell(index, "evaluator", "wrong" if message else "pass", message)
        ready.append((index, graph, runs))
    tell(-1, "", "start")
    try:
        artifacts = compile_batch([r[1] for r in ready], options.target, options)
    except CompileError as error:
        tell(-1, "", "failed", str(error))
        return
    tell(-1, "", "built")
    for (index, _, runs), artifact in zip(ready, artifacts, strict=True):
        tell(index, "compiled", "start")
        if isinstance(artifact, GraphwrightError):
            failed(index, "compiled", artifact)
            continue
        try:
            compiled = load(artifact.to_bytes(), threads=1)
            message = ""
            for run in runs:
                message = message or _run(compiled, *run)
        except Exception as error:
            failed(index, "compiled", error)
            continue
        tell(index, "compiled", "wrong" if message else "pass", message)


def _second(model: Any, graph: Any, seed: int, runs: list[Any]) -> str:
    """Adds a run with other sizes when the model takes them; how the evaluator is wrong there."""
    from graphwright.compiler.ir.evaluate import evaluate

    feed = other_sizes(model, seed)
    if feed is None:
        return ""
    wanted = answers(model, feed)
    try:
        with np.errstate(all="ignore"):
            got = evaluate(graph, feed)
            exact = evaluate(graph, feed, compute=np.float64)
    except IndexError:  # indices of data are limited to the axis, not checked
        return ""
    except Exception:  # of any class: the artifact must refuse such sizes
        runs.append((feed, None, None, False))
        return ""
    runs.append((feed, got, exact, wanted is not None))
    message = difference(got, wanted, exact) if wanted else ""
    return f"other sizes: {message}" if message else ""


def _run(compiled: Any, feed: Any, want: Any, exact: Any, fits: bool) -> str:
    """How the kernels' answers differ; `fits`: the reference takes these sizes."""
    from graphwright.errors import InputError

    try:
        got = compiled(**feed)
    except InputError as error:
        return f"refused: {error}" if fits else ""
    return "sizes that do not fit were taken" if want is None else difference(got, want, exact)


def faults(verdict: Verdict) -> list[str]:
    """What is wrong with a seed."""
    return [
        f"{verdict.case.name} [{p}] {verdict.status[p]}: {verdict.message[p]}"
        for p in PATHS
        if verdict.status[p] not in ("pass", "unsupported")
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:200", metavar="FROM:TO")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=40, metavar="N")
    parser.add_argument("--quick", action="store_true", help="compile with -O1")
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    start = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    bad = 0
    verdicts = [Verdict(case_of(s)) for s in range(first, last)]
    ways = {"jobs": options.jobs, "batch": options.batch, "quick": options.quick}
    for verdict in run_batches(verdicts, work, **ways, case_seconds=CASE_SECONDS, progress=True):
        counts.update(f"{p} {verdict.status[p]}" for p in PATHS)
        for text in faults(verdict):
            bad += 1
            print(text[:500].replace("\n", " "), flush=True)
    print(", ".join(f"{k}: {v}" for k, v in sorted(counts.items())))
    print(f"{bad} faults in {last - first} graphs; {time.monotonic() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
