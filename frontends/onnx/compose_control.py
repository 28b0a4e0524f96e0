"""Control flow: `If` becomes the branch that is known, or our `if` with its captures as operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL
from graphwright.frontends.onnx.bodies import (
    Body,
    captures_of,
    complete,
    fill,
    inner_scope,
    operands_of,
)
from graphwright.frontends.onnx.branches import conditional
from graphwright.frontends.onnx.containers import Entry, flatten, rebuilt
from graphwright.frontends.onnx.forms import Unlike, convert, form_of, join
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal
from graphwright.frontends.onnx.relations import relations_of
from graphwright.frontends.onnx.scope import Scope, sweep
from graphwright.frontends.onnx.structure import check_graph_names


def if_(node: Node) -> Sequence[Entry]:
    condition = node.cast(node.x(), BOOL)
    branches: tuple[onnx.GraphProto, onnx.GraphProto] = (
        node.attr("then_branch"),
        node.attr("else_branch"),
    )
    for name, branch in zip(("then_branch", "else_branch"), branches, strict=True):
        check_graph_names(branch, f"{name} of {node.origin}")
    known = node.known(condition)
    if known is not None and known.dtype != object and known.size == 1:
        taken = 0 if np.asarray(known).reshape(()).item() else 1
        return _inline(node, branches[taken], ("then_branch", "else_branch")[taken])
    return _as_op(node, condition, branches)


def _inline(node: Node, branch: onnx.GraphProto, name: str) -> Sequence[Entry]:
    """The branch's nodes in the graph around it."""
    scope = inner_scope(node, node.graph, f"{node.origin}/{name}/")
    return complete(_fill(node, scope, branch, name))


def _fill(node: Node, scope: Scope, branch: onnx.GraphProto, name: str) -> list[Entry | None]:
    if branch.input:
        raise Refusal(f"its {name} has inputs, branches have none")
    return fill(node, scope, branch, name)


def _as_op(
    node: Node, condition: Value, branches: tuple[onnx.GraphProto, onnx.GraphProto]
) -> Sequence[Entry]:
    captures = captures_of(node, branches)
    bodies: list[Body] = []
    outcomes: list[list[Entry | None]] = []
    for name, branch in zip(("then_branch", "else_branch"), branches, strict=True):
        body = Body(node, name)
        body.add_captures(captures)
        outcomes.append(_fill(body.node, body.scope, branch, name))
        bodies.append(body)
    first, second = (complete(o) for o in outcomes)  # after the problems of both are known
    misfit = ""
    merged: list[Entry] = []
    if len(first) != len(second):
        misfit = f"{len(first)} and {len(second)} values"
    try:
        first, second = _alike(bodies, first, second)
    except Unlike as unlike:
        misfit = str(unlike)
    if misfit:
        assumed = _assume_equal(node, condition, branches)
        if assumed is not None:
            return assumed
        fixable = node.importer.is_of_sizes(condition)
        raise Refusal(
            f"its branches yield {misfit}, and which is taken depends on "
            f"{'the sizes of inputs' if fixable else 'data'}",
            "fix the dims with --shape" if fixable else "make the branches agree in rank",
        )
    for body, outputs in zip(bodies, (first, second), strict=True):
        values = [v for o in outputs for v in flatten(o)]
        body.graph.set_outputs(values, [str(i) for i in range(len(values))])
        sweep(body.graph)
    graphs = [body.graph for body in bodies]
    results = iter(conditional(node, condition, operands_of(captures), graphs))
    for entry in first:
        merged.append(rebuilt(entry, [next(results) for _ in flatten(entry)]))
    return merged


def _alike(
    bodies: Sequence[Body], first: Sequence[Entry], second: Sequence[Entry]
) -> tuple[list[Entry], list[Entry]]:
    """The branches' outputs in forms that hold both.  Raises Unlike."""
    out: tuple[list[Entry], list[Entry]] = ([], [])
    for index, (a, b) in enumerate(zip(first, second, strict=False)):
        if isinstance(a, Value) and isinstance(b, Value):
            if a.type.dtype is not b.type.dtype or a.type.rank != b.type.rank:
                raise Unlike(f"{a.type} and {b.type} for output {index}")
            out[0].append(a)
            out[1].append(b)
            continue
        form = join(form_of(a), form_of(b))
        out[0].append(convert(bodies[0].node, a, form))
        out[1].append(convert(bodies[1].node, b, form))
    return out


def _assume_equal(
    node: Node, condition: Value, branches: tuple[onnx.GraphProto, onnx.GraphProto]
) -> Sequence[Entry] | None:
    """Of branches that differ in rank the one for which sizes are equal, when sizes decide.

    Exporters write a squeeze of an axis that may have another extent than 1 this way.  Every call
    that gets here must then take that branch, which is checked.
    """
    for index, outcome in enumerate((True, False)):
        relations = relations_of(node.importer.contents, condition, outcome)
        if not relations or any(r.comparison != "==" for r in relations):
            continue
        name = ("then_branch", "else_branch")[index]
        reason = f"If {node.origin}: its branches differ in rank; only the {name} is compiled"
        for r in relations:
            node.require(r.left, r.comparison, r.right, reason)
        return _inline(node, branches[index], name)
    return None


def _later(reason: str, fix: str) -> object:
    def refuse(node: Node) -> Sequence[Value]:
        node.ignore(*node.attribute_protos)
        raise Refusal(reason, fix)

    return refuse


_STRINGS = _later("strings are not supported", "do it before the model")

COMPOSE = {
    "If": if_,
    "ImageDecoder": _later("images are not decoded", "decode them before the model"),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit"),
        _STRINGS,
    ),
}  # fmt: skip
