"""Times the CPU convolution kernels against ONNX Runtime on the layer shapes of real models.

    python benchmarks/cpu_kernels.py --models-dir models [--model ID] [--isa x86-64-v4] [--threads 2]

Shapes come from running each model once with every Conv's operands as extra outputs. Each distinct
layer becomes one ONNX model (Conv + Relu) whose Conv node is timed by ONNX Runtime's own profiler, so
its layout conversions are not counted, and one call of ours (convolution, bias, relu) through the
kernel ABI. Both run with the same number of threads in alternating blocks with a pause between them;
times are medians. With one thread both are CPU times of the calling thread (ONNX Runtime's Conv gets
its profiled share of the call), which others' load on the machine disturbs less than wall time.
"peak" is the rate of a loop of independent fused multiply-adds on all threads.
"""

from __future__ import annotations

import argparse
import collections
import ctypes
import hashlib
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from graphwright.compiler.codegen.cpp.packing import (
    pack_conv_weight,
    pack_depthwise_weight,
    panel_shape,
)

INCLUDE = Path(__file__).resolve().parents[1] / "compiler" / "codegen" / "cpp" / "include"
SOURCE = Path(__file__).with_name("cpu_kernels.cpp")
INPUTS = {
    "light-resnet50": [1, 3, 224, 224],
    "ppocr-v4-det": [1, 3, 640, 640],
    "ppocr-v4-rec": [1, 3, 48, 320],
    "ddddocr-det": [1, 3, 416, 416],
    "light-shufflenet": [1, 3, 224, 224],
}


@dataclass(frozen=True)
class Layer:
    """One 2-D convolution, all channels counted over the groups."""

    n: int
    channels: int
    height: int
    width: int
    out_channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]
    groups: int

    @property
    def out(self) -> tuple[int, int]:
        sizes = zip((self.height, self.width), self.kernel, self.stride, self.dilation, strict=True)
        return tuple(
            (size + self.pads[i] + self.pads[i + 2] - (k - 1) * d - 1) // s + 1
            for i, (size, k, s, d) in enumerate(sizes)
        )

    @property
    def flops(self) -> float:
        per_output = 2.0 * self.channels / self.groups * self.kernel[0] * self.kernel[1]
        return per_output * self.n * self.out_channels * self.out[0] * self.out[1]

    def __str__(self) -> str:
        text = f"{self.channels}x{self.height}x{self.width} -> {self.out_channels}"
        text += f" k{self.kernel[0]}x{self.kernel[1]}"
        if self.stride != (1, 1):
            text += f" s{self.stride[0]}" + (
                f"x{self.stride[1]}" if len(set(self.stride)) > 1 else ""
            )
        if self.groups > 1:
            text += f" g{self.groups}"
        return text


def find_layers(path: Path, shape: list[int]) -> collections.Counter[Layer]:
    """The convolutions of a model at one input shape, with how often each occurs."""
    model = onnx.load(path)
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    have = {output.name for output in model.graph.output}
    for name in {name for node in convs for name in node.input[:2]} - have:
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options)
    fed = {}
    for value in session.get_inputs():
        dims = [d if isinstance(d, int) else 1 for d in value.shape]
        fed[value.name] = np.random.rand(*(shape if len(dims) == 4 else dims)).astype(np.float32)
    names = [output.name for output in session.get_outputs()]
    values = dict(zip(names, session.run(names, fed), strict=True))
    found: collections.Counter[Layer] = collections.Counter()
    for node in convs:
        x, w = values[node.input[0]].shape, values[node.input[1]].shape
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if attributes.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or len(w) != 4:
            continue
        found[
            Layer(
                *x,
                w[0],
                w[2:],
                tuple(attributes.get("strides", (1, 1))),
                tuple(attributes.get("dilations", (1, 1))),
                tuple(attributes.get("pads", (0, 0, 0, 0))),
                attributes.get("group", 1),
            )
        ] += 1
    return found


class Peer:
    """One layer in ONNX Runtime; `measure` returns the Conv node's times in seconds."""

    def __init__(self, layer: Layer, w: np.ndarray, b: np.ndarray, threads: int):
        node = helper.make_node(
            "Conv", ["x", "w", "b"], ["c"],
            kernel_shape=layer.kernel, strides=layer.stride, dilations=layer.dilation,
            pads=layer.pads, group=layer.groups,
        )  # fmt: skip
        shape = [layer.n, layer.channels, layer.height, layer.width]
        graph = helper.make_graph(
            [node, helper.make_node("Relu", ["c"], ["y"])],
            "layer",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(w, "w"), onnx.numpy_helper.from_array(b, "b")],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
        model.ir_version = 8
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = tempfile.mktemp(prefix="ort_")
        self.session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        self.cpu_time = threads == 1
        self.spent: list[float] = []

    def run(self, x: np.ndarray) -> np.ndarray:
        start = time.thread_time()
        out = self.session.run(None, {"x": x})[0]
        self.spent.append(time.thread_time() - start)
        return out

    def time(self) -> float:
        """Ends profiling; median seconds of the Conv node, the first three calls left out."""
        path = Path(self.session.end_profiling())
        events = json.loads(path.read_text())
        path.unlink()
        nodes = [e for e in events if e.get("name", "").endswith("_kernel_time")]
        conv = [e["dur"] for e in nodes if e["args"].get("op_name") in ("Conv", "FusedConv")]
        if not self.cpu_time:
            return statistics.median(conv[3:]) * 1e-6
        runs = [e["dur"] for e in events if e.get("name") == "model_run"]
        shares = [c / r for c, r in zip(conv[3:], runs[3:], strict=True)]
        return statistics.median(self.spent[3:]) * statistics.median(shares)


class Ours:
    """One layer through the kernel ABI, with its own buffers."""

    def __init__(self, library: ctypes.CDLL, pool, isa: str, layer: Layer, w, b, clock):
        self.pool, self.clock = pool, clock
        depthwise = layer.groups > 1 and layer.channels == layer.groups
        pointwise = (
            layer.kernel == (1, 1) and layer.groups == 1 and layer.stride == (1, 1)
        ) and not any(layer.pads)
        self.fn = library.bench_depthwise if depthwise else library.bench_conv
        shape = panel_shape(isa)
        if depthwise:
            packed = pack_depthwise_weight(w, shape=shape)
        else:
            packed = pack_conv_weight(w, groups=layer.groups, shape=shape)
        self.x = np.zeros((layer.n, layer.height, layer.width, layer.channels), np.float32)
        self.out = np.full((layer.n, *layer.out, layer.out_channels), np.nan, np.float32)
        self.keep = [self.x, packed, b, self.out]
        self.p = (ctypes.c_void_p * 4)(*[a.ctypes.data for a in self.keep])
        scalars = [layer.n, layer.groups, layer.channels // layer.groups]
        scalars += [layer.out_channels // layer.groups, 1, layer.height, layer.width]
        scalars += [1, *layer.out, 1, *layer.kernel, 1, *layer.stride, 1, *layer.dilation]
        scalars += [0, *layer.pads[:2]]
        if pointwise:
            self.fn = library.bench_gemm
            rows = layer.n * layer.height * layer.width
            scalars = [rows, layer.out_channels, layer.channels]
        self.s = (ctypes.c_int64 * len(scalars))(*scalars)

    def run(self) -> float:
        start = self.clock()
        self.fn(self.p, self.s, self.pool)
        return self.clock() - start


def build(isa: str, extra: list[str]) -> ctypes.CDLL:
    flags = ["-std=c++17", "-O3", f"-march={isa}", "-fPIC", "-shared", "-pthread"]
    flags += ["-mprefer-vector-width=512"] if isa == "x86-64-v4" else []
    flags += ["-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", f"-I{INCLUDE}", *extra]
    text = SOURCE.read_bytes() + b"".join(p.read_bytes() for p in sorted(INCLUDE.rglob("*.h")))
    key = hashlib.sha256(text + " ".join(flags).encode()).hexdigest()[:16]
    output = Path(tempfile.gettempdir()) / f"cpu_kernels-{os.getuid()}-{key}.so"
    if not output.exists():
        subprocess.run(["g++", *flags, str(SOURCE), "-o", str(output)], check=True)
    library = ctypes.CDLL(str(output))
    library.gw_pool_create.restype = ctypes.c_void_p
    return library


def measure_peak(library: ctypes.CDLL, pool: ctypes.c_void_p) -> float:
    """FLOP/s of independent fused multiply-adds on all threads."""
    best = 0.0
    flops = (ctypes.c_int64 * 1)()
    out = (ctypes.c_float * 4096)()
    p = (ctypes.c_void_p * 2)(ctypes.addressof(flops), ctypes.addressof(out))
    for _ in range(20):
        start = time.perf_counter()
        library.bench_peak(p, None, pool)
        best = max(best, flops[0] / (time.perf_counter() - start))
    return best


def compare(library, pool, isa: str, layer: Layer, threads: int, *, blocks: int, budget: float):
    """Median seconds (ours, ONNX Runtime's Conv node) and the relative difference of the results."""
    rng = np.random.default_rng(0)
    kernel = (layer.out_channels, layer.channels // layer.groups, *layer.kernel)
    w = (rng.standard_normal(kernel) / math.sqrt(math.prod(kernel[1:]))).astype(np.float32)
    b = rng.standard_normal(layer.out_channels).astype(np.float32)
    x = rng.standard_normal((layer.n, layer.channels, layer.height, layer.width))
    x = x.astype(np.float32)
    clock = time.thread_time if threads == 1 else time.perf_counter
    peer, ours = Peer(layer, w, b, threads), Ours(library, pool, isa, layer, w, b, clock)
    ours.x[...] = x.transpose(0, 2, 3, 1)
    expected = peer.run(x).transpose(0, 2, 3, 1)
    once = min(ours.run() for _ in range(3))
    difference = np.linalg.norm(ours.out - expected) / np.linalg.norm(expected)
    repeats = int(min(200, max(4, budget / max(once, 1e-6))))
    spent: list[float] = []
    for _ in range(blocks):
        time.sleep(0.005)  # the other side's spinning workers go to sleep
        ours.run()
        spent += [ours.run() for _ in range(repeats)]
        time.sleep(0.005)
        for _ in range(repeats):
            peer.run(x)
    return statistics.median(spent), peer.time(), difference


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models-dir", type=Path, default=Path("models"))
    parser.add_argument("--model", action="append", choices=sorted(INPUTS))
    parser.add_argument("--isa", default="x86-64-v4")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.03, help="seconds of one block")
    parser.add_argument("--filter", default="", help="only layers whose text contains this")
    parser.add_argument("--flag", action="append", default=[], help="extra compiler flag")
    arguments = parser.parse_args()
    library = build(arguments.isa, arguments.flag)
    pool = ctypes.c_void_p(library.gw_pool_create(arguments.threads))
    peak = measure_peak(library, pool)
    print(f"{arguments.isa}, {arguments.threads} threads, peak {peak / 1e9:.0f} GFLOP/s")
    ratios: list[float] = []
    done: dict[Layer, tuple[float, float, float]] = {}
    for name in arguments.model or INPUTS:
        path = next((arguments.models_dir / name).glob("*.onnx"))
        total_ours = total_peer = 0.0
        model_ratios: list[float] = []
        print(f"\n{name}  (us: ours, ONNX Runtime)")
        for layer, count in find_layers(path, INPUTS[name]).items():
            if arguments.filter not in str(layer):
                continue
            if layer not in done:
                done[layer] = compare(
                    library, pool, arguments.isa, layer, arguments.threads,
                    blocks=arguments.blocks, budget=arguments.budget,
                )  # fmt: skip
            ours, peer, difference = done[layer]
            total_ours, total_peer = total_ours + count * ours, total_peer + count * peer
            model_ratios.append(peer / ours)
            rate = layer.flops / ours
            flag = "" if difference < 1e-5 else f"  DIFFERS {difference:.1e}"
            print(
                f"  {count:3d} x {layer!s:34s} {ours * 1e6:9.1f} {peer * 1e6:9.1f}"
                f"  {rate / 1e9:7.1f} GFLOP/s {rate / peak * 100:4.0f} % of peak"
                f"  ratio {peer / ours:5.2f}{flag}"
            )
        ratios += model_ratios
        if model_ratios:
            mean = math.exp(statistics.fmean(math.log(r) for r in model_ratios))
            print(
                f"  all layers {total_ours * 1e3:.2f} ms, ONNX Runtime {total_peer * 1e3:.2f} ms:"
                f" {total_peer / total_ours:.2f}x; geometric mean {mean:.2f}x"
            )
    if ratios:
        mean = math.exp(statistics.fmean(math.log(r) for r in ratios))
        print(f"\ngeometric mean over {len(ratios)} layers: {mean:.2f}x, lowest {min(ratios):.2f}x")
    library.gw_pool_destroy(pool)


if __name__ == "__main__":
    main()
