"""fuse-products: products of few rows take the norm before them and the product beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.fuse_join import join_regions, region_of, roots_of
from graphwright.compiler.passes.match import only_user
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.target import Target

FEW_ROWS = 4  # up to which weights are multiplied as they stream by, without matrix units
MOST_DEPTH = 16384  # of a row that every program keeps whole


@dataclass(frozen=True, slots=True)
class FuseProducts:
    """Joins a region that is one matrix product of up to four rows with its neighbours.

    Two products of one operand, of which one feeds the epilogue of the other (gate and up of a gated
    unit), become one region; then an RMS norm of the rows that only such regions read goes into each
    of them.  Why: such a product takes as long as its weights take to read; each kernel before it
    adds a microsecond, and reading a row again in every program is free beside the weights.
    Requires regions (fuse).  Ensures regions of the kind "products", which docs/ir.md describes.

        %1 = fused(%x) { rms_norm, mul }
        %2 = fused(%1, %gate) { matmul, silu }     =>   %3 = fused(%x, %gate, %up) {region = "products"}
        %3 = fused(%1, %up, %2) { matmul, mul }
    """

    name: ClassVar[str] = "fuse-products"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        if target.kind != "cuda":  # the CPU's kernels pack weights for one product
            return PassResult(False)
        with Rewriter(graph, self.name, journal) as rw:
            for op in list(graph.ops):
                if not op.is_erased and not rw.exhausted:
                    _join_pair(rw, op)
            for op in list(graph.ops):
                if not op.is_erased and not rw.exhausted:
                    _join_norm(rw, op)
            steps = rw.steps
        return PassResult(steps > 0, statistics={"joined": steps} if steps else {})


def row_operand(op: Op) -> Value | None:
    """The rows of a region of products of few rows by constants, None for another region."""
    if region_of(op) not in ("contraction", "products"):
        return None
    body = op.bodies[0]
    found: set[Value] = set()
    for root in roots_of(op, "matmul"):
        rows, weights = root.operands
        if rows.op is not None or weights.op is not None or not rows.type.dtype.is_float:
            return None
        if weights.type.rank != 2 or rows.type.dtype.bits > 32:
            return None
        if weights.type.dtype is not rows.type.dtype:
            return None
        count, depth = dims.product(rows.type.shape[:-1]), rows.type.shape[-1]
        if not isinstance(count, int) or not isinstance(depth, int):
            return None
        order = None if weights.type.layout is None else weights.type.layout.order
        constant = op.operands[body.inputs.index(weights)]
        if count > FEW_ROWS or depth > MOST_DEPTH or order != (1, 0) or not _is_constant(constant):
            return None
        found.add(op.operands[body.inputs.index(rows)])
    return found.pop() if len(found) == 1 else None


def _is_constant(value: Value) -> bool:
    """Whether a value is a weight, perhaps seen through views."""
    while value.op is not None and value.op.name in ("transpose", "reshape"):
        value = value.op.operands[0]
    return value.op is not None and value.op.name == "constant"


def _join_pair(rw: Rewriter, first: Op) -> None:
    """A product whose only reader is the epilogue of a product of the same rows and size."""
    rows = row_operand(first)
    if rows is None or len(first.results) != 1:
        return
    second = only_user(first.results[0])
    if second is None or first.results[0].is_output or row_operand(second) is not rows:
        return
    if first.result.type.layout is not None or len(second.results) != 1:
        return
    (mine, *more), (other, *others) = roots_of(first, "matmul"), roots_of(second, "matmul")
    if more or others or mine.result.type.shape != other.result.type.shape:
        return
    inside = second.bodies[0].inputs[second.operands.index(first.result)]
    if first.result.type.shape != mine.result.type.shape or any(u is other for u in inside.users):
        return
    if _has_movement(first, second):
        return
    with rw.step("join-products", second):
        join_regions(rw, [first, second], "products", second.results)


def _join_norm(rw: Rewriter, norm: Op) -> None:
    """An RMS norm over the rows of products, into every one of them."""
    if region_of(norm) != "reduction" or len(norm.results) != 1:
        return
    result = norm.result
    roots = [o for o in norm.bodies[0].ops if o.kind is Kind.REDUCTION]
    if [o.name for o in roots] != ["rms_norm"] or result.is_output or not result.uses:
        return
    (root,) = roots
    source = root.operands[0].type
    whole = root.attribute("axis") == source.rank - 1 and source.shape == result.type.shape
    if not whole or result.type.layout is not None:
        return
    if _has_movement(norm):
        return
    users = list(dict.fromkeys(result.users))
    if any(row_operand(u) is not result for u in users):
        return
    for user in users:
        inside = user.bodies[0].inputs[user.operands.index(result)]
        if any(u.name != "matmul" for u in inside.users):
            return
        if any(v.type.layout is not None for v in user.results):
            return
    for user in users:
        with rw.step("join-norm", user):
            join_regions(rw, [norm, user], "products", user.results)


def _has_movement(*ops: Op) -> bool:
    return any(o.kind is Kind.MOVEMENT for op in ops for o in op.bodies[0].ops)
