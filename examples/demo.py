"""The demo: real models, compiled, on real files and a real picture, beside ONNX Runtime.

python examples/demo.py [--threads N]     (scripts/demo installs what it needs and runs it)
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from page_reader import decode, enlarged, find_lines, line_array
from PIL import Image

import graphwright as gw

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "scripts"))
from fetch_models import FetchError, fetch  # noqa: E402

TOLERANCE = 3e-4  # of the root mean square: what fp32 arithmetic in another order may differ by
FOLDER = ROOT / "build" / "demo"


class Pair:
    """A model compiled by us and the same one in ONNX Runtime, with what they said and took."""

    def __init__(self, path: Path, threads: int) -> None:
        print(f"compiling {path.parent.name} ({path.name}) ...", flush=True)
        artifact = FOLDER / f"{path.parent.name}.gw"
        start = time.perf_counter()
        model = gw.compile(path, threads=threads)
        model.save(artifact)
        compiled = time.perf_counter() - start
        start = time.perf_counter()
        self.ours = gw.load(artifact, threads=threads)
        loaded = time.perf_counter() - start
        print(
            f"  took {compiled:.1f} s; {artifact.relative_to(ROOT)} has "
            f"{artifact.stat().st_size / 1e6:.1f} MB and loads in {1e3 * loaded:.0f} ms"
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        self.theirs = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"]
        )
        self.input = self.theirs.get_inputs()[0].name
        self.feeds: list[np.ndarray] = []

    def __call__(self, array: np.ndarray) -> np.ndarray:
        self.feeds.append(array)
        return self.ours(array)[0]

    def compare(self) -> None:
        """Prints the largest difference over everything asked so far, and the time of both."""
        worst = 0.0
        for feed in self.feeds:
            ours, theirs = self.ours(feed)[0], self.theirs.run(None, {self.input: feed})[0]
            norm = float(np.linalg.norm(theirs.astype(np.float64)))
            worst = max(worst, float(np.linalg.norm(ours.astype(np.float64) - theirs)) / norm)
        feed = self.feeds[-1]
        mine, other = alternate(
            lambda: self.ours(feed), lambda: self.theirs.run(None, {self.input: feed})
        )
        print(f"  difference from ONNX Runtime over {len(self.feeds)} inputs: {worst:.1e}"
              f" ({'ok' if worst < TOLERANCE else 'TOO MUCH'})")  # fmt: skip
        print(f"  one run on {'x'.join(map(str, feed.shape))}: graphwright {mine:.2f} ms, "
              f"ONNX Runtime {other:.2f} ms ({other / mine:.2f}x)\n")  # fmt: skip
        if not worst < TOLERANCE:
            sys.exit("error: the results differ from ONNX Runtime's by more than fp32 rounding")


def alternate(
    first: Callable[[], Any], second: Callable[[], Any], blocks: int = 6
) -> tuple[float, float]:
    """Median milliseconds of both, in alternating blocks: a waiting thread pool slows the other."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(blocks):
        for function, spent in ((first, times[0]), (second, times[1])):
            time.sleep(0.05)
            function()
            end = time.perf_counter() + 0.15
            while time.perf_counter() < end or len(spent) < 2:
                start = time.perf_counter()
                function()
                spent.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times[0])), float(np.median(times[1]))


def file_features(path: Path) -> np.ndarray:
    """The first and last 1024 bytes without surrounding white space, padded with 256."""
    content = path.read_bytes()
    head, tail = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
    row = np.full((1, 2048), 256, np.int32)
    row[0, : len(head)] = np.frombuffer(head, np.uint8)
    row[0, 2048 - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row


def show_file_types(model: Path, page: Path, threads: int) -> None:
    """What kind of file is each of these?"""
    labels = json.loads((model.parent / "config.min.json").read_text())["target_labels_space"]
    pair = Pair(model, threads)
    print("  what kinds of files are these?")
    for name in ("README.md", "scripts/demo", "examples/demo.py", "pyproject.toml", page):
        path = ROOT / name
        scores = pair(file_features(path))[0]
        best = int(scores.argmax())
        print(f"    {path.name:16} is {labels[best]} ({100 * scores[best]:.1f} %)")
    pair.compare()


def show_page(detector: Path, recogniser: Path, page: Path, threads: int) -> None:
    """What does the photographed page say?"""
    find, read = Pair(detector, threads), Pair(recogniser, threads)
    characters = read.theirs.get_modelmeta().custom_metadata_map["character"]
    picture = enlarged(Image.open(page), 1.5)
    print(f"  what does the photograph {page.name} say? (one artifact serves lines of every width)")
    for line in find_lines(picture, find):
        text, confidence = decode(read(line_array(line))[0], characters)
        print(f"    {text}   ({100 * confidence:.0f} %)")
    for name, pair in (("detector", find), ("recogniser", read)):
        print(f"  {name}:")
        pair.compare()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=0, help="default: the allowed CPUs")
    arguments = parser.parse_args()
    threads = arguments.threads or len(os.sched_getaffinity(0))
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        magika, detector, recogniser, page = fetch(
            ["magika", "ppocr-v4-det", "ppocr-v4-rec", "img-page"]
        )
        show_file_types(magika, page, threads)
        show_page(detector, recogniser, page, threads)
    except (FetchError, gw.GraphwrightError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
