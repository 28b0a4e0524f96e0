"""Planted faults are found: down to the rewrite, down to the kernel."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from faults import Saboteur, wrong_kernel, wrong_launch
from onnx import TensorProto, helper, numpy_helper

from graphwright import compilation
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.ir.parser import parse_graph
from graphwright.compiler.ir.printer import print_graph
from graphwright.compiler.ir.verify import verify as check_graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.base import Pipeline
from graphwright.compiler.passes.pipelines import default_pipeline
from graphwright.compiler.target import Target
from graphwright.compiler.verify import check_kernels, difference, find_pass, find_rewrite
from graphwright.compiler.verify.reproduce import cut_out
from graphwright.runtime import load
from graphwright.runtime.stepping import Stepper

CPU = Target.parse("cpu")
# Fifty faults drawn by seed, of which two may be missed: in rewrites, in the bodies that kernels are
# emitted from, in loops' bounds of their sources, in the buffers that launches read.
SEEDS = 32
KERNEL_SEEDS = 8
LAUNCH_SEEDS = 5
FEED = {"x": np.random.default_rng(5).standard_normal((2, 3, 8, 8)).astype(np.float32)}


def model() -> onnx.ModelProto:
    """Convolutions with batch norm, activations written out, moved axes, a softmax, a matmul."""
    rng = np.random.default_rng(0)
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int, positive: bool = False) -> str:
        values = rng.standard_normal(shape).astype(np.float32)
        weights.append(numpy_helper.from_array(np.abs(values) + 0.5 if positive else values, name))
        return name

    def add(op: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(nodes)}"
        nodes.append(
            helper.make_node(op, list(inputs), [name], name=f"n{len(nodes)}", **attributes)
        )
        return name

    x = "x"
    for layer, (cin, cout) in enumerate([(3, 4), (4, 4), (4, 4), (4, 4), (4, 6)]):
        c = add("Conv", x, weight(f"k{layer}", cout, cin, 3, 3), pads=[1, 1, 1, 1])
        b = add("BatchNormalization", c, weight(f"g{layer}", cout), weight(f"s{layer}", cout),
                weight(f"m{layer}", cout), weight(f"q{layer}", cout, positive=True))  # fmt: skip
        x = add("Mul", b, add("Sigmoid", b)) if layer % 2 else add("Relu", b)
    t = add("Transpose", add("Transpose", x, perm=[0, 2, 3, 1]), perm=[0, 1, 3, 2])
    r = add("Reshape", t, weight_of(weights, "shape", [2, 8, 48]))
    m = add("MatMul", r, weight("w", 48, 8))
    a = add("Sub", add("Div", m, add("Add", add("Abs", m), weight("one", 8, positive=True))), m)
    s = add("Softmax", add("Add", add("Add", a, weight("b1", 8)), weight("b2", 8)), axis=-1)
    p = add("Sub", s, add("ReduceMean", s, axes=[-1], keepdims=1))
    nodes.append(helper.make_node("Mul", [p, add("Clip", add("Neg", add("Neg", m)))], ["y"]))
    graph = helper.make_graph(
        nodes, "faulty",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 8, 8])], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def weight_of(weights: list[onnx.TensorProto], name: str, values: list[int]) -> str:
    weights.append(numpy_helper.from_array(np.array(values, np.int64), name))
    return name


@pytest.fixture(scope="module")
def graph() -> Graph:
    return compilation.import_source(model(), CompileOptions.make())


def plan(graph: Graph) -> list[tuple[int, int]]:
    """(rewrite, seed) pairs whose fault changes the result of the whole pipeline, SEEDS of them."""
    text = default_pipeline(CPU, 2)
    total = len(Pipeline.parse(text).run(graph.clone(), CPU).journal.rewrites)
    assert total >= 15
    want = evaluate(graph, FEED, compute=np.float64)
    rng = np.random.default_rng(2026)
    found: list[tuple[int, int]] = []
    for _ in range(40 * SEEDS):
        number, seed = int(rng.integers(total)), int(rng.integers(1 << 30))
        saboteur, trial = Saboteur(text, number, seed), graph.clone()
        try:
            saboteur.run(trial, CPU, verify=False)
            if not saboteur.planted:
                continue
            got = evaluate(trial, FEED, compute=np.float64)
        except Exception:  # a fault may break a later pass: then there is nothing to bisect
            continue
        if any(difference(a, b).measure("relative") > 1e-5 for a, b in zip(got, want, strict=True)):
            found.append((number, seed))
        if len(found) == SEEDS:
            return found
    raise AssertionError(f"only {len(found)} faults that show")


def test_planted_rewrites_are_located(graph: Graph) -> None:
    """The rule and its place, for faults in rewrites drawn at random; one may be missed."""
    text = default_pipeline(CPU, 2)
    located, kinds, passes, missed = 0, set(), set(), []
    for number, seed in plan(graph):
        saboteur = Saboteur(text, number, seed)
        fault = find_pass(graph, saboteur, CPU, FEED)  # type: ignore[arg-type]
        assert fault is not None, "a fault that shows at the end shows after some pass"
        fault = find_rewrite(graph, saboteur, CPU, FEED, fault)  # type: ignore[arg-type]
        planted = saboteur.planted[0]
        kinds.add(planted.kind)
        passes.add(planted.pass_name)
        right = fault.name == planted.pass_name and fault.rewrite is not None and (
            fault.rewrite.rule, fault.rewrite.where, fault.rewrite.consumed,
        ) == (planted.rewrite.rule, planted.rewrite.where, planted.rewrite.consumed)  # fmt: skip
        located += right
        if not right:
            missed.append((number, seed, planted, fault.name, fault.rewrite))
    assert located >= SEEDS - 1, missed
    assert len(kinds) >= 3 and len(passes) >= 3, (kinds, passes)


def test_planted_kernels_are_located() -> None:
    """The op whose kernel computes something else, for 8 faults in kernels drawn at random."""
    located = 0
    for seed in range(KERNEL_SEEDS):
        kinds: list[str] = []
        ids: list[int] = []
        with wrong_kernel(seed, kinds, ids):
            built = compilation.build(model(), CompileOptions.make(target="cpu:x86-64-v3"))
        assert built.assembly is not None
        compiled = load(built.artifact.to_bytes(), threads=1)
        done = check_kernels(compiled, built.assembly, FEED, tolerance=1e-4)
        assert done.checked > 3
        located += [f.op.id for f in done.faults] == ids
    assert located >= KERNEL_SEEDS - 1


@pytest.mark.parametrize("kind", ["off_by_one_bound", "stale_buffer"])
def test_planted_launches_are_located(graph: Graph, kind: str) -> None:
    """Five faults of each kind whose effect is seen in the outputs: each is the first one found."""
    want = evaluate(graph, FEED, compute=np.float64)
    shown = 0
    for seed in range(20 * LAUNCH_SEEDS):
        planted: list[tuple[str, list[int]]] = []
        with wrong_launch(kind, seed, planted):
            built = compilation.build(model(), CompileOptions.make(target="cpu:x86-64-v3"))
        assert built.assembly is not None
        ((what, ids),) = planted
        compiled = load(built.artifact.to_bytes(), threads=1)
        got = [compiled.run(FEED)[n] for n in graph.output_names]
        if all(difference(a, b).measure("relative") < 1e-3 for a, b in zip(got, want, strict=True)):
            continue  # an iteration that computed nothing, a value that hardly differs
        shown += 1
        done = check_kernels(compiled, built.assembly, FEED, tolerance=1e-4)
        assert done.faults and done.faults[0].op.id in ids, (seed, what)
        assert {f.op.id for f in done.faults} <= set(ids), "those around it are not blamed"
        if shown == LAUNCH_SEEDS:
            return
    raise AssertionError(f"only {shown} faults that show")


def test_a_wrong_rewrite_in_each_pass(graph: Graph) -> None:
    """Of every pass that rewrites this model one rewrite is made wrong, and found."""
    text = default_pipeline(CPU, 2)
    rewrites = Pipeline.parse(text).run(graph.clone(), CPU).journal.rewrites
    want = evaluate(graph, FEED, compute=np.float64)
    of_pass: dict[str, list[int]] = {}
    for number, rewrite in enumerate(rewrites):
        of_pass.setdefault(rewrite.pass_name, []).append(number)
    located: set[str] = set()
    for name, numbers in of_pass.items():
        for attempt in range(60):
            number, seed = numbers[attempt % len(numbers)], attempt
            saboteur, trial = Saboteur(text, number, seed), graph.clone()
            try:
                saboteur.run(trial, CPU, verify=False)
                got = evaluate(trial, FEED, compute=np.float64)
            except Exception:  # a fault may break a later pass: then there is nothing to bisect
                continue
            pairs = zip(got, want, strict=True)
            if not saboteur.planted or all(
                difference(a, b).measure("relative") <= 1e-5 for a, b in pairs
            ):
                continue
            again = Saboteur(text, number, seed)
            fault = find_pass(graph, again, CPU, FEED)  # type: ignore[arg-type]
            assert fault is not None and fault.name == name
            located.add(name)
            break
    producing = {r.pass_name for r in rewrites if r.produced}
    assert located == producing and len(located) >= 5, (located, producing)


def test_a_right_model_has_no_fault(graph: Graph) -> None:
    text = default_pipeline(CPU, 2)
    assert find_pass(graph, Pipeline.parse(text), CPU, FEED) is None
    built = compilation.build(model(), CompileOptions.make(target="cpu:x86-64-v3"))
    assert built.assembly is not None
    compiled = load(built.artifact.to_bytes(), threads=1)
    done = check_kernels(compiled, built.assembly, FEED, tolerance=1e-4)
    assert not done.faults and done.checked > 3 and not done.skipped
    assert done.worst is not None and done.worst.difference.relative < 1e-5


def test_the_stepped_run_is_the_run() -> None:
    compiled = load(
        compilation.build(model(), CompileOptions.make(target="cpu:x86-64-v3")).artifact.to_bytes(),
        threads=1,
    )
    want = compiled.run(FEED)["y"]
    seen: list[int] = []
    got = Stepper(compiled).run(FEED, after=lambda n, _: seen.append(n))["y"]
    assert np.array_equal(got, want)
    assert seen == list(range(len(compiled.variant.launches)))
    assert np.array_equal(compiled.run(FEED)["y"], want)


def test_a_case_is_cut_out(graph: Graph) -> None:
    softmax = next(op for op in graph.ops if op.name == "softmax")
    small = cut_out(graph, [softmax.id])
    assert small is not None
    assert [op.name for op in small.ops] == ["softmax"]
    assert [v.type for v in small.inputs] == [softmax.operands[0].type]
    wider = cut_out(graph, [softmax.id], around=1)
    assert wider is not None and len(wider) > 1


def test_a_case_has_plain_ends() -> None:
    """What lies in another order inside a graph gets it from a relayout: inputs and outputs have none."""
    graph = parse_graph(
        """graph @g() {
  input %x: f32[1, 4, 5, 6]
  %0 = relayout(%x) {layout = layout<0,2,3,1>} : f32[1, 4, 5, 6]{0,2,3,1}
  %1 = fused(%0) {region = "pointwise"} : f32[1, 4, 5, 6]{0,2,3,1}
    body(%a: f32[1, 4, 5, 6]{0,2,3,1}) {
      %0 = neg(%a) : f32[1, 4, 5, 6]{0,2,3,1}
      return %0
    }
  %2 = relayout(%1) : f32[1, 4, 5, 6]
  return %2 as "y"
}
""",
        registry=REGISTRY,
    )
    small = cut_out(graph, [next(op.id for op in graph.ops if op.name == "fused")])
    assert small is not None
    check_graph(small)
    again = parse_graph(print_graph(small), registry=REGISTRY)
    assert [op.name for op in again.ops] == ["relayout", "fused", "relayout"]
    x = np.random.default_rng(0).standard_normal((1, 4, 5, 6), np.float32)
    assert np.array_equal(evaluate(again, {"x0": x})[0], -x)
