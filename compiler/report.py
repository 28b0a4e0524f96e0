"""What a compilation reports: counts of the final graph, the plan's sizes, times, file sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphwright.compiler.ir.graph import Graph, Op
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.views import view_of
from graphwright.runtime.manifest import Variant, WeightSpec
from graphwright.runtime.weights import storage_bytes

BINDINGS = ("min", "opt", "max")


@dataclass(frozen=True, slots=True)
class GraphCounts:
    """Ops by what they cost.  `transposes`: kernels that do nothing but move data to another order,
    between two kernels; `edge_transposes`: the same on an input or for an output.

    A movement op that became a view or an index map inside a kernel costs nothing and is not
    counted.
    """

    ops: int = 0
    regions: int = 0
    contractions: int = 0
    reductions: int = 0
    opaque: int = 0
    transposes: int = 0
    edge_transposes: int = 0

    @property
    def anchors(self) -> int:
        """Contractions and reductions: what needs a kernel of its own."""
        return self.contractions + self.reductions


def every_op(graph: Graph) -> Iterator[Op]:
    """All ops, those of bodies included."""
    for op in graph.ops:
        yield op
        for body in op.bodies:
            yield from every_op(body)


def count_graph(graph: Graph) -> GraphCounts:
    """Counts of a graph, fused or not."""
    kinds = [op.kind for op in every_op(graph)]
    copies = [op for op in graph.ops if _only_reorders(op)]
    edges = sum(map(_at_the_edge, copies))
    return GraphCounts(
        ops=sum(k not in (Kind.SOURCE, Kind.FUSED) for k in kinds),
        regions=kinds.count(Kind.FUSED),
        contractions=kinds.count(Kind.CONTRACTION),
        reductions=kinds.count(Kind.REDUCTION),
        opaque=kinds.count(Kind.OPAQUE),
        transposes=len(copies) - edges,
        edge_transposes=edges,
    )


def _at_the_edge(op: Op) -> bool:
    return any(v.op is None for v in op.operands) or any(r.is_output for r in op.results)


def _only_reorders(op: Op) -> bool:
    if view_of(op) is not None:
        return False
    if op.kind == Kind.FUSED:
        inside = [o for o in op.bodies[0].ops if o.kind != Kind.SOURCE]
        return bool(inside) and all(o.kind == Kind.MOVEMENT for o in inside) and any(
            o.name in ("transpose", "relayout") for o in inside
        )  # fmt: skip
    return op.name in ("transpose", "relayout")


@dataclass(frozen=True, slots=True)
class VariantReport:
    """One variant of an artifact.  Sizes in bytes; `arena` and `lower_bound` per binding."""

    target: str
    kernels: int
    launches: int
    library_bytes: int
    arena: Mapping[str, int]
    lower_bound: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class CompileReport:
    """The whole: `seconds` by stage, `counts` of the graph that was compiled."""

    model: str
    target: str
    counts: GraphCounts
    variants: tuple[VariantReport, ...]
    weight_bytes: int
    artifact_bytes: int
    seconds: Mapping[str, float]
    unbounded: tuple[str, ...] = ()  # symbols without an upper limit
    notes: tuple[str, ...] = ()
    passes: tuple[tuple[str, float, bool], ...] = field(default=())

    @property
    def launches_per_anchor(self) -> float | None:
        """Launches per contraction plus reduction; None where there is none."""
        anchors = self.counts.anchors
        return self.variants[0].launches / anchors if self.variants and anchors else None

    def to_json(self) -> dict[str, Any]:
        """For --json: plain values."""
        return {
            "model": self.model,
            "target": self.target,
            "kernels": self.variants[0].kernels if self.variants else 0,
            "launches": self.variants[0].launches if self.variants else 0,
            "contractions": self.counts.contractions,
            "reductions": self.counts.reductions,
            "opaque": self.counts.opaque,
            "transposes": self.counts.transposes,
            "edge_transposes": self.counts.edge_transposes,
            "launches_per_contraction_plus_reduction": self.launches_per_anchor,
            "weight_bytes": self.weight_bytes,
            "artifact_bytes": self.artifact_bytes,
            "seconds": dict(self.seconds),
            "variants": [
                {
                    "target": v.target,
                    "kernels": v.kernels,
                    "launches": v.launches,
                    "library_bytes": v.library_bytes,
                    "arena_bytes": dict(v.arena),
                    "arena_lower_bound_bytes": dict(v.lower_bound),
                }
                for v in self.variants
            ],
            "passes": [{"name": n, "seconds": s, "changed": c} for n, s, c in self.passes],
            "unbounded_symbols": list(self.unbounded),
            "notes": list(self.notes),
        }


def report_variant(variant: Variant, files: Mapping[str, int]) -> VariantReport:
    """`files`: path in the artifact to its bytes."""
    kernel_files = {variant.library, *(k.binary for k in variant.kernels)}
    return VariantReport(
        target=variant.target,
        kernels=len(variant.kernels),
        launches=sum(launch.kind in ("kernel", "host") for launch in variant.launches),
        library_bytes=sum(files.get(path, 0) for path in kernel_files),
        arena=dict(variant.plan.sizes),
        lower_bound=dict(variant.plan.lower_bounds),
    )


def weight_bytes(weights: Iterable[WeightSpec]) -> int:
    """Bytes of all weights as kernels read them."""
    return sum(storage_bytes(w.dtype, w.shape) for w in weights)


def ratio_text(sizes: Mapping[str, int], bounds: Mapping[str, int]) -> str:
    """1.00x, or the worst of the bindings."""
    ratios = [sizes[b] / bounds[b] for b in BINDINGS if sizes.get(b) and bounds.get(b)]
    return f"{max(ratios):.2f}x" if ratios else "-"


def bindings_of(report: CompileReport) -> Sequence[str]:
    """The bindings worth showing: one where nothing is dynamic, no largest where there is none."""
    if all(len(set(v.arena.values())) <= 1 for v in report.variants):
        return ("opt",)
    return BINDINGS[:2] if report.unbounded else BINDINGS
