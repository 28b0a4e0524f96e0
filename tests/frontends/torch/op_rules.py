"""What of the op test is no fault: refusals with a reason, and results that eager does not fix."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch

from graphwright.errors import Problem

# Core ATen that is not imported, and why.
EXCUSED = {
    "_adaptive_avg_pool2d_backward.default": "gradient",
    "_fft_c2r.default": "complex numbers",
    "_fft_r2c.default": "complex numbers",
    "atan2.out": "functional graphs have no out variants",
    "avg_pool2d_backward.default": "gradient",
    "convolution_backward.default": "gradient",
    "embedding_dense_backward.default": "gradient",
    "max_pool2d_with_indices_backward.default": "gradient",
    "native_group_norm_backward.default": "gradient",
    "native_layer_norm_backward.default": "gradient",
    "resize_.default": "functional graphs have no in-place ops",
}

# What a sample may be refused for: the words of the reason, and how the table calls it.
REFUSED = {
    "training mode": "training mode",
    "divisor_override": "divisor_override",
    "unequal lengths": "unequal lengths",
    "sorter": "a sorter",
    "from an edge": "a fractional distance from an edge",
    "no inputs": "no inputs",
    "bools": "sums of bools",
    "want a float type": "integers, where a float type is wanted",
    "want number": "no number",
    "Piecewise": "a size by cases",
    "complex": "complex numbers",
    "outside of its operand": "as_strided of what is no part of the operand",
    "does not lie dense": "as_strided of memory with gaps",
    "filters of unknown size": "a transposed convolution of integers by filters of unknown size",
    "which has no limit": "a running extreme along an axis without a limit",
}
# Entries whose values nobody fixes (memory as it is found, places of equal elements): type and shape
# alone are.
UNDEFINED = (
    "argsort-",
    "empty-", "empty_like-", "empty_permuted-", "empty_strided-", "new_empty-", "new_empty_strided-",
)  # fmt: skip
# Entries whose first result alone is fixed: eager orders equal elements as it likes.
TIED = ("sort-", "topk-", "kthvalue-", "median-", "mode-", "nanmedian-")


@lru_cache(maxsize=1)
def core_ops() -> frozenset[str]:
    """The overloads with the tag `core`."""
    core: set[str] = set()
    for text in torch._C._dispatch_get_all_op_names():
        space, _, rest = text.partition("::")
        base, _, overload = rest.partition(".")
        if space != "aten" or not hasattr(torch.ops.aten, base):
            continue
        op = getattr(getattr(torch.ops.aten, base), overload or "default", None)
        if op is not None and torch.Tag.core in op.tags:
            core.add(str(op).removeprefix("aten."))
    return frozenset(core)


def reason_of_refusal(problem: Problem) -> str:
    """Why a refusal is no fault, or ""."""
    for words, reason in REFUSED.items():
        if words in problem.reason:
            return reason
    missing = re.match(r"the op (\S+) is not supported", problem.reason)
    if missing:
        name = missing[1]
        if name not in core_ops() or name in EXCUSED:
            return f"{name} is not imported"
    return ""


def ways_apart(
    name: str, got: Sequence[Any], want: Sequence[Any],
    difference: Callable[[Sequence[Any], Sequence[Any]], str],
) -> str:  # fmt: skip
    """What is wrong with the results of a call, or ""."""
    if name.startswith(UNDEFINED):
        types = [[(t.dtype, t.shape) for t in ts] for ts in (got, want)]
        return "" if types[0] == types[1] else f"{types[0]}, want {types[1]}"
    if name.startswith(TIED):
        got, want = got[:1], want[:1]
    return difference(got, want)
