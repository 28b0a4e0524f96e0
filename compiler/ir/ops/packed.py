"""Matrix products with weights of 2, 4 or 8 bits, scaled block by block: ONNX Runtime's MatMulNBits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.dims import Dim
from graphwright.compiler.ir.op import (
    Attribute,
    Attributes,
    Inference,
    InferenceError,
    Kind,
    OpDef,
    Reference,
)
from graphwright.compiler.ir.ops.checks import check_rank, require_shape
from graphwright.compiler.ir.ops.precision import accumulate, results
from graphwright.compiler.ir.types import F32, U8, TensorType


def unpack(packed: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned integers of `bits` bits from bytes, the lowest bits first, along the last axis."""
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*packed.shape[:-1], -1)


class MatmulPacked(OpDef):
    """a [..., depth] times the transpose of w [N, depth], in f32: w = (b - zero) * scale by blocks.

    b [N, blocks, block * bits / 8] (u8) holds blocks of `block` elements along the depth, packed with
    the lowest bits first; what lies behind the depth in the last block does not matter.  scales [N,
    blocks] are f32; zeros are f32 of that shape, or u8 packed like b along their rows; absent they are
    2^(bits - 1).
    """

    name = "matmul_packed"
    kind = Kind.OPAQUE
    operands = ("a", "b", "scales", "zeros?")
    attributes = {"bits": Attribute("int"), "block": Attribute("int")}

    def infer(
        self, types: Sequence[TensorType], attributes: Attributes, inference: Inference
    ) -> Sequence[TensorType]:
        a, b, scales = types[:3]
        bits, block = attributes["bits"], attributes["block"]
        if bits not in (2, 4, 8) or block < 16 or block & (block - 1):
            raise InferenceError(
                f"{self.name}: bits is {bits} and block {block}, want 2, 4 or 8, and a power of 2 from 16"
            )
        check_rank(self.name, "b", b, 3)
        if a.rank < 1 or a.dtype is not F32 or scales.dtype is not F32 or b.dtype is not U8:
            raise InferenceError(
                f"{self.name}: a is {a}, b {b}, scales {scales}; want f32, u8, f32"
            )
        count, blocks, octets = b.shape
        inference.require(octets, "==", block * bits // 8, f"{self.name}: bytes of a block")
        depth = a.shape[-1]
        inference.require(depth, "<=", blocks * block, f"{self.name}: depth of a")
        inference.require(depth, ">", (blocks - 1) * block, f"{self.name}: depth of a")
        require_shape(inference, self.name, "scales", scales, (count, blocks))
        if len(types) > 3:
            shape: tuple[Dim, ...] = (count, blocks)
            if types[3].dtype is U8:
                shape = (count, (blocks * bits + 7) // 8)
            elif types[3].dtype is not F32:
                raise InferenceError(f"{self.name}: zeros is {types[3]}, want f32 or u8")
            require_shape(inference, self.name, "zeros", types[3], shape)
        return [a.with_shape((*a.shape[:-1], count))]

    def reference(
        self, arrays: Sequence[np.ndarray], attributes: Attributes, context: Reference
    ) -> Sequence[np.ndarray]:
        a, scales = (accumulate(arrays[i], context) for i in (0, 2))
        bits = attributes["bits"]
        b = unpack(arrays[1], bits).astype(a.dtype)
        count, blocks = b.shape[:2]
        if len(arrays) < 4:
            zeros = np.full((count, blocks), 2.0 ** (bits - 1))
        elif arrays[3].dtype == np.uint8:
            zeros = unpack(arrays[3], bits)[:, :blocks].astype(a.dtype)
        else:
            zeros = accumulate(arrays[3], context)
        w = (b - zeros[:, :, None]) * scales[:, :, None]
        w = w.reshape(count, -1)[:, : a.shape[-1]]
        return results([np.matmul(a, w.T)], context)


OPS: tuple[OpDef, ...] = (MatmulPacked(),)
