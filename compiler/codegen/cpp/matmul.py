"""Matrix products in C++: constant right operands through gw/gemm.h, others through gw/matmul.h."""

from __future__ import annotations

import itertools

from graphwright.compiler.codegen.cpp.epilogue import Tiling, check_float
from graphwright.compiler.codegen.cpp.operand import Strided
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value


def emit_matmul(region: ContractionRegion) -> EmittedLaunch:
    """matmul(a, b) with an epilogue."""
    root = region.root
    check_float(root)
    a, b = root.operands
    if b.type.rank == 2 and region.operands.literal(b) is not None:
        return _with_packed(region, a, b)
    raise problem(root, "a product of two activations has no template yet")


def _with_packed(region: ContractionRegion, a: Value, b: Value) -> EmittedLaunch:
    """a [..., k] times a constant b [k, n]: all leading axes of a are rows."""
    out = region.root.result.type.shape
    lead = out[:-1]
    rows = dims.product(lead)

    def coordinates(domain: Domain, batch: Dim, row: Dim, column: Dim) -> Coordinates:
        positions: list[Dim] = []
        rest = row
        for extent in reversed(lead[1:]):
            positions.append(domain.remainder(rest, extent))
            rest = domain.quotient(rest, extent)
        first = (rest,) if lead else ()
        return (*first, *reversed(positions), column)

    source = region.operands.strided(a)
    if source is not None and source.strides[-1] != 1 and a.type.shape[-1] != 1:
        source = None
    stride = _row_stride(a, source) if source is not None else None
    if source is None or stride is None:
        source = region.operands.staged(a, range(a.type.rank))
        stride = _row_stride(a, source)
        assert stride is not None
    weights = region.require_packed(b, "gemm")
    epilogue = region.epilogue(Tiling(1, rows, out[-1], coordinates))
    region.builder.body += [
        f"const auto epilogue = {epilogue};",
        "gw::Gemm g;",
        f"g.a = {region.address(source)};",
        f"g.b = {weights};",
        f"g.a_row_stride = {region.scalar('row_stride', stride)};",
        f"g.m = {region.scalar('m', rows)};",
        f"g.n = {region.scalar('n', out[-1])};",
        f"g.k = {region.scalar('k', a.type.shape[-1])};",
        "gw::gemm(g, epilogue, pool);",
    ]
    return region.launch("gw/gemm.h")


def _row_stride(a: Value, source: Strided) -> Dim | None:
    """The distance between neighbouring rows when all leading axes of a make one row axis."""
    axes = [i for i in range(a.type.rank - 1) if a.type.shape[i] != 1]
    if not axes:
        return 0
    for outer, inner in itertools.pairwise(axes):
        step = dims.multiply(source.strides[inner], a.type.shape[inner])
        if not dims.equal(source.strides[outer], step):
            return None
    return source.strides[axes[-1]]
