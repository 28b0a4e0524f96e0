"""fuse-attention-step: one query against a cache, with the write of its key and value before it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.fuse_join import join_regions, region_of, roots_of
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.passes.views import view_of
from graphwright.compiler.target import Target

MOST_ELEMENTS = 1 << 20  # of a value that the step calculates as it needs it


@dataclass(frozen=True, slots=True)
class FuseAttentionStep:
    """Puts a decoding step's attention into one region with all that is small around it.

    That is: the writes of the new key and value into their caches (scatter_elements of one row),
    what rotates query and key, the mask.  Why: each is a kernel that waits for the one before it,
    and the keys in the caches can be read before the query is known.  Requires regions (fuse).
    Ensures regions of the kind "attention_step": caches are graph inputs, read whole and written in
    one row, so that the new cache may lie where the old one does.

        %1 = fused(%q, ...) { rotate }
        %2 = scatter_elements(%cache, %position, %key)  =>  %3, %2, .. = fused(%q, %cache, ...)
        %3 = fused(%1, %2, ...) { attention }                    {region = "attention_step"}
    """

    name: ClassVar[str] = "fuse-attention-step"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        if target.kind != "cuda":
            return PassResult(False)
        with Rewriter(graph, self.name, journal) as rw:
            for op in list(graph.ops):
                if not op.is_erased and not rw.exhausted:
                    _join(rw, op)
            steps = rw.steps
        return PassResult(steps > 0, statistics={"joined": steps} if steps else {})


def _join(rw: Rewriter, op: Op) -> None:
    if region_of(op) != "contraction" or len(op.results) != 1:
        return
    roots = roots_of(op, "attention")
    if not roots or not _fits(roots[0]):
        return
    (root,), body = roots, op.bodies[0]
    if any(v.op is not None for v in root.operands):
        return
    given = [op.operands[body.inputs.index(v)] for v in root.operands]
    keys, values = _write(given[1], op), _write(given[2], op)
    if keys is None or values is None or keys is values:
        return
    if keys.operands[1] is not values.operands[1] or keys.operands[0] is values.operands[0]:
        return
    taken = {op, keys, values}
    pending: list[Value] = [v for o in taken for v in o.operands]
    while pending:
        value = pending.pop()
        source = value.op
        if source is None or source in taken or not _is_small(source):
            continue
        taken.add(source)
        pending += source.operands
    ordered = [o for o in rw.graph.ops if o in taken]
    if any(r.type.layout is not None for o in ordered for r in o.results):
        return
    if not _one_row(keys.operands[1]):
        return
    with rw.step("join-attention-step", op):
        join_regions(rw, ordered, "attention_step", (op.result, keys.result, values.result))


def _fits(root: Op) -> bool:
    """One query a head, masked by bools at most."""
    q, k, _, *more = root.operands
    if len(more) > 1 or q.type.shape[2] != 1 or root.attribute("causal"):
        return False
    if root.attribute("window") != (-1, -1) or root.attribute("fill") != -math.inf:
        return False
    if any(v.type.dtype is not q.type.dtype or not v.type.is_static for v in root.operands[:3]):
        return False
    if q.type.dtype.bits > 32 or k.type.shape[0] != q.type.shape[0]:
        return False
    if not more:
        return True
    mask = more[0].type
    heads = mask.shape[-3] if mask.rank > 2 else 1
    return mask.dtype.kind == "bool" and heads == 1


def _write(value: Value, reader: Op) -> Op | None:
    """The scatter of one row into a cache that only the reader and the caller see."""
    op = value.op
    if op is None or op.name != "scatter_elements" or op.attribute("reduction") != "none":
        return None
    cache, indices, _ = op.operands
    if op.attribute("axis") != 2 or cache.op is not None or cache not in op.graph.inputs:
        return None
    whole = cache.type.shape
    if indices.type.shape != (*whole[:2], 1, *whole[3:]):
        return None
    if any(u is not reader for u in value.users) or cache.type.layout is not None:
        return None
    alone = all(u is op for u in cache.users) and not cache.is_output
    return op if alone and value.uses else None


def _is_small(op: Op) -> bool:
    """Whether the step calculates what the op does: pointwise regions and views of few elements."""
    elements = 0
    for result in op.results:
        if not result.type.is_static:
            return False
        elements += math.prod(result.type.sizes)
    if elements > MOST_ELEMENTS:
        return False
    if region_of(op) == "pointwise":
        return len(op.results) == 1
    return op.kind is Kind.MOVEMENT and view_of(op) is not None


def _one_row(indices: Value) -> bool:
    """Whether every element of the indices of one batch is the same number."""
    op = indices.op
    while op is not None:
        if region_of(op) == "pointwise":
            body = op.bodies[0]
            (inner, *more) = body.ops
            if more:
                return False
            op = inner
        if op.name == "broadcast_to":
            of = op.operands[0].type.shape
            missing = 4 - len(of)
            return all(of[a - missing] == 1 for a in range(max(missing, 1), 4))
        if op.name != "reshape":
            return False
        op = op.operands[0].op
    return False
