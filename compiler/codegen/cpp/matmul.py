"""Matrix products in C++: constant right operands through gw/gemm.h, others through gw/matmul.h."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.epilogue import Tiling, check_float
from graphwright.compiler.codegen.cpp.operand import Strided
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim, Shape
from graphwright.compiler.ir.graph import Value

BATCH_AXES = 4  # of gw::Matmul


def emit_matmul(region: ContractionRegion) -> EmittedLaunch:
    """matmul(a, b) with an epilogue."""
    root = region.root
    check_float(root)
    a, b = root.operands
    source = _operand(region, a)
    if b.type.rank == 2:
        # One right matrix for all leading axes of a: they are rows, when they are evenly spaced.
        stride = row_stride(a, source)
        constant = region.operands.constant(b) is not None
        if stride is None and constant:
            source = region.operands.staged(a, range(a.type.rank))
            stride = row_stride(a, source)
        if stride is not None:
            return _one_matrix(region, source, stride, constant)
    return _batched(region, source)


def _operand(region: ContractionRegion, value: Value) -> Strided:
    """The operand in place, else copied row-major."""
    strided = region.operands.strided(value)
    return strided or region.operands.staged(value, range(value.type.rank))


def _one_matrix(
    region: ContractionRegion, source: Strided, stride: Dim, constant: bool
) -> EmittedLaunch:
    """a [..., k] times b [k, n]: gemm when b is constant and a contiguous along k."""
    a, b = region.root.operands
    out = region.root.result.type.shape
    lead = out[:-1]
    depth = a.type.shape[-1]
    contiguous = source.strides[-1] == 1 or depth == 1
    if constant:
        right, right_strides = region.require_packed(b, "gemm"), None
    else:
        where = _operand(region, b)
        right, right_strides = region.address(where), where.strides

    def coordinates(domain: Domain, batch: Dim, row: Dim, column: Dim) -> Coordinates:
        return (*unflatten(domain, row, lead), column)

    rows = dims.product(lead)
    epilogue = region.epilogue(Tiling(1, rows, out[-1], coordinates))
    lines = [f"const auto epilogue = {epilogue};"]
    if constant and contiguous:
        lines += [
            "gw::Gemm g;",
            f"g.a = {region.address(source)};",
            f"g.b = {right};",
            f"g.a_row_stride = {region.scalar('a_row', stride)};",
            *_sizes(region, rows, out[-1], depth),
            "gw::gemm(g, epilogue, pool);",
        ]
        region.builder.body += lines
        return region.launch("gw/gemm.h")
    lines += [
        *_matmul_fields(region, source, right, depth),
        f"g.a_row = {region.scalar('a_row', stride)};",
        f"g.a_k = {region.scalar('a_k', source.strides[-1])};",
        *_sizes(region, rows, out[-1], depth),
    ]
    if right_strides is None:
        lines.append("g.packed = true;")
    else:
        lines += [
            f"g.b_k = {region.scalar('b_k', right_strides[0])};",
            f"g.b_col = {region.scalar('b_col', right_strides[1])};",
        ]
    region.builder.body += [*lines, "gw::matmul(g, epilogue, pool);"]
    return region.launch("gw/matmul.h")


def _batched(region: ContractionRegion, left: Strided) -> EmittedLaunch:
    """A product per batch coordinate, operands by strides."""
    a, b = region.root.operands
    out = region.root.result.type.shape
    right = _operand(region, b)
    has_row, has_column = a.type.rank > 1, b.type.rank > 1
    batch = out[: len(out) - has_row - has_column]
    m = out[len(batch)] if has_row else 1
    n = out[-1] if has_column else 1
    depth = a.type.shape[-1]
    a_batch = batch_strides(a, left, batch, 2 if has_row else 1)
    b_batch = batch_strides(b, right, batch, 2 if has_column else 1)
    merged = merge_axes(batch, a_batch, b_batch)
    if len(merged) > BATCH_AXES:
        raise problem(region.root, f"{len(merged)} batch axes, want at most {BATCH_AXES}")

    def coordinates(domain: Domain, at: Dim, row: Dim, column: Dim) -> Coordinates:
        middle = (row,) if has_row else ()
        last = (column,) if has_column else ()
        return (*unflatten(domain, at, batch), *middle, *last)

    epilogue = region.epilogue(Tiling(dims.product(batch), m, n, coordinates))
    b_k = right.strides[-2] if has_column else right.strides[-1]
    lines = [
        f"const auto epilogue = {epilogue};",
        *_matmul_fields(region, left, region.address(right), depth),
        f"g.a_row = {region.scalar('a_row', left.strides[-2] if has_row else 0)};",
        f"g.a_k = {region.scalar('a_k', left.strides[-1])};",
        f"g.b_k = {region.scalar('b_k', b_k)};",
        f"g.b_col = {region.scalar('b_col', right.strides[-1] if has_column else 0)};",
        *_sizes(region, m, n, depth),
    ]
    first = BATCH_AXES - len(merged)
    for i, (extent, of_a, of_b) in enumerate(merged, first):
        lines += [
            f"g.batch[{i}] = {region.scalar(f'batch{i}', extent)};",
            f"g.a_batch[{i}] = {region.scalar(f'a_batch{i}', of_a)};",
            f"g.b_batch[{i}] = {region.scalar(f'b_batch{i}', of_b)};",
        ]
    region.builder.body += [*lines, "gw::matmul(g, epilogue, pool);"]
    return region.launch("gw/matmul.h")


def _matmul_fields(region: ContractionRegion, a: Strided, right: str, depth: Dim) -> list[str]:
    k = region.scalar("k", depth)
    return [
        "gw::Matmul g;",
        f"g.a = {region.address(a)};",
        f"g.b = {right};",
        f"g.workspace = gw::scratch(gw::matmul_workspace({k}, gw::thread_count(pool)));",
    ]


def _sizes(region: ContractionRegion, m: Dim, n: Dim, k: Dim) -> list[str]:
    return [
        f"g.{name} = {region.scalar(name, value)};"
        for name, value in (("m", m), ("n", n), ("k", k))
    ]


def unflatten(domain: Domain, index: Dim, shape: Sequence[Dim]) -> Coordinates:
    """The coordinates of a row-major running number."""
    out: list[Dim] = []
    for extent in reversed(shape[1:]):
        out.append(domain.remainder(index, extent))
        index = domain.quotient(index, extent)
    return (index, *reversed(out)) if shape else ()


def row_stride(a: Value, source: Strided) -> Dim | None:
    """The distance between neighbouring rows when all leading axes of a make one row axis."""
    axes = [i for i in range(a.type.rank - 1) if a.type.shape[i] != 1]
    if not axes:
        return 0
    for outer, inner in itertools.pairwise(axes):
        step = dims.multiply(source.strides[inner], a.type.shape[inner])
        if not dims.equal(source.strides[outer], step):
            return None
    return source.strides[axes[-1]]


def batch_strides(value: Value, at: Strided, batch: Shape, matrix_axes: int) -> tuple[Dim, ...]:
    """The operand's stride along each batch axis of the result; 0 where it broadcasts."""
    own = value.type.shape[: value.type.rank - matrix_axes]
    skipped = len(batch) - len(own)
    out: list[Dim] = [0] * skipped
    for axis, extent in enumerate(own):
        if extent == 1:
            out.append(0)
        elif extent == batch[skipped + axis] or dims.prove(extent, ">", 1):
            out.append(at.strides[axis])
        else:  # perhaps 1, known when the symbol is bound
            out.append(dims.multiply(at.strides[axis], dims.minimum(extent - 1, 1)))
    return tuple(out)


def merge_axes(batch: Shape, a: Sequence[Dim], b: Sequence[Dim]) -> list[tuple[Dim, Dim, Dim]]:
    """Batch axes (extent, stride of a, of b), neighbours that both operands walk evenly as one."""
    merged: list[tuple[Dim, Dim, Dim]] = []
    for extent, of_a, of_b in zip(batch, a, b, strict=True):
        if extent == 1:
            continue
        if merged:
            outer, outer_a, outer_b = merged[-1]
            even = dims.equal(outer_a, dims.multiply(of_a, extent)) and dims.equal(
                outer_b, dims.multiply(of_b, extent)
            )
            if even:
                merged[-1] = (dims.multiply(outer, extent), of_a, of_b)
                continue
        merged.append((extent, of_a, of_b))
    return merged
