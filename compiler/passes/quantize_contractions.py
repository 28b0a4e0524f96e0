"""quantize-contractions: products of dequantized tensors become products of their integers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.op import Kind
from graphwright.compiler.ir.types import F32, I8, I16, U8
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.match import literal_of, only_user, op_named, uniform_of
from graphwright.compiler.passes.quantized_operand import (
    LEFT,
    MAX_SUM,
    RIGHT,
    Quantized,
    is_weight,
    largest,
    quantized_operand,
    sums_fit,
)
from graphwright.compiler.passes.rewrite import Rewriter, Rule, apply_rules, rule
from graphwright.compiler.target import Target

# Rows quantized as they come use 16 bits, never a step below the smallest normal number.
_ROW_LIMIT, _LEAST_STEP = 32767.0, 2.0**-126
# Sums of 16-bit products stay below this: 2^31 less the rounding of a division in float32.
_SUM_LIMIT = float(2**31 - 256)
_WINDOW = ("strides", "low", "high", "dilations", "groups")


def _scaled(rw: Rewriter, total: Value, scales: Sequence[Value], op: Op) -> bool:
    """total * scales in float32, in place of the result of `op`: known scales are one factor."""
    known = [s for s in scales if is_weight(s)]
    factors = [s for s in scales if s not in known]
    if known:
        product = known[0]
        for s in known[1:]:
            product = rw.value("mul", product, s)
        factors.append(product)
    real = rw.value("cast", total, dtype=F32, saturate=True)
    for factor in factors:
        real = rw.value("mul", real, factor)
    return rw.replace(_as_type(rw, real, op))


def _as_type(rw: Rewriter, real: Value, op: Op) -> Value:
    dtype = op.result.type.dtype
    return real if dtype is F32 else rw.value("cast", real, dtype=dtype, saturate=True)


@rule("matmul")
def matmul_of_dequantized(op: Op, rw: Rewriter) -> bool | None:
    """matmul(dequantize(a), dequantize(b)) => sums of integer products times both scales.

    Where a has one scale (or one a row), b one (or one a column), and no sum can leave 32 bits.
    The sums are exact, so the result is nearer to the real one than that of float arithmetic.
    """
    if op.result.type.dtype.bits > 32:
        return None
    found = [quantized_operand(v, rw) for v in op.operands]
    a, b = found
    if a is None or b is None:
        return None
    if a.integers.type.dtype not in LEFT or b.integers.type.dtype not in RIGHT:
        return rw.fail("an operand's integers are wider than the integer kernels take")
    ranks = [q.integers.type.rank for q in (a, b)]
    if (ranks[0] and a.varies_along(ranks[0] - 1)) or b.varies_along(max(ranks[1] - 2, 0)):
        return rw.fail("a scale or zero point differs along the summed axis")
    if min(ranks) < 2 and any(v.type.rank for q in (a, b) for v in (q.scale, q.zero)):
        return rw.fail("a vector with a scale for each element")
    terms = a.integers.type.shape[-1]
    if not sums_fit(a, b, terms):
        return rw.fail("a sum of products may not fit in 32 bits")
    total = rw.value("matmul_integer", a.integers, b.integers, a.zero, b.zero)
    return _scaled(rw, total, [a.scale, b.scale], op)


@rule("conv")
def conv_of_dequantized(op: Op, rw: Rewriter) -> bool | None:
    """conv(dequantize(x), dequantize(w), bias) => integer sums times both scales, plus the bias.

    w is constant with one scale or one a filter; what padding adds is 0 either way.
    """
    x, w = (quantized_operand(v, rw) for v in op.operands[:2])
    if x is None or w is None or op.result.type.dtype.bits > 32:
        return None
    if not is_weight(w.integers):
        return rw.fail("the filters of an integer convolution have to be constant")
    if any(q.integers.type.dtype not in (I8, U8) for q in (x, w)):
        return rw.fail("an operand's integers are wider than the integer kernels take")
    rank = w.integers.type.rank
    if x.scale.type.rank or x.zero.type.rank or any(w.varies_along(a) for a in range(1, rank)):
        return rw.fail("a scale or zero point differs along a summed axis")
    if not sums_fit(x, w, dims.product(w.integers.type.shape[1:])):
        return rw.fail("a sum of products may not fit in 32 bits")
    filters = w.integers.type.shape[:1]
    zero, scale = w.zero, w.scale
    if zero.type.rank:
        zero = rw.value("reshape", zero, shape=filters)
    if scale.type.rank:
        scale = rw.value("reshape", scale, shape=(*filters, *(1,) * (rank - 2)))
    window = {name: op.attribute(name) for name in _WINDOW}
    total = rw.create("conv_integer", [x.integers, w.integers, x.zero, zero], window).result
    if len(op.operands) == 2:
        return _scaled(rw, total, [x.scale, scale], op)
    factor = rw.value("mul", scale, x.scale)
    real = rw.value("mul", rw.value("cast", total, dtype=F32, saturate=True), factor)
    bias = op.operands[2]
    if bias.type.dtype is not F32:
        bias = rw.value("cast", bias, dtype=F32, saturate=True)
    bias = rw.value("reshape", bias, shape=(*op.result.type.shape[1:2], *(1,) * (rank - 2)))
    return rw.replace(_as_type(rw, rw.value("add", real, bias), op))


@rule("matmul")
def matmul_of_quantized_weights(op: Op, rw: Rewriter) -> bool | None:
    """matmul(x: f32, dequantize(w)), w constant => rows of x in 16 bits times the integers of w.

    A row's step is its largest |x| over 32767, or over less where a sum might not fit in 32 bits
    otherwise: each element of x moves by at most half a step.
    """
    x = op.operands[0]
    if op.result.type.dtype is not F32 or x.type.rank < 2:
        return None
    if quantized_operand(x, rw) is not None:
        return None
    b = quantized_operand(op.operands[1], rw)
    if b is None or not is_weight(b.integers) or b.integers.type.rank != 2:
        return None
    if b.integers.type.dtype not in RIGHT or b.varies_along(0):
        return rw.fail("quantized weights whose scale differs along the summed axis")
    zero = rw.scalar(0, I16)
    steps = _steps(rw, x, b)
    rows = rw.value("quantize", x, steps, zero, dtype=I16)
    total = rw.value("matmul_integer", rows, b.integers, zero, b.zero)
    return _scaled(rw, total, [steps, b.scale], op)


def _steps(rw: Rewriter, x: Value, b: Quantized) -> Value:
    """The step of each row of x, [..., 1].

    One for all weights where no sum of that many terms can leave 32 bits, so that several share it.
    """
    each = largest(b.integers.type.dtype, b.zero)
    limit = rw.scalar(_ROW_LIMIT, F32)
    if dims.prove(x.type.shape[-1], "<=", int(MAX_SUM // (_ROW_LIMIT * each))) is not True:
        limit = rw.value("minimum", _fitting(rw, b), limit)
    axes = (x.type.rank - 1,)
    peak = rw.value("reduce_max", rw.value("abs", x), axes=axes, keepdims=True)
    return rw.value("maximum", rw.value("div", peak, limit), rw.scalar(_LEAST_STEP, F32))


def _fitting(rw: Rewriter, b: Quantized) -> Value:
    """The largest 16-bit integer of which no sum of products with a column of b leaves 32 bits."""
    centred = rw.value(
        "sub",
        *(rw.value("cast", v, dtype=F32, saturate=True) for v in (b.integers, b.zero)),
    )
    sums = rw.value("reduce_sum", rw.value("abs", centred), axes=(0,), keepdims=False)
    most = rw.value("reduce_max", sums, axes=(0,), keepdims=False)
    return rw.value("floor", rw.value("div", rw.scalar(_SUM_LIMIT, F32), most))


def _integer_sums(value: Value) -> bool:
    """Whether a value is the float32 of sums that an integer contraction made."""
    cast = op_named(value, "cast")
    return (
        cast is not None
        and op_named(cast.operands[0], "matmul_integer", "conv_integer") is not None
    )


@rule("quantize")
def requantize(op: Op, rw: Rewriter) -> bool | None:
    """quantize(sums * f, s, z) => quantize(sums * (f / s), 1, z), f and s known: QLinearMatMul's form.

    Rounds once less before the rounding to an integer.
    """
    x, scale, zero = op.operands
    mul = op_named(x, "mul")
    if mul is None or only_user(x) is not op or literal_of(scale) is None or scale.type.rank:
        return None
    if uniform_of(scale) == 1.0:
        return None
    sums, factor = mul.operands
    if not _integer_sums(sums) or not _is_known(factor):
        return None
    new = rw.value("mul", sums, rw.value("div", factor, scale))
    return rw.replace_by("quantize", new, rw.scalar(1.0, F32), zero, **op.attributes)


def _is_known(value: Value, depth: int = 6) -> bool:
    """Whether a value will be a constant once constants are folded."""
    if literal_of(value) is not None:
        return True
    op = value.op
    if op is None or depth == 0 or op.kind not in (Kind.POINTWISE, Kind.MOVEMENT):
        return False
    return all(_is_known(v, depth - 1) for v in op.operands)


RULES: tuple[Rule, ...] = (
    matmul_of_dequantized,
    conv_of_dequantized,
    matmul_of_quantized_weights,
    requantize,
)


@dataclass(frozen=True, slots=True)
class QuantizeContractions:
    """Runs contractions of quantized tensors in integers: docs/quantization.md says what is kept.

    `weight_only`: also those of float activations with quantized weights, whose rows are quantized
    to 16 bits as they come.  Requires canonical form; folding constants afterwards makes the scales
    one factor.

        %0 = dequantize(%a, %s, %z)       %0 = matmul_integer(%a, %b, %z, %y)
        %1 = dequantize(%b, %t, %y)   =>  %1 = cast(%0) {dtype = f32}
        %2 = matmul(%0, %1)               %2 = mul(%1, s * t)
    """

    name: ClassVar[str] = "quantize-contractions"
    weight_only: bool = True

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in ops."""
        del target
        rules = [r for r in RULES if self.weight_only or r is not matmul_of_quantized_weights]
        return apply_rules(graph, rules, self.name, journal)
