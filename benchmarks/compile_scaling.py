"""CPU seconds of each stage of compiling against the number of nodes.

    python benchmarks/compile_scaling.py [MODEL ...] [--nodes 1000,5000,20000] [--output FILE.json]

Models are made up (scaling_models.py): a chain as deep as it is long, equal layers, one value with
thousands of users, heads with sizes read from tensors, convolutions.  `growth` is how much longer
the largest takes than the smallest, over how many more nodes it has: 1 is linear.  C++ compilation
is in the table (its cache is off), since equal layers share one kernel, so that it should not grow.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scaling_models import MODELS

from graphwright.compilation import check, import_source
from graphwright.compiler.driver import compile_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Listener, PassResult
from graphwright.runtime import load


def seconds_used() -> float:
    """CPU seconds of this process and the C++ compilers that it waited for: what other processes do
    to a busy machine stays out of it.
    """
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


FLOOR = 0.05  # seconds: below this a stage's growth is noise


class Stages(Listener):
    """CPU seconds by pass, the verifier behind it included, and by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._mark = seconds_used()
        self._name = ""

    def add(self, name: str, seconds: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def before_pass(self, name: str, graph: Any) -> None:
        self.stage("")

    def after_pass(self, name: str, graph: Any, result: PassResult, seconds: float) -> None:
        now = seconds_used()
        self.add(name, now - self._mark)
        self._mark, self._name = now, ""

    def stage(self, name: str, done: int = 0, total: int = 0) -> None:
        now = seconds_used()
        if self._name:
            self.add(self._name, now - self._mark)
        self._mark, self._name = now, name


def measure(kind: str, nodes: int) -> dict[str, float]:
    """Seconds by stage of one model."""
    data = MODELS[kind](nodes).SerializeToString()
    options = CompileOptions.make(cache=False, target="cpu:native", jobs=2)
    gc.collect()
    stages = Stages()
    start = seconds_used()
    graph = import_source(data, options)
    stages.add("import", seconds_used() - start)
    artifact = compile_graph(graph, options.target, options, listeners=[stages])
    stages.stage("")
    start = seconds_used()
    packed = artifact.to_bytes()
    stages.add("write", seconds_used() - start)
    total = sum(stages.seconds.values())
    start = seconds_used()
    load(packed)
    loaded = seconds_used() - start
    start = seconds_used()
    report = check(data, target="cpu:native")
    checked = seconds_used() - start
    assert report.ok, report.problems
    return {**stages.seconds, "total": total, "(load)": loaded, "(check)": checked}


def show(kind: str, sizes: Sequence[int], found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Prints one model's table; the growth of each stage."""
    growth: dict[str, float] = {}
    names = list(dict.fromkeys(n for f in found for n in f))
    print(f"\n{kind:24}" + "".join(f"{n:>10}" for n in sizes) + "    growth")
    for name in names:
        row = [f.get(name, 0.0) for f in found]
        grown = max(row[-1], FLOOR) / max(row[0], FLOOR * sizes[0] / sizes[-1])
        growth[name] = round(grown / (sizes[-1] / sizes[0]), 2)
        print(f"{name:24}" + "".join(f"{s:10.3f}" for s in row) + f"{growth[name]:10.2f}")
    return growth


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL")
    parser.add_argument("--nodes", default="1000,5000,20000")
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    sizes = [int(n) for n in given.nodes.split(",")]
    results: dict[str, Any] = {}
    for kind in given.models:
        found = [measure(kind, n) for n in sizes]
        growth = show(kind, sizes, found)
        seconds = {
            str(n): {k: round(s, 4) for k, s in f.items()}
            for n, f in zip(sizes, found, strict=True)
        }
        results[kind] = {"seconds": seconds, "growth": growth}
    if given.output:
        given.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
