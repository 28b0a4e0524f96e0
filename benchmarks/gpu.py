"""Ours beside torch (eager, torch.compile, torch.compile with freezing) on one GPU, in one run.

    python benchmarks/gpu.py [WORKLOAD ...] [--peers eager,graphs,frozen,autotune,onnxruntime]
                             [--tune quick] [--tune-budget SECONDS] [--profile] [--output FILE.json]

Networks come from gpu_models.py, with the same random weights for all.  Every answer is compared with
the network in float32 on torch.  Times are medians of device events around one call after warm-up,
in milliseconds; ours is called on device tensors with `out` given.  The floor is the time that bytes
and operations take at the device's measured rates.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_models import WORKLOADS, Net

import graphwright as gw

PEERS = ("eager", "graphs", "frozen")


def milliseconds(call: Callable[[], Any], *, budget: float = 0.6) -> float:
    """Median of the device times of one call."""
    import torch

    for _ in range(5):
        call()
    torch.cuda.synchronize()
    times: list[float] = []
    start = time.perf_counter()
    while len(times) < 100 and (time.perf_counter() - start < budget or len(times) < 5):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        call()
        b.record()
        b.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times)


def host_microseconds(call: Callable[[], Any]) -> float:
    """Median time until an asynchronous call returns, the device idle before it."""
    import torch

    times: list[float] = []
    for _ in range(60):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start))
    torch.cuda.synchronize()
    return statistics.median(times)


def error_of(got: Any, want: Any) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


def run_ours(
    net: Net, arguments: list[Any], want: Any, profile: bool, **options: Any
) -> dict[str, Any]:
    import torch

    start = time.perf_counter()
    target = f"cuda:sm_{torch.cuda.get_device_capability()[0]}0"
    model = gw.compile(net.onnx(), target=target, **options)
    compiled = time.perf_counter() - start
    out = [torch.full_like(want, float("nan"), dtype=getattr(torch, model.outputs[0].dtype))]

    def call() -> Any:
        return model(*arguments, out=out)

    call()
    torch.cuda.synchronize()
    error = error_of(out[0], want)
    record = {
        "ms": milliseconds(call), "host_us": host_microseconds(call), "compile_s": compiled,
        "launches": len(model.variant.launches), "kernels": len(model.variant.kernels),
        "error": error,
    }  # fmt: skip
    if profile:
        record["profile"] = profiled(call)
    return record


def profiled(call: Callable[[], Any]) -> list[tuple[str, int, float]]:
    """(kernel, runs, microseconds a run), by total time, of three calls."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as p:
        for _ in range(3):
            call()
        import torch

        torch.cuda.synchronize()
    rows = [(e.key, e.count // 3, e.device_time_total / e.count) for e in p.key_averages()]
    return sorted(rows, key=lambda r: -r[1] * r[2])


def run_peer(peer: str, net: Net, arguments: list[Any], want: Any) -> dict[str, Any]:
    import torch
    import torch._dynamo
    import torch._inductor.config as inductor

    images = any(len(s) == 4 for s, _, _ in net.inputs.values())
    module = net.torch_module(channels_last=images)
    given = [
        a.contiguous(memory_format=torch.channels_last) if a.ndim == 4 else a for a in arguments
    ]
    start = time.perf_counter()
    call = module
    if peer != "eager":
        torch._dynamo.reset()
        inductor.freezing = peer == "frozen"
        mode = "max-autotune" if peer == "autotune" else "reduce-overhead"
        call = torch.compile(module, mode=mode)
    got = call(*given)
    torch.cuda.synchronize()
    compiled = time.perf_counter() - start
    record = {"error": error_of(got, want), "compile_s": compiled}
    return record | {"ms": milliseconds(lambda: call(*given))}


def run_onnxruntime(net: Net, arguments: list[Any], want: Any) -> dict[str, Any]:
    """ONNX Runtime's CUDA provider with a CUDA graph, bound to tensors on the device.

    It runs on torch's stream without synchronising, so that device events time it as they time the
    others.
    """
    import onnxruntime as ort
    import torch

    stream = torch.cuda.Stream()
    own = {
        "enable_cuda_graph": "1",
        "use_tf32": "0",
        "user_compute_stream": str(stream.cuda_stream),
    }
    proto = net.onnx()
    proto.ir_version = min(proto.ir_version, 10)  # what is written needs no newer one
    start = time.perf_counter()
    session = ort.InferenceSession(
        proto.SerializeToString(), providers=[("CUDAExecutionProvider", own)]
    )
    if "CUDAExecutionProvider" not in session.get_providers():
        raise RuntimeError("this ONNX Runtime has no CUDA provider: install onnxruntime-gpu")
    out = torch.full_like(want, float("nan"), dtype=getattr(torch, net.torch_type))
    binding = session.io_binding()
    for name, given in zip(net.inputs, arguments, strict=True):
        kind = str(given.dtype).removeprefix("torch.")
        kind = {"bfloat16": 16}.get(kind, kind)
        binding.bind_input(name, "cuda", 0, kind, tuple(given.shape), given.data_ptr())
    kind = {"bfloat16": 16}.get(net.torch_type, net.torch_type)
    binding.bind_output(net.output, "cuda", 0, kind, tuple(out.shape), out.data_ptr())
    options = ort.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    with torch.cuda.stream(stream):
        session.run_with_iobinding(binding, options)
        torch.cuda.synchronize()
        compiled = time.perf_counter() - start
        record = {"error": error_of(out, want), "compile_s": compiled}
        return record | {"ms": milliseconds(lambda: session.run_with_iobinding(binding, options))}


def compete(
    name: str, everyone: list[str], run: Callable[[str], dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The record of each competitor; of one that fails its traceback, and the others still run."""
    import torch

    records: dict[str, dict[str, Any]] = {}
    for who in everyone:
        try:
            records[who] = run(who)
            short = {k: v for k, v in records[who].items() if k != "profile"}
            print(name, who, json.dumps(short), flush=True)
        except Exception:  # recorded and printed
            records[who] = {"failed": traceback.format_exc(limit=4)}
            print(name, who, traceback.format_exc()[-3000:], flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    return records


def measure(
    name: str, peers: list[str], profile: bool, tuning: dict[str, Any] | None = None
) -> dict[str, Any]:
    import torch

    make, floor = WORKLOADS[name]
    net = make()
    arguments = net.arguments()
    torch.backends.cuda.matmul.allow_tf32 = False
    wide = [a.float() if a.is_floating_point() else a for a in arguments]
    want = net.torch_module(torch.float32)(*wide)
    result: dict[str, Any] = {"floor_ms": floor, "gflop": net.flops / 1e9}

    def run(who: str) -> dict[str, Any]:
        if who == "tuned":
            return run_ours(net, arguments, want, profile, **(tuning or {}))
        if who == "ours":
            return run_ours(net, arguments, want, profile)
        if who == "onnxruntime":
            return run_onnxruntime(net, arguments, want)
        return run_peer(who, net, arguments, want)

    result |= compete(name, ["ours", *(["tuned"] if tuning else []), *peers], run)
    times = [result[p]["ms"] for p in peers if "ms" in result[p]]
    if times and "ms" in result["ours"]:
        mine = [result[w]["ms"] for w in ("ours", "tuned") if "ms" in result.get(w, {})]
        result["ratio"] = min(times) / min(mine)
    return result


def measure_apart(name: str, given: argparse.Namespace) -> dict[str, Any]:
    """`measure` in a process of its own: what one workload breaks on the device ends with it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [sys.executable, __file__, name, "--peers", given.peers, "--output", str(path)]
        if given.tune:
            command += ["--tune", given.tune, "--tune-budget", str(given.tune_budget)]
        subprocess.run(command + ["--profile"] * given.profile, check=False)
        return (
            json.loads(path.read_text())[name] if path.exists() else {"ours": {}, "floor_ms": 0.0}
        )


def table(results: dict[str, dict[str, Any]], peers: list[str]) -> str:
    peers = ["tuned", *peers]
    lines = [f"{'workload':28} {'floor':>7} {'ours':>8} " + " ".join(f"{p:>8}" for p in peers)
             + f" {'ratio':>6} launches error"]  # fmt: skip
    for name, r in results.items():
        ours = r["ours"]
        lines.append(
            f"{name:28} {r['floor_ms']:7.3f} {ours.get('ms', float('nan')):8.3f} "
            + " ".join(f"{r.get(p, {}).get('ms', float('nan')):8.3f}" for p in peers)
            + f" {r.get('ratio', float('nan')):6.2f} {ours.get('launches', 0):8d} "
            + f"{ours.get('error', float('nan')):.1e}"
        )
    return "\n".join(lines)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("workloads", nargs="*", default=list(WORKLOADS))
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("--tune", choices=("quick", "full"), help="ours again, tuned")
    parser.add_argument("--tune-budget", type=float, default=60.0)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--seconds", type=float, default=3600.0, help="start nothing after this")
    given = parser.parse_args()
    torch.set_grad_enabled(False)
    peers = [p for p in given.peers.split(",") if p]
    start, results = time.perf_counter(), {}
    for name in given.workloads:
        if time.perf_counter() - start > given.seconds:
            print(f"no time left for {name}")
            continue
        if len(given.workloads) == 1:
            tuning = {"tune": given.tune, "tune_budget": given.tune_budget} if given.tune else None
            results[name] = measure(name, peers, given.profile, tuning)
        else:
            results[name] = measure_apart(name, given)
        if given.output:
            given.output.write_text(json.dumps(results, indent=1))
    if len(given.workloads) == 1 and given.output:
        return
    print(table(results, peers))
    for name, r in results.items():
        for kernel, runs, micro in r["ours"].get("profile", [])[:14]:
            print(f"{name[:16]:16} {runs:4d} x {micro:8.2f} us  {kernel[:90]}")


if __name__ == "__main__":
    main()
