"""Shape buckets: `graph_buckets` of a compilation, checked, and whether a call may be padded to one.

Written as "B=1,8,32" or "B=1,8; S=128,512" (every combination), {"B": [1, 8]}, or a list of
{symbol: size}.  The runtime builds a CUDA graph for each (runtime/buckets.py).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, get_args

from graphwright.compiler.ir.dims import (
    Dim,
    Expr,
    Symbol,
    equal,
    floordiv,
    multiply,
    of,
    symbols_of,
)
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.errors import DowngradeError, InputError
from graphwright.runtime.buckets import Miss

BucketSizes: TypeAlias = tuple[tuple[tuple[str, int], ...], ...]
MISSES: tuple[str, ...] = get_args(Miss)


def read_buckets(given: Any) -> BucketSizes:
    """The buckets of an option's value, each ((symbol, size), ...).  Raises ValueError."""
    if isinstance(given, str):
        sizes: dict[str, list[int]] = {}
        for part in filter(None, (p.strip() for p in given.split(";"))):
            name, sign, numbers = part.partition("=")
            if not sign or not numbers:
                raise ValueError(f"{part!r}: want SYMBOL=SIZE,SIZE such as B=1,8,32")
            sizes[name.strip()] = [int(n) for n in numbers.split(",")]
        given = sizes
    if isinstance(given, Mapping):
        names = list(given)
        numbers = [[int(n) for n in _several(given[name])] for name in names]
        given = [dict(zip(names, row, strict=True)) for row in itertools.product(*numbers)]
    out = tuple(tuple(sorted((str(k), int(v)) for k, v in b.items())) for b in given)
    if len(set(out)) != len(out):
        raise ValueError("a bucket is there twice")
    return out


def _several(value: Any) -> Sequence[Any]:
    return [value] if isinstance(value, int) else value


def check_buckets(graph: Graph, buckets: BucketSizes, miss: str) -> None:
    """Raises InputError for buckets that do not fit the graph's inputs, DowngradeError when calls
    cannot be padded to them.
    """
    symbols = {s.name: s for s in _bound(graph)}
    for bucket in buckets:
        if dict(bucket).keys() != symbols.keys():
            raise InputError(
                f"graph_buckets: a bucket says {', '.join(dict(bucket)) or 'nothing'}; want a size "
                f"of each of {', '.join(symbols) or 'none: all sizes of the inputs are constant'}"
            )
        for name, size in bucket:
            s = symbols[name]
            if not s.min <= size <= s.max or size % s.multiple_of:
                raise InputError(
                    f"graph_buckets: {name} = {size}, want {s.min} to {s.max}"
                    + (f", a multiple of {s.multiple_of}" if s.multiple_of > 1 else "")
                )
    if miss == "pad":
        for symbol in symbols.values():
            _check_rows(graph, symbol)


def describe_buckets(buckets: BucketSizes, miss: str) -> str:
    """The text for the manifest's metadata."""
    return json.dumps({"buckets": [dict(b) for b in buckets], "miss": miss})


def _bound(graph: Graph) -> list[Symbol]:
    """The symbols that inputs bind."""
    found = {s: None for v in graph.inputs for s in sorted(symbols_of(v.type.shape), key=str)}
    return list(found)


# -- rows


def _check_rows(graph: Graph, symbol: Symbol) -> None:
    """Raises DowngradeError, naming the op, unless row r of every output depends on row r of the
    inputs alone, where rows are what the symbol counts along the first axis.

    Zeros behind the rows of the inputs then change no row of the outputs, and the rows of every
    tensor lie at its start.
    """
    for value in graph.inputs:
        _check_place(symbol, value, "an input")
    for op in graph.ops:
        for name, attribute in op.attributes.items():
            entries = attribute[1:] if name in ("shape", "sizes") else attribute
            if _mentions(symbol, entries):
                raise _refused(symbol, op, f"{symbol.name} is a number in it ({name})")
        if not any(_carries(symbol, v) for v in (*op.operands, *op.results)):
            continue
        for value in op.results:
            _check_place(symbol, value, op)
        why = _mixes(symbol, op)
        if why:
            raise _refused(symbol, op, why)
    for value in graph.outputs:
        _check_place(symbol, value, "an output")


def _refused(symbol: Symbol, where: Op | str, why: str) -> DowngradeError:
    if isinstance(where, Op):
        where = f"{where.name} ({', '.join(where.origins) or f'#{where.id}'})"
    return DowngradeError(
        f"graph_miss=pad: padding {symbol.name} could change the result: {where}: {why}; use "
        "graph_miss=uncaptured or raise"
    )


def _carries(symbol: Symbol, value: Value) -> bool:
    return symbol in symbols_of(value.type.shape)


def _check_place(symbol: Symbol, value: Value, where: Op | str) -> None:
    shape = value.type.shape
    if symbol in symbols_of(shape[1:]):
        raise _refused(symbol, where, f"{symbol.name} counts along another axis than the first")
    if shape and symbol in symbols_of(shape[:1]) and not _is_factor(symbol, shape[0]):
        raise _refused(
            symbol, where, f"the first axis of {shape[0]} is no multiple of {symbol.name}"
        )


def _mentions(symbol: Symbol, value: Any) -> bool:
    if isinstance(value, Expr):
        return symbol in symbols_of(value)
    return isinstance(value, tuple) and any(_mentions(symbol, v) for v in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]


def _is_factor(symbol: Symbol, dim: Dim) -> bool:
    return equal(multiply(floordiv(dim, of(symbol)), of(symbol)), dim)


def _mixes(symbol: Symbol, op: Op) -> str:
    """Why rows could depend on each other, "" when they do not."""
    carrying = [i for i, v in enumerate(op.operands) if _carries(symbol, v)]
    if not any(_carries(symbol, v) for v in op.results):
        return "its result is of all rows together"
    rank = op.results[0].type.rank
    if op.kind is Kind.POINTWISE:
        if any(op.operands[i].type.rank != rank for i in carrying):
            return "operands of other ranks"
        return ""
    name = op.name
    if name in ("reshape", "full", "iota", "broadcast_to") or op.kind is Kind.SOURCE:
        aligned = name != "broadcast_to" or all(op.operands[i].type.rank == rank for i in carrying)
        return "" if aligned and not name.startswith("random") else "it is not row by row"
    if name == "transpose":
        return "" if op.attribute("permutation")[0] == 0 else "it moves the first axis"
    if name == "slice":
        whole = op.attribute("starts")[0] == 0 and op.attribute("steps")[0] == 1
        same = op.attribute("sizes")[0] == op.operands[0].type.shape[0]
        return "" if whole and same else "it cuts the first axis"
    if name == "pad":
        return "" if op.attribute("low")[0] == 0 == op.attribute("high")[0] else "it pads rows"
    if name in _FIRST_ONLY:
        return "" if carrying == [0] else "operands after the first have rows"
    if name == "matmul":
        a, b = (v.type.rank for v in op.operands)
        if carrying == [0] and a >= 2 and (a > 2 or b == 2):
            return ""
        return "" if carrying == [0, 1] and a == b > 2 else "rows are multiplied with each other"
    if name == "attention":
        return "" if op.operands[0].type.rank == 4 and {0, 1, 2} <= set(carrying) else "rows attend"
    if name == "gather":
        axis = op.attribute("axis")
        fine = (carrying == [1] and axis == 0) or (carrying == [0] and axis > 0)
        return "" if fine else "rows are looked up in each other"
    axes = _axes(op)
    if axes is None:
        return "it is not known to treat rows apart"
    return "it combines along the first axis" if 0 in axes else ""


# Ops whose first operand has the batch as its first axis, and parameters for others.
_FIRST_ONLY = frozenset(
    ("conv", "conv_transpose", "max_pool", "average_pool", "batch_norm", "instance_norm",
     "group_norm", "lrn", "resize")
)  # fmt: skip


def _axes(op: Op) -> set[int] | None:
    """The axes along which a reduction, concatenation or running sum combines."""
    if op.kind is not Kind.REDUCTION and op.name not in ("concat", "cumsum", "cumprod", "top_k"):
        return None
    known = dict(op.attributes)
    if op.name in ("layer_norm", "rms_norm"):
        return set(range(known["axis"], op.results[0].type.rank))
    if "axes" in known:
        return set(known["axes"])
    return {known["axis"]} if "axis" in known else None
