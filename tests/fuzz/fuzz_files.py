"""Damaged model files and artifacts: refused in words or taken, never a crash or a hang.

    python tests/fuzz/fuzz_files.py [--seeds 0:400] [--jobs 2]

By the seed's remainder, a model's bytes or its fields (fuzz_fields.py) are damaged, which is then
imported, optimised and emitted; an artifact's bytes, which is loaded and run when it is taken (digests
refuse what they cover); an artifact's manifest under right digests, which is loaded; the text of a
graph, which is parsed and evaluated; the weights that a refit is given.
"""

from __future__ import annotations

import argparse
import collections
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import lru_cache
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(Path(__file__).parent), str(TESTS / "backend"), str(TESTS / "runtime")]
from backend_cases import Case  # noqa: E402
from fuzz_fields import change_model, change_tree, damaged_text  # noqa: E402
from fuzz_generator import WIDE_FROM, random_model  # noqa: E402
from isolated import PATHS, Verdict, run_batches  # noqa: E402
from test_hostile import members_of, with_manifest  # noqa: E402

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


def try_fields(seed: int) -> str:
    from graphwright.compiler.driver import check_graph
    from graphwright.compiler.options import CompileOptions
    from graphwright.frontends.onnx import import_model

    rng = random.Random(seed)
    base = rng.randrange(10_000) + (WIDE_FROM if rng.random() < 0.7 else 0)
    model = random_model(base)[0]
    for _ in range(rng.randint(1, 2)):
        change_model(model, rng)
    options = CompileOptions.make(target="cpu:x86-64-v3", allow=("specialise",))
    check_graph(import_model(model), options.target, options)
    return "taken"


def try_manifest(seed: int) -> str:
    from graphwright.runtime import load

    rng = random.Random(seed)
    data, _ = artifact(rng.randrange(BASES))
    load(with_manifest(data, lambda m: change_tree(m, rng)), threads=1)
    return "taken"


def try_text(seed: int) -> str:
    """The text of a graph: parsed, verified, evaluated."""
    from graphwright.compiler.ir.ops import REGISTRY
    from graphwright.compiler.ir.parser import ParseError, parse_graph
    from graphwright.compiler.ir.printer import print_graph
    from graphwright.compiler.ir.verify import VerifyError, verify
    from graphwright.errors import InvalidModelError
    from graphwright.frontends.onnx import import_model

    rng = random.Random(seed)
    model, _, _ = random_model(rng.randrange(10_000) + WIDE_FROM)
    text = print_graph(import_model(model))
    try:
        verify(parse_graph(damaged_text(text, rng), registry=REGISTRY, placeholders=True))
    except (ParseError, VerifyError) as error:
        raise InvalidModelError(str(error)) from error
    return "taken"


def try_refit(seed: int) -> str:
    from graphwright.compiler.ir.ops import REGISTRY
    from graphwright.compiler.refit import read_safetensors, refit

    rng = random.Random(seed)
    data, _ = artifact(rng.randrange(BASES))
    with tempfile.TemporaryDirectory() as folder:
        old, weights = Path(folder, "old.gw"), Path(folder, "w.safetensors")
        old.write_bytes(data)
        weights.write_bytes(damaged(members_of(data)["weights.safetensors"], rng))
        refit(old, read_safetensors(weights), registry=REGISTRY)
    return "taken"


WAYS = (try_model, try_artifact, try_fields, try_manifest, try_fields, try_text, try_refit)


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
            with np.errstate(all="ignore"):
                WAYS[seed % len(WAYS)](seed)
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
