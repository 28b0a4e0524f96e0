"""Element types of torch as ours, and torch's own rules of type promotion."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as PROMOTION
from torch._prims_common import elementwise_dtypes

from graphwright.compiler.ir import types
from graphwright.compiler.ir.types import DType
from graphwright.frontends.torch.refusal import Refusal

OURS: dict[torch.dtype, DType] = {
    torch.bool: types.BOOL,
    torch.int8: types.I8,
    torch.int16: types.I16,
    torch.int32: types.I32,
    torch.int64: types.I64,
    torch.uint8: types.U8,
    torch.uint16: types.U16,
    torch.uint32: types.U32,
    torch.uint64: types.U64,
    torch.float16: types.F16,
    torch.bfloat16: types.BF16,
    torch.float32: types.F32,
    torch.float64: types.F64,
    torch.float8_e4m3fn: types.F8E4M3,
    torch.float8_e4m3fnuz: types.F8E4M3FNUZ,
    torch.float8_e5m2: types.F8E5M2,
    torch.float8_e5m2fnuz: types.F8E5M2FNUZ,
}
THEIRS: dict[DType, torch.dtype] = {ours: theirs for theirs, ours in OURS.items()}


def element_type(dtype: torch.dtype) -> DType:
    """Our type of a torch dtype.  Raises Refusal for complex, quantized and packed types."""
    found = OURS.get(dtype)
    if found is None:
        raise Refusal(f"the element type {dtype} is not supported", "use a real type")
    return found


def promoted(arguments: Sequence[Any], kind: PROMOTION) -> tuple[DType, DType]:
    """(what torch calculates in, what it returns) for tensors and numbers under a rule.

    The type of calculation is the common type of the operands, not the wider one that eager kernels
    use inside for 16-bit floats: ops here round once in any case.
    """
    computed, result = elementwise_dtypes(*arguments, type_promotion_kind=kind)
    if result.is_floating_point and computed.is_floating_point and kind != PROMOTION.ALWAYS_BOOL:
        computed = result
    elif kind == PROMOTION.ALWAYS_BOOL:
        computed = elementwise_dtypes(
            *arguments, type_promotion_kind=PROMOTION.NO_OPMATH
        )[0]  # fmt: skip
    return element_type(computed), element_type(result)
