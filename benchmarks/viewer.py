"""How the viewer's page does on large traces, in a headless Chromium: `python benchmarks/viewer.py`.

A trace of 10,000 ops has to open in two seconds and step a pass in a tenth of one; a trace of 1,000
ops through thirty passes has to stay below 10 MB.  Prints JSON; needs selenium, chromium and its driver.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphwright import compilation
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.trace import read_trace
from graphwright.compiler.viewer import payload_of, render_page

OPEN_SECONDS, STEP_MILLISECONDS, TRACE_BYTES = 2.0, 100.0, 10e6


def layered(nodes: int) -> onnx.ModelProto:
    """About `nodes` nodes: layers of a matrix product, a bias, an activation and a residual in
    modules, with sums to other layers across.
    """
    rng = np.random.default_rng(0)
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    last, older = "x", ["x"]
    layer = 0
    while len(made) < nodes:
        path = f"/encoder/layer.{layer}"
        w, b = f"w{layer}", f"b{layer}"
        weights.append(numpy_helper.from_array(rng.standard_normal((8, 8), np.float32) / 4, w))
        weights.append(numpy_helper.from_array(rng.standard_normal(8).astype(np.float32), b))
        for kind, inputs, out in [
            ("MatMul", [last, w], f"m{layer}"), ("Add", [f"m{layer}", b], f"a{layer}"),
            ("Sigmoid", [f"a{layer}"], f"s{layer}"), ("Mul", [f"a{layer}", f"s{layer}"], f"u{layer}"),
            ("Add", [f"u{layer}", older[int(rng.integers(len(older)))]], f"h{layer}"),
        ]:  # fmt: skip
            made.append(helper.make_node(kind, inputs, [out], name=f"{path}/{kind}.{len(made)}"))
        last = f"h{layer}"
        older = [*older[-6:], last]
        layer += 1
    graph = helper.make_graph(
        made,
        "layered",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["N", 8])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def browser() -> Any:
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for argument in ("--headless=new", "--no-sandbox", "--window-size=1600,1000", "--disable-gpu"):
        options.add_argument(argument)
    service = webdriver.ChromeService(shutil.which("chromedriver") or "chromedriver")
    return webdriver.Chrome(options=options, service=service)


def measure(page: Path, repeats: int) -> dict[str, Any]:
    """Seconds to open; milliseconds to step to each pass, from the key to the drawn frame."""
    driver = browser()
    try:
        opened: list[float] = []
        for _ in range(repeats):
            driver.get("about:blank")
            start = time.perf_counter()
            driver.get(page.as_uri())
            driver.execute_async_script("requestAnimationFrame(() => setTimeout(arguments[0]))")
            opened.append(time.perf_counter() - start)
        assert driver.execute_script("return document.body.dataset.ready") == "true"
        steps: list[float] = driver.execute_async_script(
            """
            const done = arguments[0], times = [];
            const walk = async () => {
              goto(-1);
              for (let round = 0; round < 3; round++) for (let n = -1; n < DATA.passes.length; n++) {
                await new Promise((r) => setTimeout(r, 20));
                const start = performance.now();
                goto(n);
                await new Promise((r) => requestAnimationFrame(() => { const c = new MessageChannel(); c.port1.onmessage = r; c.port2.postMessage(0); }));
                if (round) times.push(performance.now() - start);
              }
              done(times);
            };
            walk();
            """
        )
        nodes = driver.execute_script("goto(-1); return view.nodes.length")
    finally:
        driver.quit()
    return {
        "nodes_drawn": nodes,
        "open_seconds": statistics.median(opened),
        "step_milliseconds": {
            "median": statistics.median(steps),
            "p95": float(np.percentile(steps, 95)),
            "worst": max(steps),
        },
    }


def run(nodes: int, folder: Path, repeats: int) -> dict[str, Any]:
    model = layered(nodes)
    file = folder / f"{nodes}.trace"
    start = time.perf_counter()
    compilation.run_passes(model, CompileOptions.make(trace=file))
    traced = time.perf_counter() - start
    trace = read_trace(file)
    start = time.perf_counter()
    page = folder / f"{nodes}.html"
    page.write_text(render_page(payload_of(trace, title=f"{nodes} nodes")), encoding="utf-8")
    made = time.perf_counter() - start
    size = file.stat().st_size
    return {
        "nodes": len(model.graph.node),
        "ops": len(trace.initial["ops"]),
        "passes": len(trace.passes),
        "rewrites": sum(len(p.steps) for p in trace.passes),
        "trace_bytes": size,
        "page_bytes": page.stat().st_size,
        "seconds_to_trace": traced,
        "seconds_to_make_page": made,
        **measure(page, repeats),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, nargs="*", default=[1000, 10000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results here too")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = [run(n, Path(folder), given.repeats) for n in given.nodes]
    for r in results:
        r["ok"] = (
            r["open_seconds"] < OPEN_SECONDS
            and r["step_milliseconds"]["median"] < STEP_MILLISECONDS
            and (r["nodes"] > 1005 or r["trace_bytes"] < TRACE_BYTES)
        )
    text = json.dumps(results, indent=2)
    print(text)
    if given.json:
        given.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
