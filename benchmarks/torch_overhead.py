"""What a call through torch.compile costs beyond the kernels: ten small ops, per backend.

    python benchmarks/torch_overhead.py [--calls 200] [--rounds 300]

"nothing" is a backend whose compiled function returns a tensor made before: Dynamo's guards and
AOTAutograd's wrapper remain.  What the others take above it is theirs: checks, allocation of the result,
the call of the kernel.  Rounds alternate; printed is the lower decile over rounds, in microseconds,
since whatever else the machine does only adds.
"""

from __future__ import annotations

import argparse
import statistics
import time
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd


def ten_ops(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    a = (x + y) * 2 - x
    b = a.relu().sigmoid() + y
    return (b * a).tanh().abs() + b


def nothing(module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend that calculates the result once."""

    def compiler(graph: torch.fx.GraphModule, given: Sequence[Any]) -> Callable[..., Any]:
        made: list[Any] = []

        def run(arguments: list[Any]) -> Any:
            if not made:
                made.append(graph(*arguments))
            arguments.clear()
            return made[0]

        setattr(run, "_boxed_call", True)  # noqa: B010 - the attribute torch asks a function for
        return run

    return aot_autograd(fw_compiler=compiler)(module, inputs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, y = torch.randn(64), torch.randn(64)
    runs: dict[str, Callable[..., torch.Tensor]] = {"eager": ten_ops}
    backends: dict[str, Any] = {
        "nothing": nothing, "inductor": "inductor", "graphwright": "graphwright",
    }  # fmt: skip
    for name, backend in backends.items():
        # A code object of its own: Dynamo keeps what it compiled by code.
        code = ten_ops.__code__.replace(co_name=name)
        function = types.FunctionType(code, ten_ops.__globals__, name)
        settings = {"options": {"threads": 1}} if name == "graphwright" else {}
        runs[name] = torch.compile(function, backend=backend, fullgraph=True, **settings)
    times: dict[str, list[float]] = {name: [] for name in runs}
    with torch.no_grad():
        want = ten_ops(x, y)
        for run in runs.values():
            assert torch.allclose(run(x, y), want, rtol=1e-5, atol=1e-6)
        for turn in range(options.rounds):
            for name in list(runs) if turn % 2 else list(reversed(runs)):
                run = runs[name]
                run(x, y)
                start = time.perf_counter()
                for _ in range(options.calls):
                    run(x, y)
                times[name].append((time.perf_counter() - start) / options.calls * 1e6)
    found = {name: statistics.quantiles(t, n=10)[0] for name, t in times.items()}
    print("backend      us a call   above nothing")
    for name, value in found.items():
        print(f"{name:<12} {value:9.2f} {value - found['nothing']:12.2f}")


if __name__ == "__main__":
    main()
