"""Einsum by transposes, matrix products and sums."""

from __future__ import annotations

from graphwright.compiler.ir.dims import Dim, product
from graphwright.compiler.ir.graph import Value
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal


def einsum(node: Node) -> Value:
    """Operand by operand: a product sums what neither later operands nor the output name."""
    equation = node.attr("equation").replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    values = node.inputs
    if len(terms) != len(values):
        raise Refusal(f"the equation {equation!r} has {len(terms)} terms for {len(values)} inputs")
    labelled = [_labels(t, v.type.rank, equation) for t, v in zip(terms, values, strict=True)]
    for i, labels in enumerate(labelled):
        values[i], labelled[i] = _diagonals(node, values[i], labels)
    output = _output_labels(right if arrow else None, labelled, left)
    value, labels = values[0], labelled[0]
    for i in range(1, len(values)):
        needed = set(output).union(*labelled[i + 1 :])
        value, labels = _contract(node, value, labels, values[i], labelled[i], needed)
    return _finish(node, value, labels, output)


def _labels(term: str, rank: int, equation: str) -> list[str]:
    """One letter an axis; an ellipsis becomes digits counted from the right."""
    before, dots, after = term.partition("...")
    extra = rank - len(before) - len(after)
    if extra < 0 or (extra and not dots):
        raise Refusal(f"the term {term!r} of {equation!r} does not fit rank {rank}")
    return [*before, *(f"...{extra - i}" for i in range(extra)), *after]


def _diagonals(node: Node, value: Value, labels: list[str]) -> tuple[Value, list[str]]:
    """Axes that share a label become one: all but the diagonal is zero, then summed away."""
    while len(set(labels)) < len(labels):
        second = next(i for i, x in enumerate(labels) if x in labels[:i])
        first, rank = labels.index(labels[second]), len(labels)
        extent = value.type.shape[first]
        node.require(extent, "==", value.type.shape[second], f"Einsum {node.origin}: a diagonal")
        rows, columns = (
            node.unsqueeze(node.iota(extent), [a for a in range(rank) if a != axis])
            for axis in (first, second)
        )
        zero = node.scalar(0, value.type.dtype)
        kept = node.where(node.emit("equal", rows, columns), value, zero)
        value = node.emit("reduce_sum", kept, axes=(second,), keepdims=False)
        labels = labels[:second] + labels[second + 1 :]
    return value, labels


def _output_labels(right: str | None, labelled: list[list[str]], left: str) -> list[str]:
    dots = sorted(
        {x for ls in labelled for x in ls if x.startswith("...")}, key=lambda d: -int(d[3:])
    )
    if right is not None:
        before, found, after = right.partition("...")
        return [*before, *(dots if found else []), *after]
    once = sorted(c for c in set(left) if c.isalpha() and left.count(c) == 1)
    return [*dots, *once]


def _sum_out(
    node: Node, value: Value, labels: list[str], keep: set[str]
) -> tuple[Value, list[str]]:
    axes = tuple(i for i, x in enumerate(labels) if x not in keep)
    if axes:
        value = node.emit("reduce_sum", value, axes=axes, keepdims=False)
    return value, [x for x in labels if x in keep]


def _contract(
    node: Node, a: Value, la: list[str], b: Value, lb: list[str], needed: set[str]
) -> tuple[Value, list[str]]:
    """One matmul: batch labels both have and are needed, summed labels both have and are not.

    A summed label of extent 1 on one side repeats that side, so that the other one is summed alone.
    """
    for x in [x for x in la if x in lb and x not in needed]:
        i, j = la.index(x), lb.index(x)
        if a.type.shape[i] == 1:
            a, la = _sum_out(node, a, la, {*la} - {x})
        elif b.type.shape[j] == 1:
            b, lb = _sum_out(node, b, lb, {*lb} - {x})
        else:
            node.require(a.type.shape[i], "==", b.type.shape[j], f"Einsum {node.origin}: {x}")
    a, la = _sum_out(node, a, la, needed | set(lb))
    b, lb = _sum_out(node, b, lb, needed | set(la))
    batch = [x for x in la if x in lb and x in needed]
    summed = [x for x in la if x in lb and x not in needed]
    rows, columns = [x for x in la if x not in lb], [x for x in lb if x not in la]
    size = {**dict(zip(la, a.type.shape, strict=True))}
    for x, d in zip(lb, b.type.shape, strict=True):
        size[x] = node.broadcast((size.get(x, 1),), (d,))[0] if x in batch else size.get(x, d)

    def arranged(v: Value, labels: list[str], order: list[list[str]]) -> Value:
        flat = [x for group in order for x in group]
        v = node.transpose(v, [labels.index(x) for x in flat])
        shape = dict(zip(flat, v.type.shape, strict=True))
        lead: list[Dim] = [shape[x] for x in order[0]]
        return node.reshape(v, [*lead, *(product(shape[x] for x in g) for g in order[1:])])

    left = arranged(a, la, [batch, rows, summed])
    right = arranged(b, lb, [batch, summed, columns])
    out = node.emit("matmul", left, right)
    names = [*batch, *rows, *columns]
    return node.reshape(out, [size[x] for x in names]), names


def _finish(node: Node, value: Value, labels: list[str], output: list[str]) -> Value:
    value, labels = _sum_out(node, value, labels, set(output))
    if sorted(labels) != sorted(output):
        raise Refusal(f"the output labels {output} are not all in the inputs")
    return node.transpose(value, [labels.index(x) for x in output])


COMPOSE = {"Einsum": einsum}
