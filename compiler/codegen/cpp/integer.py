"""Products of small integers in C++: the templates of gw/integer_*.h, sums of 32 bits to the epilogue.

Constant right operands are packed at compile time with their column sums; others by the kernel.  What
the templates do not cover (a zero point for each row, zero points of activations that differ) is
emitted as the sum of products that it is: right, without their speed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.codegen.cpp.convolution import (
    channels_last,
    conv_fields,
    spatial_tiling,
)
from graphwright.compiler.codegen.cpp.epilogue import Tiling
from graphwright.compiler.codegen.cpp.integer_packing import Left, packed_zero
from graphwright.compiler.codegen.cpp.matmul import (
    BATCH_AXES,
    batch_strides,
    merge_axes,
    row_stride,
    unflatten,
)
from graphwright.compiler.codegen.cpp.operand import Strided
from graphwright.compiler.codegen.cpp.region import ContractionRegion
from graphwright.compiler.codegen.cpp.types import storage_type
from graphwright.compiler.codegen.expressions import Domain
from graphwright.compiler.codegen.kernel import EmittedLaunch, Packed, Source
from graphwright.compiler.codegen.lower import Coordinates
from graphwright.compiler.ir import dims
from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import I8, I16, U8, DType

_LEFT = {U8: "U8", I8: "S8", I16: "S16"}
_ORDER: dict[DType, int] = {U8: 0, I8: 1, I16: 2}  # what pack.py calls them
_NAME: dict[DType, Left] = {U8: "u8", I8: "i8", I16: "i16"}
KERNEL_POSITIONS = 4096  # of gw::integer_conv: kPieces


class _Zero:
    """A zero point: one number known now, one that the kernel reads, or a constant one an axis."""

    def __init__(self, region: ContractionRegion, value: Value) -> None:
        self.number: int | None = None
        self.axis: Source | None = None
        self.text: str | None = None
        found = region.operands.constant(value)
        if found is not None:
            array = found.array()
            if array.size and (array == array.reshape(-1)[0]).all():
                self.number = int(array.reshape(-1)[0])
            elif array.size:
                self.axis = found
        elif value.type.elements == 1:
            at = region.operands.strided(value, dtype=value.type.dtype)
            if at is not None:
                self.text = f"*({region.address(at)})"

    def written(self, region: ContractionRegion, name: str) -> str:
        """The C++ expression; a known number is a scalar of the kernel, so that layers share it."""
        if self.number is None:
            return f"int32_t{{{self.text}}}"
        return f"static_cast<int32_t>({region.scalar(name, self.number)})"

    @property
    def is_scalar(self) -> bool:
        return self.number is not None or self.text is not None


def emit_matmul_integer(region: ContractionRegion) -> EmittedLaunch | None:
    """matmul_integer(a, b, a_zero, b_zero) with an epilogue; None where no template fits."""
    a, b, *zeros = region.root.operands
    a_zero, b_zero = (_Zero(region, z) for z in zeros)
    if not a_zero.is_scalar or (b_zero.number is None and b_zero.axis is None and not b_zero.text):
        return None
    constant = region.operands.constant(b)
    if constant is not None and b.type.rank == 2 and b_zero.text is None:
        return _one_matrix(region, constant, a_zero, b_zero)
    if a.type.dtype is I16 or not b_zero.is_scalar:
        return None
    return _batched(region, a_zero, b_zero)


def _weights(
    region: ContractionRegion,
    constant: Source,
    by: DType,
    zero: _Zero,
    packing: str,
    **parameters: int,
) -> tuple[str, bool]:
    """The pointer to packed weights, and whether some zero point is not 0 once they are packed."""
    given = dict(parameters)
    more: tuple[Source, ...] = ()
    if zero.axis is not None:
        more = (zero.axis,)
    elif zero.number:
        given["zero"] = zero.number
    points = np.asarray(zero.number if zero.axis is None else zero.axis.array())
    weights = constant.dtype.numpy
    packed = Packed(constant, packing, tuple(sorted(given.items())), more)
    pointer = region.builder.pointer("weights", "uint8_t", packed)
    return pointer, bool(packed_zero(points, weights, _NAME[by]).any())


def _one_matrix(
    region: ContractionRegion, constant: Source, a_zero: _Zero, b_zero: _Zero
) -> EmittedLaunch | None:
    """a [..., k] times constant b [k, n]."""
    a = region.root.operands[0]
    left, out = a.type.dtype, region.root.result.type.shape
    lead, depth = out[:-1], a.type.shape[-1]
    source = region.operands.strided(a, dtype=left)
    stride = None if source is None else row_stride(a, source)
    if source is None or stride is None or not (source.strides[-1] == 1 or depth == 1):
        source = region.operands.staged(a, range(a.type.rank))
        stride = row_stride(a, source)
        if stride is None:
            return None
    weights, zeros = _weights(region, constant, left, b_zero, "integer_gemm", left=_ORDER[left])

    def coordinates(domain: Domain, batch: Dim, row: Dim, column: Dim) -> Coordinates:
        return (*unflatten(domain, row, lead), column)

    rows = dims.product(lead)
    epilogue = region.epilogue(Tiling(1, rows, out[-1], coordinates))
    region.builder.body += [
        f"const auto epilogue = {epilogue};",
        "gw::IntegerGemm g;",
        f"g.a = {region.address(source)};",
        f"g.b = {weights};",
        f"g.a_row_stride = {region.scalar('a_row', stride)};",
        f"g.m = {region.scalar('m', rows)};",
        f"g.n = {region.scalar('n', out[-1])};",
        f"g.k = {region.scalar('k', depth)};",
        f"g.a_zero = {a_zero.written(region, 'a_zero')};",
        f"g.zeros = {str(zeros).lower()};",
        f"gw::integer_gemm<gw::Left::{_LEFT[left]}>(g, epilogue, pool);",
    ]
    return region.launch("gw/integer_gemm.h")


def _batched(region: ContractionRegion, a_zero: _Zero, b_zero: _Zero) -> EmittedLaunch | None:
    """A product per batch coordinate, operands by strides, the right one packed by the kernel."""
    a, b = region.root.operands[:2]
    out = region.root.result.type.shape
    left, right = (
        region.operands.strided(v, dtype=v.type.dtype)
        or region.operands.staged(v, range(v.type.rank))
        for v in (a, b)
    )
    has_row, has_column = a.type.rank > 1, b.type.rank > 1
    batch = out[: len(out) - has_row - has_column]
    m, n = out[len(batch)] if has_row else 1, out[-1] if has_column else 1
    if b.type.rank <= 2 and has_row and has_column:
        # One right matrix for all leading axes of a: they are rows, when they are evenly spaced.
        stride = row_stride(a, left)
        if stride is not None:
            return _emit_batched(
                region, (), dims.product(out[:-1]), n, left, right, stride, a_zero, b_zero, ((), ())
            )
    strides = (
        batch_strides(a, left, batch, 2 if has_row else 1),
        batch_strides(b, right, batch, 2 if has_column else 1),
    )
    row = left.strides[-2] if has_row else 0
    return _emit_batched(region, batch, m, n, left, right, row, a_zero, b_zero, strides)


def _emit_batched(
    region: ContractionRegion,
    batch: Sequence[Dim],
    m: Dim,
    n: Dim,
    left: Strided,
    right: Strided,
    a_row: Dim,
    a_zero: _Zero,
    b_zero: _Zero,
    strides: tuple[Sequence[Dim], Sequence[Dim]],
) -> EmittedLaunch | None:
    a, b = region.root.operands[:2]
    out = region.root.result.type.shape
    merged = merge_axes(tuple(batch), *strides)
    if len(merged) > BATCH_AXES:
        return None
    has_column = b.type.rank > 1
    lead = out[len(batch) : len(out) - has_column]

    def coordinates(domain: Domain, at: Dim, row: Dim, column: Dim) -> Coordinates:
        last = (column,) if has_column else ()
        rows = unflatten(domain, row, lead) if lead else ()
        return (*unflatten(domain, at, tuple(batch)), *rows, *last)

    epilogue = region.epilogue(Tiling(dims.product(batch), m, n, coordinates))
    b_k = right.strides[-2] if has_column else right.strides[-1]
    lines = [
        f"const auto epilogue = {epilogue};",
        "gw::IntegerMatmul g;",
        f"g.a = {region.address(left)};",
        f"g.b = {region.address(right)};",
    ]
    fields: dict[str, Dim] = {
        "m": m, "n": n, "k": a.type.shape[-1], "a_row": a_row, "a_k": left.strides[-1],
        "b_k": b_k, "b_col": right.strides[-1] if has_column else 0,
    }  # fmt: skip
    lines += [f"g.{name} = {region.scalar(name, value)};" for name, value in fields.items()]
    for i, (extent, of_a, of_b) in enumerate(merged, BATCH_AXES - len(merged)):
        lines += [
            f"g.batch[{i}] = {region.scalar(f'batch{i}', extent)};",
            f"g.a_batch[{i}] = {region.scalar(f'a_batch{i}', of_a)};",
            f"g.b_batch[{i}] = {region.scalar(f'b_batch{i}', of_b)};",
        ]
    signed = str(b.type.dtype is I8).lower()
    region.builder.body += [
        *lines,
        f"g.a_zero = {a_zero.written(region, 'a_zero')};",
        f"g.b_zero = {b_zero.written(region, 'b_zero')};",
        f"gw::integer_matmul<gw::Left::{_LEFT[a.type.dtype]}, {signed}>(g, epilogue, pool);",
    ]
    return region.launch("gw/integer_matmul.h")


def emit_conv_integer(region: ContractionRegion) -> EmittedLaunch | None:
    """conv_integer(x, w, x_zero, w_zero) with an epilogue; None where no template fits."""
    root = region.root
    x, w, *zeros = root.operands
    constant = region.operands.constant(w)
    x_zero, w_zero = (_Zero(region, z) for z in zeros)
    kernel = dims.product(w.type.shape[2:])
    if constant is None or not x_zero.is_scalar or w_zero.text or x.type.rank > 5:
        return None
    if not dims.prove(kernel, "<=", KERNEL_POSITIONS):
        return None
    left, groups = x.type.dtype, root.attribute("groups")
    source = channels_last(region, x, dtype=left)
    depthwise = groups > 1 and dims.equal(x.type.shape[1], groups)
    if depthwise:
        weights, packed_zeros = _weights(region, constant, U8, w_zero, "integer_depthwise")
    else:
        weights, packed_zeros = _weights(
            region, constant, left, w_zero, "integer_conv", left=_ORDER[left], groups=groups
        )
    epilogue = region.epilogue(spatial_tiling(root))
    template = (
        f"gw::integer_depthwise<{storage_type(left)}>"
        if depthwise
        else f"gw::integer_conv<gw::Left::{_LEFT[left]}>"
    )
    region.builder.body += [
        f"const auto epilogue = {epilogue};",
        *conv_fields(region, source, weights, struct="gw::IntegerConv"),
        f"c.x_zero = {x_zero.written(region, 'x_zero')};",
        f"c.zeros = {str(packed_zeros).lower()};",
        f"{template}(c, epilogue, pool);",
    ]
    return region.launch("gw/integer_depthwise.h" if depthwise else "gw/integer_conv.h")
