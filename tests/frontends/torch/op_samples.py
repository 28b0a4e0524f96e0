"""Calls of torch's own op database as programs: traced, imported, evaluated, compared with eager."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch._subclasses.functional_tensor import dispatch_functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.ir.ops import REGISTRY
from graphwright.frontends.torch.captured import program_of_captured
from graphwright.frontends.torch.decompositions import core_table
from graphwright.frontends.torch.model import import_program
from graphwright.frontends.torch.node import op_name
from graphwright.frontends.torch.tensors import array_of
from graphwright.runtime.interop import array_to_tensor

TABLE = dict(core_table(REGISTRY))
TOLERANCE = {
    torch.float16: 8e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.float64: 1e-10,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Call:
    """A function of tensors alone; everything else of the sample is inside."""

    name: str
    function: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]


def calls_of(info: Any, dtype: torch.dtype, limit: int | None = None) -> Iterator[Call]:
    """Samples of an entry of op_db, without gradients."""
    samples = info.sample_inputs("cpu", dtype, requires_grad=False)
    for number, sample in enumerate(itertools.islice(samples, limit)):
        name = f"{info.formatted_name}-{str(dtype)[6:]}-{number}"
        flat, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, v in enumerate(flat) if isinstance(v, torch.Tensor)]
        yield Call(
            name, _function(info.op, flat, spec, places), tuple(flat[i] for i in places)
        )  # fmt: skip


def _function(op: Any, flat: Sequence[Any], spec: Any, places: Sequence[int]) -> Callable[..., Any]:
    def run(*tensors: torch.Tensor) -> Any:
        full = list(flat)
        for place, tensor in zip(places, tensors, strict=True):
            full[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(full, spec)
        out = op(first, *args, **kwargs)
        return [v for v in pytree.tree_leaves(out) if isinstance(v, torch.Tensor)]

    return run


def trace_call(call: Call, *, dynamic: bool = False) -> torch.fx.GraphModule:
    """A call as a functional ATen graph; `dynamic`: of every size that its tensors may have."""
    with torch.no_grad():
        return make_fx(
            dispatch_functionalize(call.function),
            decomposition_table=TABLE,
            tracing_mode="symbolic" if dynamic else "fake",
            _allow_non_fake_inputs=True,
        )(*call.tensors)


def import_traced(traced: torch.fx.GraphModule, call: Call) -> tuple[Graph, set[str]]:
    """The graph of a traced call, and the overloads that the trace calls."""
    program = unordered(program_of_captured(traced, call.tensors, frozenset(), "call"))
    ops = {op_name(n.target) for n in program.module.graph.nodes if n.op == "call_function"}
    return import_program(program), ops


def import_call(call: Call, *, dynamic: bool = False) -> Graph:
    return import_traced(trace_call(call, dynamic=dynamic), call)[0]


def unordered(program: Any) -> Any:
    """Without memory formats: arrays are passed as they are."""
    from dataclasses import replace

    return replace(
        program,
        inputs=tuple(replace(i, order=None) for i in program.inputs),
        outputs=tuple(replace(o, order=None) for o in program.outputs),
    )


def run_reference(graph: Graph, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    arrays = [np.ascontiguousarray(array_of(t)).reshape(t.shape) for t in tensors]
    return [array_to_tensor(np.array(a)) for a in evaluate(graph, arrays)]


def difference(got: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> str:
    """What is wrong with results, or ""."""
    if len(got) != len(want):
        return f"{len(got)} results, want {len(want)}"
    for g, w in zip(got, want, strict=True):
        if g.dtype != w.dtype or g.shape != w.shape:
            return f"{g.dtype}{list(g.shape)}, want {w.dtype}{list(w.shape)}"
        if not w.dtype.is_floating_point:
            if not torch.equal(g, w):
                return f"{int((g != w).sum())} of {w.numel()} differ"
            continue
        a, b = g.double(), w.double()
        if not torch.equal(a.isnan(), b.isnan()):
            return "NaN in other places"
        same = (a == b) | b.isnan()
        if not bool((same | (a.isfinite() & b.isfinite())).all()):
            return "infinite in other places"
        gap, size = (torch.where(same, 0.0, a - b)).norm(), torch.where(b.isfinite(), b, 0.0).norm()
        if not bool(gap <= TOLERANCE.get(w.dtype, 0.0) * size + 1e-30):
            return f"relative distance {float(gap / size):.1e}"
    return ""
