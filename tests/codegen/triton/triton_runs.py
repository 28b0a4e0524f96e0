"""Emits the launch of a one-op graph, and runs launches in Triton's interpreter beside the reference."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.codegen.kernel import EmittedLaunch, Workspace
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.layout import order_of
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target

Case = tuple[Graph, EmittedLaunch | Sequence[EmittedLaunch], Mapping[str, int]]


def launches_of(text: str, target: str = "cuda:sm_90") -> tuple[Graph, list[EmittedLaunch]]:
    """The graph of a text, and the launches of its ops that are no views."""
    graph = parse_graph(text, registry=REGISTRY)
    steps = emit_graph(graph, Target.parse(target), skip=lambda op: view_of(op) is not None)
    assert all(isinstance(s, EmittedLaunch) for s in steps)
    return graph, [s for s in steps if isinstance(s, EmittedLaunch)]


def launch_of(text: str, target: str = "cuda:sm_90") -> tuple[Graph, EmittedLaunch]:
    """`launches_of` an op that has one launch."""
    graph, (launch,) = launches_of(text, target)
    return graph, launch


def interpret(
    folder: Path, cases: Mapping[str, Case], *, below: int = 70
) -> dict[str, tuple[list[np.ndarray], list[np.ndarray]]]:
    """Runs each case on random inputs, integers `below` a number: {name: (outputs, wanted outputs in float64)}."""
    rng = np.random.default_rng(7)
    entries, arrays, wanted = [], {}, {}
    for name, (graph, launches, binding) in cases.items():
        feed = []
        for i, value in enumerate(graph.inputs):
            shape = [dims.evaluate(d, binding) for d in value.type.shape]
            if value.type.dtype.is_integer:
                array = rng.integers(0, below, shape).astype(value.type.dtype.numpy)
            elif value.type.dtype.kind == "bool":
                array = np.asarray(rng.random(shape) < (0.7 if shape else 1))
                if shape:
                    array[0] = False  # a row that nothing takes part in
            else:
                array = rng.standard_normal(shape).astype(value.type.dtype.numpy)
            arrays[f"{name}.in{i}"] = array.transpose(order_of(value.type.layout, array.ndim))
            feed.append(array)
        wanted[name] = evaluate(graph, feed, compute=np.float64)
        entries.append(
            {
                "outputs": [
                    [f"{name}.out{i}", list(w.transpose(order(v)).shape), v.type.dtype.numpy.name]
                    for i, (w, v) in enumerate(zip(wanted[name], graph.outputs, strict=True))
                ],
                "launches": [
                    _entry(folder, name, graph, launch, binding)
                    for launch in (launches if isinstance(launches, Sequence) else [launches])
                ],
            }
        )
    (folder / "cases.json").write_text(json.dumps(entries))
    np.savez(folder / "arrays.npz", **arrays)
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("interpret.py")), "cases.json", "arrays.npz",
         "out.npz"],
        cwd=folder, env=os.environ | {"TRITON_INTERPRET": "1"}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    made = np.load(folder / "out.npz")
    return {
        name: (
            [
                made[f"{name}.out{i}"].transpose(np.argsort(order(v)))
                for i, v in enumerate(cases[name][0].outputs)
            ],
            w,
        )
        for name, w in wanted.items()
    }


def _entry(
    folder: Path, name: str, graph: Graph, launch: EmittedLaunch, binding: Mapping[str, int]
) -> dict[str, object]:
    module = folder / f"{name}_{launch.kernel.name}.py"
    module.write_text(launch.kernel.source)
    scratch = [a for a in launch.arguments if isinstance(a, Workspace)]
    return {
        "module": str(module),
        "kernel": launch.kernel.name,
        "inputs": [
            f"{name}.in{graph.inputs.index(a)}"
            for a in launch.arguments
            if isinstance(a, Value) and a in graph.inputs
        ],
        "outputs": [
            graph.outputs.index(a)
            for a in launch.arguments
            if isinstance(a, Value) and a in graph.outputs
        ],
        "workspaces": [dims.evaluate(a.bytes, binding) for a in scratch],
        "roles": list(launch.kernel.roles),
        "types": list(launch.kernel.signature),
        "scalars": [dims.evaluate(s, binding) for s in launch.scalars],
        "grid": [dims.evaluate(g, binding) for g in launch.grid],
    }


def order(value: Value) -> tuple[int, ...]:
    """The axes of a value, outermost in memory first."""
    return order_of(value.type.layout, value.type.rank)
