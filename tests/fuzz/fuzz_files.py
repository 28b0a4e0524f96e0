"""Damaged model files and artifacts: refused in words or taken, never a crash or a hang.

    python tests/fuzz/fuzz_files.py [--seeds 0:400] [--jobs 2]

Even seeds damage a model's bytes, which is then imported, optimised and emitted; odd ones an
artifact's, which is loaded and run when it is taken (digests refuse what they cover).
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import time
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "backend")]
from backend_cases import Case  # noqa: E402
from fuzz_generator import random_model  # noqa: E402
from isolated import PATHS, Verdict, run_batches  # noqa: E402

CASE_SECONDS = 10
BASES = 6  # artifacts that are damaged


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Some bytes changed, cut out, doubled or cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(out))
        kind = rng.random()
        if kind < 0.6:
            out[at] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, out[at] ^ (1 << rng.randrange(8))])
        elif kind < 0.75:
            del out[at : at + rng.randint(1, 64)]
        elif kind < 0.9:
            out[at:at] = out[at : at + rng.randint(1, 64)]
        else:
            del out[at:]
        if not out:
            return b""
    return bytes(out)


@lru_cache(maxsize=BASES)
def artifact(seed: int) -> tuple[bytes, dict[str, np.ndarray]]:
    """A small compiled model and its inputs."""
    from backend_run import quick_options

    from graphwright.compiler.driver import compile_graph
    from graphwright.frontends.onnx import import_model

    model, feed, _ = random_model(seed)
    options = quick_options(True)
    made = compile_graph(import_model(model), options.target, options)
    return made.to_bytes(), feed


def try_model(seed: int) -> str:
    from graphwright.compiler.driver import check_graph
    from graphwright.compiler.options import CompileOptions
    from graphwright.frontends.onnx import import_model

    rng = random.Random(seed)
    data = damaged(random_model(rng.randrange(10_000))[0].SerializeToString(), rng)
    options = CompileOptions.make(target="cpu:x86-64-v3")
    check_graph(import_model(data), options.target, options)
    return "taken"


def try_artifact(seed: int) -> str:
    from graphwright.runtime import load

    rng = random.Random(seed)
    data, feed = artifact(rng.randrange(BASES))
    load(damaged(data, rng), threads=1)(**feed)
    return "taken"


def work(cases: Sequence[Case], pipe: Connection, quick: bool) -> None:
    """In the child: one damaged file after another."""
    from graphwright.errors import CompileError, GraphwrightError

    for seed in range(BASES):
        pipe.send((-1, "", "start", ""))
        artifact(seed)
    for index, case in enumerate(cases):
        pipe.send((index, PATHS[0], "start", ""))
        seed = int(case.name.removeprefix("file"))
        status, message = "taken", ""
        try:
            (try_artifact if seed % 2 else try_model)(seed)
        except CompileError as error:  # says that it is our fault
            status, message = "error", str(error)[:500]
        except GraphwrightError:
            status = "refused"
        except Exception as error:
            status, message = "error", f"{type(error).__name__}: {error}"[:500]
        for path in PATHS:
            pipe.send((index, path, status, message))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0:400", metavar="FROM:TO")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    first, last = map(int, options.seeds.split(":"))
    start, bad = time.monotonic(), 0
    counts: collections.Counter[str] = collections.Counter()
    verdicts = [Verdict(Case(f"file{s}", "fuzz", 0, 0)) for s in range(first, last)]
    ways = {"jobs": options.jobs, "batch": 100, "case_seconds": CASE_SECONDS}
    for verdict in run_batches(verdicts, work, **ways, progress=True):
        status = verdict.status[PATHS[0]]
        counts[status] += 1
        if status not in ("taken", "refused"):
            bad += 1
            print(f"{verdict.case.name} {status}: {verdict.message[PATHS[0]]}", flush=True)
    print(", ".join(f"{k}: {v}" for k, v in sorted(counts.items())))
    print(f"{bad} faults in {last - first} files; {time.monotonic() - start:.0f} s")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
