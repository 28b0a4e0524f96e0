"""Attention regions: a tile of queries walks over the keys, its scores never in memory.

A running maximum and sum are kept for each query (flash attention, arXiv 2205.14135); scores, weights
and sums are f32, products of 16-bit operands go through the matrix units.  Operands are read through
any affine view, so that heads need no transposes; the result is written where its users want it.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphwright.compiler.codegen.choice import choose_among
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Lowering, problem
from graphwright.compiler.codegen.triton.choose import MULTIPROCESSORS
from graphwright.compiler.codegen.triton.kernels import (
    Region,
    axes_coordinates,
    next_power_of_two,
)
from graphwright.compiler.codegen.triton.matmul import store_product
from graphwright.compiler.codegen.triton.printing import Printer, triton_type
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Op
from graphwright.compiler.ir.types import BOOL
from graphwright.compiler.passes.profit import typical_size

LOG2_E = 1.4426950408889634


def emit_attention(op: Op, root: Op) -> EmittedLaunch:
    """One program a tile of queries (grid axis 0) of a head of a batch (axis 1)."""
    region = Region(op)
    q, k, v = root.operands[:3]
    dtype = q.type.dtype
    size, wide = q.type.shape[3], v.type.shape[3]
    if not isinstance(size, int) or not isinstance(wide, int):
        raise problem(root, f"its heads have the sizes {size} and {wide}, want known numbers")
    batch, heads, steps, _ = q.type.shape
    groups, length = k.type.shape[1:3]
    block_d, block_e = max(next_power_of_two(size), 16), max(next_power_of_two(wide), 16)
    parts = dims.multiply(batch, heads)
    walk = choose_among(
        walks(typical_size(steps), typical_size(parts), max(block_d, block_e), dtype.bits)
    )
    block_m, block_n = walk.queries, walk.keys
    domain, p = region.domain, region.printer()
    part = domain.loop("part", parts)
    m, e = domain.loop("m", steps), domain.loop("e", wide)
    d, j = domain.loop("d", size), domain.loop("j", length)
    index = region.index
    p.line(f"m = tl.program_id(0){index} * {block_m} + tl.arange(0, {block_m})")
    p.line(f"part = tl.program_id(1){index}")
    p.line(f"d, e = tl.arange(0, {block_d}), tl.arange(0, {block_e})")
    p.bind(part, "part")
    at = axes_coordinates(part, (batch, heads), (0, 1), domain)
    head = domain.quotient(at[1], dims.floordiv(heads, groups)) if heads != groups else at[1]
    mask_m = "" if dims.is_multiple(steps, block_m) else "in_m[:, None]"
    mask_d = ("in_d[None, :]", "in_d[:, None]") if size != block_d else ("", "")
    mask_e = "in_e[None, :]" if wide != block_e else ""
    if mask_m:
        p.line(f"in_m = m < {p.dim(steps)}")
    if size != block_d:
        p.line(f"in_d = d < {size}")
    if mask_e:
        p.line(f"in_e = e < {wide}")
    p.line("_wait()")
    p.bind(m, "m[:, None]", mask_m)
    p.bind(d, "d[None, :]", mask_d[0])
    lowering = Lowering(domain)
    query = p.stored(lowering.at(q, (at[0], at[1], m, d)))
    p.line(f"query = {query}")
    p.line(f"peak = tl.full([{block_m}], float('-inf'), tl.float32)")
    p.line(f"total = tl.zeros([{block_m}], tl.float32)")
    p.line(f"sums = tl.zeros([{block_m}, {block_e}], tl.float32)")
    limit, place, last = _limits(p, root, at[0], lowering, length, steps, block_m)
    p.line(f"for start in range(0, {last}, {block_n}):")
    saved = p.enter()
    p.line(f"j = start + tl.arange(0, {block_n})")
    masked = limit != p.dim(length) or not dims.is_multiple(length, block_n)
    if masked:
        p.line(f"in_j = j < {limit}")
    p.forget(d)
    p.bind(d, "d[:, None]", mask_d[1])
    p.bind(j, "j[None, :]", "in_j[None, :]" if masked else "")
    keys = p.stored(lowering.at(k, (at[0], head, j, d)))
    type = triton_type(dtype)
    precision = "tf32" if root.attribute("tf32") else "ieee"
    p.line(f"scores = tl.dot(query, {keys}, input_precision='{precision}')")
    exp, factor = _finish_scores(
        p, root, lowering, (at[0], at[1], m, j), masked=masked, place=place
    )
    times = f" * {factor!r}" if factor else ""
    p.line(f"most = tl.maximum(peak, tl.max(scores, axis=1){times})")
    p.line("level = tl.where(most == float('-inf'), 0.0, most)")
    if factor:
        p.line(f"weights = tl.{exp}(tl.fma(scores, {factor!r}, -level[:, None]))")
    else:
        p.line(f"weights = tl.{exp}(scores - level[:, None])")
    p.line(f"fade = tl.{exp}(peak - level)")
    p.line("total = total * fade + tl.sum(weights, axis=1)")
    p.line("peak = most")
    p.forget(j)
    p.bind(j, "j[:, None]", "in_j[:, None]" if masked else "")
    p.bind(e, "e[None, :]", mask_e)
    values = p.stored(lowering.at(v, (at[0], head, j, e)))
    p.line(
        f"sums = tl.dot(weights.to({type}), {values}, sums * fade[:, None], "
        f"input_precision='{precision}')"
    )
    p.leave(saved)
    p.bind(e, "e[None, :]", mask_e)
    empty = "0.0" if root.attribute("empty") == "zero" else "float('nan')"
    # (the sum, not the peak: a row of NaN has no peak, and is not empty)
    p.line(f"sums = tl.where(total[:, None] == 0, {empty}, sums / total[:, None])")
    store_product(region, root, p, (at[0], at[1], m, e), (m, e))
    grid = (dims.ceildiv(steps, block_m), parts)
    stem = "_".join(o.name for o in region.body.ops)
    summary = f"attention of {steps} queries to {length} keys, {parts} heads of {size}"
    return region.launch(stem, summary, p, grid, num_warps=walk.warps, num_stages=walk.stages)


@dataclass(frozen=True, slots=True)
class Walk:
    """A program's tile of queries, and the keys of one step."""

    queries: int
    keys: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.queries} x {self.keys}, {self.warps} warps, {self.stages} stages"


def walks(steps: int, parts: int, width: int, bits: int) -> list[Walk]:
    """The ways to walk, the likely best first: tiles of 64 queries where there are many (measured for
    heads of 64: two programs of a multiprocessor take turns), fewer where programs are few.
    """
    if bits > 16:
        return [Walk(32, 32, 4, 2)]
    block_m = 64 if width <= 64 else 128 if width <= 128 else 64
    while block_m > 16 and (
        -(-steps // block_m) * parts < MULTIPROCESSORS or block_m // 2 >= steps
    ):
        block_m //= 2
    warps = 8 if block_m * width > 128 * 64 else 4
    first = Walk(block_m, 64, warps, 3 if width <= 128 else 2)
    others = [Walk(*w) for w in ((64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 4, 3), (64, 128, 4, 2),
                                 (32, 64, 4, 3), (64, 32, 4, 3), (16, 64, 4, 3), (128, 128, 8, 2),
                                 (32, 128, 4, 2))]  # fmt: skip
    fitting = [w for w in others if w.queries < 2 * max(steps, 16) and width <= 128]
    return [first, *(w for w in fitting if w != first)]


def _limits(
    p: Printer, root: Op, batch: Dim, lowering: Lowering, length: Dim, steps: Dim, block_m: int
) -> tuple[str, str, str]:
    """How many keys there are, a query's place among them, and where its tile need look no further."""
    limit = p.dim(length)
    if len(root.operands) > 4:
        limit = f"{p.node(lowering.at(root.operands[4], (batch,)))}.to(tl.int32)"
        p.line(f"limit = tl.minimum({limit}, {p.dim(length)})")
        limit = "limit"
    offset = p.dim(root.attribute("offset"))
    first = offset if root.attribute("align") == "start" else f"{limit} - {p.dim(steps)} + {offset}"
    left, right = root.attribute("window")
    if root.attribute("causal"):
        right = 0 if right < 0 else min(right, 0)
    if left < 0 and right < 0:
        return limit, "", limit
    p.line(f"place = m + ({first})")
    last = limit
    if right >= 0:
        end = f"(tl.program_id(0) + 1) * {block_m} + ({first}) + {right}"
        p.line(f"last = tl.maximum(tl.minimum({limit}, {end}), 0)")
        last = "last"
    return limit, "place", last


def _finish_scores(
    p: Printer, root: Op, lowering: Lowering, at: tuple[Dim, Dim, Dim, Dim], *, masked: bool,
    place: str,
) -> tuple[str, float]:  # fmt: skip
    """From products to scores: scale, cap, bias, and -inf where nothing takes part.

    Returns whether weights are their "exp" or "exp2": powers of two save a product, but masks hold
    the least float, which times log2(e) is infinite.  And the factor that scores still lack, which
    is left to the sum in the exponent; 0 where they have it.
    """
    scale, cap = float(root.attribute("scale")), float(root.attribute("softcap"))
    _, k, _, *more = root.operands
    bias = more[0] if more else None
    factor = scale * LOG2_E if bias is None and not cap and scale > 0 else 0.0
    if bias is None and not cap:
        if not factor:
            p.line(f"scores = scores * {scale * LOG2_E!r}")
    else:
        p.line(f"scores = scores * {scale!r}")
        if cap:
            p.line(f"scores = libdevice.tanh(scores / {cap!r}) * {cap!r}")
        if bias is not None:
            shape = root.result.type.shape[:3]
            where = lowering.broadcast(at, (*shape, k.type.shape[2]), bias.type.shape)
            text = p.node(lowering.at(bias, where))
            if bias.type.dtype is BOOL:
                fill = float(root.attribute("fill"))
                shown = f"float('{fill}')" if fill in (float("inf"), float("-inf")) else repr(fill)
                p.line(f"scores = tl.where({text}, scores, {shown})")
            else:
                p.line(f"scores = scores + {text}")
    conditions = ["in_j[None, :]"] if masked else []
    left, right = root.attribute("window")
    if root.attribute("causal"):
        right = 0 if right < 0 else min(right, 0)
    if place and right >= 0:
        conditions.append(f"(j[None, :] <= place[:, None] + {right})")
    if place and left >= 0:
        conditions.append(f"(j[None, :] >= place[:, None] - {left})")
    if conditions:
        p.line(f"scores = tl.where({' & '.join(conditions)}, scores, float('-inf'))")
    return "exp2" if bias is None and not cap else "exp", factor
