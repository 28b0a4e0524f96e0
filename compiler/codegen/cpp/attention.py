"""Attention in C++: gw/attention.h, operands read where they lie, with a generated epilogue."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphwright.compiler.codegen.cpp.epilogue import Tiling, check_float
from graphwright.compiler.codegen.cpp.operand import Strided
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.cpp.types import float_literal
from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch
from graphwright.compiler.codegen.lower import Coordinates, problem
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import BOOL, F32, I32, I64, DType


def emit_attention(region: ContractionRegion) -> EmittedLaunch:
    """attention(q, k, v, bias, lengths) with an epilogue."""
    root = region.root
    q, k, v, *more = root.operands
    for value in (q, k, v, *root.results):
        if value.type.dtype is not F32:
            check_float(root)
            kind = value.type.dtype.long_name
            raise problem(root, f"its {kind} has no C++ kernel", "cast its operands to float32")
    bias = more[0] if more and not is_neutral(more[0]) else None
    places = [_place(region, value, F32) for value in (q, k, v)]
    where = None if bias is None else _place(region, bias, bias.type.dtype)
    lengths = _lengths(region, more[1]) if len(more) > 1 else []
    (batch, heads, steps, size), (_, groups, length, _) = q.type.shape, k.type.shape
    width = v.type.shape[3]

    def coordinates(domain: Domain, at: Dim, row: Dim, column: Dim) -> Coordinates:
        return (domain.quotient(at, heads), domain.remainder(at, heads), row, column)

    epilogue = region.epilogue(Tiling(dims.multiply(batch, heads), steps, width, coordinates))
    lines = [f"const auto epilogue = {epilogue};", "gw::Attention g;"]
    for name, value, at in zip("qkv", (q, k, v), places, strict=True):
        lines.append(f"g.{name} = {region.address(at)};")
        lines += _strides(region, f"{name}s", value, at.strides, default=(0, 0, 0, 1))
    kind = "none"
    if bias is not None and where is not None:
        kind = "bools" if bias.type.dtype is BOOL else "floats"
        lines.append(f"g.bias = {region.address(where)};")
        lines += _strides(region, "bs", bias, where.strides, default=(0, 0, 0, 0))
    numbers: Sequence[tuple[str, Dim, Dim]] = (
        ("batch", batch, 1), ("heads", heads, 1), ("groups", groups, 1), ("steps", steps, 0),
        ("length", length, 0), ("size", size, 0), ("width", width, 0),
        ("offset", root.attribute("offset"), 0),
    )  # fmt: skip
    lines += lengths
    lines += [
        f"g.{name} = {region.scalar(name, value)};"
        for name, value, default in numbers
        if value != default
    ]
    lines += _flags(region)
    region.builder.body += [*lines, f"gw::attention<gw::Bias::{kind}>(g, epilogue, pool);"]
    return region.launch("gw/attention.h")


def _flags(region: ContractionRegion) -> list[str]:
    """What the attributes say, where it is not the default."""
    a = region.root.attributes
    left, right = a["window"]
    lines = [f"g.scale = {float_literal(a['scale'], 'float')};"]
    if a["softcap"]:
        lines.append(f"g.cap = {float_literal(a['softcap'], 'float')};")
    if a["fill"] != -math.inf:
        lines.append(f"g.fill = {float_literal(a['fill'], 'float')};")
    if left >= 0:
        lines.append(f"g.left = {left};")
    if a["causal"] or right >= 0:
        lines.append(f"g.right = {0 if a['causal'] else right};")
    if a["align"] == "end":
        lines.append("g.to_end = true;")
    if a["empty"] == "nan":
        lines.append('g.empty = __builtin_nanf("");')
    return lines


def is_neutral(bias: Value) -> bool:
    """Whether a bias hides nothing: the constant true, of which regions hold a copy."""
    op = bias.op
    if op is None or op.name != "constant" or bias.type.dtype is not BOOL:
        return False
    literal = op.attribute("value")
    return literal.elements == 1 and bool(literal.array().all())


def _place(region: ContractionRegion, value: Value, dtype: DType) -> Strided:
    """The operand in place, else copied row-major."""
    at = region.operands.strided(value, dtype=dtype)
    return at or region.operands.staged(value, range(value.type.rank))


def _strides(
    region: ContractionRegion, field: str, value: Value, strides: Sequence[Dim], *,
    default: tuple[int, ...],
) -> list[str]:  # fmt: skip
    """The strides along batch, head, position and element; 0 along axes that are missing or 1."""
    lead = 4 - value.type.rank
    lines: list[str] = []
    for axis, (extent, stride) in enumerate(zip(value.type.shape, strides, strict=True), lead):
        step = default[axis] if extent == 1 else stride
        if step != default[axis]:
            lines.append(f"g.{field}[{axis}] = {region.scalar(f'{field}{axis}', step)};")
    return lines


def _lengths(region: ContractionRegion, value: Value) -> list[str]:
    dtype = value.type.dtype
    if dtype not in (I64, I32):
        raise problem(region.root, f"its lengths are {dtype.long_name}", "cast them to int64")
    at = _place(region, value, dtype)
    field = "lengths" if dtype is I64 else "lengths32"
    lines = [f"g.{field} = {region.address(at)};"]
    if at.strides[0] != 1:
        lines.append(f"g.lengths_step = {region.scalar('lengths_step', at.strides[0])};")
    return lines
