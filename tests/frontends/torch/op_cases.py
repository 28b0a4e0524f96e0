"""Cases of the op test: an entry of torch's op database in one dtype, with samples on every kind of memory.

Variants of a sample: `transposed`, `offset` and `expanded` memory, `dynamic` sizes, `empty` along the
first axis, and `scalar`: rank-0 tensors throughout.  One that eager refuses is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from op_samples import Call, calls_of
from torch.testing._internal.common_methods_invocations import op_db

DTYPES = (
    "float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
    "uint16", "uint32", "uint64",
)  # fmt: skip
# Every variant is tried in these; the other dtypes differ in kernels, not in shapes.
VARIED = ("float32", "int64", "bool")
SAMPLES = 4
# Eager itself ends the process on these, or reads memory that is not there.
FATAL = {
    ("_chunk_cat", "empty"), ("_chunk_cat", "scalar"), ("native_group_norm", "expanded"),
}  # fmt: skip
SEED = 5


@dataclass(frozen=True, slots=True)
class OpCase:
    """One entry (its place in op_db) in one dtype."""

    name: str
    entry: int
    dtype: str

    @property
    def info(self) -> Any:
        return op_db[self.entry]

    def calls(self) -> Iterator[tuple[Call, bool]]:
        """(call, whether its sizes are dynamic).  The same values each time."""
        torch.manual_seed(SEED)
        dtype = getattr(torch, self.dtype)
        for number, call in enumerate(list(calls_of(self.info, dtype, SAMPLES))):
            yield call, False
            if self.dtype not in VARIED or number >= 2:
                continue
            yield call, True
            for name, make in VARIANTS.items():
                tensors = make(call.tensors)
                if tensors is not None and (self.info.name, name) not in FATAL:
                    yield Call(f"{call.name}-{name}", call.function, tensors), False


Tensors = tuple[torch.Tensor, ...]


def _each(change: Callable[[torch.Tensor], torch.Tensor], rank: int) -> Callable[..., Any]:
    """Changes the tensors of at least this rank; None where there is none."""

    def make(tensors: Tensors) -> Tensors | None:
        if not any(t.ndim >= rank and t.numel() for t in tensors):
            return None
        return tuple(change(t) if t.ndim >= rank and t.numel() else t for t in tensors)

    return make


VARIANTS: dict[str, Callable[[Tensors], Tensors | None]] = {
    "transposed": _each(lambda t: t.transpose(0, -1).contiguous().transpose(0, -1), 2),
    "offset": _each(lambda t: torch.cat([t.reshape(-1)[:1], t.reshape(-1)])[1:].view(t.shape), 1),
    "expanded": _each(lambda t: t[:1].expand(t.shape), 1),
    "empty": _each(lambda t: t[:0], 1),
    "scalar": _each(lambda t: t.reshape(-1)[0].clone(), 1),
}


@lru_cache(maxsize=1)
def all_op_cases() -> tuple[OpCase, ...]:
    """Every real dtype of every entry of op_db, by name."""
    found: list[OpCase] = []
    for place, info in enumerate(op_db):
        supported = info.supported_dtypes("cpu")
        for dtype in DTYPES:
            if getattr(torch, dtype) in supported:
                found.append(OpCase(f"{info.formatted_name} {dtype}", place, dtype))
    return tuple(sorted(found, key=lambda c: c.name))
