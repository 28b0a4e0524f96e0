"""graphwright bench: how long a run takes, alone or beside a baseline."""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from graphwright.compiler.cli.console import Console, table, write_json
from graphwright.compiler.cli.inputs import make_feed
from graphwright.compiler.cli.open import check_shapes, is_artifact, open_model, wanted_inputs
from graphwright.compiler.cli.parameters import Duration, Percentiles, common, compile_parameters
from graphwright.compiler.options import CompileOptions
from graphwright.errors import InputError

BLOCK, PAUSE = 0.25, 0.05  # seconds: how long a block of runs takes, and the rest before it
NOISY = 0.1  # share of the median by which the middle half may spread before we say so


@click.command("bench")
@click.argument("path", metavar="OUT.gw|MODEL", type=click.Path(path_type=Path))
@click.option("--input", "literals", multiple=True, metavar="NAME=VALUE",
              help="As in run; the other inputs are random.")  # fmt: skip
@click.option("--inputs", "archive", type=click.Path(dir_okay=False, path_type=Path),
              metavar="IN.npz", help="Inputs by name.")  # fmt: skip
@click.option("--seed", type=click.IntRange(0), default=0, help="Of the random inputs.")
@click.option(
    "--warmup", type=Duration(), default=0.2, metavar="TIME", help="Before timing (default: 200ms)."
)
@click.option(
    "--duration", type=Duration(), default=3.0, metavar="TIME", help="Of timing (default: 3s)."
)
@click.option("--percentile", type=Percentiles(), default=(50.0, 90.0, 99.0), metavar="LIST",
              help="Default: 50,90,99.")  # fmt: skip
@click.option("--baseline", metavar="ort|FILE",
              help="Compare with ONNX Runtime (ort, or ort:MODEL beside an artifact) or an artifact.")  # fmt: skip
@click.option("--profile", is_flag=True,
              help="Time every kernel instead: bytes, FLOPs, part of what the machine can do.")  # fmt: skip
@click.option("--chrome-trace", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Write the profile for Chrome's or Perfetto's trace viewer.")  # fmt: skip
@compile_parameters
@common
def command(
    path: Path, literals: tuple[str, ...], archive: Path | None, seed: int, warmup: float,
    duration: float, percentile: tuple[float, ...], baseline: str | None, profile: bool,
    chrome_trace: Path | None, options: CompileOptions, json_to: str | None, console: Console,
) -> None:  # fmt: skip
    """Time runs of an artifact (or of a model, compiled on the way).

    A call is timed from numpy arrays to numpy arrays.  With --baseline the two take turns in
    blocks, with a pause before each, so that the threads of one do not slow the other.
    """
    threads = options.threads
    if profile and baseline:
        raise InputError("--profile times one model's kernels: leave --baseline out")
    if chrome_trace is not None and not profile:
        raise InputError("--chrome-trace has no effect without --profile")
    model, shapes_left = open_model(path, options, console)
    feed = make_feed(
        lambda known: wanted_inputs(model.manifest, shapes_left, known),
        literals=literals,
        archive=archive,
        random=True,
        seed=seed,
    )
    check_shapes(model.manifest, shapes_left, feed)
    if profile:
        from graphwright.compiler.cli.profile import run_profile

        run_profile(model, feed, duration, chrome_trace, console, json_to)
        return
    runs: dict[str, Callable[[], Any]] = {path.name: lambda: model.run_tensors(feed)}
    if baseline:
        name, run = open_baseline(baseline, path, feed, threads)
        runs[name] = run
    with console.stage("timing", still=True):
        times = time_in_turns(list(runs.values()), warmup, duration)
    results = {name: summary(spent, percentile) for name, spent in zip(runs, times, strict=True)}
    shapes = {n: "x".join(map(str, v.shape)) + f" {v.dtype.name}" for n, v in feed.items()}
    if json_to:
        facts: dict[str, Any] = {
            "inputs": shapes,
            "threads": threads,
            "variant": model.variant.target,
            "runs": results,
        }
        if len(results) == 2:
            facts["speedup"] = speedup(results)
        write_json(facts, json_to)
    console.say(
        f"inputs {', '.join(f'{n} {s}' for n, s in shapes.items())}; variant "
        f"{model.variant.target}; {threads or 'all allowed'} threads; copies of outputs included"
    )
    if json_to != "-":
        fast = min(r["median_ms"] for r in results.values()) < 0.1
        unit, scale = ("us", 1e3) if fast else ("ms", 1.0)
        columns = ["", *(f">p{p:g} {unit}" for p in percentile)]
        columns += [f">mean {unit}", f">min {unit}", ">runs/s", ">runs"]
        keys = [*(f"p{p:g}_ms" for p in percentile), "mean_ms", "min_ms"]
        rows: list[list[object]] = [
            [name, *(f"{r[k] * scale:.3f}" for k in keys), f"{r['runs_per_second']:.1f}", r["runs"]]
            for name, r in results.items()
        ]
        console.show(table(columns, rows))
        if len(results) == 2:
            console.show(f"{path.name} is {speedup(results):.2f}x as fast")
    for name, r in results.items():
        if r["spread"] > NOISY:
            console.warn(
                f"the middle half of the runs of {name} spreads over {100 * r['spread']:.0f} % of the "
                "median: this machine is busy, or its clock changes"
            )


def speedup(results: dict[str, dict[str, Any]]) -> float:
    """How many times as fast the first is as the second, by medians."""
    first, second = results.values()
    return second["median_ms"] / first["median_ms"]


def open_baseline(
    text: str, path: Path, feed: dict[str, np.ndarray], threads: int
) -> tuple[str, Callable[[], Any]]:
    """(name, a run on the feed) of `ort`, `ort:MODEL.onnx` or an artifact."""
    if text == "ort" or text.startswith("ort:"):
        model = Path(text[4:]) if text.startswith("ort:") else path
        if is_artifact(model):
            raise InputError(
                f"ONNX Runtime cannot run {model}; name the model: --baseline ort:MODEL.onnx"
            )
        session = open_onnx_runtime(model, threads)
        return f"ONNX Runtime {model.name}", lambda: session.run(None, feed)
    other = Path(text)
    if not other.exists():
        raise InputError(
            f"--baseline {text!r}: want ort, ort:MODEL.onnx or an artifact that exists"
        )
    if not is_artifact(other):
        raise InputError(f"--baseline {text}: to compare with ONNX Runtime write ort:{text}")
    from graphwright.runtime import load

    loaded = load(other, threads=threads or None)
    return other.name if other.name != path.name else str(other), lambda: loaded.run(feed)


def open_onnx_runtime(path: Path, threads: int) -> Any:
    """A session on the CPU with this many threads (0: its default)."""
    try:
        ort: Any = importlib.import_module("onnxruntime")
    except ImportError:
        raise InputError("ONNX Runtime is not installed; pip install 'graphwright[ort]'") from None
    options = ort.SessionOptions()
    options.log_severity_level = 4
    if threads:
        options.intra_op_num_threads = threads
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def time_in_turns(
    runs: Sequence[Callable[[], Any]], warmup: float, duration: float
) -> list[list[float]]:
    """Seconds of each run of each function: blocks in turns, a pause and an untimed run before each."""
    for run in runs:
        end = time.perf_counter() + warmup
        run()
        while time.perf_counter() < end:
            run()
    times: list[list[float]] = [[] for _ in runs]
    block = min(BLOCK, duration)
    for _ in range(max(round(duration / block), 1) if block else 1):
        for run, spent in zip(runs, times, strict=True):
            if len(runs) > 1:
                time.sleep(PAUSE)
                run()
            end = time.perf_counter() + block
            while True:
                start = time.perf_counter()
                run()
                now = time.perf_counter()
                spent.append(now - start)
                if now >= end:
                    break
    return times


def summary(times: Sequence[float], percentiles: Sequence[float]) -> dict[str, Any]:
    """Milliseconds; `spread`: the width of the middle half over the median."""
    milliseconds = np.array(times) * 1e3
    median = float(np.median(milliseconds))
    low, high = np.percentile(milliseconds, [25, 75])
    return {
        "runs": len(times),
        "median_ms": median,
        "mean_ms": statistics.fmean(milliseconds.tolist()),
        "min_ms": float(milliseconds.min()),
        **{f"p{p:g}_ms": float(np.percentile(milliseconds, p)) for p in percentiles},
        "runs_per_second": 1e3 / float(milliseconds.mean()),
        "spread": float(high - low) / median,
    }
