"""merge-siblings: matrix products of one operand with several constants become one product."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.eliminate_dead import graphs_of
from graphwright.compiler.passes.match import only_user
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class Branch:
    """One product: its op, the bias that is added to it if any, and the value that is needed."""

    product: Op
    bias: Value | None
    result: Value


@dataclass(frozen=True, slots=True)
class MergeSiblings:
    """Puts the weights of sibling products side by side: query, key and value are one product.

    Why: one kernel reads the operand once and fills the device better than three.  The parts are
    slices of its result, which is free where what follows reads through views; so only products whose
    results are moved, contracted or attended to are merged, with their biases.

        %1 = matmul(%x, %wq)              %1 = concat(%wq, %wk) {axis = 1}   (folded)
        %2 = matmul(%x, %wk)        =>    %2 = matmul(%x, %1)
                                          %3 = slice(%2) ...   %4 = slice(%2) ...
    """

    name: ClassVar[str] = "merge-siblings"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        if target.kind != "cuda":  # the CPU's kernels gain nothing from width
            return PassResult(False)
        merged = 0
        for current in graphs_of(graph):
            with Rewriter(current, self.name, journal) as rw:
                for value in [*current.inputs, *(r for op in current.ops for r in op.results)]:
                    if len(value.users) > 1 and not rw.exhausted:
                        _merge(rw, value)
                merged += rw.steps
        return PassResult(merged > 0, statistics={"merged": merged} if merged else {})


def _merge(rw: Rewriter, value: Value) -> None:
    groups: dict[tuple[object, ...], list[Branch]] = {}
    for user in value.users:
        branch = _branch(user, value)
        if branch is not None:
            depth = user.operands[1].type.shape[0]
            key = (depth, branch.bias is None, user.attributes.get("tf32"))
            groups.setdefault(key, []).append(branch)
    for branches in groups.values():
        if len(branches) > 1:
            place = {op: i for i, op in enumerate(rw.graph.ops)}
            branches.sort(key=lambda b: place[b.product])
            with rw.step("merge", branches[0].product):
                _merge_branches(rw, value, branches)


def _branch(op: Op, value: Value) -> Branch | None:
    if op.name != "matmul" or op.operands[0] is not value or op.operands[1] is value:
        return None
    weight = op.operands[1]
    if not _is_constant(weight) or weight.type.rank != 2 or not weight.type.is_static:
        return None
    user = only_user(op.result)
    if user is not None and user.name == "add" and user.result.type == op.result.type:
        bias = user.operands[1 if user.operands[0] is op.result else 0]
        if _is_constant(bias) and bias.type.shape == weight.type.shape[1:]:
            return Branch(op, bias, user.result) if _reads_views(user.result) else None
    return Branch(op, None, op.result) if _reads_views(op.result) else None


def _is_constant(value: Value) -> bool:
    return value.op is not None and value.op.name == "constant"


def _reads_views(value: Value) -> bool:
    """Whether everything that reads the value does it through an index map."""
    return not value.is_output and all(
        u.kind in (Kind.MOVEMENT, Kind.CONTRACTION) or u.name == "attention" for u in value.users
    )


def _merge_branches(rw: Rewriter, value: Value, branches: Sequence[Branch]) -> None:
    first = branches[0].product
    place = {op: i for i, op in enumerate(rw.graph.ops)}
    for branch in branches:
        for constant in (branch.product.operands[1], branch.bias):
            # (what stands before already may be used before, too)
            if (
                constant is not None
                and constant.op is not None
                and place[constant.op] > place[first]
            ):
                rw.move_before(constant.op, first)
    weights = rw.value("concat", *(b.product.operands[1] for b in branches), axis=1)
    whole = rw.create("matmul", [value, weights], first.attributes).result
    biases = [b.bias for b in branches if b.bias is not None]
    if biases:
        whole = rw.value("add", whole, rw.value("concat", *biases, axis=0))
    shape = whole.type.shape
    start = 0
    parts: list[Value] = []
    for branch in branches:
        width = branch.result.type.shape[-1]
        assert isinstance(width, int)
        part = rw.value(
            "slice",
            whole,
            starts=(*[0] * (len(shape) - 1), start),
            sizes=(*shape[:-1], width),
            steps=(1,) * len(shape),
        )
        part.name = branch.result.name
        start += width
        parts.append(part)
    for branch, part in zip(branches, parts, strict=True):
        rw.replace_value(branch.result, part)
        for op in dict.fromkeys((branch.result.op, branch.product)):
            if op is not None and not op.is_erased and not op.results[0].uses:
                rw.erase(op)
