"""In which type a reference calculates, and how its result gets the inferred type.

16-bit and 8-bit floats are widened to float32, 4-bit integers to 8 bits; with `Reference.compute`
every float becomes that type and float results keep it, so that nothing is rounded on the way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphwright.compiler.ir.op import Reference
from graphwright.compiler.ir.types import DType, TensorType, dtype_of


def compute_dtype(dtype: DType, context: Reference) -> np.dtype:
    """The numpy type in which an element type is calculated."""
    if dtype.is_float:
        if context.compute is not None:
            return np.dtype(context.compute)
        return np.dtype(np.float32) if dtype.bits < 32 else dtype.numpy
    if dtype.bits < 8:
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    return dtype.numpy


def result_dtype(type: TensorType, context: Reference) -> np.dtype:
    """The numpy type of a reference's result: the inferred one, or the wider compute type."""
    if type.dtype.is_float and context.compute is not None:
        return np.dtype(context.compute)
    return type.dtype.numpy


def widen(array: np.ndarray, context: Reference) -> np.ndarray:
    """The array in its compute type (the same array when it has it)."""
    return array.astype(compute_dtype(dtype_of(array), context), copy=False)


def accumulate(array: np.ndarray, context: Reference) -> np.ndarray:
    """Floats in float64, for sums and products of many terms; the others as `widen` has them."""
    wide = widen(array, context)
    return wide.astype(np.float64, copy=False) if wide.dtype.kind == "f" else wide


def narrow(array: np.ndarray, type: TensorType, context: Reference) -> np.ndarray:
    """A result in the inferred type (or the compute type).  Integers wrap, floats are rounded."""
    return np.asarray(array).astype(result_dtype(type, context), copy=False)


def results(arrays: Sequence[np.ndarray], context: Reference) -> list[np.ndarray]:
    """`narrow` for each result of an op."""
    with np.errstate(all="ignore"):
        return [narrow(a, t, context) for a, t in zip(arrays, context.results, strict=True)]
