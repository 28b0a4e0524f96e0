"""Runs the backend tests that apply through CUDA kernels, on this machine's GPU.

    python tests/backend/backend_gpu.py [-k TEXT] [--jobs 8] [--tenth] [--json FILE] [--compile-only]

Processes without a GPU of their own compile all cases; then one process runs the artifacts and
judges what comes back, and is started anew behind a case that breaks the device.  Prints every wrong
answer and the reasons of refusals with their counts.  Exit code 1 when an answer is wrong or a
process was lost.
"""

from __future__ import annotations

import argparse
import collections
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from backend_cases import all_cases, input_names
from backend_rules import why_not
from backend_run import ran

SECONDS = 60  # for one case; more is a hang


def target_here() -> str:
    """`cuda:sm_90` on a machine with such a GPU, which is asked for in a process of its own."""
    text = "import torch\nmajor, minor = torch.cuda.get_device_capability()\nprint(f'cuda:sm_{major}{minor}')"
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"no GPU that torch sees: {run.stderr.strip().splitlines()[-1:]}")
    return run.stdout.strip()


def compile_case(order: tuple[int, str, str]) -> tuple[int, str, str]:
    """(number, status, message) of one case compiled into FOLDER/number.gw."""
    from graphwright.compilation import build
    from graphwright.compiler.options import CompileOptions
    from graphwright.errors import GraphwrightError, UnsupportedError

    number, target, folder = order
    case = all_cases()[number]
    try:
        model, _ = case.load()
        reason = why_not(case, model, "compiled")
        if reason:
            return number, "excluded", reason
        artifact = build(model, CompileOptions.make(target=target, jobs=1)).artifact
        artifact.write(Path(folder) / f"{number}.gw")
        return number, "built", ""
    except UnsupportedError as error:
        reasons = sorted({f"{p.op.rsplit('-', 1)[0]}: {p.reason}" for p in error.problems})
        return number, "unsupported", "; ".join(reasons or [str(error)])
    except GraphwrightError as error:
        return number, "failed", f"{type(error).__name__}: {error}"
    except Exception as error:  # a fault of ours, told with the rest
        return number, "failed", f"{type(error).__name__}: {error}"


def run_all(numbers: Sequence[int], folder: str) -> None:
    """In a process with the GPU: a line of JSON for each case before and after it ran."""
    from graphwright.runtime import load

    for number in numbers:
        print(json.dumps([number, "start", ""]), flush=True)
        case = all_cases()[number]
        try:
            model, sets = case.load()
            loaded = load(Path(folder) / f"{number}.gw", device="cuda")
            status, message = ran(case, loaded, input_names(model), sets)
        except Exception as error:  # one case of many; it is counted
            status, message = "failed", f"{type(error).__name__}: {error}"
        print(json.dumps([number, status, message[:600]]), flush=True)
        if "CUDA_ERROR" in message:
            return  # the device's context is lost; the next process goes on


def run_on_gpu(numbers: list[int], folder: str) -> dict[int, tuple[str, str]]:
    out: dict[int, tuple[str, str]] = {}
    left = list(numbers)
    while left:
        command = [sys.executable, __file__, "--run", folder, "--numbers", ",".join(map(str, left))]
        last = -1
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.startswith("["):
                    continue
                number, status, message = json.loads(line)
                if status == "start":
                    last = number
                else:
                    out[number] = (status, message)
        if last >= 0 and last not in out:
            out[last] = ("failed", f"the process ended with {process.returncode}")
        before = len(left)
        left = [n for n in left if n not in out]
        if len(left) == before:
            raise SystemExit("the running process makes no progress")
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-k", default="", metavar="TEXT", help="only tests whose name holds TEXT")
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile")
    parser.add_argument("--tenth", action="store_true", help="every tenth case only")
    parser.add_argument("--target", default="", help="default: this machine's GPU")
    parser.add_argument("--compile-only", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--run", default="", help=argparse.SUPPRESS)
    parser.add_argument("--numbers", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        run_all([int(n) for n in given.numbers.split(",")], given.run)
        return 0
    cases = all_cases()
    numbers = [i for i, c in enumerate(cases) if c.kind == "node" and given.k in c.name][
        :: 10 if given.tenth else 1
    ]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        orders = [(n, given.target or target_here(), folder) for n in numbers[:1]]
        orders += [(n, orders[0][1], folder) for n in numbers[1:]]
        found: dict[int, tuple[str, str]] = {}
        with multiprocessing.get_context("spawn").Pool(given.jobs) as pool:
            for number, status, message in pool.imap_unordered(compile_case, orders, chunksize=4):
                found[number] = (status, message)
        built = [n for n in numbers if found[n][0] == "built"]
        print(
            f"compiled {len(built)} of {len(numbers)} in {time.monotonic() - start:.0f} s",
            flush=True,
        )
        if not given.compile_only:
            found |= run_on_gpu(built, folder)
    verdicts: list[Any] = [[cases[n].name, *found[n]] for n in numbers]
    counts = collections.Counter(status for _, status, _ in verdicts)
    for name, status, message in verdicts:
        if status in ("wrong", "failed"):
            print(f"{status} {name}: {message[:200]}")
    reasons = collections.Counter(m for _, s, m in verdicts if s == "unsupported")
    for reason, count in reasons.most_common(40):
        print(f"{count:5} unsupported: {reason[:150]}")
    print(
        ", ".join(f"{n} {s}" for s, n in counts.most_common()),
        f"in {time.monotonic() - start:.0f} s",
    )
    if given.json:
        given.json.write_text(json.dumps({"counts": counts, "verdicts": verdicts}, indent=1))
    return int(bool(counts["wrong"] + counts["failed"]))


if __name__ == "__main__":
    sys.exit(main())
