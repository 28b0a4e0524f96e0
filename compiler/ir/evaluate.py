"""Evaluates a graph with the ops' own numpy references: the meaning that everything is judged by.

Never used by a compiled model; it serves constant folding, tests, verify and bisecting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphwright.compiler.ir.dims import DimError, Expr
from graphwright.compiler.ir.dims import evaluate as evaluate_dim
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Reference
from graphwright.compiler.ir.printer import print_op
from graphwright.compiler.ir.types import TensorType, dtype_of
from graphwright.containers import Values


class EvaluationError(ValueError):
    """The feed does not fit the graph, or an op's reference broke its own contract."""


def bind_symbols(
    graph: Graph, arrays: Sequence[np.ndarray], *, known: Mapping[str, int] | None = None
) -> dict[str, int]:
    """{symbol name: size} from the shapes of the input arrays.

    Raises EvaluationError naming the input, axis and value that do not fit.
    """
    binding: dict[str, int] = dict(known or {})
    for value, array in zip(graph.inputs, arrays, strict=True):
        if array.ndim != value.type.rank:
            raise EvaluationError(
                f"input {value.name!r}: rank {array.ndim}, want {value.type} (rank {value.type.rank})"
            )
        for axis, (dim, size) in enumerate(zip(value.type.shape, array.shape, strict=True)):
            symbol = dim.symbol if isinstance(dim, Expr) else None
            if symbol is None:
                continue
            if binding.setdefault(symbol.name, size) != size:
                raise EvaluationError(
                    f"input {value.name!r} axis {axis} is {size}, but {symbol.name} is "
                    f"{binding[symbol.name]} already"
                )
            if not symbol.min <= size <= symbol.max or size % symbol.multiple_of:
                raise EvaluationError(
                    f"input {value.name!r} axis {axis} is {size}; {symbol.name} is in "
                    f"{symbol.min}..{symbol.max} by {symbol.multiple_of}"
                )
    for value, array in zip(graph.inputs, arrays, strict=True):
        for axis, (dim, size) in enumerate(zip(value.type.shape, array.shape, strict=True)):
            try:
                want = evaluate_dim(dim, binding)
            except DimError:
                continue  # bound in mid-run
            if want != size:
                raise EvaluationError(
                    f"input {value.name!r} axis {axis} is {size}, want {dim} = {want}"
                )
    return binding


def evaluate(
    graph: Graph,
    feed: Mapping[str, Any] | Sequence[Any],
    *,
    compute: Any = None,
    seed: int = 0,
    on_value: Callable[[Value, np.ndarray], None] | None = None,
) -> list[Any]:
    """The outputs, in order, for inputs given by name or position.

    Inputs by name are the model's own, sequences and optional values among them, and so are then
    the outputs; inputs by position are the graph's, and so are the outputs.
    `compute`: calculate floats in this type (np.float64 for verification) instead of their own.
    `on_value` sees every value of the top level as it is made.  Values are dropped after their
    last use.
    """
    values = Values.of(graph.metadata) if isinstance(feed, Mapping) else None
    if values is not None and isinstance(feed, Mapping):
        dtypes = [v.type.dtype.numpy for v in graph.inputs]
        least = {s.name: s.min for s in graph.symbols.values()}
        shapes = [tuple(evaluate_dim(d, least) for d in v.type.shape) for v in graph.inputs]
        tensors = values.tensors(feed, dtypes, shapes)
        named = zip(graph.inputs, tensors, strict=True)
        feed = {v.name: t for v, t in named if t is not None}
    arrays = _arrays(graph, feed)
    for value, array in zip(graph.inputs, arrays, strict=True):
        if dtype_of(array) != value.type.dtype:
            raise EvaluationError(
                f"input {value.name!r} is {array.dtype}, want {value.type.dtype.long_name}"
            )
    wide = np.dtype(compute) if compute is not None else None
    binding = bind_symbols(graph, arrays)
    run = _Run(binding, wide, np.random.default_rng(seed))
    if wide is not None:
        arrays = [a.astype(wide) if v.type.dtype.is_float else a
                  for v, a in zip(graph.inputs, arrays, strict=True)]  # fmt: skip
    results = run.graph(graph, arrays, on_value)
    return results if values is None else values.values(results)


def evaluate_op(
    op: Op, arrays: Sequence[np.ndarray], binding: Mapping[str, int], *, compute: Any = None
) -> list[np.ndarray]:
    """The results of one op, its bodies included, for operands that are given as arrays."""
    wide = np.dtype(compute) if compute is not None else None
    if wide is not None:
        arrays = [a.astype(wide) if v.type.dtype.is_float else a
                  for v, a in zip(op.operands, arrays, strict=True)]  # fmt: skip
    return _Run(binding, wide, np.random.default_rng(0)).op(op, arrays)


def _arrays(graph: Graph, feed: Mapping[str, Any] | Sequence[Any]) -> list[np.ndarray]:
    names = [v.name for v in graph.inputs]
    defaults: Mapping[str, Any] = getattr(graph, "input_defaults", {})
    if isinstance(feed, Mapping):
        unknown = [n for n in feed if n not in names]
        missing = [n for n in names if n not in feed and n not in defaults]
        if unknown or missing:
            what = f"no input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
            raise EvaluationError(f"{what}; the inputs are {', '.join(names)}")
        return [np.asarray(feed[n]) if n in feed else defaults[n].array() for n in names]
    if len(feed) != len(names):
        raise EvaluationError(f"{len(feed)} arrays for the inputs {', '.join(names)}")
    return [np.asarray(a) for a in feed]


class _Run:
    def __init__(
        self, binding: Mapping[str, int], compute: np.dtype | None, rng: np.random.Generator
    ) -> None:
        self.binding, self.compute, self.rng = dict(binding), compute, rng

    def graph(
        self,
        graph: Graph,
        arrays: Sequence[np.ndarray],
        on_value: Callable[[Value, np.ndarray], None] | None = None,
    ) -> list[np.ndarray]:
        known: dict[Value, np.ndarray] = dict(zip(graph.inputs, arrays, strict=True))
        left = {v: len(v.uses) for v in graph.inputs}
        for op in graph.ops:
            outs = self.op(op, [known[v] for v in op.operands])
            for value, array in zip(op.results, outs, strict=True):
                known[value] = array
                left[value] = len(value.uses)
                if on_value is not None:
                    on_value(value, array)
            for value in op.operands:
                left[value] -= 1
                if not left[value]:
                    known.pop(value, None)
        return [known[v] for v in graph.outputs]

    def op(self, op: Op, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        context = Reference(
            binding=self.binding,
            results=[r.type for r in op.results],
            compute=self.compute,
            run=lambda body, given: self.graph(body, given),
            bodies=op.bodies,
            rng=self.rng,
        )
        with np.errstate(all="ignore"):
            outs = [np.asarray(a) for a in op.definition.reference(arrays, op.attributes, context)]
        if self.compute is not None:
            outs = [
                a.astype(self.compute) if r.type.dtype.is_float and a.dtype != self.compute else a
                for a, r in zip(outs, op.results, strict=True)
            ]
        for array, result in zip(outs, op.results, strict=True):
            self.check(op, array, result.type)
        return outs

    def check(self, op: Op, array: np.ndarray, type: TensorType) -> None:
        wide = self.compute is not None and type.dtype.is_float
        if not wide and array.dtype != type.dtype.numpy:
            raise EvaluationError(
                f"{print_op(op)}: its reference made {array.dtype}, the type says {type.dtype}"
            )
        for axis, (dim, size) in enumerate(zip(type.shape, array.shape, strict=False)):
            if evaluate_dim(dim, self.binding) != size:
                raise EvaluationError(
                    f"{print_op(op)}: axis {axis} is {size}, the type says {dim} = "
                    f"{evaluate_dim(dim, self.binding)} (with {self.binding})"
                )
        if array.ndim != type.rank:
            raise EvaluationError(
                f"{print_op(op)}: its reference made rank {array.ndim}, the type says {type}"
            )
