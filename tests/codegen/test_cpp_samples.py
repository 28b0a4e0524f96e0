"""Every sample of every op through its C++ kernel, static and with symbolic extents.

The quick run takes the first samples of each op; `-m slow` takes all.  An op or type that has no
kernel must be in `UNSUPPORTED`, with the reason; an entry that works fails the test.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from codegen_harness import Compiled, relative_error

from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.target import Target
from graphwright.errors import UnsupportedError

sys.path.insert(0, str(Path(__file__).parents[1] / "ir"))
from samples import graph_of, samples

TARGET = Target.parse("cpu:native")
QUICK = 2  # samples of each op in the quick run

# Sample name prefixes without a kernel: why.
UNSUPPORTED: dict[str, str] = {
    **{f"attention-{type}": "decompose widens or writes it out" for type in ("half", "f64")},
    "arg_max_pool-whole": "its windows are written out, up to 64 elements",
    **{f"{op}-{type}": "recurrent kernels are for float32"
       for op in ("lstm", "gru", "rnn") for type in ("f64", "half")},
}  # fmt: skip
# Numbers that differ from call to call: test_random.py judges them.
DRAWN = ("random_uniform-stream", "random_normal-stream")
# Operands that models give as constants, tried both ways.
WEIGHTS = {"matmul": (1,), "matmul_integer": (1, 3), "conv_integer": (1, 3), "conv": (1, 2), "conv_transpose": (1, 2),
           "lstm_integer": tuple(range(1, 8)), "lstm": (1, 2, 3), "gru": (1, 2, 3), "rnn": (1, 2, 3)}  # fmt: skip
# Ops whose weights must be constants.
CONSTANT = ("lstm_integer",)
# Relative error allowed beyond 2e-6, by result type.
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float64": 1e-13}


def cases(all_samples):
    seen: Counter[str] = Counter()
    for sample in samples():
        seen[sample.op] += 1
        if not all_samples and seen[sample.op] > QUICK:
            continue
        for dynamic in (False, True):
            if sample.op not in CONSTANT:
                yield sample, dynamic, ()
            if sample.op in WEIGHTS:
                count = len(sample.arrays)
                yield sample, dynamic, tuple(i for i in WEIGHTS[sample.op] if i < count)


def reason_of(sample, graph):
    """Why a sample has no kernel, or None."""
    return next((r for p, r in UNSUPPORTED.items() if str(sample).startswith(p)), None)


def run(chosen):
    """Failures, as text, of the chosen (sample, dynamic) pairs, compiled together."""
    graphs, kept, failures = [], [], []
    for sample, dynamic, constants in chosen:
        if str(sample) in DRAWN:
            continue
        graph = graph_of(sample, dynamic=dynamic, constants=constants)
        reason = reason_of(sample, graph)
        try:
            emit_graph(graph, TARGET)
        except UnsupportedError as error:
            if reason is None:
                failures.append(f"{sample} dynamic={dynamic}: {error}")
            continue
        if reason is not None:
            failures.append(f"{sample} dynamic={dynamic}: listed as unsupported, but has a kernel")
            continue
        graphs.append(graph)
        arrays = [a for i, a in enumerate(sample.arrays) if i not in constants]
        kept.append((sample, arrays, f"dynamic={dynamic} constants={constants}"))
    compiled = Compiled(graphs)
    for i, (sample, arrays, how) in enumerate(kept):
        try:
            got = compiled.run(i, arrays)
            want = evaluate(graphs[i], arrays)
            for k, (a, b) in enumerate(zip(got, want, strict=True)):
                b = np.asarray(b)
                error = relative_error(a, b)
                allowed = TOLERANCE.get(b.dtype.name, 2e-6)
                if not error <= allowed:
                    failures.append(f"{sample} {how}: output {k}: error {error:.3g}")
        except AssertionError as error:
            failures.append(f"{sample} {how}: {error}")
    return failures


def test_first_samples_of_each_op():
    failures = run(cases(False))
    assert not failures, "\n".join(failures)


@pytest.mark.slow
def test_all_samples():
    failures = run(cases(True))
    assert not failures, "\n".join(failures)
