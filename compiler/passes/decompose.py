"""decompose: ops that no kernel is written for become ops that there are kernels for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from graphwright.compiler.ir.attention_parts import AttentionParts
from graphwright.compiler.ir.dims import Dim, floordiv, product
from graphwright.compiler.ir.graph import Graph, Op, Value
from graphwright.compiler.ir.types import F32
from graphwright.compiler.passes.attention_kernels import has_kernel
from graphwright.compiler.passes.base import Journal, PassResult
from graphwright.compiler.passes.rewrite import Rewriter, Rule, apply_rules, rule
from graphwright.compiler.target import Target


def _wide(rw: Rewriter, op: Op, build: Callable[[list[Value]], Value]) -> bool:
    """Replaces the op by what `build` makes of its operands, 16-bit floats calculated in f32.

    A sum of squares leaves the range of f16 long before its root does.
    """
    dtype = op.result.type.dtype
    if dtype.bits >= 32:
        return rw.replace(build(list(op.operands)))
    wide = [rw.value("cast", v, dtype=F32) for v in op.operands]
    return rw.replace(rw.value("cast", build(wide), dtype=dtype))


def _per_channel(rw: Rewriter, vector: Value, x: Value) -> Value:
    """A vector [C] as [C, 1, ...], which broadcasts along axis 1 of x.

    C is what x calls its channels: where one of the two is a number and the other a symbol, the
    broadcast would be of another type than x.
    """
    shape = (x.type.shape[1], *[1] * (x.type.rank - 2))
    return vector if vector.type.shape == shape else rw.value("reshape", vector, shape=shape)


@rule("batch_norm")
def batch_norm(op: Op, rw: Rewriter) -> bool | None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias => x * s + b with
    s = scale / sqrt(variance + epsilon) and b = bias - mean * s, constants as a rule."""

    def make(name: str, a: Value, b: Value | None) -> Value:
        return rw.value(name, a) if b is None else rw.value(name, a, b)

    def build(operands: list[Value]) -> Value:
        x, *parameters = operands
        epsilon = rw.scalar(op.attribute("epsilon"), x.type.dtype)
        s, b = scale_and_shift(make, epsilon, parameters)
        scaled = rw.value("mul", x, _per_channel(rw, s, x))
        return rw.value("add", scaled, _per_channel(rw, b, x))

    return _wide(rw, op, build)


def scale_and_shift(
    make: Callable[[str, Value, Value | None], Value],
    epsilon: Value,
    parameters: Sequence[Value],
) -> tuple[Value, Value]:
    """The vectors s and b such that a batch norm with (scale, bias, mean, variance) is x * s + b.

    `make(op, a, b)` makes each op on the way: at run time or, for constants, now.
    """
    scale, bias, mean, variance = parameters
    root = make("sqrt", make("add", variance, epsilon), None)
    s = make("div", scale, root)
    return s, make("sub", bias, make("mul", mean, s))


@rule("instance_norm")
def instance_norm(op: Op, rw: Rewriter) -> bool | None:
    """A layer norm over the spatial axes with parameters a channel."""
    x, scale, bias = op.operands
    if x.type.rank < 3:
        return rw.fail("no spatial axes")
    return rw.replace_by(
        "layer_norm",
        x,
        _per_channel(rw, scale, x),
        _per_channel(rw, bias, x),
        axis=2,
        epsilon=op.attribute("epsilon"),
    )


@rule("group_norm")
def group_norm(op: Op, rw: Rewriter) -> bool | None:
    """A layer norm over each group as one row, then scale and bias a channel."""
    shape, groups = op.result.type.shape, op.attribute("groups")
    row: Dim = floordiv(product(shape[1:]), groups)

    def build(operands: list[Value]) -> Value:
        x, scale, bias = operands
        rows = rw.value("reshape", x, shape=(shape[0], groups, row))
        normal = rw.value("layer_norm", rows, axis=2, epsilon=op.attribute("epsilon"))
        back = rw.value("reshape", normal, shape=shape)
        scaled = rw.value("mul", back, _per_channel(rw, scale, x))
        return rw.value("add", scaled, _per_channel(rw, bias, x))

    return _wide(rw, op, build)


@rule("lp_normalize")
def lp_normalize(op: Op, rw: Rewriter) -> bool | None:
    """x / norm, and 0 where the norm is 0."""

    def build(operands: list[Value]) -> Value:
        (x,) = operands
        dtype, axes = x.type.dtype, (op.attribute("axis"),)
        if op.attribute("p") == 1:
            norm = rw.value("reduce_sum", rw.value("abs", x), axes=axes, keepdims=True)
        else:
            squares = rw.value("reduce_sum", rw.value("mul", x, x), axes=axes, keepdims=True)
            norm = rw.value("sqrt", squares)
        zero = rw.scalar(0.0, dtype)
        return rw.value("where", rw.value("equal", norm, zero), zero, rw.value("div", x, norm))

    return _wide(rw, op, build)


@rule("matmul")
def matmul_of_vector(op: Op, rw: Rewriter) -> bool | None:
    """matmul with a vector => matmul of matrices with an axis of extent 1, and a reshape."""
    a, b = op.operands
    if a.type.rank > 1 and b.type.rank > 1:
        return None
    if a.type.rank == 1:
        a = rw.value("reshape", a, shape=(1, *a.type.shape))
    if b.type.rank == 1:
        b = rw.value("reshape", b, shape=(*b.type.shape, 1))
    return rw.replace_by("reshape", rw.value("matmul", a, b), shape=op.result.type.shape)


@rule("attention")
def attention_with_kernel(op: Op, rw: Rewriter) -> bool | None:
    """attention in f32, which has a kernel; in f64 two products, a mask and a softmax."""
    dtype = op.result.type.dtype
    if dtype is F32:
        return None
    operands = list(op.operands)
    if dtype.bits > 32:
        return rw.replace(AttentionParts(rw.value, rw.scalar, operands, op.attributes).result())
    # A mask and lengths keep their types.
    wide = [rw.value("cast", v, dtype=F32) if v.type.dtype == dtype else v for v in operands]
    out = rw.value("attention", *wide, **op.attributes)
    return rw.replace(rw.value("cast", out, dtype=dtype))


@rule("attention")
def narrow_attention(op: Op, rw: Rewriter) -> bool | None:
    """attention of f32 and 16-bit floats has a kernel where head sizes are known and moderate; else it
    is written out in its own type: matrix units add in f32, and softmax calculates in it."""
    q, _, v, *_ = (x.type for x in op.operands)
    if has_kernel("cuda", q, v):
        return rw.fail("it has a kernel")
    return rw.replace(
        AttentionParts(rw.value, rw.scalar, list(op.operands), op.attributes).result()
    )


@rule("resize")
def resize_by_repeating(op: Op, rw: Rewriter) -> bool | None:
    """A nearest resize that repeats each element a whole number of times along each axis => reshape,
    broadcast_to, reshape: an index map that any region can hold."""
    x, *scales = op.operands
    if scales:
        return None  # its scales are in the data
    factors = [_whole_factor(op, axis) for axis in range(x.type.rank)]
    split: list[Dim] = []
    wide: list[Dim] = []
    for extent, factor in zip(x.type.shape, factors, strict=True):
        if factor is None:
            return rw.fail("an axis is not repeated a whole number of times")
        split += [extent, 1] if factor > 1 else [extent]
        wide += [extent, factor] if factor > 1 else [extent]
    if split == list(x.type.shape):
        return None
    parted = rw.value("reshape", x, shape=tuple(split))
    repeated = rw.value("broadcast_to", parted, shape=tuple(wide))
    return rw.replace_by("reshape", repeated, shape=op.result.type.shape)


def _whole_factor(op: Op, axis: int) -> int | None:
    """s when element i of a resize's result is exactly element i // s of its operand."""
    attributes = op.attributes
    extent, size = op.operands[0].type.shape[axis], attributes["sizes"][axis]
    if attributes["mode"] != "nearest" or extent == 0:
        return None
    factor = floordiv(size, extent)
    if not isinstance(factor, int) or factor < 1 or extent * factor != size:
        return None
    scales, rule = attributes["scales"], attributes["coordinates"]
    if scales and scales[axis] != factor:
        return None
    if rule == "asymmetric":
        return factor if attributes["nearest"] == "floor" or factor == 1 else None
    # ((i + 0.5) / s - 0.5) rounded is i // s, since (i + 0.5) / s is never a whole number.
    halves = ("half_pixel", "pytorch_half_pixel", "half_pixel_symmetric")
    return factor if rule in halves and attributes["nearest"].startswith("round") else None


RULES: tuple[Rule, ...] = (
    batch_norm, instance_norm, group_norm, lp_normalize, matmul_of_vector, resize_by_repeating,
)  # fmt: skip
# How each kind of target has attention.
ATTENTION: Mapping[str, Rule] = {"cpu": attention_with_kernel, "cuda": narrow_attention}


@dataclass(frozen=True, slots=True)
class Decompose:
    """Writes batch, instance and group norm, Lp normalisation and products with vectors in terms of
    multiplies, adds, reductions, layer norms and matrix products, and resizes that only repeat
    elements as movement.

    Required: code generation has no kernels for these ops.  16-bit floats are calculated in f32
    between the first and the last op, as the references do.

        %5 = batch_norm(%x, %scale, %bias, %mean, %variance)   =>   %9 = mul(%x, %7)
                                                                    %10 = add(%9, %8)
    """

    name: ClassVar[str] = "decompose"

    def run(self, graph: Graph, target: Target, journal: Journal | None = None) -> PassResult:
        """Linear in ops."""
        rules = (*RULES, ATTENTION[target.kind])
        return apply_rules(graph, rules, self.name, journal, required=True)
