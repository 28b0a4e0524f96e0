"""Ours against ONNX Runtime (and OpenVINO where it is installed) on the CPU, on published models.

    python benchmarks/cpu.py [MODEL ...] [--threads 2] [--seconds 2] [--output FILE.json]
                             [--keep DIR [--compile-only]]

Every model runs in processes of its own, at three settings of its sizes (one setting where it has
none).  Times are medians over blocks of runs in turns, with a pause before each block, so that the
waiting threads of one engine do not slow the next; the same number of threads for all, pinned to as
many CPUs.  Compiling is measured with an empty cache and again with the cache it left, with as many
compilers at a time.  Peak memory is the high-water mark of a process that only loads and runs, less
what an interpreter with numpy takes.

OpenVINO is a peer where it is installed (`pip install openvino`); without it there is no such
column.  --keep leaves the artifacts in DIR and takes those that are there, with what was measured
when they were made, so that a later run only times them.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from random_weights import with_random_weights
from roofline import floor_ms, graph_flops, weight_bytes
from sample_inputs import MODELS, Feed, sample

from graphwright.compiler.machine import Machine, measure_machine

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from fetch_models import FetchError, fetch  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"
BLOCK, PAUSE = 0.2, 0.1  # seconds
Run = Callable[[Feed], list[np.ndarray]]


def model_path(name: str) -> Path:
    """The model's file, fetched if it is missing, with random weights where its own are constant."""
    (path,) = fetch([name])
    return with_random_weights(path) if name.startswith("light-") else path


def open_ort(path: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return lambda feed: session.run(None, feed)


def open_openvino(path: Path, threads: int) -> Run:
    import openvino

    compiled = openvino.Core().compile_model(
        str(path),
        "CPU",
        {
            "INFERENCE_NUM_THREADS": threads,
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()
    return lambda feed: [np.array(v) for v in request.infer(feed).values()]


def open_ours(path: Path, threads: int) -> Run:
    import graphwright

    model = graphwright.load(path, threads=threads)
    return lambda feed: list(model.run(feed).values())


OPEN: dict[str, Callable[[Path, int], Run]] = {
    "graphwright": open_ours,
    "onnxruntime": open_ort,
    "openvino": open_openvino,
}


def peak_bytes() -> int:
    """The high-water mark of this process's resident memory."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")


def relative_rms(got: list[np.ndarray], want: list[np.ndarray]) -> float:
    """The largest ||got - want|| / ||want|| over the outputs, NaN when anything is."""
    worst = 0.0
    for a, b in zip(got, want, strict=True):
        wide = b.astype(np.float64)
        error = float(np.linalg.norm(a.astype(np.float64) - wide))
        ratio = error / max(float(np.linalg.norm(wide)), 1e-30)
        if math.isnan(ratio):
            return math.nan
        worst = max(worst, ratio)
    return worst


def medians(runs: dict[str, Run], feed: Feed, seconds: float) -> dict[str, dict[str, float]]:
    """Milliseconds of each engine: blocks in turns, a pause and an untimed run before each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run(feed)
    for turn in range(max(round(seconds / BLOCK), 3)):
        order = list(runs) if turn % 2 else list(reversed(runs))
        for name in order:
            time.sleep(PAUSE)
            runs[name](feed)
            end = time.perf_counter() + BLOCK
            count = 0
            while time.perf_counter() < end or count < 2:
                start = time.perf_counter()
                runs[name](feed)
                times[name].append(1e3 * (time.perf_counter() - start))
                count += 1
    return {
        name: {
            "ms": statistics.median(spent),
            "ms_10": float(np.percentile(spent, 10)),  # nearer to an idle machine's time
            "ms_90": float(np.percentile(spent, 90)),
            "runs": len(spent),
        }
        for name, spent in times.items()
    }


def compiled(name: str, path: Path, artifact: Path, threads: int) -> dict[str, Any]:
    """Compiles a model to `artifact`, cold and warm; what there is to say about it.

    A file beside the artifact keeps the answer; when both are there, nothing is compiled.
    """
    from graphwright.compilation import build, import_source
    from graphwright.compiler.options import CompileOptions

    known = artifact.with_suffix(".json")
    if known.exists() and artifact.exists():
        return json.loads(known.read_text())
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        options = CompileOptions.make(cache_dir=Path(scratch), threads=threads)
        for kind in ("cold", "warm"):
            start = time.perf_counter()
            built = build(path, options)
            built.artifact.write(artifact)
            out[f"compile_{kind}_s"] = time.perf_counter() - start
    out["report"] = built.report(artifact.stat().st_size).to_json()
    graph = import_source(path, options)
    feed = sample(name)
    out["flops"] = graph_flops(graph, feed)
    out["compulsory_bytes"] = weight_bytes(graph) + sum(v.nbytes for v in feed.values())
    known.write_text(json.dumps(out))
    return out


def measure(name: str, threads: int, seconds: float, keep: Path | None) -> dict[str, Any]:
    """Everything about one model; runs in a process of its own."""
    path = model_path(name)
    with tempfile.TemporaryDirectory() as scratch:
        artifact = (keep or Path(scratch)) / f"{name}.gw"
        out = {"model": name, **compiled(name, path, artifact, threads)}
        out["load_ms"], out["read_ms"] = load_ms(artifact, threads)
        feeds = [sample(name, size) for size in range(3)]
        if all(v.shape == feeds[1][n].shape for n, v in feeds[0].items()):
            del feeds[1:]
        runs = {"graphwright": open_ours(artifact, threads), "onnxruntime": open_ort(path, threads)}
        out["relative_rms"] = [
            relative_rms(runs["graphwright"](f), runs["onnxruntime"](f)) for f in feeds
        ]
        out["openvino"] = add_openvino(runs, path, threads, feeds)
        settings: list[dict[str, Any]] = []
        for feed in feeds:
            shapes = {n: list(v.shape) for n, v in feed.items()}
            settings.append({"shapes": shapes, "engines": medians(runs, feed, seconds)})
        out["settings"] = settings
        out["peak_bytes"] = {
            engine: peak_of(engine, artifact if engine == "graphwright" else path, name, threads)
            for engine in ("graphwright", "onnxruntime")
        }
    return out


def add_openvino(runs: dict[str, Run], path: Path, threads: int, feeds: list[Feed]) -> str:
    """Puts OpenVINO among the engines where it can run the model; says why where it cannot."""
    if not importlib.util.find_spec("openvino"):
        return "not installed"
    try:
        run = open_openvino(path, threads)
        for feed in feeds:
            run(feed)
    except RuntimeError as error:  # what OpenVINO raises for a model it does not take
        return f"refused: {str(error).strip().splitlines()[-1][:200]}"
    runs["openvino"] = run
    return "runs"


def load_ms(artifact: Path, threads: int) -> tuple[float, float]:
    """Median milliseconds to load an artifact, and to read its bytes alone."""
    import graphwright

    loads: list[float] = []
    reads: list[float] = []
    for _ in range(5):
        start = time.perf_counter()
        artifact.read_bytes()
        middle = time.perf_counter()
        graphwright.load(artifact, threads=threads)
        loads.append(1e3 * (time.perf_counter() - middle))
        reads.append(1e3 * (middle - start))
    return statistics.median(loads), statistics.median(reads)


def peak_of(engine: str, file: Path, name: str, threads: int) -> int:
    """Bytes that loading and running adds to an interpreter with numpy, in a fresh process."""
    command = [
        sys.executable,
        __file__,
        "--peak-of",
        engine,
        str(file),
        name,
        "--threads",
        str(threads),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def print_peak(engine: str, file: Path, name: str, threads: int) -> None:
    feed = sample(name)
    before = peak_bytes()
    run = OPEN[engine](file, threads)
    for _ in range(3):
        run(feed)
    print(peak_bytes() - before)


def arena_ratio(result: dict[str, Any]) -> float:
    """The largest arena over its lower bound, over variants and bindings."""
    return max(
        (
            v["arena_bytes"][b] / v["arena_lower_bound_bytes"][b]
            for v in result["report"]["variants"]
            for b in v["arena_bytes"]
            if v["arena_lower_bound_bytes"].get(b)
        ),
        default=1.0,
    )


def aligned(rows: list[list[Any]]) -> list[str]:
    """Rows as lines: the first column to the left, the others, which are numbers, to the right."""
    texts = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return [
        "  ".join(
            [row[0].ljust(widths[0])]
            + [c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True)]
        )
        for row in texts
    ]


def speeds(result: dict[str, Any], other: str, key: str = "ms") -> list[float]:
    """How many times as fast as another engine, for each setting; empty where that did not run."""
    both = [s["engines"] for s in result["settings"] if other in s["engines"]]
    return [e[other][key] / e["graphwright"][key] for e in both]


def show(results: list[dict[str, Any]]) -> None:
    """The table for people."""
    columns = ["model", "ms", "ort ms", "openvino ms", "x ort", "x openvino", "floor ms"]
    columns += ["cold s", "warm s", "load ms", "arena", "peak MB", "ort MB"]
    columns += ["per anchor", "transposes", "rel. RMS"]
    rows: list[list[object]] = []
    for r in results:
        engines = [s["engines"] for s in r["settings"]]
        per = r["report"]["launches_per_contraction_plus_reduction"]
        peers = [each("openvino", engines), across(speeds(r, "openvino"))]
        if "openvino" not in engines[0]:
            peers = [r["openvino"].partition(":")[0], "-"]
        rows.append(
            [
                r["model"],
                each("graphwright", engines),
                each("onnxruntime", engines),
                peers[0],
                across(speeds(r, "onnxruntime")),
                peers[1],
                f"{r['floor_ms']:.3f}",
                f"{r['compile_cold_s']:.1f}",
                f"{r['compile_warm_s']:.1f}",
                f"{r['load_ms']:.1f}",
                f"{arena_ratio(r):.3f}",
                f"{r['peak_bytes']['graphwright'] / 1e6:.0f}",
                f"{r['peak_bytes']['onnxruntime'] / 1e6:.0f}",
                f"{per:.2f}" if per else "-",
                r["report"]["transposes"],
                f"{max(r['relative_rms']):.1e}",
            ]
        )
    for line in aligned([columns, *rows]):
        print(line)
    for other in ("onnxruntime", "openvino"):
        for what, key in (("median", "ms"), ("10th percentile", "ms_10")):
            ratios = [x for r in results if (x := speeds(r, other, key))]
            if not ratios:
                continue
            means = [statistics.geometric_mean(x) for x in ratios]
            print(
                f"speed against {other} by {what}: geometric mean "
                f"{statistics.geometric_mean(means):.2f}x, least {min(map(min, ratios)):.2f}x "
                f"over {len(ratios)} models"
            )


def each(engine: str, engines: list[dict[str, Any]]) -> str:
    return " / ".join(f"{e[engine]['ms']:.3g}" if engine in e else "-" for e in engines)


def across(ratios: list[float]) -> str:
    low, high = (f"{x:.2f}" for x in (min(ratios, default=0), max(ratios, default=0)))
    return low if low == high else f"{low} to {high}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"of: {', '.join(MODELS)}")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2.0, help="of timing per engine")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where artifacts stay")
    parser.add_argument("--compile-only", action="store_true", help="time nothing; needs --keep")
    parser.add_argument("--output", type=Path, default=RESULTS / "cpu.json")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--peak-of", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    if arguments.peak_of:
        engine, file, name = arguments.peak_of
        print_peak(engine, Path(file), name, arguments.threads)
        return 0
    unknown = [m for m in arguments.models if m not in MODELS]
    if unknown:
        parser.error(f"no model is called {unknown[0]!r}; there are: {', '.join(MODELS)}")
    if arguments.keep:
        arguments.keep.mkdir(parents=True, exist_ok=True)
    elif arguments.compile_only:
        parser.error("--compile-only needs --keep DIR")
    if arguments.compile_only:
        for name in arguments.models or MODELS:
            artifact = arguments.keep / f"{name}.gw"
            compiled(name, model_path(name), artifact, arguments.threads)
        return 0
    if arguments.measure:
        name = arguments.models[0]
        print(json.dumps(measure(name, arguments.threads, arguments.seconds, arguments.keep)))
        return 0
    return measure_all(arguments)


def measure_all(arguments: argparse.Namespace) -> int:
    rates: list[Machine] = []
    results: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for name in arguments.models or MODELS:
        print(f"{name} ...", file=sys.stderr)
        try:
            model_path(name)
        except FetchError as error:
            failed[name] = str(error)
            continue
        rates.append(measure_machine(arguments.threads))
        command = [sys.executable, __file__, name, "--measure"]
        command += ["--threads", str(arguments.threads), "--seconds", str(arguments.seconds)]
        command += ["--keep", str(arguments.keep)] if arguments.keep else []
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            failed[name] = last_error(done.stderr)
        else:
            results.append(json.loads(done.stdout.splitlines()[-1]))
    if results:
        # The best of all moments: the machine may have been busy at any of them.
        machine = Machine(max(r.flops for r in rates), max(r.bandwidth for r in rates))
        for result in results:
            result["floor_ms"] = floor_ms(result["flops"], result["compulsory_bytes"], machine)
        show(results)
        print(f"{arguments.threads} threads at {machine.flops / 1e9:.0f} GFLOP/s and "
              f"{machine.bandwidth / 1e9:.1f} GB/s make the floor")  # fmt: skip
        facts = {
            "machine": {
                "cpu": cpu_name(),
                "threads": arguments.threads,
                "flops": machine.flops,
                "bandwidth": machine.bandwidth,
                "python": platform.python_version(),
            },
            "versions": versions(),
            "results": results,
            "failed": failed,
        }
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(facts, indent=1) + "\n")
        print(f"wrote {arguments.output}", file=sys.stderr)
    for name, why in failed.items():
        print(f"failed: {name}: {why}", file=sys.stderr)
    return 1 if failed else 0


def last_error(stderr: str) -> str:
    """What a traceback ends with: from the line that is not indented any more."""
    lines = stderr.strip().splitlines()
    starts = [i for i, line in enumerate(lines) if line[:1] not in (" ", "") or not line]
    return " ".join(line.strip() for line in lines[starts[-1] :])[:300] if starts else "no output"


def versions() -> dict[str, str]:
    """Of the engines and the C++ compiler."""
    found: dict[str, str] = {}
    for package in ("onnxruntime", "openvino", "numpy"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    compiler = subprocess.run(["c++", "--version"], capture_output=True, text=True)
    found["c++"] = compiler.stdout.partition("\n")[0]
    return found


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    sys.exit(main())
