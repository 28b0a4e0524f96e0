"""Forms the regions that become kernels: the `fuse` pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.fuse_build import build_region, merge_equal
from graphwright.compiler.passes.fuse_clusters import Cluster, Clusters
from graphwright.compiler.passes.fuse_grow import Growth
from graphwright.compiler.passes.fuse_padding import absorb_padding
from graphwright.compiler.passes.fuse_prepare import (
    copy_cheap,
    merge_copies,
    split_movement,
)
from graphwright.compiler.passes.fuse_region import Region, describe_region, is_fusable
from graphwright.compiler.passes.fuse_sink import sink_views
from graphwright.compiler.passes.profit import profit_of
from graphwright.compiler.passes.rewrite import Rewriter
from graphwright.compiler.target import Target


@dataclass(frozen=True, slots=True)
class Fuse:
    """Puts ops into `fused` regions, by kinds: contractions with epilogues, reductions with pro- and
    epilogues, and pointwise DAGs; movement inside a region is an index map.

    Why: every region is one trip through memory.  Requires layouts in the types (propagate-layout).
    Ensures that every pointwise, movement, reduction and contraction op is in a region, apart from
    movement ops that are views; that regions are as docs/ir.md says; that no value which is needed
    outside a region (a graph output, say) is lost in it.

        %2 = conv(%x, %w, %b)         %2 = fused(%x, %w, %b) {region = "contraction"}
        %3 = relu(%2)           ->      body(%a0, %a1, %a2) { conv, relu }
    """

    name: ClassVar[str] = "fuse"
    max_ops: int = 64  # of one region
    profit: str = "roofline"  # or "always": whatever is legal

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        regions = views = 0
        graphs = [graph]
        for at in graphs:
            made, left = self._run(at, target, journal)
            regions, views = regions + made, views + left
            graphs.extend(b for op in at.ops if op.kind is Kind.CONTROL for b in op.bodies)
        return PassResult(regions > 0, statistics={"regions": regions, "views": views})

    def _run(self, graph: Graph, target: Target, journal: Journal | None) -> tuple[int, int]:
        with Rewriter(graph, self.name, journal) as rw:
            for op in graph.ops:
                absorb_padding(rw, op)
            sink_views(rw)
            split_movement(graph)
            clusters = Clusters(graph)

            def miss(what: str, reason: str, ops: Iterable[Op]) -> None:
                rw.journal.refuse(self.name, what, reason, (op.id for op in ops))

            growth = Growth(
                clusters, profit_of(self.profit, target), max_ops=self.max_ops, miss=miss
            )
            if not rw.exhausted:
                ops = list(graph.ops)
                growth.grow_contractions(ops)
                copy_cheap(graph, growth, least_users=2)
                ops = list(graph.ops)
                growth.grow_reductions(ops)
                growth.grow_pointwise(ops)
                growth.grow_sides(ops)
                growth.join_siblings(ops)
                growth.fold_operands(ops)
                copy_cheap(graph, growth, least_users=1)
            for cluster in list(dict.fromkeys(clusters.of.values())):
                self._peel(growth, cluster)
            merge_copies(graph, clusters)
            return self._build(rw, growth)

    @staticmethod
    def _peel(growth: Growth, cluster: Cluster) -> None:
        """Views at the border of a region need no kernel: they leave it."""
        again = True
        while again and len(cluster.ops) > 1:
            again = False
            inside = set(cluster.ops)
            for op in cluster.ops:
                if op.kind is not Kind.MOVEMENT or not growth.is_view(op):
                    continue
                feeds = any(u in inside for u in op.result.users)
                fed = any(v.op in inside for v in op.operands)
                rest = [o for o in cluster.ops if o is not op]
                if (feeds and fed) or isinstance(describe_region(rest), str):
                    continue
                growth.clusters.remove(op)
                again = True
                break

    def _build(self, rw: Rewriter, growth: Growth) -> tuple[int, int]:
        graph = rw.graph
        regions = views = 0
        for cluster in list(growth.clusters.ordered()):
            for op in cluster.ops:
                graph.move_before(op, None)
            # Every op must end in a region; without fuel each gets one of its own.
            parts = [[op] for op in cluster.ops] if rw.exhausted else [list(cluster.ops)]
            for ops in parts:
                last = ops[-1]
                if not is_fusable(last):
                    continue
                if len(ops) == 1 and growth.is_view(last):
                    views += 1
                    continue
                with rw.step("form-region", last):
                    kept = merge_equal(rw, ops)
                    region = describe_region(kept)
                    assert isinstance(region, Region), region
                    build_region(rw, kept, region)
                regions += 1
        return regions, views
