"""Raise: two products with a softmax between them become attention."""

from __future__ import annotations

import math
from dataclasses import dataclass

from graphwright.compiler.ir.dims import Shape
from graphwright.compiler.ir.graph import Op, Value
from graphwright.compiler.ir.types import F32
from graphwright.compiler.passes.attention_kernels import has_kernel
from graphwright.compiler.passes.match import (
    broadcasts,
    is_uniform,
    only_user,
    op_named,
    split_uniform,
    uniform_of,
)
from graphwright.compiler.passes.rewrite import Rewriter, Rule, rule
from graphwright.compiler.target import Target

MOVES = ("reshape", "transpose")


@dataclass(slots=True)
class _Scores:
    """What was found between the first product and the softmax."""

    scale: float = 1.0
    cap: float = 0.0
    mask: Value | None = None  # bools; hidden where false, or where true when `inverted`
    inverted: bool = False
    fill: float = -math.inf
    bias: Value | None = None


def attention_for(target: Target, *, half_only: bool = False) -> Rule:
    """The rule for a target: what decompose would write out again is not raised.

    `half_only`: no attention of more than 16 bits is.
    """

    @rule("matmul")
    def attention(op: Op, rw: Rewriter) -> bool | None:
        if half_only and op.result.type.dtype.bits > 16:
            return rw.fail("its kernel pays for 16-bit floats only")
        return raise_attention(op, rw, target)

    return attention


def raise_attention(op: Op, rw: Rewriter, target: Target) -> bool | None:
    """softmax(q k' * scale + bias) v => attention(q, k, v, bias), the scores used nowhere else.

    Scales may stand on q, on k' or on the product; the softmax may be in f32 between 16-bit
    products; a softmax whose NaNs become 0 is one with `empty` zero.  A NaN in a row that is not
    empty then stays, where exporters' spelling makes it 0.
    """
    weights, v = op.operands
    softmax, empty = _softmax(weights)
    if softmax is None or softmax.attribute("axis") != weights.type.rank - 1:
        return None
    if weights.type.dtype.bits > 32 or weights.type.rank not in (3, 4):
        return None
    found = _Scores()
    product = _peel(softmax.operands[0], found, weights.type.shape)
    if product is None:
        return rw.fail("what is between its softmax and a product is not scale, cap and mask")
    q, turned = product.operands
    if {x.type.dtype for x in (q, turned)} != {v.type.dtype}:
        return rw.fail("its operands differ in element type")
    if not _is_plain(q, turned, v):
        return rw.fail("its operands broadcast")
    if any(_is_quantized(x) for x in (q, turned, v)):
        return rw.fail("products of quantized numbers run in integers")
    if not has_kernel(target.kind, q.type, v.type):
        return rw.fail("attention of these heads has no kernel")
    q, factor = _unscaled(q, rw)
    turned, other = _unscaled(turned, rw)
    scale = found.scale * factor * other
    rank = q.type.rank
    k = rw.value("transpose", turned, permutation=(*range(rank - 2), rank - 1, rank - 2))
    operands = [_with_heads(x, rw) for x in (q, k, v)]
    operands = _shared(operands, turned, v, rw)
    bias = _bias(found, rank, rw)
    out = rw.value(
        "attention", *operands, *([bias] if bias is not None else []),
        scale=scale, softcap=found.cap, fill=found.fill, empty=empty,
    )  # fmt: skip
    return rw.replace(rw.value("reshape", out, shape=op.result.type.shape) if rank == 3 else out)


def _softmax(weights: Value) -> tuple[Op | None, str]:
    """The softmax that makes the weights, seen through a cast and a where(is_nan(p), 0, p)."""
    if len(weights.uses) != 1:
        return None, ""
    cast = op_named(weights, "cast")
    if cast is not None and cast.operands[0].type.dtype is F32:
        weights = cast.operands[0]
    empty, guard = "nan", op_named(weights, "where")
    if guard is not None:
        condition, zero, p = guard.operands
        test = op_named(condition, "is_nan")
        if test is None or test.operands[0] is not p or not is_uniform(zero, 0.0):
            return None, ""
        if len(condition.uses) != 1 or len(p.uses) != 2 or len(weights.uses) != 1:
            return None, ""
        weights, empty = p, "zero"
    elif len(weights.uses) != 1:
        return None, ""
    return op_named(weights, "softmax"), empty


def _peel(scores: Value, found: _Scores, shape: Shape) -> Op | None:
    """The product that the scores are made of, what is on the way noted; None for another form."""
    is_scaled = False
    while True:
        op = scores.op
        if op is None or only_user(scores) is None or scores.type.shape != shape:
            return None
        if op.name == "matmul":
            return op
        scaled = _scaled(op)
        cap = None if is_scaled else _cap(op)
        if cap is not None and not found.cap:
            scores, found.cap = cap
        elif scaled is not None:
            scores, factor = scaled
            found.scale *= factor
            is_scaled = True
        elif op.name == "cast":
            if op.result.type.dtype is not F32 or not op.operands[0].type.dtype.is_float:
                return None
            if op.operands[0].type.dtype.bits > 32 or is_scaled or found.cap:
                return None
            scores = op.operands[0]
        elif op.name == "where" and not is_scaled and not found.cap:
            inner = _masked(op, found, shape)
            if inner is None:
                return None
            scores = inner
        elif op.name == "add" and not is_scaled and not found.cap and found.bias is None:
            inner = _added(op, found, shape)
            if inner is None:
                return None
            scores = inner
        else:
            return None


def _scaled(op: Op) -> tuple[Value, float] | None:
    """(x, c) of x * c and x / (1 / c), c a finite number other than 0."""
    if op.name == "mul":
        split = split_uniform(op)
        if split is None or split[0].type != op.result.type:
            return None
        return split if math.isfinite(split[1]) and split[1] else None
    if op.name == "div":
        number = uniform_of(op.operands[1])
        if isinstance(number, float) and number and math.isfinite(number):
            return (op.operands[0], 1.0 / number) if op.operands[0].type == op.result.type else None
    return None


def _cap(op: Op) -> tuple[Value, float] | None:
    """(x, c) of c * tanh(x / c)."""
    outer = _scaled(op)
    tanh = op_named(outer[0], "tanh") if outer is not None else None
    if outer is None or tanh is None or only_user(tanh.result) is not op or outer[1] <= 0:
        return None
    inner = tanh.operands[0]
    divided = _scaled(inner.op) if inner.op is not None and only_user(inner) is tanh else None
    if divided is None or not math.isclose(divided[1] * outer[1], 1.0, rel_tol=1e-5):
        return None
    return divided[0], outer[1]


def _masked(op: Op, found: _Scores, shape: Shape) -> Value | None:
    """The scores of where(mask, scores, c) or where(mask, c, scores)."""
    condition, x, y = op.operands
    if found.mask is not None or found.bias is not None:
        return None
    if len(condition.type.shape) > len(shape) or not broadcasts(condition.type.shape, shape):
        return None
    for scores, other, inverted in ((x, y, False), (y, x, True)):
        number = uniform_of(other)
        if isinstance(number, float) and number == number and scores.type == op.result.type:
            found.mask, found.inverted, found.fill = condition, inverted, number
            return scores
    return None


def _added(op: Op, found: _Scores, shape: Shape) -> Value | None:
    """The scores of scores + bias: the operand that leads to a product."""
    if found.mask is not None and found.fill != -math.inf:
        return None
    for scores, bias in (op.operands, op.operands[::-1]):
        if scores.type != op.result.type or not broadcasts(bias.type.shape, shape):
            continue
        probe = _Scores()
        if _peel(scores, probe, shape) is not None and probe.bias is None and probe.mask is None:
            found.bias = bias
            return scores
    return None


def _is_plain(q: Value, turned: Value, v: Value) -> bool:
    """Whether the batch axes are equal, so that nothing broadcasts."""
    batch = q.type.shape[:-2]
    return turned.type.shape[:-2] == batch == v.type.shape[:-2] and q.type.rank == v.type.rank


def _is_quantized(value: Value) -> bool:
    while (op := op_named(value, *MOVES, "mul")) is not None:
        value = op.operands[0]
    return op_named(value, "dequantize") is not None


def _unscaled(value: Value, rw: Rewriter) -> tuple[Value, float]:
    """The value without the number that multiplies it, perhaps before reshapes and transposes."""
    moves: list[Op] = []
    at = value
    while (move := op_named(at, *MOVES)) is not None and len(at.uses) == 1:
        moves.append(move)
        at = move.operands[0]
    scaled = _scaled(at.op) if at.op is not None and len(at.uses) == 1 else None
    if scaled is None:
        return value, 1.0
    out, factor = scaled
    for move in reversed(moves):
        out = rw.create(move.name, [out], move.attributes).result
    return out, factor


def _with_heads(value: Value, rw: Rewriter) -> Value:
    """[B, S, D] as [B, 1, S, D]."""
    if value.type.rank == 4:
        return value
    batch, steps, size = value.type.shape
    return rw.value("reshape", value, shape=(batch, 1, steps, size))


def _shared(operands: list[Value], turned: Value, v: Value, rw: Rewriter) -> list[Value]:
    """q, k and v with the heads of k and v as they were before each was repeated."""
    swapped = op_named(turned, "transpose")
    if swapped is None or swapped.attribute("permutation") != (0, 1, 3, 2):
        return operands
    few_k, few_v = _before_repeat(swapped.operands[0], rw), _before_repeat(v, rw)
    if few_k is None or few_v is None or few_k.type.shape[1] != few_v.type.shape[1]:
        return operands
    return [operands[0], few_k, few_v]


def _before_repeat(value: Value, rw: Rewriter) -> Value | None:
    """[B, G, T, D] of a [B, G * R, T, D] in which each head is there R times in a row."""
    merged = op_named(value, "reshape")
    wide = op_named(merged.operands[0], "broadcast_to") if merged is not None else None
    if merged is None or wide is None or wide.result.type.rank != 5:
        return None
    batch, groups, repeat, length, size = wide.result.type.shape
    if value.type.rank != 4 or value.type.shape[2:] != (length, size):
        return None
    if value.type.shape[0] != batch or value.type.shape[1] != groups * repeat:
        return None
    narrow = wide.operands[0]
    if narrow.type.shape != (batch, groups, 1, length, size):
        return None
    return rw.value("reshape", narrow, shape=(batch, groups, length, size))


def _bias(found: _Scores, rank: int, rw: Rewriter) -> Value | None:
    """The mask or the bias, or both as one bias, as attention takes it."""
    mask = found.mask
    if mask is not None and found.inverted:
        mask = rw.value("logical_not", mask)
    out = found.bias if mask is None else mask
    if found.bias is not None and mask is not None:
        hidden = rw.scalar(-math.inf, found.bias.type.dtype)
        out = rw.value("where", mask, found.bias, hidden)
    if out is None:
        return None
    if rank == 3 and out.type.rank == 3:
        batch, steps, length = out.type.shape
        out = rw.value("reshape", out, shape=(batch, 1, steps, length))
    return out
