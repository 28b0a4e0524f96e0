"""Weights: torch tensors as constants that share their memory."""

from __future__ import annotations

import numpy as np
import torch

from graphwright.compiler.ir.literal import Literal
from graphwright.frontends.torch.dtypes import element_type
from graphwright.frontends.torch.refusal import Refusal


def array_of(tensor: torch.Tensor) -> np.ndarray:
    """A numpy view of a tensor's memory (on the CPU; from elsewhere a copy).

    Raises Refusal for tensors without plain memory: sparse, quantized, complex, subclasses.
    """
    if tensor.layout != torch.strided:
        raise Refusal(f"a tensor has the layout {tensor.layout}, want a dense one")
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise Refusal(f"a tensor is a {type(tensor).__name__}, want a plain one")
    dtype = element_type(tensor.dtype)
    plain = tensor.detach().cpu()
    if plain.is_neg():
        plain = plain.resolve_neg()
    whole = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[dtype.bits]
    return plain.view(whole).numpy().view(dtype.numpy)


def literal_of(tensor: torch.Tensor) -> Literal:
    """A constant of the tensor's values; an expanded scalar stays one value."""
    array = array_of(tensor)
    if array.size and not any(array.strides):
        dtype = element_type(tensor.dtype)
        return Literal.splat(array.reshape(-1)[0], dtype, array.shape)
    return Literal.dense(array)
