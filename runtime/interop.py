"""Arrays of others as numpy arrays and back, without copying: DLPack, the array interface, torch.

torch is never imported here: a caller that passes its tensors has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from graphwright.errors import InputError

# Element types that torch does not hand to numpy: (torch's name, same-size integer, numpy's type).
_EXTRA: dict[str, tuple[str, np.dtype[Any]]] = {
    "bfloat16": ("int16", np.dtype(ml_dtypes.bfloat16)),
    "float8_e4m3fn": ("uint8", np.dtype(ml_dtypes.float8_e4m3fn)),
    "float8_e4m3fnuz": ("uint8", np.dtype(ml_dtypes.float8_e4m3fnuz)),
    "float8_e5m2": ("uint8", np.dtype(ml_dtypes.float8_e5m2)),
    "float8_e5m2fnuz": ("uint8", np.dtype(ml_dtypes.float8_e5m2fnuz)),
}


def as_array(value: Any, name: str) -> np.ndarray:
    """A numpy view of anything with DLPack, the array interface or the buffer protocol.  Raises
    InputError for what has none, or lies on another device.
    """
    if isinstance(value, np.ndarray):
        return value
    try:
        if is_tensor(value):
            return tensor_to_array(value)
        if hasattr(value, "__dlpack__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except Exception as error:
        raise InputError(
            f"input {name!r}: a {type(value).__name__} cannot be read as an array: {error}"
        ) from None


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_to_array(tensor: Any) -> np.ndarray:
    """The same memory as a numpy array.  Raises TypeError for a tensor on another device."""
    if tensor.device.type != "cpu":
        raise TypeError(f"it lies on {tensor.device}, want cpu")
    tensor = tensor.detach()
    extra = _EXTRA.get(str(tensor.dtype).removeprefix("torch."))
    if extra is None:
        return tensor.numpy()
    return tensor.view(getattr(sys.modules["torch"], extra[0])).numpy().view(extra[1])


def array_to_tensor(array: np.ndarray) -> Any:
    """The same memory as a torch tensor."""
    torch: Any = sys.modules["torch"]
    extra = _EXTRA.get(array.dtype.name)
    if extra is None:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(extra[0])).view(getattr(torch, array.dtype.name))


def as_given(results: list[np.ndarray], given: Sequence[Any]) -> list[Any]:
    """The results as torch tensors when an input is one, else as they are."""
    if any(map(is_tensor, given)):
        return [array_to_tensor(r) for r in results]
    return results
