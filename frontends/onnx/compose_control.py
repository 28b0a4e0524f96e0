"""Control flow: `If` becomes the branch that is known, or our `if` with its captures as operands."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from graphwright.compiler.ir.graph import Graph, Value
from graphwright.compiler.ir.types import BOOL
from graphwright.frontends.onnx.branches import conditional, misfit_of
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal, Tainted
from graphwright.frontends.onnx.relations import relations_of
from graphwright.frontends.onnx.scope import ABSENT, TAINTED, Scope, Weight, sweep
from graphwright.frontends.onnx.structure import check_graph_names, free_names
from graphwright.frontends.onnx.symbols import identifier


def if_(node: Node) -> Sequence[Value]:
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


def _inline(node: Node, branch: onnx.GraphProto, name: str) -> Sequence[Value]:
    """The branch's nodes in the graph around it."""
    scope = Scope(
        node.graph,
        node.scope.opsets,
        parent=node.scope,
        attributes=node.scope.attributes,
        prefix=f"{node.origin}/{name}/",
    )
    return _fill(node, scope, branch, name)


def _fill(node: Node, scope: Scope, branch: onnx.GraphProto, name: str) -> list[Value]:
    """Imports a branch into its scope; its outputs in order.  Raises Tainted when one was refused."""
    if branch.input:
        raise Refusal(f"its {name} has inputs, branches have none")
    for tensor in branch.initializer:
        literal = node.importer.tensors.literal(tensor, f"the initializer {tensor.name!r}")
        scope.names[tensor.name] = Weight(literal, scope.prefix + tensor.name)
    if branch.sparse_initializer:
        raise Refusal(f"its {name} has sparse initializers, which are not supported")
    node.importer.import_nodes(branch.node, scope, f"{name} of {node.origin}")
    return [scope.value(output.name) for output in branch.output]


def _as_op(
    node: Node, condition: Value, branches: tuple[onnx.GraphProto, onnx.GraphProto]
) -> Sequence[Value]:
    captures = _captures(node, branches)
    bodies: list[Graph] = []
    failed = False
    for name, branch in zip(("then_branch", "else_branch"), branches, strict=True):
        body = Graph(identifier(f"{node.origin}.{name}"), registry=node.graph.registry)
        scope = Scope(
            body,
            node.scope.opsets,
            parent=node.scope,
            attributes=node.scope.attributes,
            prefix=f"{node.origin}/{name}/",
        )
        for capture, value in captures.items():
            inner = body.add_input(capture, value.type)
            node.importer.contents.assume(inner, node.known(value))
            scope.names[capture] = inner
        try:
            outputs = _fill(node, scope, branch, name)
        except Tainted:
            failed = True  # the other branch's problems are wanted too
            continue
        body.set_outputs(outputs, [o.name for o in branch.output])
        sweep(body)
        bodies.append(body)
    if failed:
        raise Tainted
    misfit = misfit_of(bodies)
    if misfit is not None:
        assumed = _assume_equal(node, condition, branches)
        if assumed is not None:
            return assumed
        fixable = node.importer.is_of_sizes(condition)
        raise Refusal(
            f"its branches yield {misfit}, and which is taken depends on "
            f"{'the sizes of inputs' if fixable else 'data'}",
            "fix the dims with --shape" if fixable else "make the branches agree in rank",
        )
    return conditional(node, condition, list(captures.values()), bodies)


def _assume_equal(
    node: Node, condition: Value, branches: tuple[onnx.GraphProto, onnx.GraphProto]
) -> Sequence[Value] | None:
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


def _captures(node: Node, branches: Sequence[onnx.GraphProto]) -> dict[str, Value]:
    """The outer values that the branches read; constants are made anew inside."""
    found: dict[str, Value] = {}
    for branch in branches:
        for name in free_names(branch):
            if name not in node.scope:
                raise Refusal(f"its branch reads {name!r}, which nothing makes")
            entry = node.scope.find(name)
            if isinstance(entry, Weight) or entry is ABSENT or name in found:
                continue
            if entry is TAINTED:
                raise Tainted
            value = node.scope.value(name)
            if value.op is None or value.op.name != "constant":
                found[name] = value
    return found


def _later(reason: str, fix: str) -> object:
    def refuse(node: Node) -> Sequence[Value]:
        node.ignore(*node.attribute_protos)
        raise Refusal(reason, fix)

    return refuse


_LOOPS = _later("loops are not supported", "unroll it when exporting")
_SEQUENCES = _later("sequences are not supported", "use tensors: Concat, Split, Gather")
_OPTIONALS = _later("optional values are not supported", "make the value a plain tensor")
_STRINGS = _later("strings are not supported", "do it before the model")

COMPOSE = {
    "If": if_,
    "ImageDecoder": _later("images are not decoded", "decode them before the model"),
    "Loop": _LOOPS,
    "Scan": _LOOPS,
    **dict.fromkeys(
        (
            "ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty",
            "SequenceErase", "SequenceInsert", "SequenceLength", "SequenceMap", "SplitToSequence",
        ),
        _SEQUENCES,
    ),
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), _OPTIONALS),
    **dict.fromkeys(
        ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
        _STRINGS,
    ),
}  # fmt: skip
