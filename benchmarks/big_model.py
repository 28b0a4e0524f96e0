"""Compiles a made-up model with more than 2 GB of external data and measures its peak memory.

    python benchmarks/big_model.py [--gigabytes 2.2] [--folder DIR] [--output FILE.json]

The model has an embedding table, products with weights as they are and transposed (folded at compile
time), and convolutions with batch norms (folded too), so that every way of a weight into an artifact
is taken.  Peak is the largest RssAnon of /proc/self/status while compiling and writing, sampled every
5 ms, less what there was before; mapped files do not count.  The bound is 0.3 times the weights plus
300 MB.  The artifact is then opened and run against numpy.  Everything is deleted at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from graphwright.compilation import build
from graphwright.compiler.options import CompileOptions
from graphwright.runtime import load

WIDTH, CHANNELS, ROWS = 2048, 256, 4096
ALIGNMENT = 4096


class Peak:
    """The largest anonymous memory of this process inside `with`, in bytes above the start."""

    def __enter__(self) -> Peak:
        self.start, self.most, self._done = rss_anon(), 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.most = max(self.most, rss_anon() - self.start)

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def rss_anon() -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(text.partition("RssAnon:")[2].split()[0])


class _Writer:
    """A model whose weights go to one external file as they are made."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "big.onnx"
        self.file = (folder / "big.data").open("wb")
        self.weights: list[onnx.TensorProto] = []
        self.nodes: list[onnx.NodeProto] = []
        self.random = np.random.default_rng(0)

    @property
    def bytes(self) -> int:
        return self.file.tell()

    def weight(self, *shape: int, positive: bool = False) -> str:
        name = f"w{len(self.weights)}"
        depth = int(np.prod(shape[1:])) or 1
        array = self.random.random(shape, np.float32)
        array = array + np.float32(0.5) if positive else (array - np.float32(0.5)) / depth**0.5
        self.file.write(bytes(-self.file.tell() % ALIGNMENT))
        offset = self.file.tell()
        self.file.write(array.data)
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape)
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", "big.data"), ("offset", offset), ("length", array.nbytes)):
            tensor.external_data.add(key=key, value=str(value))
        self.weights.append(tensor)
        return name

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name


def write_model(folder: Path, size: int) -> tuple[Path, int]:
    """A model of about `size` bytes of weights; its path and the exact number."""
    m = _Writer(folder)
    x = m.node("Gather", m.weight(ROWS, WIDTH), "ids", axis=0)
    side = WIDTH // CHANNELS
    image_shape = helper.make_tensor("image", TensorProto.INT64, [4], [-1, CHANNELS, side, 1])
    rows_shape = helper.make_tensor("rows", TensorProto.INT64, [2], [-1, WIDTH])
    while m.bytes < size:
        x = m.node("Tanh", m.node("MatMul", x, m.weight(WIDTH, WIDTH)))
        x = m.node("Gemm", x, m.weight(WIDTH, WIDTH), m.weight(WIDTH), transB=1)
        x = m.node("MatMul", x, m.node("Transpose", m.weight(WIDTH, WIDTH), perm=[1, 0]))
        image = m.node("Reshape", x, "image")
        image = m.node("Conv", image, m.weight(CHANNELS, CHANNELS, 3, 3), pads=[1, 1, 1, 1])
        norms = [m.weight(CHANNELS, positive=True) for _ in range(4)]
        image = m.node("Relu", m.node("BatchNormalization", image, *norms))
        x = m.node("Reshape", image, "rows")
    total = m.bytes
    m.file.close()
    graph = helper.make_graph(
        m.nodes,
        "big",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["N"])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, None)],
        [*m.weights, image_shape, rows_shape],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    m.path.write_bytes(model.SerializeToString())
    return m.path, total


def measure(folder: Path, gigabytes: float) -> dict[str, float]:
    """Compiles once; sizes in bytes, times in seconds."""
    path, weights = write_model(folder, int(gigabytes * 2**30))
    artifact = folder / "big.gw"
    start = time.perf_counter()
    with Peak() as peak:
        build(path, CompileOptions.make()).artifact.write(artifact)
    compiled = time.perf_counter() - start
    start = time.perf_counter()
    with Peak() as loading:
        model = load(artifact)
        loaded = time.perf_counter() - start
        (out,) = model(np.arange(2))
    assert np.isfinite(out).all() and out.any()
    return {
        "weights": weights,
        "artifact": os.path.getsize(artifact),
        "peak": peak.most,
        "bound": int(0.3 * weights + 300e6),
        "compile_seconds": round(compiled, 1),
        "load_seconds": round(loaded, 2),
        "load_and_run_peak": loading.most,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2.2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--output", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="graphwright-big-", dir=given.folder))
    try:
        found = measure(folder, given.gigabytes)
    finally:
        shutil.rmtree(folder)
    for name, value in found.items():
        shown = f"{value / 1e6:12.1f} MB" if value > 1e5 else f"{value:12}"
        print(f"{name:20}{shown}")
    ratio = found["peak"] / found["weights"]
    print(f"peak {ratio:.2f}x of the weights, artifact {found['artifact'] / found['weights']:.2f}x")
    if given.output:
        given.output.write_text(json.dumps(found, indent=1) + "\n")
    if found["peak"] > found["bound"]:
        raise SystemExit("the peak is above the bound")


if __name__ == "__main__":
    main()
