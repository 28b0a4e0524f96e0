"""The oldest architecture that a compilation names: what kernels may use, and the memory they have."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from graphwright.compiler.target import Target

_CAPABILITY: ContextVar[int] = ContextVar("capability", default=80)


@contextmanager
def emitting_for(target: Target) -> Generator[None]:
    """Within it, `capability` answers for the target."""
    found = [int(a.removeprefix("sm_")) for a in target.arches if a.startswith("sm_")]
    token = _CAPABILITY.set(min(found, default=80))
    try:
        yield
    finally:
        _CAPABILITY.reset(token)


def capability() -> int:
    """80 for sm_80: the least compute capability that the emitted kernels must run on."""
    return _CAPABILITY.get()
