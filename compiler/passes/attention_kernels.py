"""Which attention ops have a kernel: raising makes these, and decompose leaves them alone."""

from __future__ import annotations

from graphwright.compiler.ir.types import TensorType

LARGEST_HEAD = 256  # elements of a head that a GPU's kernel keeps near


def has_kernel(target_kind: str, q: TensorType, v: TensorType) -> bool:
    """Whether attention of these queries and values runs whole on the CPU or on a GPU.

    The CPU widens 16-bit floats.
    """
    if q.dtype.bits > 32:
        return False
    if target_kind == "cpu":
        return True
    sizes = (q.shape[-1], v.shape[-1])
    return all(isinstance(n, int) and 0 < n <= LARGEST_HEAD for n in sizes)
