"""How much of a graph's arithmetic runs in which precision: multiply-accumulates and ops by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.op import Kind


def every_op(graph: Graph) -> Iterator[Op]:
    """All ops that calculate, those of fused and control bodies included, in order."""
    for op in graph.ops:
        if op.kind not in (Kind.SOURCE, Kind.FUSED, Kind.CONTROL):
            yield op
        for body in op.bodies:
            yield from every_op(body)


def precision_of_op(op: Op) -> str:
    """The type that an op calculates in: `u8*i8` for products of integers, else its result's."""
    if op.name in ("matmul_integer", "conv_integer"):
        return "*".join(v.type.dtype.name for v in op.operands[:2])
    if op.name == "lstm_integer":
        return f"u8*{op.operands[1].type.dtype.name}"
    return "tf32" if op.attributes.get("tf32") else op.results[0].type.dtype.name


def is_integer_product(precision: str) -> bool:
    """Whether `precision_of_op` named a product of integers."""
    return "*" in precision


def _matmul(op: Op) -> Dim:
    return dims.multiply(dims.product(op.results[0].type.shape), op.operands[0].type.shape[-1])


def _conv(op: Op) -> Dim:
    # Each element of the result sums over the filter's channels and positions.
    window = dims.product(op.operands[1].type.shape[1:])
    return dims.multiply(dims.product(op.results[0].type.shape), window)


def _conv_transpose(op: Op) -> Dim:
    # Each element of the operand meets every position of the filters of its group.
    window = dims.product(op.operands[1].type.shape[1:])
    return dims.multiply(dims.product(op.operands[0].type.shape), window)


def _attention(op: Op) -> Dim:
    q, k, v = (x.type.shape for x in op.operands[:3])
    pairs = dims.product((q[0], q[1], q[2], k[2]))
    return dims.multiply(pairs, q[3]) + dims.multiply(pairs, v[3])


def _recurrent(op: Op) -> Dim:
    x, w, r = (v.type.shape for v in op.operands[:3])
    steps = dims.product(x[:2])
    each = dims.product(w) + dims.product(r)
    return dims.multiply(steps, each)


_COUNTS: Mapping[str, Callable[[Op], Dim]] = {
    "matmul": _matmul,
    "matmul_integer": _matmul,
    "matmul_packed": _matmul,
    "conv": _conv,
    "conv_integer": _conv,
    "conv_transpose": _conv_transpose,
    "attention": _attention,
    "lstm": _recurrent,
    "lstm_integer": _recurrent,
    "gru": _recurrent,
    "rnn": _recurrent,
}


def multiply_accumulates(op: Op) -> Dim:
    """The multiply-accumulates of an op; 0 where it is no sum of products."""
    count = _COUNTS.get(op.name)
    return 0 if count is None else count(op)


def macs_of(graph: Graph) -> dict[str, Dim]:
    """Multiply-accumulates of a graph by precision; the body of a loop counts once, branches both."""
    found: dict[str, Dim] = {}
    for op in every_op(graph):
        count = multiply_accumulates(op)
        if count != 0:
            name = precision_of_op(op)
            found[name] = found.get(name, 0) + count
    return dict(sorted(found.items()))


def ops_of(graph: Graph) -> dict[str, int]:
    """How many ops calculate in each precision."""
    return dict(sorted(Counter(map(precision_of_op, every_op(graph))).items()))
