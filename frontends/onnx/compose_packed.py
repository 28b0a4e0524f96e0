"""Weights of 2, 4 and 8 bits of com.microsoft: MatMulNBits, MatMulBnb4, GatherBlockQuantized."""

from __future__ import annotations

import numpy as np

from graphwright.compiler.ir import dims
from graphwright.compiler.ir.graph import Value
from graphwright.compiler.ir.types import F32, I64, U8
from graphwright.frontends.onnx.compose_quantize import by_blocks
from graphwright.frontends.onnx.node import Node
from graphwright.frontends.onnx.refusal import Refusal

# What the four bits of MatMulBnb4 stand for. NF4: quantiles of the normal distribution (Dettmers et al.,
# "QLoRA", 2023, appendix E). FP4: a sign, two bits of exponent, one of mantissa, over 12.
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
    -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
    0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
    0.7229568362236023, 1.0,
)  # fmt: skip
_FP4_HALF = (0.0, 0.0625 / 12, 8 / 12, 12 / 12, 4 / 12, 6 / 12, 2 / 12, 3 / 12)
_FP4 = (*_FP4_HALF, *(-x for x in _FP4_HALF))


def unpacked(node: Node, x: Value, bits: int, *, first: str = "low") -> Value:
    """u8 [..., n] as [..., n * 8 / bits] integers of `bits` bits; `first` says which half leads."""
    if bits == 8:
        return x
    shifts = range(0, 8, bits) if first == "low" else range(8 - bits, -1, -bits)
    rank, mask = x.type.rank, node.scalar((1 << bits) - 1, U8)
    parts = [
        node.unsqueeze(
            node.emit("bitwise_and", node.emit("shift_right", x, node.scalar(s, U8)), mask), (rank,)
        )
        for s in shifts
    ]
    shape = (*x.type.shape[:-1], x.type.shape[-1] * len(parts))
    return node.reshape(node.emit("concat", *parts, axis=rank), shape)


def _bits(node: Node, name: str = "bits", default: int = 4) -> int:
    bits = node.attr(name, default)
    if bits not in (2, 4, 8):
        raise Refusal(f"its {name} is {bits}", "quantize its weights to 2, 4 or 8 bits")
    return bits


def mat_mul_n_bits(node: Node) -> Value:
    """A [.., K] times the transpose of a matrix [N, K] of few bits; scales for blocks along K."""
    a, bits, block = node.x(0), _bits(node), node.attr("block_size")
    depth, count = node.attr("K"), node.attr("N")
    node.ignore("accuracy_level")  # the least precision that is allowed; float32 always is
    if node.attr("weight_prepacked", 0):
        raise Refusal(
            "its weights are packed for one execution provider", "export with weight_prepacked=0"
        )
    node.require(a.type.shape[-1], "==", depth, f"{node.type} {node.origin}: K")
    dtype, shape = a.type.dtype, (*a.type.shape[:-1], count)
    blocks = -(-depth // block)
    b = node.x(1)
    if 0 in b.type.shape:  # a projection that was left out
        out = node.full(0, F32, shape)
    else:
        b = node.reshape(b, (count, blocks, block * bits // 8))
        scales = node.reshape(node.cast(node.x(2), F32), (count, blocks))
        zeros = node.maybe(3)
        if zeros is not None and zeros.type.dtype is U8:
            zeros = node.reshape(zeros, (count, (blocks * bits + 7) // 8))
        elif zeros is not None:
            zeros = node.reshape(node.cast(zeros, F32), (count, blocks))
        wide = node.cast(a, F32)
        if node.has_input(4) and not _in_order(node, depth, block):
            w = _grouped(node, b, scales, zeros, bits, depth)
            out = node.emit("matmul", wide, node.transpose(w, (1, 0)))
        else:
            more = [] if zeros is None else [zeros]
            out = node.emit("matmul_packed", wide, b, scales, *more, bits=bits, block=block)
    bias = node.maybe(5)
    out = out if bias is None else node.emit("add", out, node.cast(bias, F32))
    return node.cast(out, dtype)


def _in_order(node: Node, depth: int, block: int) -> bool:
    """Whether g_idx just counts the blocks."""
    known = node.known(node.x(4))
    return known is not None and np.array_equal(
        known.reshape(-1)[:depth], np.arange(depth) // block
    )


def _grouped(
    node: Node, b: Value, scales: Value, zeros: Value | None, bits: int, depth: int
) -> Value:
    """The matrix [N, K] whose column k has the scale and zero point of the block g_idx[k]."""
    count, blocks, octets = b.type.shape
    w = unpacked(node, node.reshape(b, (count, blocks * octets)), bits)
    w = node.cast(node.slice_axis(w, 1, 0, depth), F32)
    group = node.slice_axis(node.cast(node.ranked(4, 1), I64), 0, 0, depth)
    if zeros is None:
        points = node.scalar(1 << (bits - 1), F32)
    else:
        if zeros.type.dtype is U8:
            zeros = node.slice_axis(unpacked(node, zeros, bits), 1, 0, blocks)
        points = node.gather(node.cast(zeros, F32), group, 1)
    return node.emit("mul", node.emit("sub", w, points), node.gather(scales, group, 1))


def mat_mul_bnb4(node: Node) -> Value:
    """A product with weights of 4 bits that number the entries of a table; the high half comes first."""
    a, depth, count, block = node.x(0), node.attr("K"), node.attr("N"), node.attr("block_size")
    kind = node.attr("quant_type")
    if kind not in (0, 1):
        raise Refusal(f"its quant_type is {kind}, want 0 (FP4) or 1 (NF4)")
    node.ignore("training_mode")
    total = depth * count
    table = node.array(np.asarray(_NF4 if kind else _FP4, np.float32))
    codes = unpacked(node, node.reshape(node.x(1), ((total + 1) // 2,)), 4, first="high")
    values = node.gather(table, node.cast(codes, I64), 0)
    largest = node.reshape(node.cast(node.x(2), F32), ((total + block - 1) // block,))
    scales = by_blocks(node, largest, values, 0, block)
    w = node.emit("mul", values, scales)
    w = node.reshape(node.slice_axis(w, 0, 0, total), (count, depth))
    turned = node.transpose(w, (1, 0)) if node.attr("transB", 1) else w
    return node.cast(node.emit("matmul", node.cast(a, F32), turned), a.type.dtype)


def gather_block_quantized(node: Node) -> Value:
    """Rows of a table that is quantized by blocks along another axis, dequantized."""
    table, indices, scales = node.x(0), node.x(1), node.x(2)
    rank, block = table.type.rank, node.attr("block_size", 128)
    along = node.axis(node.attr("quantize_axis", 1), rank)
    axis = node.axis(node.attr("gather_axis", 0), rank)
    if along == axis:
        raise Refusal(f"its gather_axis and quantize_axis are both {axis}")
    zeros = node.maybe(3)
    dtype = table.type.dtype
    bits = _bits(node) if dtype is U8 else dtype.bits
    if dtype is U8 and bits < 8 and axis == rank - 1:
        raise Refusal("its gather_axis is the last one, along which its numbers are packed")
    shift = indices.type.rank - 1
    place = along + shift if along > axis else along

    def taken(x: Value) -> Value:
        return node.gather(x, indices, axis)

    def numbers(x: Value) -> Value:
        rows = taken(x)
        return unpacked(node, rows, bits) if dtype is U8 else rows

    values = numbers(table)
    factor = taken(scales)
    if dtype.is_float:
        extent = values.type.shape[place]
        factor = by_blocks(node, factor, values, place, block or extent)
        return node.emit("mul", node.cast(values, factor.type.dtype), factor)
    factor = by_blocks(node, factor, values, place, block)
    if zeros is None:
        points = node.scalar(1 << (bits - 1) if dtype is U8 else 0, values.type.dtype)
    else:
        points = numbers(zeros)
        if dtype is U8 and place == values.type.rank - 1:
            points = node.slice_axis(
                points, place, 0, dims.ceildiv(values.type.shape[place], block)
            )
        points = by_blocks(node, points, values, place, block)
    return node.emit("dequantize", values, factor, points, dtype=scales.type.dtype)


COMPOSE = {
    "com.microsoft:GatherBlockQuantized": gather_block_quantized,
    "com.microsoft:MatMulBnb4": mat_mul_bnb4,
    "com.microsoft:MatMulNBits": mat_mul_n_bits,
}
