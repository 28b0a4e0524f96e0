"""Models compiled once and called with many inputs, compared with ONNX Runtime or given answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphwright.compiler.driver import compile_graph
from graphwright.compiler.ir.evaluate import evaluate
from graphwright.compiler.ir.graph import Graph
from graphwright.compiler.options import CompileOptions
from graphwright.compiler.target import Target
from graphwright.runtime import load
from graphwright.runtime.mid_run import Arena
from graphwright.runtime.model import CompiledModel

Runner = Callable[[onnx.ModelProto, Mapping[str, Any]], Sequence[Any]]


def compiled(graph: Graph, **options: Any) -> CompiledModel:
    target = Target.parse("cpu:native")
    return load(
        compile_graph(graph.clone(), target, CompileOptions.make(**options)).to_bytes(), threads=2
    )


def poison(model: CompiledModel) -> None:
    """Fills the arenas that calls have left with a pattern that is NaN, and large as an integer."""
    for context in model._executor._idle:  # type: ignore[attr-defined]
        for arena in (context.arena, *context.later.values()):
            if isinstance(arena, Arena) and arena.memory is not None:
                arena.memory[:] = b"\x7f\xc0\x7f\xff" * (len(arena.memory) // 4)


def same(got: Any, want: Any, *, tolerance: float = 2e-6, least: float = 0) -> str:
    """How a result differs, or "".  `tolerance` is of its norm, which counts as `least` or more."""
    if isinstance(want, list | tuple):
        if not isinstance(got, list | tuple) or len(got) != len(want):
            return f"{got} is not {want}"
        return "; ".join(
            filter(
                None,
                (
                    same(g, w, tolerance=tolerance, least=least)
                    for g, w in zip(got, want, strict=True)
                ),
            )
        )
    if want is None or got is None:
        return "" if want is got else f"{got} is not {want}"
    want = np.asarray(want)
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype}{list(got.shape)}, want {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu":
        return "" if np.array_equal(got, want) else f"{got} is not {want}"
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return f"{got} is not {want}"
    error = float(np.linalg.norm(np.nan_to_num(got - want)))
    norm = max(float(np.linalg.norm(np.nan_to_num(want))), least)
    return "" if error <= tolerance * norm + 1e-30 else f"off by {error} of {norm}: {got}, {want}"


def check(
    graph: Graph,
    feeds: Sequence[Mapping[str, Any]],
    answers: Sequence[Sequence[Any]],
    *,
    tolerance: float = 2e-6,
    least: float = 0,
    **options: Any,
) -> CompiledModel:
    """The evaluator and one artifact, called in turn and over poisoned memory, give the answers.

    An answer of None stands for any result without elements.
    """
    model = compiled(graph, **options)
    for feed, want in zip(feeds, answers, strict=True):
        for got in (evaluate(graph, feed), list(model.run(feed).values())):
            _compare(got, want, tolerance, least)
    for feed, want in reversed(list(zip(feeds, answers, strict=True))):
        poison(model)
        _compare(list(model.run(feed).values()), want, tolerance, least)
    return model


def _compare(got: Sequence[Any], want: Sequence[Any], tolerance: float, least: float) -> None:
    for g, w in zip(got, want, strict=True):
        if w is None and isinstance(g, np.ndarray):
            assert not g.size, g
            continue
        assert not (fault := same(g, w, tolerance=tolerance, least=least)), fault
