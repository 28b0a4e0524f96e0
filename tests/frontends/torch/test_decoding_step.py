"""A decoding step with a static cache: five kernels a layer on a GPU, and the same values."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")
sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

import torch
from decode import SHAPES, Decoder

from graphwright.compiler.assemble import assemble
from graphwright.compiler.codegen.emit import emit_graph
from graphwright.compiler.driver import optimise
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target
from graphwright.frontends.torch.exported import export_module, program_of
from graphwright.frontends.torch.model import import_program

TARGET = Target.parse("cuda:sm_90")


def decoder(dtype: torch.dtype = torch.float16) -> Graph:
    torch.manual_seed(1)
    module = Decoder(SHAPES["tiny"], "cpu", dtype).eval()
    given = (torch.tensor([[3]]), torch.tensor([5]))
    return import_program(program_of(export_module(module, given, shapes=None), registry=REGISTRY))


def feed(graph: Graph, position: int) -> list[np.ndarray]:
    rng = np.random.default_rng(position)
    out: list[np.ndarray] = []
    for value in graph.inputs:
        if value.name == "word":
            out.append(np.array([[7]]))
        elif value.name == "position":
            out.append(np.array([position]))
        else:
            made = rng.standard_normal(value.type.sizes)
            out.append(made.astype(value.type.dtype.numpy))
    return out


def test_a_layer_is_five_kernels_and_caches_are_updated_where_they_lie():
    graph = decoder()
    layers = SHAPES["tiny"].layers
    optimise(graph, TARGET, CompileOptions(target="cuda:sm_90"))
    regions = [op.attribute("region") for op in graph.ops if op.name == "fused"]
    assert regions.count("attention_step") == layers
    steps = emit_graph(graph, TARGET, skip=lambda op: view_of(op) is not None)
    # (the first norm, which the embedding shares, and the head)
    assert len(steps) == 5 * layers + 2
    assert len(assemble(graph, steps).storage.updated) == 2 * layers


@pytest.mark.parametrize("position", [0, 17, 39])
def test_the_rewritten_graph_means_the_same(position):
    graph, rewritten = decoder(), decoder()
    optimise(rewritten, TARGET, CompileOptions(target="cuda:sm_90"))
    given = feed(graph, position)
    want = evaluate(graph, given, compute=np.float64)
    for a, b in zip(evaluate(rewritten, given, compute=np.float64), want, strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        assert np.linalg.norm(a - b) <= 1e-6 * np.linalg.norm(b)
