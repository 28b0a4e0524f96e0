"""A tiny library of kernels and models made of it, so that the runtime is tested by itself."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphwright.compiler.codegen.package import Artifact, WeightData
from graphwright.runtime.manifest import (
    Buffer,
    ConstraintSpec,
    Kernel,
    Launch,
    Manifest,
    Plan,
    Pointer,
    SymbolSpec,
    TensorSpec,
    Variant,
    WeightSpec,
)

INCLUDE = Path(__file__).parents[2] / "compiler/codegen/cpp/include"
SOURCE = r"""
#include "gw/runtime.h"
#include "gw/pool.h"
extern "C" {
// out[i] = x[i] * factor[0] + y[i];  s: elements
GW_EXPORT void scale_add(void* const* p, const int64_t* s, const gw_pool* pool) {
  const float *x = (const float*)p[0], *factor = (const float*)p[1], *y = (const float*)p[2];
  float* out = (float*)p[3];
  gw::parallel_for(pool, s[0], 1024, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) out[i] = x[i] * factor[0] + y[i];
  });
}
// out[0] = x[0] > 0;  one bool
GW_EXPORT void is_positive(void* const* p, const int64_t*, const gw_pool*) {
  *(bool*)p[1] = *(const float*)p[0] > 0;
}
// bytes
GW_EXPORT void copy_bytes(void* const* p, const int64_t* s, const gw_pool*) {
  __builtin_memcpy(p[1], p[0], s[0]);
}
// count[0] = how many of s[0] floats are positive
GW_EXPORT void count_positive(void* const* p, const int64_t* s, const gw_pool*) {
  int64_t n = 0;
  for (int64_t i = 0; i < s[0]; ++i) n += ((const float*)p[0])[i] > 0;
  *(int64_t*)p[1] = n;
}
// out = the positive ones among s[0] floats
GW_EXPORT void keep_positive(void* const* p, const int64_t* s, const gw_pool*) {
  float* out = (float*)p[1];
  for (int64_t i = 0; i < s[0]; ++i) if (((const float*)p[0])[i] > 0) *out++ = ((const float*)p[0])[i];
}
// counter = 0, go = true
GW_EXPORT void start_loop(void* const* p, const int64_t*, const gw_pool*) {
  *(int64_t*)p[0] = 0;
  *(bool*)p[1] = true;
}
// y = x, then again: s[0] floats become 2 s[0]
GW_EXPORT void twice(void* const* p, const int64_t* s, const gw_pool*) {
  __builtin_memcpy(p[1], p[0], 4 * s[0]);
  __builtin_memcpy((float*)p[1] + s[0], p[0], 4 * s[0]);
}
// Records the address of its first pointer in an int64 output.
GW_EXPORT void where(void* const* p, const int64_t*, const gw_pool*) {
  *(int64_t*)p[1] = (int64_t)p[0];
}
}
"""


def build_library(folder: Path) -> bytes:
    """The shared object of SOURCE; skips the test without a C++ compiler."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    (folder / "kernels.cpp").write_text(SOURCE)
    subprocess.run(
        [compiler, "-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{INCLUDE}",
         "kernels.cpp", "-o", "kernels.so", "-lpthread"],
        cwd=folder, check=True,
    )  # fmt: skip
    return (folder / "kernels.so").read_bytes()


NAMES = (
    "scale_add", "is_positive", "copy_bytes", "where", "count_positive", "keep_positive",
    "start_loop", "twice",
)  # fmt: skip
KERNELS = tuple(Kernel(n, "kernels/source.cpp") for n in NAMES)
SCALE_ADD, IS_POSITIVE, COPY, WHERE, COUNT, KEEP, START, TWICE = range(8)
S = SymbolSpec("S", 1, 4096, 1, 64, (0, 1))
BYTES: Any = ["*", 8, "S"]


def weight(name: str, array: np.ndarray) -> WeightData:
    return WeightData(WeightSpec(name, array.dtype.name, array.shape), lambda: array)


def make_artifact(
    library: bytes,
    launches: Sequence[Launch],
    *,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    buffers: Sequence[Buffer] = (),
    symbols: Sequence[SymbolSpec] = (S,),
    constraints: Sequence[ConstraintSpec] = (),
    weights: Sequence[WeightData] = (),
) -> Artifact:
    variant = Variant(
        "cpu:native", "kernels/native.so", KERNELS, tuple(launches), Plan(tuple(buffers))
    )
    manifest = Manifest(
        "tests", tuple(symbols), tuple(inputs), tuple(outputs), tuple(constraints), (), (variant,)
    )
    files = {"kernels/native.so": library, "kernels/source.cpp": SOURCE.encode()}
    return Artifact(manifest, tuple(weights), files, "graph @test() {}\n")


def two_step(library: bytes, **changes: Any) -> Artifact:
    """x, y: float32[2, S] -> z = (x*3 + y)*3 + x through an arena buffer; symbol S in 1..4096."""
    elements: Any = ["*", 2, "S"]
    x, y, z = Pointer("input", 0), Pointer("input", 1), Pointer("output", 0)
    three, t = Pointer("weight", 0), Pointer("arena", 0)
    launches = [
        Launch(kernel=SCALE_ADD, pointers=(x, three, y, t), scalars=(elements,), writes=(3,)),
        Launch(kernel=SCALE_ADD, pointers=(t, three, x, z), scalars=(elements,), writes=(3,)),
    ]
    given: dict[str, Any] = {
        "inputs": [TensorSpec("x", "float32", (2, "S")), TensorSpec("y", "float32", (2, "S"))],
        "outputs": [TensorSpec("z", "float32", (2, "S"))],
        "buffers": [Buffer(BYTES)],
        "weights": [weight("three", np.array([3], np.float32))],
    }
    return make_artifact(library, launches, **(given | changes))
