"""Published architectures through the hook and torch.export, against eager and Inductor, on the CPU.

    python benchmarks/torch_models.py [NAME ...] [--threads 1] [--seconds 1] [--no-inductor]
                                      [--no-hook-varying] [--no-export]
                                      [--no-speed] [--output FILE.json] [--table]

Needs transformers and timm.  Every architecture (see torch_zoo.py) runs in a process of its own:
compiled by the hook with fullgraph=True; by the hook with a varying axis, called with two extents and
compiled once; exported with a varying axis and called with two extents.  Results are compared with
eager.  Times are medians over blocks of calls in turns, with a pause before each, the same number of
threads for all; Inductor has freezing on, since we compile parameters in too.  Compile seconds are of the
first call, with empty caches.  The options `--no-...` leave a part out;
what another run has stored of it stays.  `--table` prints the stored results as Markdown and runs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "torch_cpu.json"
BLOCK, PAUSE = 0.15, 0.05  # seconds
LIMIT = 900  # seconds for an architecture
NEAR = 1e-5  # relative distance from eager that counts as equal


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Everything about one architecture, in this process.  What fails has its error in the place."""
    threads = options.threads
    import warnings

    warnings.simplefilter("ignore")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
    os.environ["GRAPHWRIGHT_CACHE"] = tempfile.mkdtemp()
    import torch
    from torch_zoo import ARCHITECTURES

    torch.set_num_threads(threads)
    found = ARCHITECTURES[name]
    module = found.module()
    inputs, other = found.inputs(found.extent), found.inputs(found.other)
    with torch.no_grad():
        want, want_other = leaves(module(**inputs)), leaves(module(**other))
        out: dict[str, Any] = {
            "family": found.family,
            "parameters": sum(p.numel() for p in module.parameters()),
        }
        runs: dict[str, Callable[[], Any]] = {"eager": lambda: module(**inputs)}
        calls = [(inputs, want), (other, want_other)]
        if not options.no_hook_varying:
            attempt(out, STEPS[1], lambda: hook_varying(module, found.axes, calls, threads))
        if not options.no_export:
            attempt(out, STEPS[2], lambda: export_varying(module, found.axes, calls, threads))
        if options.no_speed:
            return out
        compiled = attempt(out, STEPS[0], lambda: hooked(module, inputs, want, threads))
        if compiled is not None:
            runs["graphwright"] = lambda: compiled(**inputs)
        if not options.no_inductor:
            peer = attempt(out, "inductor", lambda: inducted(module, inputs, want))
            if peer is not None:
                runs["inductor"] = lambda: peer(**inputs)
        out["ms"] = medians(runs, options.seconds)
    return out


def attempt(out: dict[str, Any], key: str, run: Callable[[], tuple[dict[str, Any], Any]]) -> Any:
    """Puts what a step tells about itself, or its error, into `out`; returns what it made."""
    try:
        out[key], made = run()
    except Exception as error:  # of any kind: it is what the table tells
        text = " ".join(str(error).split())
        out[key] = {"error": f"{type(error).__name__}: {text[:400]}"}
        return None
    return made


def leaves(out: Any) -> list[Any]:
    import torch

    return [t.clone() for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]


def distance(got: Sequence[Any], want: Sequence[Any]) -> float:
    """The largest ||got - want|| / ||want||; raises where types, shapes or integers differ."""
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        if g.dtype != w.dtype or g.shape != w.shape:
            raise ValueError(f"a result is {g.dtype}{list(g.shape)}, want {w.dtype}{list(w.shape)}")
        gap = (g.double() - w.double()).norm() / w.double().norm().clamp_min(1e-30)
        if not gap <= NEAR:
            raise ValueError(f"a result is at a relative distance of {float(gap):.1e} from eager's")
        worst = max(worst, float(gap))
    return worst


def hooked(
    module: Any, inputs: Any, want: Sequence[Any], threads: int
) -> tuple[dict[str, Any], Any]:
    import torch

    import graphwright as gw

    torch._dynamo.reset()
    options = {"threads": threads}
    compiled = torch.compile(
        module, backend="graphwright", fullgraph=True, dynamic=False, options=options
    )
    start = time.perf_counter()
    got = leaves(compiled(**inputs))
    seconds = time.perf_counter() - start
    report = gw.report(compiled)
    told = {
        "compile_s": round(seconds, 2), "distance": distance(got, want), "graphs": len(report.graphs),
        "kernels": sum(len(m.variant.kernels) for g in report.graphs for m in g.models),
    }  # fmt: skip
    distance(leaves(compiled(**inputs)), want)
    return told, compiled


def hook_varying(
    module: Any, axes: Any, calls: Sequence[tuple[Any, Any]], threads: int
) -> tuple[dict[str, Any], None]:
    import torch

    import graphwright as gw

    torch._dynamo.reset()
    options = {"threads": threads}
    compiled = torch.compile(module, backend="graphwright", fullgraph=True, options=options)
    worst = 0.0
    for inputs, want in calls:
        marked = dict(inputs)
        for argument, axis in axes.items():
            marked[argument] = inputs[argument].clone()
            torch._dynamo.mark_dynamic(marked[argument], axis)
        worst = max(worst, distance(leaves(compiled(**marked)), want))
    count = len(gw.report(compiled).graphs)
    if count != 1:
        raise ValueError(f"it was compiled {count} times")
    return {"distance": worst}, None


def export_varying(
    module: Any, axes: Any, calls: Sequence[tuple[Any, Any]], threads: int
) -> tuple[dict[str, Any], None]:
    import torch

    import graphwright as gw

    torch._dynamo.reset()
    inputs = calls[0][0]
    dynamic = {
        name: {axes[name]: torch.export.Dim.DYNAMIC} if name in axes else None for name in inputs
    }
    start = time.perf_counter()
    model = gw.compile(module, inputs, dynamic_shapes=dynamic, target="cpu:native", threads=threads)
    seconds = time.perf_counter() - start
    worst = max(distance(leaves(model(**i)), want) for i, want in calls)
    return {"compile_s": round(seconds, 2), "distance": worst}, None


def inducted(module: Any, inputs: Any, want: Sequence[Any]) -> tuple[dict[str, Any], Any]:
    import torch
    import torch._inductor.config

    torch._dynamo.reset()
    torch._inductor.config.freezing = True
    compiled = torch.compile(module, dynamic=False)
    start = time.perf_counter()
    got = leaves(compiled(**inputs))
    seconds = time.perf_counter() - start
    return {"compile_s": round(seconds, 2), "distance": distance(got, want)}, compiled


def medians(runs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Milliseconds of a call of each: blocks in turns, a pause and untimed calls before each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for turn in range(max(round(seconds / BLOCK), 3)):
        for name in list(runs) if turn % 2 else list(reversed(runs)):
            run = runs[name]
            time.sleep(PAUSE)
            run()
            end = time.perf_counter() + BLOCK
            while time.perf_counter() < end:
                start = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - start)
    return {name: round(1e3 * statistics.median(t), 4) for name, t in times.items()}


def in_child(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a process of its own: a crash or a hang is an error of this architecture."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        command = [
            sys.executable, __file__, name, "--child", str(path), "--threads", str(options.threads),
            "--seconds", str(options.seconds), *(f"--{p}" for p in PARTS if getattr(options, p.replace("-", "_"))),
        ]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            return {"error": f"took more than {LIMIT} s"}
        if done.returncode or not path.exists():
            return {"error": " ".join(done.stderr.split())[-400:]}
        return json.loads(path.read_text())


STEPS = ("hook", "hook, varying", "export, varying")
PARTS = ("no-inductor", "no-hook-varying", "no-export", "no-speed")


def kept_of(results: dict[str, Any], name: str) -> dict[str, Any]:
    """What an earlier run stored of an architecture, but for errors."""
    kept = results["models"].get(name, {})
    return {
        k: v for k, v in kept.items() if k != "error" and not (isinstance(v, dict) and "error" in v)
    }


def fault(found: dict[str, Any]) -> str:
    """What of ours fails for an architecture, or ""."""
    if "error" in found:
        return str(found["error"])
    errors = [f"{s}: {found[s]['error']}" for s in STEPS if "error" in found.get(s, {})]
    return "; ".join(errors)


def table(results: dict[str, Any]) -> str:
    """The results as Markdown."""
    lines = [
        "| family | architecture | hook | varying axis | distance | compile s | Inductor s | eager ms "
        "| Inductor ms | ours ms | over eager | over Inductor |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, r in sorted(
        results["models"].items(), key=lambda kv: (kv[1].get("family", ""), kv[0])
    ):
        if "error" in r:
            lines.append(f"| {r.get('family', '')} | {name} | no | | | | | | | | | |")
            continue
        ms = r.get("ms", {})
        varying = [
            way
            for way, key in (("hook", STEPS[1]), ("export", STEPS[2]))
            if "distance" in r.get(key, {})
        ]
        apart = max(r.get(s, {}).get("distance", 0.0) for s in STEPS)
        ours, peer = ms.get("graphwright"), ms.get("inductor")
        cells = [
            r["family"], name, "whole" if "distance" in r.get("hook", {}) else "no", ", ".join(varying) or "no",
            f"{apart:.0e}", f"{r.get('hook', {}).get('compile_s', '')}", f"{r.get('inductor', {}).get('compile_s', '')}",
            f"{ms['eager']:.2f}" if ms else "", f"{peer:.2f}" if peer else "", f"{ours:.2f}" if ours else "",
            f"{ms['eager'] / ours:.2f}" if ours else "", f"{peer / ours:.2f}" if ours and peer else "",
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parent))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=1.0, help="of timed calls of each")
    for part in PARTS:
        parser.add_argument(f"--{part}", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FILE")
    parser.add_argument("--table", action="store_true", help="print the stored results")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(json.loads(options.output.read_text())))
        return 0
    if options.child:
        (name,) = options.names
        found = measure(name, options)
        options.child.write_text(json.dumps(found))
        return 0
    import torch
    from torch_zoo import ARCHITECTURES

    unknown = [n for n in options.names if n not in ARCHITECTURES]
    if unknown:
        parser.error(f"no architecture is named {unknown[0]!r}")
    results: dict[str, Any] = {"models": {}}
    if options.output.exists():
        results = json.loads(options.output.read_text())
    results["torch"], results["threads"] = torch.__version__, options.threads
    results["processor"] = platform.processor() or platform.machine()
    faults = 0
    for name in options.names or ARCHITECTURES:
        found = in_child(name, options)
        found = results["models"][name] = {**kept_of(results, name), **found}
        options.output.write_text(json.dumps(results, indent=1) + "\n")
        wrong = fault(found)
        faults += bool(wrong)
        print(f"{name}: {wrong or found.get('ms', 'right')}", flush=True)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
