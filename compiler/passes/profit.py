"""Whether a fusion pays: a roofline estimate, the only place where fusion thinks about time.

Legality is elsewhere (fuse_region.py); whoever wants another judgement gives the fuse pass another
`Profit`.  Sizes are those of the symbols' typical values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from graphwright.compiler.ir.dims import Dim, evaluate, symbols_of
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.layout import order_of
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.passes.fuse_region import Region, is_single_constant, outputs_of
from graphwright.compiler.passes.views import AffineView, storage_of
from graphwright.compiler.target import Target

# Beyond this a row of a reduction has left the nearer caches when its second phase reads it again.
ROW_BYTES = 256 * 1024
# A reduction with fewer rows than this leaves cores idle while it runs an elementwise phase.
PARALLEL_ROWS = 16
SMALL_BYTES = 64 * 1024


def typical_size(dim: Dim) -> int:
    """The dim at the typical values of its symbols."""
    if isinstance(dim, int):
        return dim
    return evaluate(dim, {s.name: s.typical for s in symbols_of(dim)})


class Sizes:
    """Elements and bytes of values at typical sizes, calculated once."""

    def __init__(self) -> None:
        self._dims: dict[Dim, int] = {}
        self._elements: dict[Value, int] = {}

    def elements(self, value: Value) -> int:
        known = self._elements.get(value)
        if known is None:
            known = 1
            for dim in value.type.shape:
                size = self._dims.get(dim)
                if size is None:
                    size = self._dims[dim] = typical_size(dim)
                known *= size
            self._elements[value] = known
        return known

    def bytes(self, value: Value) -> int:
        return self.elements(value) * value.type.dtype.bytes


class Profit(Protocol):
    """What fusion asks.  Both answers are a reason to refuse, or None to go ahead."""

    def refuse_merge(
        self, first: Sequence[Op], second: Sequence[Op], both: Sequence[Op], region: Region
    ) -> str | None:
        """Whether two regions (ops in order) cost less apart than as the one region `both`."""
        ...

    def refuse_operand(self, op: Op, index: int, view: AffineView) -> str | None:
        """Whether a contraction had better not read its operand `index` through this view."""
        ...

    def refuse_recompute(
        self,
        cheap: Sequence[Op],
        users: Sequence[Sequence[Op]],
        stored: Sequence[Sequence[Sequence[Op]]],
    ) -> str | None:
        """Whether ops cost less computed once than again in each region that uses them.

        `stored`: ways to compute them once, each as the regions that there would be.
        """
        ...


class Roofline:
    """Seconds of a region: launch + bytes / bandwidth + operations / peak, from the target's figures."""

    def __init__(self, target: Target) -> None:
        self.target, self.sizes = target, Sizes()
        self._seconds: dict[tuple[Op, ...], float] = {}

    def seconds(self, ops: Sequence[Op]) -> float:
        """The estimate for ops that run as one region; a contraction's own operations left out."""
        key = tuple(ops)
        known = self._seconds.get(key)
        if known is None:
            known = self._seconds[key] = self._estimate(ops)
        return known

    def _estimate(self, ops: Sequence[Op]) -> float:
        inside = set(ops)
        traffic = {v: None for op in ops for v in op.operands if v.op not in inside}
        moved = sum(self.sizes.bytes(v) for v in traffic if not is_single_constant(v))
        moved += sum(map(self.sizes.bytes, outputs_of(ops)))
        return (
            self.target.launch_seconds
            + moved / self.target.bandwidth
            + self.operations(ops) / self.target.flops
        )

    def operations(self, ops: Sequence[Op]) -> float:
        """Pointwise work, with what an element costs that is computed again for several users."""
        times: dict[Op, float] = {}
        total = 0.0
        for op in reversed(ops):
            value = op.results[0]
            own = float(self.sizes.elements(value))
            broadcast = moved = 0.0
            for user, _ in value.uses:
                if not isinstance(user, Op) or user not in times:
                    broadcast = max(broadcast, own)  # needed outside
                elif user.kind is Kind.MOVEMENT:
                    moved += times[user]
                elif user.kind is Kind.POINTWISE:
                    broadcast = max(broadcast, self._carried(value, user, times[user]))
                else:
                    broadcast = max(broadcast, own)
            needed = times[op] = broadcast + moved
            if op.kind is Kind.POINTWISE:
                total += needed * operations_per_element(op)
        return total

    def _carried(self, value: Value, user: Op, times: float) -> float:
        """How often `value` is evaluated for a broadcasting user that is evaluated `times` times."""
        shape, wide = value.type.shape, user.results[0].type.shape
        own = self.sizes.elements(value)
        if own >= self.sizes.elements(user.results[0]):
            return times
        lead = len(wide) - len(shape)
        kept = [lead + i for i, d in enumerate(shape) if d != 1]
        repeated = [i for i, d in enumerate(wide) if d != 1 and i not in kept]
        innermost = order_of(user.results[0].type.layout, len(wide))
        rank_of = {axis: i for i, axis in enumerate(innermost)}
        if not kept or min(map(rank_of.__getitem__, repeated), default=0) > max(
            map(rank_of.__getitem__, kept)
        ):
            return own  # constant in the inner loops: computed once outside of them
        return times

    def refuse_merge(
        self, first: Sequence[Op], second: Sequence[Op], both: Sequence[Op], region: Region
    ) -> str | None:
        if region.kind == "reduction" and region.root is not None:
            reason = self._refuse_second_phase(both, region.root)
            if reason is not None:
                return reason
        apart = self.seconds(first) + self.seconds(second)
        if self.seconds(both) >= apart:
            return "computing again costs more than storing"
        return None

    def _refuse_second_phase(self, ops: Sequence[Op], root: Op) -> str | None:
        """A reduction whose result is broadcast back over its rows: do they stay in cache?"""
        operand, result = root.operands[0], root.results[0]
        if operand.type.shape == result.type.shape:
            return None
        again = any(
            op.kind is Kind.POINTWISE
            and op.results[0].type.shape == operand.type.shape
            and any(v.type.shape == result.type.shape and v.op in ops for v in op.operands)
            for op in ops
            if not self._feeds(op, root)
        )
        if not again or self.sizes.bytes(operand) <= SMALL_BYTES:
            return None
        rows = max(self.sizes.elements(result), 1)
        if self.sizes.bytes(operand) / rows > ROW_BYTES:
            return "a reduced row does not stay in cache for the phase after it"
        if rows < PARALLEL_ROWS:
            return "too few reduced rows to run the phase after them in parallel"
        return None

    @staticmethod
    def _feeds(op: Op, root: Op) -> bool:
        return any(v.op is op for v in root.operands)

    def refuse_operand(self, op: Op, index: int, view: AffineView) -> str | None:
        """A kernel with packed weights reads its other operand along the innermost axis."""
        if index > 0 or (op.name not in self.target.channels_innermost and not _has_weights(op)):
            return None
        type = op.operands[index].type
        order = [a for a in order_of(type.layout, type.rank) if type.shape[a] != 1]
        if order and view.strides[order[-1]] != 1:
            return "the innermost axis of a contraction's operand would be strided"
        return None

    def refuse_recompute(
        self,
        cheap: Sequence[Op],
        users: Sequence[Sequence[Op]],
        stored: Sequence[Sequence[Sequence[Op]]],
    ) -> str | None:
        once = min(sum(map(self.seconds, regions)) for regions in stored)
        again = sum(self._seconds_with(cheap, ops) for ops in users)
        return None if again < once else "computing again costs more than storing"

    def _seconds_with(self, cheap: Sequence[Op], ops: Sequence[Op]) -> float:
        """A region that computes `cheap` for itself."""
        made = {r for op in cheap for r in op.results}
        inside = {*ops, *cheap}
        traffic = {v: None for op in (*cheap, *ops) for v in op.operands if v.op not in inside}
        moved = sum(self.sizes.bytes(v) for v in traffic if not is_single_constant(v))
        moved += sum(self.sizes.bytes(v) for v in outputs_of(ops) if v not in made)
        used = max(
            (self.sizes.elements(op.results[0]) for op in ops if made & set(op.operands)), default=0
        )
        work = self.operations(ops) + sum(
            max(used, self.sizes.elements(op.results[0])) * operations_per_element(op)
            for op in cheap
            if op.kind is Kind.POINTWISE
        )
        return self.target.launch_seconds + moved / self.target.bandwidth + work / self.target.flops


def _has_weights(op: Op) -> bool:
    """Whether the second operand is known at compile time."""
    source = storage_of(op.operands[1])[0].op
    return source is not None and source.name == "constant"


def operations_per_element(op: Op) -> int:
    """Rough: functions that exist for floats only cost as much as some fifty operations."""
    return 50 if getattr(op.definition, "accepts", "") == "float" else 1


class Always:
    """Fuses whatever is legal: for tests of legality and for comparison."""

    def refuse_merge(
        self, first: Sequence[Op], second: Sequence[Op], both: Sequence[Op], region: Region
    ) -> str | None:
        return None

    def refuse_operand(self, op: Op, index: int, view: AffineView) -> str | None:
        return None

    def refuse_recompute(
        self,
        cheap: Sequence[Op],
        users: Sequence[Sequence[Op]],
        stored: Sequence[Sequence[Sequence[Op]]],
    ) -> str | None:
        return "not asked for"


def profit_of(name: str, target: Target) -> Profit:
    """The judgement called "roofline" or "always".  Raises ValueError for another name."""
    if name == "roofline":
        return Roofline(target)
    if name == "always":
        return Always()
    raise ValueError(f"fuse: profit is {name!r}, want roofline or always")
