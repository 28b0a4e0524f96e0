"""Builds C++ test kernels and calls them through ctypes, with poisoned and guarded buffers."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

INCLUDE = Path(__file__).resolve().parents[3] / "compiler" / "codegen" / "cpp" / "include"
FLAGS = ["-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-ffp-contract=off"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra", "-Werror"]
CACHE = Path(tempfile.gettempdir()) / f"graphwright-tests-{os.getuid()}"
GUARD = 64  # floats before and after each buffer


def cpu_flags() -> set[str]:
    text = Path("/proc/cpuinfo").read_text() if os.path.exists("/proc/cpuinfo") else ""
    return set(text.split("flags", 1)[1].split("\n", 1)[0].split()) if "flags" in text else set()


def isas() -> list[str]:
    """x86-64 levels this machine runs, the ones the kernels are tuned for."""
    flags = cpu_flags()
    found = ["x86-64-v3"] if {"avx2", "fma"} <= flags else []
    if {"avx512f", "avx512dq", "avx512bw", "avx512vl"} <= flags:
        found.append("x86-64-v4")
    return found or ["native"]


def header_digest() -> str:
    digest = hashlib.sha256()
    for path in sorted(INCLUDE.rglob("*.h")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@functools.cache
def build(source: Path, *, isa: str, compiler: str = "g++", extra: tuple[str, ...] = ()) -> Path:
    """Compiles `source` to a shared object; a rebuild happens when it or a header changes."""
    command = {"g++": ["g++"], "zig": [sys.executable, "-m", "ziglang", "c++"]}[compiler]
    march = isa.replace("-", "_") if compiler == "zig" else isa
    flags = [*FLAGS, f"-march={march}", f"-I{INCLUDE}", *extra]
    if compiler == "zig":
        flags += ["-fno-sanitize=all", "-g0"]
    key = hashlib.sha256(
        "\0".join([header_digest(), source.read_text(), *command, *flags]).encode()
    ).hexdigest()[:24]
    CACHE.mkdir(exist_ok=True)
    output = CACHE / f"{source.stem}-{isa}-{key}.so"
    if not output.exists():
        partial = output.with_suffix(f".{os.getpid()}.tmp")
        done = subprocess.run(
            [*command, *flags, str(source), "-o", str(partial)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[:4000]
        partial.rename(output)
    return output


class Guarded:
    """A float32 array with poison on both sides: NaN, so that a stray read shows in the result."""

    def __init__(self, values: np.ndarray | None = None, *, shape: tuple[int, ...] = ()):
        shape = values.shape if values is not None else shape
        size = int(np.prod(shape))
        self.base = np.full(size + 2 * GUARD, np.nan, np.float32)
        self.array = self.base[GUARD : GUARD + size].reshape(shape)
        if values is not None:
            self.array[...] = values

    def intact(self) -> bool:
        return bool(np.isnan(self.base[:GUARD]).all() and np.isnan(self.base[-GUARD:]).all())


class Library:
    """Kernels of one shared object and its pool."""

    def __init__(self, path: Path, *, threads: int = 2):
        self.lib = ctypes.CDLL(str(path))
        self.lib.gw_pool_create.restype = ctypes.c_void_p
        self.lib.gw_pool_destroy.argtypes = [ctypes.c_void_p]
        self.pool = ctypes.c_void_p(self.lib.gw_pool_create(threads))

    def call(self, name: str, buffers, scalars, *, pool: bool = True) -> None:
        pointers = (ctypes.c_void_p * len(buffers))(
            *[b.ctypes.data if b is not None else None for b in buffers]
        )
        values = (ctypes.c_int64 * max(1, len(scalars)))(*[int(s) for s in scalars])
        getattr(self.lib, name)(pointers, values, self.pool if pool else None)

    def close(self) -> None:
        self.lib.gw_pool_destroy(self.pool)


def relative_error(out: np.ndarray, reference: np.ndarray) -> float:
    """||out - ref|| / ||ref||; infinite when anything is not finite."""
    difference = np.linalg.norm(out.astype(np.float64) - reference)
    size = np.linalg.norm(reference)
    error = float(difference / size) if size else float(difference)
    return error if np.isfinite(error) else float("inf")
