"""What fusion does to the graph before and after it grows regions.

Before: movement ops that cost nothing get a copy per user, so that each region may take its own.  After: regions that are cheaper
to compute again than to store are copied into their users, and copies that no region took are one
again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.fuse_clusters import Cluster, Clusters
from graphwright.compiler.passes.fuse_grow import MAX_USERS, Growth
from graphwright.compiler.passes.fuse_region import (
    describe_region,
    is_fusable,
    outputs_of,
)
from graphwright.compiler.passes.views import affine_step, view_of, whole

# A region with more ops than this is not computed twice.
MAX_COPIED_OPS = 8


def split_movement(graph: Graph) -> None:
    """One copy per user of each movement op that all its users can read through."""
    reads_through: dict[Op, bool] = {}
    for op in graph.ops_reversed:
        if op.kind is not Kind.MOVEMENT or not is_fusable(op) or len(op.operands) != 1:
            continue
        base = whole(op.operands[0])
        affine = base is not None and affine_step(op, base) is not None
        view = view_of(op) is not None
        fits = all(
            u.kind in (Kind.POINTWISE, Kind.REDUCTION)
            or (u.kind is Kind.CONTRACTION and affine)
            or reads_through.get(u, False)
            for u in op.result.users
        )
        # A real relayout exists because its users want the bytes to lie so.
        reads_through[op] = view or (fits and not op.result.is_output and op.name != "relayout")
        uses = [u for u in op.result.uses if isinstance(u.user, Op)]
        if not reads_through[op] or not 2 <= len(op.result.users) <= MAX_USERS:
            continue
        copies: dict[Op | Graph, Op] = {uses[0].user: op}
        for use in uses:
            user = use.user
            if user not in copies:
                copies[user] = _copy(graph, op, op.operands)
            if copies[user] is not op and isinstance(user, Op):
                user.set_operand(use.index, copies[user].result)


def _copy(graph: Graph, op: Op, operands: Sequence[Value]) -> Op:
    twin = graph.create(
        op.name,
        operands,
        op.attributes,
        before=op,
        origins=op.origins,
        types=[r.type for r in op.results],
        names=[r.name for r in op.results],
    )
    for old, new in zip(op.results, twin.results, strict=True):
        new.equals = old.equals
    return twin


def copy_cheap(graph: Graph, growth: Growth, *, least_users: int) -> int:
    """Copies cheap regions into all their users where that pays; how many regions vanished."""
    clusters, count = growth.clusters, 0
    for cluster in reversed(list(clusters.ordered())):
        users = _consumers(clusters, cluster)
        if len(users) < least_users or growth.is_free(cluster):
            continue
        if any(growth.is_free(user) for user in users):
            continue  # a copy would make a view a kernel
        for user in users:
            ops = growth.in_order(cluster.ops, user.ops)
            if len(ops) > growth.max_ops or _feeds_contraction(cluster, user):
                break
            if isinstance(describe_region(ops, outputs_of(user.ops)), str):
                break
        else:
            regions = [u.ops for u in users]
            stored: list[list[Sequence[Op]]] = [[cluster.ops, *regions]]
            for i, user in enumerate(users):
                ops = growth.in_order(cluster.ops, user.ops)
                if not isinstance(describe_region(ops), str):
                    stored.append([ops, *regions[:i], *regions[i + 1 :]])
            reason = growth.profit.refuse_recompute(cluster.ops, regions, stored)
            if reason is not None:
                growth.miss("copy", reason, cluster.ops)
                continue
            for user in users:
                _copy_into(graph, clusters, cluster, user)
            clusters.discard(cluster)
            for op in reversed(cluster.ops):
                graph.erase(op)
            count += 1
    return count


def _feeds_contraction(cluster: Cluster, user: Cluster) -> bool:
    """Whether a contraction reads a result, directly or through movement: its views are chosen."""
    made = {r for op in cluster.ops for r in op.results}
    for op in user.ops:
        if op.kind is Kind.CONTRACTION:
            return any(v in made for v in op.operands)
        if op.kind is Kind.MOVEMENT and any(v in made for v in op.operands):
            made.update(op.results)
    return False


def _consumers(clusters: Clusters, cluster: Cluster) -> list[Cluster]:
    """The clusters that use this one, or [] when it cannot be copied into them."""
    if len(cluster.ops) > MAX_COPIED_OPS:
        return []
    for op in cluster.ops:
        if op.kind not in (Kind.POINTWISE, Kind.MOVEMENT) or not is_fusable(op):
            return []
    found: dict[Cluster, None] = {}
    for value in outputs_of(cluster.ops):
        if value.is_output:
            return []
        for user in value.users:
            if not is_fusable(user):
                return []
            if clusters.of[user] is not cluster:
                found[clusters.of[user]] = None
    return list(found) if len(found) <= MAX_USERS else []


def _copy_into(graph: Graph, clusters: Clusters, cluster: Cluster, user: Cluster) -> None:
    made: dict[Value, Value] = {}
    readers = list(user.ops)
    for op in cluster.ops:
        twin = _copy(graph, op, [made.get(v, v) for v in op.operands])
        clusters.copy_of(op, twin, user)
        made.update(zip(op.results, twin.results, strict=True))
    for reader in readers:
        for index, operand in enumerate(reader.operands):
            if operand in made:
                reader.set_operand(index, made[operand])
    for value in list(made.values()):
        op = value.op
        if op is not None and not value.uses:
            _drop(graph, clusters, op)


def _drop(graph: Graph, clusters: Clusters, op: Op) -> None:
    pending = [op]
    while pending:
        dead = pending.pop()
        if dead.is_erased or any(r.uses for r in dead.results):
            continue
        cluster = clusters.of.pop(dead)
        cluster.ops.remove(dead)
        above = [v.op for v in dead.operands if v.op is not None and v.op in cluster.ops]
        graph.erase(dead)
        pending += above


def merge_copies(graph: Graph, clusters: Clusters) -> None:
    """Equal movement ops that stayed alone are one again."""
    known: dict[Hashable, Op] = {}
    for op in sorted(clusters.of, key=clusters.position.__getitem__):
        if op.kind is not Kind.MOVEMENT or len(clusters.of[op].ops) > 1 or not is_fusable(op):
            continue
        types = tuple(r.type for r in op.results)
        twin = known.setdefault((op.name, tuple(op.attributes.items()), op.operands, types), op)
        if twin is not op:
            graph.replace_uses(op.result, twin.result)
            del clusters.of[op]
            graph.erase(op)
