"""Builds cubins in processes of their own: Triton compiles in one thread a process.

`build_ahead` fills the cache folder; whoever wants a kernel then calls `build`, which finds it there,
or builds it and raises what is wrong with it.  As a program it reads pickled kernels from stdin.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from graphwright.compiler.codegen.triton.build import TritonKernel, build, is_built
from graphwright.errors import GraphwrightError

FEWEST = 3  # kernels that are worth another process


def build_ahead(
    kernels: Sequence[TritonKernel],
    arch: str,
    cache: Path,
    *,
    jobs: int,
    tell: Callable[[int, int], None],
) -> None:
    """Builds what the cache lacks with up to `jobs` processes; `tell` is told parts done and all."""
    missing = [k for k in kernels if not is_built(k, arch, cache)]
    count = min(jobs, len(missing) // FEWEST)
    if count < 2:
        return
    paths = [p for p in sys.path if p]
    workers: list[subprocess.Popen[bytes]] = []
    for i in range(count):
        worker = subprocess.Popen(
            [sys.executable, "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        )
        assert worker.stdin is not None
        pickle.dump((missing[i::count], arch, cache), worker.stdin)
        worker.stdin.close()
        workers.append(worker)
    for done, worker in enumerate(workers):
        tell(len(missing) * done // count, len(missing))
        worker.wait()


def main() -> None:
    kernels, arch, cache = pickle.load(sys.stdin.buffer)
    for kernel in kernels:
        try:
            build(kernel, arch, cache)
        except GraphwrightError:
            continue  # whoever asked meets the same error, and reports it


if __name__ == "__main__":
    main()
