"""What this machine can do at most: measured rates, the yardstick of profiles and benchmarks."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

_MEASURE = """
import json, time, numpy as np
n = 1536
a = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
x, y = np.ones(1 << 26, np.float32), np.empty(1 << 26, np.float32)
def best(f, runs):
    f(); times = []
    for _ in range(runs):
        t = time.perf_counter(); f(); times.append(time.perf_counter() - t)
    return min(times)
print(json.dumps([2 * n**3 / best(lambda: a @ a, 8), 2 * x.nbytes / best(lambda: np.copyto(y, x), 5)]))
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """fp32 operations a second, and bytes a second from and to memory, of a number of threads."""

    flops: float
    bandwidth: float


def measure_device(repeats: int = 20) -> Machine:
    """The current GPU's rates by torch, where it is installed: a product in fp32 and a copy on the
    device.  Raises ImportError without torch.
    """
    torch: Any = importlib.import_module("torch")

    def best(run: Any) -> float:
        times: list[float] = []
        for _ in range(repeats):
            marks = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            marks[0].record()
            run()
            marks[1].record()
            torch.cuda.synchronize()
            times.append(marks[0].elapsed_time(marks[1]) * 1e-3)
        return min(times)

    n = 8192
    a = torch.randn(n, n, device="cuda")
    x = torch.ones(1 << 28, device="cuda")
    y = torch.empty_like(x)
    return Machine(2 * n**3 / best(lambda: a @ a), 2 * 4 * (1 << 28) / best(lambda: y.copy_(x)))


def measure_machine(threads: int) -> Machine:
    """A large matrix product and a large copy in numpy, in a process of their own, with numpy's best
    kernels for this CPU.  Takes about two seconds.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    env |= {"OPENBLAS_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE], env=env, capture_output=True, text=True, check=True
    )
    return Machine(*json.loads(done.stdout))
