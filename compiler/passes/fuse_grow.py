"""How regions grow: which neighbours are tried, in which order.

Contractions take epilogues first (their results are the largest traffic that fusion saves), then
reductions take prologues and epilogues, then what is left of pointwise and movement ops joins.
Every step is legal by `describe_region`, pays by the `Profit`, and keeps the clusters acyclic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.fuse_clusters import Cluster, Clusters
from graphwright.compiler.passes.fuse_region import (
    INVERTIBLE,
    Region,
    better_below,
    describe_region,
    domain_shapes,
    is_fusable,
    is_generated,
)
from graphwright.compiler.passes.profit import Profit
from graphwright.compiler.passes.views import affine_view, view_of

# A value read by more ops than this is a hub: only its first users are tried.
MAX_USERS = 48


class Growth:
    """The state of one fusion: clusters, judgement, and what was refused and why."""

    def __init__(
        self,
        clusters: Clusters,
        profit: Profit,
        *,
        max_ops: int,
        miss: Callable[[str, str, Iterable[Op]], None],
    ) -> None:
        self.clusters, self.profit, self.max_ops, self.miss = clusters, profit, max_ops, miss
        self._views: dict[Op, bool] = {}

    def is_view(self, op: Op) -> bool:
        known = self._views.get(op)
        if known is None:
            known = view_of(op) is not None
            # What a region calculates from coordinates lies nowhere in memory to be viewed.
            source = op.operands[0]
            while known and source.op is not None:
                known = not is_generated(source)
                if not self._views.get(source.op, False):
                    break
                source = source.op.operands[0]
            self._views[op] = known
        return known

    def is_free(self, cluster: Cluster) -> bool:
        """Whether the cluster needs no kernel."""
        return all(op.kind is Kind.MOVEMENT and self.is_view(op) for op in cluster.ops)

    def in_order(self, *parts: Sequence[Op]) -> list[Op]:
        return sorted({op for p in parts for op in p}, key=self.clusters.position.__getitem__)

    def attempt(self, base: Cluster, others: Sequence[Cluster], what: str) -> Cluster | None:
        """The merged cluster when that is legal and pays; otherwise notes why not."""
        others = [c for c in dict.fromkeys(others) if c is not base]
        if not others:
            return None
        both = self.in_order(base.ops, *(c.ops for c in others))
        if len(both) > self.max_ops:
            return self._refuse(what, f"more than {self.max_ops} ops", base, others)
        region = describe_region(both)
        if isinstance(region, str):
            return self._refuse(what, region, base, others)
        rest = self.in_order(*(c.ops for c in others))
        reason = self.profit.refuse_merge(base.ops, rest, both, region)
        if reason is not None:
            return self._refuse(what, reason, base, others)
        merged = self.clusters.merge([base, *others])
        if merged is None:
            reason = "a path through another region leads back"
            return self._refuse(what, reason, base, others)
        return merged

    def _refuse(self, what: str, reason: str, base: Cluster, others: Sequence[Cluster]) -> None:
        """Names the op of `base` and that of the others between which the border stays."""
        inside = set(base.ops)
        for op in (o for c in others for o in c.ops):
            near = next((v.op for v in op.operands if v.op in inside), None)
            if near is None:
                near = next((u for r in op.results for u in r.users if u in inside), None)
            if near is not None:
                self.miss(what, reason, (near, op))
                return
        self.miss(what, reason, (base.ops[0], *(c.ops[0] for c in others)))

    # -- neighbours

    def users(self, cluster: Cluster) -> Iterator[Op]:
        """Fusable ops outside that use a result of the cluster, in graph order."""
        found: dict[Op, None] = {}
        inside = set(cluster.ops)
        for op in cluster.ops:
            for result in op.results:
                for user in result.users[:MAX_USERS]:
                    if user not in inside and is_fusable(user):
                        found[user] = None
        yield from sorted(found, key=self.clusters.position.__getitem__)

    def movement_from(self, op: Op) -> list[Op]:
        """`op` and the invertible movement after it, up to the last that moves bytes; [] if none."""
        chain: list[Op] = []
        moving = 0
        at: Op | None = op
        while at is not None and at.name in INVERTIBLE and at.kind is Kind.MOVEMENT:
            chain.append(at)
            if not self.is_view(at):
                moving = len(chain)
            users = at.result.users
            at = users[0] if len(users) == 1 and not at.result.is_output else None
        return chain[:moving]

    def producer_through_views(self, value: Value) -> list[Op]:
        """The op behind a value and the views between, nearest first; [] when there is none."""
        chain: list[Op] = []
        op = value.op
        while op is not None and is_fusable(op):
            chain.append(op)
            if op.kind is not Kind.MOVEMENT or not self.is_view(op):
                return chain
            op = op.operands[0].op
        return []

    def rootless(self, op: Op) -> bool:
        """Whether the op's cluster has no contraction or reduction."""
        return not self.clusters.of[op].rooted

    # -- phases

    def grow_contractions(self, ops: Sequence[Op]) -> None:
        """Epilogues; the last contraction in the graph chooses first, since it can wait for others."""
        for op in reversed(ops):
            if op.kind is Kind.CONTRACTION and is_fusable(op):
                shape = op.results[0].type.shape
                self._grow_down(op, lambda user, s=shape: user.result.type.shape == s, "epilogue")

    def fold_operands(self, ops: Sequence[Op]) -> None:
        """Movement in front of contractions that their kernels can read through."""
        for op in ops:
            if op.kind is Kind.CONTRACTION and is_fusable(op):
                for index in range(len(op.operands)):
                    self._fold_operand(op, index)

    def _fold_operand(self, op: Op, index: int) -> None:
        operand = op.operands[index]
        chain: list[Op] = []
        moving = 0
        at = operand
        while at.op is not None and at.op.kind is Kind.MOVEMENT and is_fusable(at.op):
            if len(at.uses) > 1 or not self.rootless(at.op):
                break
            start = at.op.operands[0]
            view = affine_view(operand, stop=lambda v, s=start: v is s)
            if view is None or self.profit.refuse_operand(op, index, view) is not None:
                break
            chain.append(at.op)
            if not self.is_view(at.op):
                moving = len(chain)
            at = start
        if moving:
            of = self.clusters.of
            self.attempt(of[op], [of[o] for o in chain[:moving]], "operand")

    def grow_sides(self, ops: Sequence[Op]) -> None:
        """What epilogues read besides results: masks, scales, moved residuals."""
        for op in ops:
            if op.kind is Kind.CONTRACTION and is_fusable(op):
                self._grow_up(op, lambda o: o.kind is Kind.POINTWISE)
            elif op.kind is Kind.REDUCTION and is_fusable(op):
                self._grow_up(op)

    def grow_reductions(self, ops: Sequence[Op]) -> None:
        """Prologues and what works on reduced results; then elementwise phases over whole rows."""
        roots = [op for op in ops if op.kind is Kind.REDUCTION and is_fusable(op)]
        for op in roots:
            shape = op.results[0].type.shape
            self._grow_up(op)
            self._grow_down(op, lambda user, s=shape: user.result.type.shape == s, "epilogue")
        for op in roots:
            shapes = domain_shapes(op)
            self._grow_down(op, lambda user, s=shapes: user.result.type.shape in s, "row phase")

    def grow_pointwise(self, ops: Sequence[Op]) -> None:
        """Producers join consumers, in graph order."""
        for op in ops:
            if op.kind not in (Kind.POINTWISE, Kind.MOVEMENT) or not is_fusable(op):
                continue
            if not self.is_view(op) and self.rootless(op):
                self._grow_up(op)

    def join_siblings(self, ops: Sequence[Op]) -> None:
        """Pointwise regions of one shape that read the same value read it once."""
        seen: dict[Value, None] = {}
        for op in ops:
            for operand in op.operands:
                if operand.type.rank and operand not in seen:
                    seen[operand] = None
                    self._join_users(operand)

    def _join_users(self, value: Value) -> None:
        if not 2 <= len(value.users) <= MAX_USERS:
            return
        last: Op | None = None
        for user in sorted(value.users, key=self.clusters.position.__getitem__):
            if user.kind is not Kind.POINTWISE or not is_fusable(user) or not self.rootless(user):
                continue
            if user.result.type.shape != value.type.shape:
                continue
            of = self.clusters.of
            if (
                last is None
                or of[last] is of[user]
                or self.attempt(of[last], [of[user]], "sibling") is None
            ):
                last = user

    def _grow_down(self, root: Op, fits: Callable[[Op], bool], what: str) -> None:
        tried: set[Op] = set()
        progress = True
        while progress:
            progress = False
            cluster = self.clusters.of[root]
            for user in self.users(cluster):
                if user in tried or not self.rootless(user):
                    continue
                if user.kind is Kind.MOVEMENT:
                    chain = self.movement_from(user)
                elif user.kind is Kind.POINTWISE and fits(user) and not better_below(user):
                    chain = [user]
                else:
                    continue
                of = self.clusters.of
                if chain and self.attempt(cluster, [of[o] for o in chain], what) is not None:
                    # Something that came too early before may fit now.
                    tried.clear()
                    progress = True
                    break
                tried.add(user)

    def _grow_up(self, root: Op, reads: Callable[[Op], bool] = is_fusable) -> None:
        """Takes in producers of the operands of those ops of the cluster for which `reads` holds."""
        tried: set[Op] = set()
        progress = True
        while progress:
            progress = False
            cluster = self.clusters.of[root]
            inside = set(cluster.ops)
            for op in filter(reads, reversed(cluster.ops)):
                for operand in op.operands:
                    if operand.op is None or operand.op in inside:
                        continue
                    chain = self.producer_through_views(operand)
                    if not chain or chain[-1] in tried or not self.rootless(chain[-1]):
                        continue
                    of = self.clusters.of
                    if self.attempt(cluster, [of[o] for o in chain], "prologue") is not None:
                        tried.clear()
                        progress = True
                        break
                    tried.add(chain[-1])
                if progress:
                    break

    def region(self, cluster: Cluster) -> Region:
        """The region of a finished cluster; it is legal since every step was."""
        region = describe_region(cluster.ops)
        assert isinstance(region, Region), region
        return region
